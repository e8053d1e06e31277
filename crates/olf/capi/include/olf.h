// olf: optimistic lock-free lists that compose. The C interface.
//
// This file is generated from the Rust source; a test compares the two.
//
// A list is circular, through a head that is a node itself; nodes are embedded in the caller's objects,
// and nothing is ever allocated for them. All functions that take a member may be called by one
// thread at a time for that member.

#ifndef OLF_H
#define OLF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define OLF_ALIGNED(n) __attribute__((aligned(n)))

// A thread's seat in a group.
typedef struct olf_member olf_member;

// Success.
#define OLF_OK 0

// An older writer interfered; the body of the section has to run again.
#define OLF_RETRY 1

// The node is on a list already.
#define OLF_LINKED -1

// The node is on no list.
#define OLF_NOT_LINKED -2

// The node was used with another group.
#define OLF_FOREIGN -3

// The section changes more nodes than the log holds (128).
#define OLF_LOG_FULL -4

// The member has another section open, or none.
#define OLF_BUSY -5

// The member was reported as failed and undone by another thread: leave, and join anew.
#define OLF_EVICTED -6

// Lists that share counters; room for 64 members.
typedef struct olf_group olf_group;

// A list node or head, to be embedded in an object. Initialise with OLF_NODE_INIT or olf_node_init.
typedef struct OLF_ALIGNED(64) {
  uint64_t opaque[16];
} olf_node;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Makes `node` a node on no list.
//
// # Safety
//
// `node` is writable, and no section can see it.
void olf_node_init(olf_node *node);

// A new group; NULL never. Free it with olf_group_free.
olf_group *olf_group_new(void);

// Frees a group.
//
// # Safety
//
// All members have left.
void olf_group_free(olf_group *group);

// Takes a seat; NULL if all 64 are taken. Give it back with olf_leave.
//
// # Safety
//
// The group outlives the member.
olf_member *olf_join(const olf_group *group);

// Gives a seat back. An open section is ended, without effect.
//
// # Safety
//
// `member` came from olf_join and is not used again.
void olf_leave(olf_member *member);

// Begins a read section. OLF_BUSY if a section is open; OLF_EVICTED if the member was reported dead.
//
// # Safety
//
// `member` came from olf_join.
int32_t olf_read_begin(olf_member *member);

// Ends a read section: pointers that it handed out must not be used any more.
//
// # Safety
//
// `member` came from olf_join.
int32_t olf_read_end(olf_member *member);

// The node behind `node` in the read section's view: `node` itself if it is an empty head.
//
// # Safety
//
// A read section is open, and `node` is a head of its group or was reached in it.
olf_node *olf_read_next(olf_member *member, const olf_node *node);

// The node before `node`; see olf_read_next.
//
// # Safety
//
// As olf_read_next.
olf_node *olf_read_prev(olf_member *member, const olf_node *node);

// Begins a write section. OLF_BUSY if a section is open; OLF_EVICTED if the member was reported dead.
//
// # Safety
//
// `member` came from olf_join.
int32_t olf_write_begin(olf_member *member);

// Commits. OLF_RETRY: nothing happened, run the body again and then call this again.
//
// # Safety
//
// `member` came from olf_join. After any other answer than OLF_RETRY, pointers that the section
// handed out are not used any more.
int32_t olf_write_end(olf_member *member);

// Gives the section up. OLF_RETRY: what it saw was out of date; run the body again.
//
// # Safety
//
// As olf_write_end.
int32_t olf_write_abort(olf_member *member);

// The epoch of the section that is open, or of the last write section: for olf_may_free.
//
// # Safety
//
// `member` came from olf_join.
uint64_t olf_epoch(olf_member *member);

// Whether memory of a node that was unlinked at `epoch` may be freed or reused for something else.
//
// # Safety
//
// `member` came from olf_join.
bool olf_may_free(const olf_member *member,
                  uint64_t epoch);

// Puts `node` behind `at`: at the front of the list, if `at` is its head.
//
// # Safety
//
// `member` came from olf_join. From here on both nodes stay where they are, and their memory is not
// freed before olf_may_free agrees for the epoch of the section that unlinked them.
int32_t olf_list_add(olf_member *member,
                     olf_node *node,
                     olf_node *at);

// Puts `node` before `at`: at the back of the list, if `at` is its head.
//
// # Safety
//
// `member` came from olf_join. From here on both nodes stay where they are, and their memory is not
// freed before olf_may_free agrees for the epoch of the section that unlinked them.
int32_t olf_list_add_tail(olf_member *member,
                          olf_node *node,
                          olf_node *at);

// Puts `node` behind `at` in a singly linked list.
//
// # Safety
//
// `member` came from olf_join. From here on both nodes stay where they are, and their memory is not
// freed before olf_may_free agrees for the epoch of the section that unlinked them.
int32_t olf_chain_add(olf_member *member,
                      olf_node *node,
                      olf_node *at);

// Takes `node` off its doubly linked list.
//
// # Safety
//
// `member` came from olf_join; `node` is initialised.
int32_t olf_list_del(olf_member *member, olf_node *node);

// Takes `node` off its list and puts it behind `at`.
//
// # Safety
//
// As olf_list_add.
int32_t olf_list_move(olf_member *member, olf_node *node, olf_node *at);

// Takes the node behind `at` off its singly linked list. `at` must not be the last node.
//
// # Safety
//
// As olf_list_del.
int32_t olf_chain_del_after(olf_member *member, olf_node *at);

// The node behind `node` as the write section sees it. NULL: go to the end of the section, which
// will ask for another run (or was not open).
//
// # Safety
//
// `member` came from olf_join; `node` is a head or was reached in this section.
olf_node *olf_write_next(olf_member *member,
                         const olf_node *node);

// The node before `node`; see olf_write_next.
//
// # Safety
//
// `member` came from olf_join; `node` is a head or was reached in this section.
olf_node *olf_write_prev(olf_member *member, const olf_node *node);

// As olf_write_next, but not checked at commit: for searches, after which the section changes the
// nodes that its decision rests on.
//
// # Safety
//
// `member` came from olf_join; `node` is a head or was reached in this section.
olf_node *olf_write_glance(olf_member *member,
                           const olf_node *node);

// The number of the member's seat, for olf_report_failed.
//
// # Safety
//
// `member` came from olf_join.
size_t olf_seat(const olf_member *member);

// Reports that the thread at `seat` is dead; olf_recover then ends its section.
//
// # Safety
//
// It is: it takes no further step, and its member is not used again.
void olf_report_failed(const olf_group *group, size_t seat);

// Ends the sections of all members reported as dead; returns how many seats became free.
//
// # Safety
//
// `member` came from olf_join and has no section open.
size_t olf_recover(olf_member *member);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* OLF_H */

// A node on no list, for static objects.
#define OLF_NODE_INIT {{0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 0, 0, 0, 0}}

// The object of type `type` whose member `field` is the node.
#define olf_entry(node, type, field) ((type *)((char *)(node) - offsetof(type, field)))

// Walks a list within a read section.
#define olf_for_each(pos, head, member)                                                            \
  for ((pos) = olf_read_next((member), (head)); (pos) != (head);                                   \
       (pos) = olf_read_next((member), (pos)))

// As olf_read_next, for long walks: no call for a node in its usual state. `epoch` is what
// olf_epoch(member) says within the read section.
static inline olf_node *olf_read_step(olf_member *member, uint64_t epoch, const olf_node *node) {
  uint64_t newest = __atomic_load_n(&node->opaque[0], __ATOMIC_RELAXED);
  if (newest >> 6 > epoch || (newest & 63) > 3) return olf_read_next(member, node);
  uint64_t next = 0;
  // A branch for each slot: the processor predicts it and runs ahead.
  switch (newest & 63) {
  case 0: next = __atomic_load_n(&node->opaque[2], __ATOMIC_RELAXED); __asm__(""); break;
  case 1: next = __atomic_load_n(&node->opaque[3], __ATOMIC_RELAXED); __asm__(""); break;
  case 2: next = __atomic_load_n(&node->opaque[4], __ATOMIC_RELAXED); __asm__(""); break;
  default: next = __atomic_load_n(&node->opaque[5], __ATOMIC_RELAXED);
  }
  if (__builtin_expect(next != 0, 1)) return (olf_node *)(uintptr_t)next;
  __asm__("");
  return (olf_node *)(uintptr_t)node;
}

// As olf_write_glance, for long searches: no call for a node in its usual state.
static inline olf_node *olf_write_step(olf_member *member, const olf_node *node) {
  const uint64_t *words = (const uint64_t *)(const void *)member;
  uint64_t newest = __atomic_load_n(&node->opaque[0], __ATOMIC_RELAXED);
  if (newest >= words[0] || __atomic_load_n(&node->opaque[1], __ATOMIC_RELAXED) != words[1])
    return olf_write_glance(member, node);
#ifdef __x86_64__
  // All four, and a choice without a branch: so none of the loads waits for another one. Lists that are
  // written to in one place after the other defeat the prediction that olf_read_step rests on.
  uint64_t next = __atomic_load_n(&node->opaque[2], __ATOMIC_RELAXED);
  uint64_t next1 = __atomic_load_n(&node->opaque[3], __ATOMIC_RELAXED);
  uint64_t next2 = __atomic_load_n(&node->opaque[4], __ATOMIC_RELAXED);
  uint64_t next3 = __atomic_load_n(&node->opaque[5], __ATOMIC_RELAXED);
  __asm__("{testb $1, %b4|test %b4, 1}\n\t"
          "{cmovnz %2, %0|cmovnz %0, %2}\n\t"
          "{cmovnz %3, %1|cmovnz %1, %3}\n\t"
          "{testb $2, %b4|test %b4, 2}\n\t"
          "{cmovnz %1, %0|cmovnz %0, %1}"
          : "+&r"(next), "+&r"(next2)
          : "r"(next1), "r"(next3), "q"(newest)
          : "cc");
#else
  uint64_t next = __atomic_load_n(&node->opaque[2 + (newest & 3)], __ATOMIC_RELAXED);
#endif
  if (__builtin_expect(next != 0, 1)) return (olf_node *)(uintptr_t)next;
  // A branch, lest the next load wait for this comparison.
  __asm__("");
  return (olf_node *)(uintptr_t)node;
}

// Runs the following block as a write section, again for as long as older writers interfere. Leave it by
// its end only: no break, no return. `status` is an int that becomes OLF_OK or an error.
#define olf_atomically(member, status)                                                             \
  for ((status) = olf_write_begin(member), (status) = (status) == OLF_OK ? OLF_RETRY : (status);   \
       (status) == OLF_RETRY;                                                                      \
       (status) = olf_write_end(member))

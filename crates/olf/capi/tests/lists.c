// Used by tests/c_program.rs: one thread first, then threads that move nodes between two lists while a
// reader counts them. Exits with 0, or says what is wrong.

#include "olf.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NODES 8
#define SECTIONS 3000

#define CHECK(what)                                                                               \
  do {                                                                                            \
    if (!(what)) {                                                                                \
      fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #what);                        \
      exit(1);                                                                                    \
    }                                                                                             \
  } while (0)

struct item {
  int id;
  olf_node link;
};

static olf_node lists[2] = {OLF_NODE_INIT, OLF_NODE_INIT};
static struct item items[NODES];
static olf_group *group;

static void one_thread(void) {
  olf_node fresh;
  olf_node_init(&fresh);
  CHECK(memcmp(&fresh, &lists[0], sizeof fresh) == 0);

  olf_member *m = olf_join(group);
  CHECK(m != NULL);
  CHECK(olf_list_add(m, &items[0].link, &lists[0]) == OLF_BUSY);
  int status;
  olf_atomically(m, status) {
    for (int i = 0; i < NODES; i++) CHECK(olf_list_add_tail(m, &items[i].link, &lists[0]) == OLF_OK);
    CHECK(olf_list_add(m, &items[0].link, &lists[1]) == OLF_LINKED);
  }
  CHECK(status == OLF_OK);

  CHECK(olf_write_begin(m) == OLF_OK);
  CHECK(olf_read_begin(m) == OLF_BUSY);
  CHECK(olf_list_del(m, &items[3].link) == OLF_OK);
  CHECK(olf_list_del(m, &items[3].link) == OLF_NOT_LINKED);
  CHECK(olf_write_next(m, &items[2].link) == &items[4].link);
  CHECK(olf_write_abort(m) == OLF_OK);
  CHECK(olf_write_end(m) == OLF_BUSY);

  CHECK(olf_read_begin(m) == OLF_OK);
  CHECK(olf_write_begin(m) == OLF_BUSY);
  int expected = 0;
  olf_node *pos;
  olf_for_each(pos, &lists[0], m) CHECK(olf_entry(pos, struct item, link)->id == expected++);
  CHECK(expected == NODES);
  CHECK(olf_read_prev(m, &lists[0]) == &items[NODES - 1].link);
  CHECK(olf_read_end(m) == OLF_OK);
  olf_leave(m);
}

static void *mover(void *seed) {
  olf_member *m = olf_join(group);
  unsigned random = (unsigned)(size_t)seed;
  for (int i = 0; i < SECTIONS; i++) {
    struct item *item = &items[rand_r(&random) % NODES];
    olf_node *to = &lists[rand_r(&random) % 2];
    int status;
    olf_atomically(m, status) {
      // The inline step goes where the call goes, before and after the section's own changes.
      olf_node *at = to;
      do {
        olf_node *next = olf_write_glance(m, at), *same = olf_write_step(m, at);
        // Both are of one view, unless the section lost it between the two.
        CHECK(next == NULL || same == NULL || next == same);
        if (next == NULL) break;
        at = next;
      } while (at != to);
      olf_list_move(m, &item->link, to);
      CHECK(olf_write_step(m, to) == olf_write_glance(m, to));
    }
    CHECK(status == OLF_OK);
  }
  olf_leave(m);
  return NULL;
}

static void *counter(void *unused) {
  olf_member *m = olf_join(group);
  for (int i = 0; i < SECTIONS; i++) {
    int n = 0;
    olf_node *pos;
    olf_read_begin(m);
    olf_for_each(pos, &lists[0], m) n++;
    olf_for_each(pos, &lists[1], m) n++;
    uint64_t epoch = olf_epoch(m);
    pos = &lists[0];
    do {
      CHECK(olf_read_step(m, epoch, pos) == olf_read_next(m, pos));
      pos = olf_read_step(m, epoch, pos);
    } while (pos != &lists[0]);
    olf_read_end(m);
    CHECK(n == NODES);
  }
  olf_leave(m);
  return unused;
}

// A thread that dies in the middle of a section leaves no trace, and holds nobody up.
static void death(void) {
  olf_member *dead = olf_join(group), *m = olf_join(group);
  CHECK(olf_write_begin(dead) == OLF_OK);
  CHECK(olf_list_del(dead, &items[0].link) == OLF_OK);
  olf_report_failed(group, olf_seat(dead));
  CHECK(olf_recover(m) == 1);
  int n = 0;
  olf_node *pos;
  olf_read_begin(m);
  olf_for_each(pos, &lists[0], m) n++;
  olf_for_each(pos, &lists[1], m) n++;
  olf_read_end(m);
  CHECK(n == NODES);
  // One who was only thought dead is told.
  CHECK(olf_write_end(dead) == OLF_EVICTED);
  CHECK(olf_write_begin(dead) == OLF_EVICTED);
  CHECK(olf_read_begin(dead) == OLF_EVICTED);
  olf_leave(dead);
  olf_leave(m);
}

int main(void) {
  group = olf_group_new();
  for (int i = 0; i < NODES; i++) {
    items[i].id = i;
    olf_node_init(&items[i].link);
  }
  one_thread();
  pthread_t threads[4];
  for (size_t i = 0; i < 3; i++) pthread_create(&threads[i], NULL, mover, (void *)(i + 1));
  pthread_create(&threads[3], NULL, counter, NULL);
  for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
  death();

  olf_member *m = olf_join(group);
  for (int i = 0; i < NODES; i++) {
    int status;
    olf_atomically(m, status) CHECK(olf_list_del(m, &items[i].link) != OLF_NOT_LINKED);
    CHECK(status == OLF_OK);
    CHECK(olf_may_free(m, olf_epoch(m)));
  }
  olf_leave(m);
  olf_group_free(group);
  puts("ok");
  return 0;
}

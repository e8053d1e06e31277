// Several lists in C: moves (figure 8.13) and a structure like the dcache (for figure 8.14); olf by its C
// interface, and plain lists behind a pthread spinlock, mutex and rwlock. The same cases as src/several.rs.
// Prints lines as olf-bench does. Usage: several MILLISECONDS REPEATS

#include "olf.h"

#include "clock.h"

#define EACH 100    // nodes for each thread
#define NAMES 64    // names for each thread
#define BUCKETS 64
#define MOST_NODES (4 * NAMES * MOST_THREADS)
#define MOST_LISTS (BUCKETS + MOST_THREADS + NAMES * MOST_THREADS / 4 + 1)

// --- Plain lists behind a lock -----------------------------------------------------------------

struct plain {
  struct plain *next, *prev;
  size_t number; // SIZE_MAX: a head
} __attribute__((aligned(32)));

static struct plain plain[MOST_NODES], plain_heads[MOST_LISTS];

static void plain_before(struct plain *at, struct plain *node) {
  node->next = at;
  node->prev = at->prev;
  at->prev->next = node;
  at->prev = node;
}

static void plain_take(struct plain *node) {
  node->prev->next = node->next;
  node->next->prev = node->prev;
}

static struct plain *plain_from(size_t list, size_t number) {
  struct plain *at = plain_heads[list].next;
  while (at->number < number) at = at->next;
  return at;
}

static pthread_spinlock_t spin;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;

enum kind { OLF, SPINLOCK, MUTEX, RWLOCK, KINDS };
static const char *const names[KINDS] = {"olf", "spinlock", "mutex", "rwlock"};
static enum kind kind;

static void lock(bool to_write) {
  if (kind == SPINLOCK) pthread_spin_lock(&spin);
  else if (kind == MUTEX) pthread_mutex_lock(&mutex);
  else if (to_write) pthread_rwlock_wrlock(&rwlock);
  else pthread_rwlock_rdlock(&rwlock);
}

static void unlock(void) {
  if (kind == SPINLOCK) pthread_spin_unlock(&spin);
  else if (kind == MUTEX) pthread_mutex_unlock(&mutex);
  else pthread_rwlock_unlock(&rwlock);
}

// --- olf -----------------------------------------------------------------------------------------

struct item {
  olf_node link;
  size_t number;
};

static struct item items[MOST_NODES];
static olf_node heads[MOST_LISTS];
static olf_group *group;

static size_t number_of(olf_node *node) { return olf_entry(node, struct item, link)->number; }

// NULL: go to the end of the section.
static olf_node *olf_from(olf_member *m, size_t list, size_t number) {
  olf_node *at = olf_write_step(m, &heads[list]);
  while (at && at != &heads[list] && number_of(at) < number) at = olf_write_step(m, at);
  return at;
}

// --- The operations, each of which is atomic -----------------------------------------------------

struct place {
  size_t node, list;
};

static void link_all(olf_member *m, const struct place *places, size_t n) {
  if (kind == OLF) {
    int status;
    olf_atomically(m, status) for (size_t i = 0; i < n; i++)
      olf_list_add_tail(m, &items[places[i].node].link, &heads[places[i].list]);
    return;
  }
  lock(true);
  for (size_t i = 0; i < n; i++)
    plain_before(&plain_heads[places[i].list], &plain[places[i].node]);
  unlock();
}

static void unlink_all(olf_member *m, const struct place *places, size_t n) {
  if (kind == OLF) {
    int status;
    olf_atomically(m, status) for (size_t i = 0; i < n; i++)
      olf_list_del(m, &items[places[i].node].link);
    return;
  }
  lock(true);
  for (size_t i = 0; i < n; i++) plain_take(&plain[places[i].node]);
  unlock();
}

static void move_to(olf_member *m, size_t node, size_t list) {
  if (kind == OLF) {
    int status;
    olf_atomically(m, status) if (olf_list_del(m, &items[node].link) == OLF_OK)
      olf_list_add_tail(m, &items[node].link, &heads[list]);
    return;
  }
  lock(true);
  plain_take(&plain[node]);
  plain_before(&plain_heads[list], &plain[node]);
  unlock();
}

static void find_and_move(olf_member *m, size_t node, size_t from, size_t to) {
  if (kind == OLF) {
    int status;
    olf_atomically(m, status) {
      olf_node *found = olf_from(m, from, node);
      if (found && found != &heads[from] && number_of(found) == node) {
        olf_node *at = olf_from(m, to, node);
        if (at && olf_list_del(m, found) == OLF_OK) olf_list_add_tail(m, found, at);
      }
    }
    return;
  }
  lock(true);
  struct plain *found = plain_from(from, node);
  if (found->number == node) {
    struct plain *at = plain_from(to, node);
    plain_take(found);
    plain_before(at, found);
  }
  unlock();
}

static bool lookup(olf_member *m, size_t list, size_t node) {
  bool found;
  if (kind == OLF) {
    olf_read_begin(m);
    uint64_t epoch = olf_epoch(m);
    olf_node *at = olf_read_step(m, epoch, &heads[list]);
    while (at != &heads[list] && number_of(at) != node) at = olf_read_step(m, epoch, at);
    found = at != &heads[list];
    olf_read_end(m);
    return found;
  }
  lock(false);
  struct plain *at = plain_heads[list].next;
  while (at != &plain_heads[list] && at->number != node) at = at->next;
  found = at != &plain_heads[list];
  unlock();
  return found;
}

// --- The experiments -----------------------------------------------------------------------------

enum experiment { MOVE, FIND_AND_MOVE, GROWN, DCACHE_LINK, DCACHE_LOOKUP, EXPERIMENTS };
static const char *const titles[EXPERIMENTS] = {"move", "find and move", "find and move grown",
                                                "dcache link", "dcache 90% lookup"};
static enum experiment experiment;
static size_t all_threads;

// The four places of a name: hash bucket, directory, inode, least recently used.
static void places_of(size_t name, struct place *places) {
  size_t inodes = BUCKETS + all_threads, lru = inodes + NAMES * all_threads / 4;
  size_t lists[4] = {(uint64_t)name * 0x9E3779B1 % BUCKETS, BUCKETS + name / NAMES,
                     inodes + name / 4, lru};
  for (size_t i = 0; i < 4; i++) places[i] = (struct place){4 * name + i, lists[i]};
}

static void *work(void *argument) {
  size_t number = (size_t)argument, done = 0, hits = 0, at[NAMES > EACH ? NAMES : EACH];
  uint64_t random = seeded(number);
  olf_member *m = kind == OLF ? olf_join(group) : NULL;
  for (size_t i = 0; i < EACH; i++) at[i] = (number * EACH + i) % 2;
  if (experiment >= DCACHE_LINK)
    for (size_t i = 0; i < NAMES; i++) at[i] = i % 2 == 0;
  wait_for_start();
  for (; goes_on(); done += 16) {
    for (int turn = 0; turn < 16; turn++) {
      if (experiment == MOVE) {
        size_t i = below(&random, EACH);
        at[i] = 1 - at[i];
        move_to(m, number * EACH + i, at[i]);
      } else if (experiment < DCACHE_LINK) {
        size_t nodes = experiment == GROWN ? EACH * all_threads : EACH;
        size_t node = below(&random, nodes), from = below(&random, 2);
        find_and_move(m, node, from, 1 - from);
      } else {
        size_t i = below(&random, NAMES);
        struct place places[4];
        places_of(number * NAMES + i, places);
        if (below(&random, 100) < (experiment == DCACHE_LOOKUP ? 90 : 0)) {
          hits += lookup(m, places[0].list, places[0].node);
        } else {
          if (at[i]) unlink_all(m, places, 4);
          else link_all(m, places, 4);
          at[i] = !at[i];
        }
      }
    }
  }
  olf_leave(m);
  // The hits are used so that no search can be left out.
  return (void *)(done + (hits == SIZE_MAX));
}

static double measure(int threads, long milliseconds) {
  all_threads = (size_t)threads;
  group = olf_group_new();
  for (size_t i = 0; i < MOST_NODES; i++) {
    olf_node_init(&items[i].link);
    items[i].number = plain[i].number = i;
  }
  for (size_t i = 0; i < MOST_LISTS; i++) {
    olf_node_init(&heads[i]);
    plain_heads[i] = (struct plain){&plain_heads[i], &plain_heads[i], SIZE_MAX};
  }
  olf_member *m = olf_join(group);
  if (experiment >= DCACHE_LINK) {
    struct place places[4];
    for (size_t name = 0; name < NAMES * all_threads; name += 2) {
      places_of(name, places);
      link_all(m, places, 4);
    }
  } else {
    size_t nodes = experiment == FIND_AND_MOVE ? EACH : EACH * all_threads;
    for (size_t i = 0; i < nodes; i++) link_all(m, &(struct place){i, i % 2}, 1);
  }
  olf_leave(m);
  double ns = run(threads, milliseconds, work);
  olf_group_free(group);
  return ns;
}

int main(int argc, char **argv) {
  long milliseconds = argc > 1 ? atol(argv[1]) : 100;
  int repeats = argc > 2 ? atoi(argv[2]) : 5;
  pthread_spin_init(&spin, PTHREAD_PROCESS_PRIVATE);
  for (experiment = 0; experiment < EXPERIMENTS; experiment++) {
    for (int threads = 1; threads <= MOST_THREADS; threads *= 2) {
      for (kind = 0; kind < KINDS; kind++) {
        double best = 1e18;
        for (int i = 0; i < repeats; i++) {
          double ns = measure(threads, milliseconds);
          if (ns < best) best = ns;
        }
        printf("%s,C,%s,%d,%.1f\n", titles[experiment], names[kind], threads, best);
        fflush(stdout);
      }
    }
  }
  return 0;
}

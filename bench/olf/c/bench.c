// Table 8.4 in C: olf by its C interface, and one list behind a pthread spinlock, mutex and rwlock. Prints
// lines as olf-bench does. Usage: bench MILLISECONDS REPEATS

#include "olf.h"

#include "clock.h"

#define LENGTH 100
#define KEYS (2 * LENGTH)

// --- The list behind a lock ------------------------------------------------------------------

struct plain {
  struct plain *next;
  uint64_t key;
} __attribute__((aligned(32)));

static struct plain plain[KEYS], plain_head;
static pthread_spinlock_t spin;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;

static struct plain *plain_before(uint64_t key) {
  struct plain *before = &plain_head;
  while (before->next != &plain_head && before->next->key < key) before = before->next;
  return before;
}

enum op { SEARCH, INSERT, REMOVE };

static bool plain_op(enum op op, uint64_t key) {
  struct plain *before = plain_before(key), *at = before->next;
  bool found = at != &plain_head && at->key == key;
  if (op == INSERT && !found) {
    plain[key].next = at;
    before->next = &plain[key];
  } else if (op == REMOVE && found) {
    before->next = at->next;
  }
  return found;
}

// --- olf --------------------------------------------------------------------------------------

struct keyed {
  olf_node link;
  uint64_t key;
};

static struct keyed keyed[KEYS];
static olf_node head = OLF_NODE_INIT;
static olf_group *group;

static uint64_t key_of(olf_node *node) { return olf_entry(node, struct keyed, link)->key; }

static bool olf_search(olf_member *m, uint64_t key) {
  olf_node *at;
  olf_read_begin(m);
  uint64_t epoch = olf_epoch(m);
  for (at = olf_read_step(m, epoch, &head); at != &head; at = olf_read_step(m, epoch, at))
    if (key_of(at) >= key) break;
  bool found = at != &head && key_of(at) == key;
  olf_read_end(m);
  return found;
}

static bool olf_change(olf_member *m, enum op op, uint64_t key) {
  bool found = false;
  int status;
  olf_atomically(m, status) {
    olf_node *before = &head, *at = olf_write_step(m, before);
    while (at && at != &head && key_of(at) < key) {
      before = at;
      at = olf_write_step(m, before);
    }
    if (!at) continue;
    found = at != &head && key_of(at) == key;
    if (op == INSERT && !found) olf_chain_add(m, &keyed[key].link, before);
    if (op == REMOVE && found) olf_chain_del_after(m, before);
  }
  return found;
}

// --- Measuring --------------------------------------------------------------------------------

enum kind { OLF, SPINLOCK, MUTEX, RWLOCK, KINDS };
static const char *const names[KINDS] = {"olf", "spinlock", "mutex", "rwlock"};

static enum kind kind;
static unsigned write_percent;

static bool operate(olf_member *m, enum op op, uint64_t key) {
  bool found;
  switch (kind) {
  case OLF:
    return op == SEARCH ? olf_search(m, key) : olf_change(m, op, key);
  case SPINLOCK:
    pthread_spin_lock(&spin);
    found = plain_op(op, key);
    pthread_spin_unlock(&spin);
    return found;
  case MUTEX:
    pthread_mutex_lock(&mutex);
    found = plain_op(op, key);
    pthread_mutex_unlock(&mutex);
    return found;
  default:
    if (op == SEARCH) pthread_rwlock_rdlock(&rwlock);
    else pthread_rwlock_wrlock(&rwlock);
    found = plain_op(op, key);
    pthread_rwlock_unlock(&rwlock);
    return found;
  }
}

static void *work(void *number) {
  uint64_t random = seeded(100 + (size_t)number), done = 0, hits = 0;
  olf_member *m = kind == OLF ? olf_join(group) : NULL;
  wait_for_start();
  while (goes_on()) {
    for (int i = 0; i < 16; i++) {
      uint64_t key = below(&random, KEYS), dice = below(&random, 200);
      enum op op = dice >= 2 * write_percent ? SEARCH : dice % 2 ? REMOVE : INSERT;
      hits += operate(m, op, key);
    }
    done += 16;
  }
  olf_leave(m);
  // The hits are used so that no search can be left out.
  return (void *)(done + (hits == UINT64_MAX));
}

static double measure(int threads, long milliseconds) {
  uint64_t random = seeded(1);
  plain_head.next = &plain_head;
  group = olf_group_new();
  olf_node_init(&head);
  for (uint64_t k = 0; k < KEYS; k++) {
    plain[k].key = keyed[k].key = k;
    olf_node_init(&keyed[k].link);
  }
  olf_member *m = olf_join(group);
  for (int n = 0; n < LENGTH; n += !operate(m, INSERT, below(&random, KEYS))) continue;
  olf_leave(m);

  double ns = run(threads, milliseconds, work);
  olf_group_free(group);
  return ns;
}

int main(int argc, char **argv) {
  long milliseconds = argc > 1 ? atol(argv[1]) : 100;
  int repeats = argc > 2 ? atoi(argv[2]) : 5;
  pthread_spin_init(&spin, PTHREAD_PROCESS_PRIVATE);
  static const unsigned mixes[] = {0, 10, 100};
  for (int w = 0; w < 3; w++) {
    for (int threads = 1; threads <= MOST_THREADS; threads *= 2) {
      for (kind = 0; kind < KINDS; kind++) {
        double best = 1e18;
        write_percent = mixes[w];
        for (int i = 0; i < repeats; i++) {
          double ns = measure(threads, milliseconds);
          if (ns < best) best = ns;
        }
        printf("list %u,C,%s,%d,%.1f\n", write_percent, names[kind], threads, best);
        fflush(stdout);
      }
    }
  }
  return 0;
}

// Random numbers, threads that run for a while, and the time they take: as src/rng.rs and src/clock.rs.

#ifndef OLF_BENCH_CLOCK_H
#define OLF_BENCH_CLOCK_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define MOST_THREADS 16

static inline uint64_t below(uint64_t *state, uint64_t n) {
  *state ^= *state << 13;
  *state ^= *state >> 7;
  *state ^= *state << 17;
  return (uint64_t)(((unsigned __int128)*state * n) >> 64);
}

static inline uint64_t seeded(uint64_t seed) {
  return (seed + 1) * UINT64_C(0x9E3779B97F4A7C15) | 1;
}

static atomic_bool stop;
static pthread_barrier_t barrier;

static inline void wait_for_start(void) { pthread_barrier_wait(&barrier); }
static inline bool goes_on(void) { return !atomic_load_explicit(&stop, memory_order_relaxed); }

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

// Runs `work(number)` on so many threads, each of which calls wait_for_start, works while goes_on, and
// returns the number of its operations. The average time of one, times the number of threads, in ns.
static double run(int threads, long milliseconds, void *(*work)(void *)) {
  atomic_store(&stop, false);
  pthread_barrier_init(&barrier, NULL, (unsigned)threads + 1);
  pthread_t thread[MOST_THREADS];
  for (size_t i = 0; i < (size_t)threads; i++) pthread_create(&thread[i], NULL, work, (void *)i);
  double began = now();
  pthread_barrier_wait(&barrier);
  struct timespec pause = {milliseconds / 1000, milliseconds % 1000 * 1000000};
  nanosleep(&pause, NULL);
  atomic_store(&stop, true);
  double operations = 1;
  for (int i = 0; i < threads; i++) {
    void *done;
    pthread_join(thread[i], &done);
    operations += (double)(size_t)done;
  }
  double ns = (now() - began) * threads / operations;
  pthread_barrier_destroy(&barrier);
  return ns;
}

#endif

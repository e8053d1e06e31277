// Several threads, each with transactions of its own; how threads begin and end inside.
#include "check.h"

#include <pthread.h>

#define PLAIN (TX_NO_USER_ROLLBACK | TX_NONDURABLE)

static pthread_barrier_t barrier;

static void *each_its_own(void *argument) {
    int number = (int)(long)argument;
    char name[16];
    snprintf(name, sizeof name, "file%d", number);
    CHECK_EQ(sys_xbegin(PLAIN), 0);
    put(name, name);
    pthread_barrier_wait(&barrier);
    // It does not see the others'. (Who looked and commits would lose to them.)
    for (int i = 0; number == 2 && i < 3; i++) {
        char other[16];
        snprintf(other, sizeof other, "file%d", i);
        CHECK_EQ(exists(other), i == number);
    }
    pthread_barrier_wait(&barrier);
    if (number == 2) sys_xabort(1);
    else CHECK_EQ(sys_xend(), 0);
    return NULL;
}

static void several_at_once(void) {
    pthread_t threads[3];
    pthread_barrier_init(&barrier, NULL, 3);
    for (long i = 0; i < 3; i++) CHECK_EQ(pthread_create(&threads[i], NULL, each_its_own, (void *)i), 0);
    for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
    CHECK(is("file0", "file0") && is("file1", "file1") && !exists("file2"));
}

static void *idle(void *argument) {
    (void)argument;
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    return NULL;
}

static void rollback_needs_a_single_thread(void) {
    pthread_t thread;
    pthread_barrier_init(&barrier, NULL, 2);
    CHECK_EQ(pthread_create(&thread, NULL, idle, NULL), 0);
    pthread_barrier_wait(&barrier);
    CHECK_EQ(sys_xbegin(TX_DEFAULTS), -ENOTXSUPPORT);
    CHECK_EQ(sys_xbegin(PLAIN), 0);
    CHECK_EQ(sys_xend(), 0);
    pthread_barrier_wait(&barrier);
    pthread_join(thread, NULL);
    CHECK_EQ(sys_xbegin(TX_DEFAULTS), 0);
    CHECK_EQ(sys_xend(), 0);
}

static void *adds(void *argument) {
    (void)argument;
    for (int i = 0; i < 5; i++) {
        int result;
        do {
            CHECK_THAT(sys_xbegin(PLAIN), >=, 0);
            int fd = open("counter", O_RDWR | O_CREAT, 0644);
            char text[16] = "";
            if (fd >= 0 && read(fd, text, 15) >= 0) {
                snprintf(text, sizeof text, "%d", atoi(text) + 1);
                if (pwrite(fd, text, strlen(text), 0) < 0) text[0] = 0;
            }
            close(fd);
            result = sys_xend();
        } while (result == -EAGAIN);
        CHECK_EQ(result, 0);
    }
    return NULL;
}

static void counting_together(void) {
    pthread_t threads[4];
    tx_set_max_retries(100000);
    for (int i = 0; i < 4; i++) CHECK_EQ(pthread_create(&threads[i], NULL, adds, NULL), 0);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    CHECK(is("counter", "20"));
}

static void *ends_inside(void *argument) {
    (void)argument;
    CHECK_EQ(sys_xbegin(PLAIN), 0);
    put("ended", "x");
    return NULL;
}

static void a_thread_that_ends_has_ended_it(void) {
    pthread_t thread;
    CHECK_EQ(pthread_create(&thread, NULL, ends_inside, NULL), 0);
    pthread_join(thread, NULL);
    CHECK(exists("ended"));
}

static void *writes(void *argument) {
    (void)argument;
    usleep(50000);
    put("by_the_new", "x");
    return NULL;
}

static void a_thread_started_inside_belongs_to_it(void) {
    pthread_t thread;
    outsider_start();
    CHECK_EQ(sys_xbegin(PLAIN), 0);
    put("by_the_old", "x");
    CHECK_EQ(pthread_create(&thread, NULL, writes, NULL), 0);
    CHECK_EQ(outsider("test ! -e by_the_new -a ! -e by_the_old"), 0);
    CHECK_EQ(sys_xend(), 0);
    CHECK(exists("by_the_new") && exists("by_the_old"));
    pthread_join(thread, NULL);
    CHECK_EQ(sys_xbegin(PLAIN), 0);
    CHECK_EQ(sys_xend(), 0);
}

int main(int argc, char **argv) {
    const struct test tests[] = {
        {"several_at_once", several_at_once},
        {"rollback_needs_a_single_thread", rollback_needs_a_single_thread},
        {"counting_together", counting_together},
        {"a_thread_that_ends_has_ended_it", a_thread_that_ends_has_ended_it},
        {"a_thread_started_inside_belongs_to_it", a_thread_started_inside_belongs_to_it},
        {NULL, NULL},
    };
    return run_cases(argc, argv, tests);
}

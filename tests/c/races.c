// Order of commits; signal handlers; races that are none inside.
#include "check.h"

#include <dirent.h>
#include <pthread.h>
#include <signal.h>

#define PLAIN (TX_NO_USER_ROLLBACK | TX_NONDURABLE)
#define THREADS 8

// A log of requests: each adds its number to a list, the longer the list the more. Any order of execution
// but the serial one gives another list.
#define REQUESTS 24

static int next_request;
static pthread_mutex_t pick = PTHREAD_MUTEX_INITIALIZER;

static void *serves(void *argument) {
    unsigned seed = (unsigned)(long)argument * 7919 + 1;
    for (;;) {
        pthread_mutex_lock(&pick);
        int request = next_request++;
        pthread_mutex_unlock(&pick);
        if (request >= REQUESTS) return NULL;
        int result;
        do {
            usleep(rand_r(&seed) % 3000);
            int begun = sys_xbegin_ordered(PLAIN, 42, (uint64_t)request);
            CHECK_THAT(begun, >=, 0);
            char text[4096] = "";
            int fd = open("list", O_RDONLY);
            ssize_t length = fd < 0 ? 0 : read(fd, text, sizeof text - 1);
            close(fd);
            fd = open("list", O_WRONLY | O_CREAT | O_APPEND, 0644);
            dprintf(fd, "%d:%zd ", request, length);
            close(fd);
            result = sys_xend();
        } while (result == -EAGAIN);
        CHECK_EQ(result, 0);
    }
}

static void ordered_commit_is_serial(void) {
    tx_set_max_retries(100000);
    pthread_t threads[THREADS];
    for (long i = 0; i < THREADS; i++) CHECK_EQ(pthread_create(&threads[i], NULL, serves, (void *)i), 0);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    char serial[4096] = "";
    for (int i = 0; i < REQUESTS; i++) {
        size_t length = strlen(serial);
        snprintf(serial + length, sizeof serial - length, "%d:%zu ", i, length);
    }
    CHECK(is("list", serial));
    CHECK_EQ(sys_xbegin_ordered(PLAIN, 42, 3), -EEXIST);
    CHECK_EQ(sys_xbegin_ordered(PLAIN, 43, 0), 0);
    sys_xabort(1); // passed over
    CHECK_EQ(sys_xbegin_ordered(PLAIN, 43, 1), 0);
    CHECK_EQ(sys_xend(), 0);
}

static volatile int has_read, has_changed;

static void *loses_and_leaves(void *argument) {
    CHECK_EQ(sys_xbegin_ordered(PLAIN, 44, 0), 0);
    CHECK(is("contested", "old"));
    put("copy", "x");
    has_read = 1;
    while (!has_changed) usleep(1000);
    CHECK_EQ(sys_xend(), -EAGAIN);
    return argument; // and never runs again
}

static void one_that_lost_and_leaves_is_passed_over(void) {
    put("contested", "old");
    pthread_t thread;
    CHECK_EQ(pthread_create(&thread, NULL, loses_and_leaves, NULL), 0);
    while (!has_read) usleep(1000);
    put("contested", "new");
    has_changed = 1;
    pthread_join(thread, NULL);
    CHECK_EQ(sys_xbegin_ordered(PLAIN, 44, 1), 0);
    CHECK_EQ(sys_xend(), 0);
    CHECK(!exists("copy"));
}

static void one_that_ends_before_its_turn_is_passed_over(void) {
    pid_t pid = fork();
    if (pid == 0) {
        CHECK_EQ(sys_xbegin_ordered(PLAIN, 7, 5), 0);
        put("early", "x");
        _exit(0); // its session ends too, or the test finds it
    }
    CHECK_EQ(waitpid(pid, NULL, 0), pid);
    usleep(300000);
    CHECK(!exists("early"));
}

// A handler that is interrupted half-way by itself and another, as in Zalewski's attack on screen.
static volatile int in_handler, reentered, rounds, transactional;

static void handler(int signal) {
    (void)signal;
    if (transactional) CHECK_EQ(sys_xbegin(PLAIN | TX_DEFER_SIGNALS), 0);
    if (in_handler) reentered++;
    in_handler = 1;
    if (rounds-- > 0) {
        raise(SIGUSR1);
        raise(SIGUSR2);
    }
    put("handled", "x");
    in_handler = 0;
    if (transactional) CHECK_EQ(sys_xend(), 0);
}

static void handlers_are_atomic(void) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_NODEFER};
    CHECK_EQ(sigaction(SIGUSR1, &action, NULL), 0);
    CHECK_EQ(sigaction(SIGUSR2, &action, NULL), 0);
    rounds = 3;
    raise(SIGUSR1);
    CHECK_THAT(reentered, >, 0); // without a transaction the attack works
    reentered = 0;
    transactional = 1;
    rounds = 3;
    raise(SIGUSR1);
    CHECK_EQ(reentered, 0);
    CHECK(rounds < 0 && exists("handled"));
}

// Sendmail's: what a handler frees is freed again by one that interrupts it.
static char *volatile block;
static volatile int freed_twice;

static void frees(int signal) {
    (void)signal;
    if (transactional) CHECK_EQ(sys_xbegin(PLAIN | TX_DEFER_SIGNALS), 0);
    char *mine = block;
    if (mine) {
        if (rounds-- > 0) raise(SIGUSR2);
        if (block != mine) freed_twice++;
        block = NULL;
    }
    if (transactional) CHECK_EQ(sys_xend(), 0);
}

static void no_double_free_in_handlers(void) {
    struct sigaction action = {.sa_handler = frees, .sa_flags = SA_NODEFER};
    CHECK_EQ(sigaction(SIGUSR1, &action, NULL), 0);
    CHECK_EQ(sigaction(SIGUSR2, &action, NULL), 0);
    static char memory[1];
    for (transactional = 0; transactional < 2; transactional++) {
        block = memory;
        rounds = 1;
        freed_twice = 0;
        raise(SIGUSR1);
        CHECK_EQ(freed_twice, !transactional);
        CHECK(block == NULL);
    }
}

// The victim of a symlink race: it looks with access() and opens afterwards.
static void the_symlink_race(void) {
    outsider_start();
    put("secret", "secret");
    put("mine", "mine");
    CHECK_EQ(symlink("mine", "spool"), 0);
    // Natively the attacker wins.
    CHECK_EQ(access("spool", R_OK), 0);
    CHECK_EQ(outsider("ln -sf secret spool"), 0);
    CHECK(is("spool", "secret"));
    CHECK_EQ(outsider("ln -sf mine spool"), 0);
    int tries = 0, result;
    char seen[64];
    do {
        CHECK_THAT(sys_xbegin(PLAIN), >=, 0);
        CHECK_EQ(access("spool", R_OK), 0);
        if (tries++ == 0) CHECK_EQ(outsider("ln -sf secret spool"), 0);
        snprintf(seen, sizeof seen, "%s", get("spool"));
        // What was looked at is what is opened.
        CHECK(tries > 1 || strcmp(seen, "mine") == 0);
        result = sys_xend();
    } while (result == -EAGAIN);
    CHECK_EQ(result, 0);
    CHECK_EQ(tries, 2);
    CHECK(strcmp(seen, "secret") == 0);
}

static void *renames(void *argument) {
    int number = (int)(long)argument;
    for (int i = 0; i < 5; i++) {
        char from[32], to[32];
        snprintf(from, sizeof from, "a/%d", number);
        snprintf(to, sizeof to, "b/%d", number);
        int result;
        do {
            CHECK_THAT(sys_xbegin(PLAIN), >=, 0);
            CHECK_EQ(link(from, to), 0);
            CHECK_EQ(unlink(from), 0);
            result = sys_xend();
        } while (result == -EAGAIN);
        CHECK_EQ(result, 0);
        CHECK_EQ(rename(to, from), 0);
    }
    return NULL;
}

static int entries(const char *path) {
    int count = 0;
    DIR *dir = opendir(path);
    CHECK(dir);
    while (readdir(dir)) count++;
    closedir(dir);
    return count - 2;
}

static void rename_as_link_and_unlink(void) {
    CHECK_EQ(mkdir("a", 0755), 0);
    CHECK_EQ(mkdir("b", 0755), 0);
    tx_set_max_retries(100000);
    for (int i = 0; i < 4; i++) {
        char name[32];
        snprintf(name, sizeof name, "a/%d", i);
        put(name, name);
    }
    pthread_t threads[4];
    for (long i = 0; i < 4; i++) CHECK_EQ(pthread_create(&threads[i], NULL, renames, (void *)i), 0);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    CHECK_EQ(entries("a"), 4);
    CHECK_EQ(entries("b"), 0);
    CHECK(is("a/3", "a/3"));
}

int main(int argc, char **argv) {
    const struct test tests[] = {
        {"ordered_commit_is_serial", ordered_commit_is_serial},
        {"one_that_lost_and_leaves_is_passed_over", one_that_lost_and_leaves_is_passed_over},
        {"one_that_ends_before_its_turn_is_passed_over",
         one_that_ends_before_its_turn_is_passed_over},
        {"handlers_are_atomic", handlers_are_atomic},
        {"no_double_free_in_handlers", no_double_free_in_handlers},
        {"the_symlink_race", the_symlink_race},
        {"rename_as_link_and_unlink", rename_as_link_and_unlink},
        {NULL, NULL},
    };
    return run_cases(argc, argv, tests);
}

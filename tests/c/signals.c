// Signals that come from outside while a transaction runs: every sentence of sys_xbegin(2) about what a
// rollback makes of them.
#include "check.h"

#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/time.h>

#define FLAGS TX_NONDURABLE

// What is rolled back, and what is not.
static volatile sig_atomic_t handled, value, sender;
struct shared {
    volatile int runs, ready;
};
static struct shared *shared;

static void handler(int signal) {
    (void)signal;
    handled++;
    shared->runs++;
    int fd = open("handled", O_WRONLY | O_CREAT | O_APPEND, 0644);
    CHECK_EQ(write(fd, "x", 1), 1);
    close(fd);
}

static void detailed(int signal, siginfo_t *info, void *context) {
    (void)context;
    handler(signal);
    value = info->si_value.sival_int;
    sender = info->si_pid;
}

static void prepare(void) {
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(shared != MAP_FAILED);
    outsider_start();
}

static void from_outside(const char *signal) {
    char command[64];
    snprintf(command, sizeof command, "kill -%s %d", signal, getpid());
    CHECK_EQ(outsider(command), 0);
}

static void it_is_delivered_again_in_the_next_try(void) {
    prepare();
    signal(SIGUSR1, handler);
    int tries = sys_xbegin(FLAGS);
    if (tries == 0) {
        CHECK_EQ(handled, 0);
        from_outside("USR1");
        CHECK_EQ(handled, 1);
        CHECK(is("handled", "x"));
        sys_xabort(0);
    }
    CHECK_EQ(tries, 1);
    // Its work in memory and in files was undone, and done again.
    CHECK_EQ(handled, 1);
    CHECK_EQ(shared->runs, 2);
    CHECK(is("handled", "x"));
    CHECK_EQ(sys_xend(), 0);
    CHECK_EQ(handled, 1);
    CHECK(is("handled", "x"));
}

static void each_rollback_delivers_it_again(void) {
    prepare();
    signal(SIGUSR1, handler);
    int tries = sys_xbegin(FLAGS);
    if (tries == 0) from_outside("USR1");
    CHECK_EQ(handled, 1);
    if (tries < 3) sys_xabort(0);
    CHECK_EQ(shared->runs, 4);
    CHECK_EQ(sys_xend(), 0);
    CHECK(is("handled", "x"));
}

static void it_is_delivered_when_the_transaction_was_given_up(void) {
    prepare();
    signal(SIGUSR1, handler);
    int begun = sys_xbegin(FLAGS);
    if (begun == 0) {
        from_outside("USR1");
        CHECK_EQ(handled, 1);
        sys_xabort(1);
    }
    CHECK_EQ(begun, -ECANCELED);
    CHECK_EQ(handled, 1);
    CHECK_EQ(shared->runs, 2);
    CHECK(is("handled", "x"));
}

static void a_lost_conflict_delivers_it_again(void) {
    prepare();
    put("seen", "a");
    signal(SIGUSR1, handler);
    int tries = sys_xbegin(FLAGS);
    get("seen");
    put("other", "x");
    if (tries == 0) {
        from_outside("USR1");
        CHECK_EQ(outsider("echo b > seen"), 0);
    }
    CHECK_EQ(handled, 1);
    CHECK_EQ(sys_xend(), 0);
    CHECK_EQ(tries, 1);
    CHECK_EQ(handled, 1);
    CHECK_EQ(shared->runs, 2);
    CHECK(is("handled", "x"));
}

static void what_came_along_comes_again(void) {
    prepare();
    struct sigaction action = {.sa_sigaction = detailed, .sa_flags = SA_SIGINFO};
    CHECK_EQ(sigaction(SIGRTMIN + 3, &action, NULL), 0);
    pid_t parent = getpid(), pid = fork();
    if (pid == 0) {
        while (!shared->ready) usleep(1000);
        for (int i = 1; i <= 3; i++) {
            union sigval given = {.sival_int = i};
            CHECK_EQ(sigqueue(parent, SIGRTMIN + 3, given), 0);
        }
        _exit(0);
    }
    int tries = sys_xbegin(FLAGS);
    if (tries == 0) {
        shared->ready = 1;
        while (handled < 3) usleep(1000);
        sys_xabort(0);
    }
    CHECK_EQ(handled, 3);
    CHECK_EQ(value, 3);
    CHECK_EQ(sender, pid);
    CHECK_EQ(sys_xend(), 0);
    CHECK(is("handled", "xxx"));
    CHECK_EQ(waitpid(pid, NULL, 0), pid);
}

static void from_members_it_is_not(void) {
    prepare();
    signal(SIGUSR1, handler);
    signal(SIGUSR2, handler);
    signal(SIGALRM, handler);
    signal(SIGCHLD, handler);
    int tries = sys_xbegin(FLAGS);
    if (tries == 0) {
        CHECK_EQ(raise(SIGUSR1), 0);
        CHECK_EQ(handled, 1);
        struct itimerval soon = {{0, 0}, {0, 1000}};
        CHECK_EQ(setitimer(ITIMER_REAL, &soon, NULL), 0);
        while (handled < 2) usleep(1000);
        pid_t pid = fork();
        if (pid == 0) {
            kill(getppid(), SIGUSR2);
            _exit(0);
        }
        while (waitpid(pid, NULL, 0) != pid) continue;
        while (handled < 4) usleep(1000);
        sys_xabort(0);
    }
    CHECK_EQ(tries, 1);
    CHECK_EQ(handled, 0);
    CHECK_EQ(shared->runs, 4);
    CHECK_EQ(sys_xend(), 0);
}

static void handlers_are_the_programs_own_again(void) {
    prepare();
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART | SA_NODEFER}, now;
    sigaddset(&action.sa_mask, SIGHUP);
    CHECK_EQ(sigaction(SIGUSR1, &action, NULL), 0);
    signal(SIGUSR2, handler);
    signal(SIGHUP, handler);
    for (int round = 0; round < 3; round++) {
        CHECK_EQ(sys_xbegin(FLAGS), 0);
        if (round == 0) signal(SIGUSR2, SIG_IGN);
        // One that it asked for inside, and sets again.
        CHECK_EQ(sigaction(SIGHUP, NULL, &now), 0);
        CHECK_EQ(sys_xend(), 0);
        CHECK_EQ(sigaction(SIGHUP, &now, NULL), 0);
        CHECK_EQ(raise(SIGHUP), 0);
        CHECK_EQ(handled, round + 1);
        CHECK_EQ(sigaction(SIGUSR1, NULL, &now), 0);
        CHECK(now.sa_handler == handler);
        CHECK_EQ(now.sa_flags & ~0x04000000, SA_RESTART | SA_NODEFER);
        CHECK(sigismember(&now.sa_mask, SIGHUP) && !sigismember(&now.sa_mask, SIGUSR2));
        CHECK_EQ(sigaction(SIGUSR2, NULL, &now), 0);
        CHECK(now.sa_handler == SIG_IGN);
    }
}

static void one_that_resets_itself(void) {
    prepare();
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESETHAND | SA_RESTART}, now;
    CHECK_EQ(sigaction(SIGUSR1, &action, NULL), 0);
    int tries = sys_xbegin(FLAGS);
    if (tries == 0) {
        from_outside("USR1");
        sys_xabort(0);
    }
    CHECK_EQ(handled, 1);
    CHECK_EQ(sys_xend(), 0);
    CHECK_EQ(sigaction(SIGUSR1, NULL, &now), 0);
    CHECK(now.sa_handler == SIG_DFL);
}

static void group_and_scheduling_come_back(void) {
    pid_t pid = fork();
    if (pid == 0) {
        pid_t group = getpgrp();
        int nice = getpriority(PRIO_PROCESS, 0), policy = sched_getscheduler(0);
        cpu_set_t all, one, now;
        CHECK_EQ(sched_getaffinity(0, sizeof all, &all), 0);
        CPU_ZERO(&one);
        for (int cpu = 0; CPU_COUNT(&one) == 0; cpu++) {
            if (CPU_ISSET(cpu, &all)) CPU_SET(cpu, &one);
        }
        int tries = sys_xbegin(FLAGS);
        if (tries == 0) {
            CHECK_EQ(setpgid(0, 0), 0);
            struct sched_param none = {0};
            CHECK_EQ(setpriority(PRIO_PROCESS, 0, nice + 3), 0);
            CHECK_EQ(sched_setscheduler(0, SCHED_BATCH, &none), 0);
            CHECK_EQ(sched_setaffinity(0, sizeof one, &one), 0);
            sys_xabort(0);
        }
        CHECK_EQ(tries, 1);
        CHECK_EQ(getpgrp(), group);
        CHECK_EQ(sched_getscheduler(0), policy);
        CHECK_EQ(getpriority(PRIO_PROCESS, 0), nice);
        CHECK_EQ(sched_getaffinity(0, sizeof now, &now), 0);
        CHECK(CPU_EQUAL(&now, &all));
        CHECK_EQ(sys_xend(), 0);
        _exit(0);
    }
    int status;
    CHECK_EQ(waitpid(pid, &status, 0), pid);
    CHECK_EQ(status, 0);
}

// Who began a session cannot be put back.
static void a_session_of_its_own_ends_it(void) {
    pid_t pid = fork();
    if (pid == 0) {
        dup2(open("/dev/null", O_WRONLY), 2);
        CHECK_EQ(sys_xbegin(FLAGS), 0);
        put("file", "x");
        CHECK_EQ(setsid(), getpid());
        sys_xabort(0);
        _exit(0);
    }
    int status;
    CHECK_EQ(waitpid(pid, &status, 0), pid);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    CHECK(!exists("file"));
}

int main(int argc, char **argv) {
    const struct test tests[] = {
        {"it_is_delivered_again_in_the_next_try", it_is_delivered_again_in_the_next_try},
        {"each_rollback_delivers_it_again", each_rollback_delivers_it_again},
        {"it_is_delivered_when_the_transaction_was_given_up",
         it_is_delivered_when_the_transaction_was_given_up},
        {"a_lost_conflict_delivers_it_again", a_lost_conflict_delivers_it_again},
        {"what_came_along_comes_again", what_came_along_comes_again},
        {"from_members_it_is_not", from_members_it_is_not},
        {"handlers_are_the_programs_own_again", handlers_are_the_programs_own_again},
        {"one_that_resets_itself", one_that_resets_itself},
        {"group_and_scheduling_come_back", group_and_scheduling_come_back},
        {"a_session_of_its_own_ends_it", a_session_of_its_own_ends_it},
        {NULL, NULL},
    };
    return run_cases(argc, argv, tests);
}

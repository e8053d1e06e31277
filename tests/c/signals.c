// Signals that come from outside while a transaction runs: every sentence of sys_xbegin(2) about what a
// rollback makes of them.
#include "check.h"

#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
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
    struct sigaction action = {.sa_sigaction = detailed, .sa_flags = SA_SIGINFO | SA_RESTART};
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

// Those that wait, but no longer than a minute.
static int take(int signal, siginfo_t *info) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, signal);
    struct timespec limit = {60, 0};
    return sigtimedwait(&set, info, &limit);
}

static void block(int signal) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, signal);
    CHECK_EQ(sigprocmask(SIG_BLOCK, &set, NULL), 0);
}

static int is_pending(int signal) {
    sigset_t set;
    CHECK_EQ(sigpending(&set), 0);
    return sigismember(&set, signal);
}

static void what_sigwait_took_comes_again(void) {
    prepare();
    block(SIGUSR1);
    block(SIGUSR2);
    block(SIGRTMIN + 1);
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    int tries = sys_xbegin(FLAGS), taken;
    if (tries < 2) shared->runs++;
    if (tries == 0) {
        from_outside("USR1");
        from_outside("USR2");
        from_outside("RTMIN+1");
    }
    CHECK_EQ(sigwait(&set, &taken), 0);
    CHECK_EQ(taken, SIGUSR1);
    siginfo_t info;
    CHECK_EQ(take(SIGUSR2, &info), SIGUSR2);
    CHECK(info.si_code == SI_USER && info.si_pid != getpid());
    if (tries < 2) sys_xabort(0);
    sigemptyset(&set);
    sigaddset(&set, SIGRTMIN + 1);
    CHECK_EQ(sigwaitinfo(&set, NULL), SIGRTMIN + 1);
    CHECK_EQ(sys_xend(), 0);
    CHECK_EQ(shared->runs, 2);
    CHECK(!is_pending(SIGUSR1) && !is_pending(SIGUSR2) && !is_pending(SIGRTMIN + 1));
}

static void what_sigwait_took_waits_when_the_transaction_was_given_up(void) {
    prepare();
    block(SIGUSR1);
    int begun = sys_xbegin(FLAGS);
    if (begun == 0) {
        from_outside("USR1");
        CHECK_EQ(take(SIGUSR1, NULL), SIGUSR1);
        sys_xabort(1);
    }
    CHECK_EQ(begun, -ECANCELED);
    CHECK(is_pending(SIGUSR1));
    CHECK_EQ(take(SIGUSR1, NULL), SIGUSR1);
}

// Blocked inside: before that it would end the program.
static void one_that_is_blocked_inside_comes_when_it_is(void) {
    prepare();
    int tries = sys_xbegin(FLAGS);
    CHECK_EQ(is_pending(SIGUSR1), 0);
    block(SIGUSR1);
    if (tries == 0) from_outside("USR1");
    CHECK_EQ(take(SIGUSR1, NULL), SIGUSR1);
    if (tries == 0) sys_xabort(0);
    CHECK_EQ(tries, 1);
    CHECK_EQ(sys_xend(), 0);
    CHECK_EQ(is_pending(SIGUSR1), 0);
}

static void a_handler_set_inside_has_it_again(void) {
    prepare();
    int tries = sys_xbegin(FLAGS);
    CHECK_EQ(handled, 0);
    struct sigaction now, action = {.sa_sigaction = detailed, .sa_flags = SA_SIGINFO | SA_RESTART};
    CHECK(signal(SIGUSR1, handler) == SIG_DFL);
    CHECK_EQ(sigaction(SIGUSR2, &action, &now), 0);
    CHECK(now.sa_handler == SIG_DFL);
    if (tries == 0) {
        from_outside("USR1");
        from_outside("USR2");
    }
    CHECK_EQ(handled, 2);
    CHECK(sender > 0 && sender != getpid());
    if (tries == 0) sys_xabort(0);
    CHECK_EQ(tries, 1);
    CHECK_EQ(shared->runs, 4);
    CHECK_EQ(sys_xend(), 0);
    CHECK_EQ(handled, 2);
    CHECK(is("handled", "xx"));
    CHECK_EQ(sigaction(SIGUSR2, NULL, &now), 0);
    CHECK(now.sa_sigaction == detailed && now.sa_flags & SA_SIGINFO);
    CHECK(signal(SIGUSR1, SIG_DFL) == handler);
}

static void handlers_show_as_they_were_set(void) {
    prepare();
    struct sigaction now;
    signal(SIGHUP, handler);
    CHECK_EQ(sys_xbegin(FLAGS), 0);
    CHECK_EQ(sigaction(SIGHUP, NULL, &now), 0);
    CHECK(now.sa_handler == handler && !(now.sa_flags & SA_SIGINFO));
    CHECK_EQ(sigaction(SIGURG, NULL, &now), 0);
    CHECK(now.sa_handler == SIG_DFL);
    CHECK(signal(SIGHUP, SIG_IGN) == handler);
    CHECK(signal(SIGHUP, SIG_IGN) == SIG_IGN);
    CHECK_EQ(sigaction(SIGKILL, &now, NULL), -1);
    CHECK_EQ(errno, EINVAL);
    CHECK_EQ(sys_xend(), 0);
    CHECK(signal(SIGHUP, SIG_DFL) == SIG_IGN);
}

// Nobody takes it in the end: then it is what it is for a program without a handler.
static void one_that_nobody_takes_comes_after_the_end(void) {
    pid_t pid = fork();
    if (pid == 0) {
        prepare();
        int tries = sys_xbegin(FLAGS);
        if (tries == 0) {
            signal(SIGUSR1, handler);
            from_outside("USR1");
            CHECK_EQ(handled, 1);
            sys_xabort(0);
        }
        put("second", "x");
        CHECK_EQ(sys_xend(), 0);
        _exit(9);
    }
    int status;
    CHECK_EQ(waitpid(pid, &status, 0), pid);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGUSR1);
    CHECK(exists("second"));
}

static void what_takes_signals_unseen_is_refused(void) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    block(SIGUSR1);
    struct timespec now = {0, 0};
    CHECK_EQ(sys_xbegin(FLAGS | TX_ERROR_UNSUPPORTED), 0);
    CHECK_EQ(signalfd(-1, &set, 0), -1);
    CHECK_EQ(errno, 134);
    CHECK_EQ(syscall(SYS_rt_sigtimedwait, &set, NULL, &now, 8), -1);
    CHECK_EQ(errno, 134);
    CHECK_EQ(sigtimedwait(&set, NULL, &now), -1);
    CHECK_EQ(errno, EAGAIN);
    CHECK_EQ(sys_xend(), 0);
    int fd = signalfd(-1, &set, SFD_CLOEXEC);
    CHECK_THAT(fd, >=, 0);
    CHECK_EQ(sys_xbegin(FLAGS), -134);
    // Where nothing is rolled back, nothing is lost.
    CHECK_EQ(sys_xbegin(FLAGS | TX_NO_USER_ROLLBACK), 0);
    int inside = signalfd(-1, &set, SFD_CLOEXEC);
    CHECK_THAT(inside, >=, 0);
    CHECK_EQ(close(inside), 0);
    CHECK_EQ(sys_xend(), 0);
    CHECK_EQ(tx_exempt_fd(fd), 0);
    CHECK_EQ(sys_xbegin(FLAGS), 0);
    CHECK_EQ(sys_xend(), 0);
}

// What it did after it had met the change is not seen by anybody.
static void who_meets_a_change_begins_again_at_once(void) {
    prepare();
    put("seen", "a");
    struct stat st;
    int tries = sys_xbegin(FLAGS);
    CHECK_EQ(stat("seen", &st), 0);
    if (tries == 0) {
        CHECK_EQ(outsider("echo bb > new && mv new seen"), 0);
        get("seen");
        shared->runs = 100;
    }
    CHECK_EQ(tries, 1);
    CHECK_EQ(shared->runs, 0);
    CHECK(is("seen", "bb\n"));
    CHECK_EQ(sys_xend(), 0);
}

// The same with a handler of the program's own for the signal by which it is told.
static volatile sig_atomic_t urgent;

static void on_urgent(int signal) {
    (void)signal;
    urgent++;
}

static void the_programs_own_urgent_signals_are_its_own(void) {
    prepare();
    signal(SIGURG, on_urgent);
    put("seen", "a");
    struct stat st;
    int tries = sys_xbegin(FLAGS);
    CHECK_EQ(stat("seen", &st), 0);
    if (tries == 0) {
        from_outside("URG");
        CHECK_EQ(urgent, 1);
        CHECK_EQ(outsider("echo bb > new && mv new seen"), 0);
        get("seen");
        shared->runs = 100;
    }
    CHECK_EQ(shared->runs, 0);
    CHECK_EQ(urgent, 1);
    CHECK_EQ(sys_xend(), 0);
    CHECK_EQ(raise(SIGURG), 0);
    CHECK_EQ(urgent, 2);
}

// Reads it, or learns that it is stale.
static void meet(const char *path) {
    char byte;
    int fd = open(path, O_RDONLY);
    if (fd < 0) return;
    CHECK(read(fd, &byte, 1) == 1 || errno == ESTALE);
    close(fd);
}

// Whoever has asked for the answer at the end, or holds signals back, is not interrupted.
static void who_is_not_told_learns_of_it_at_the_end(void) {
    prepare();
    const int flags[] = {TX_NO_AUTO_RETRY, TX_DEFER_SIGNALS, TX_NO_USER_ROLLBACK};
    for (int i = 0; i < 3; i++) {
        put("seen", "a");
        struct stat st;
        int tries = sys_xbegin(FLAGS | flags[i]);
        CHECK_THAT(tries, >=, 0);
        CHECK_EQ(stat("seen", &st), 0);
        if (tries == 0) {
            CHECK_EQ(outsider("echo bb > new && mv new seen"), 0);
            meet("seen");
            shared->runs += 1;
        }
        int ended = sys_xend();
        CHECK_EQ(ended, flags[i] == TX_NO_AUTO_RETRY      ? -ECANCELED
                        : flags[i] == TX_NO_USER_ROLLBACK ? -EAGAIN
                                                          : 0);
        CHECK_EQ(shared->runs, i + 1);
    }
}

static void block_all(void) {
    sigset_t all;
    sigfillset(&all);
    CHECK_EQ(sigprocmask(SIG_SETMASK, &all, NULL), 0);
}

static void what_waits_of_a_try_goes_with_it(void) {
    prepare();
    signal(SIGUSR1, handler);
    int tries = sys_xbegin(FLAGS);
    if (tries < 2) {
        block_all();
        CHECK_EQ(raise(SIGUSR1), 0);
        CHECK_EQ(kill(getpid(), SIGTERM), 0);
        for (int i = 0; i < 3; i++) {
            CHECK_EQ(sigqueue(getpid(), SIGRTMIN, (union sigval){.sival_int = i}), 0);
        }
        pid_t child = fork();
        if (child == 0) _exit(kill(getppid(), SIGUSR2));
        CHECK_EQ(waitpid(child, NULL, 0), child);
        sys_xabort(0);
    }
    CHECK_EQ(tries, 2);
    CHECK_EQ(handled, 0);
    CHECK_EQ(shared->runs, 0);
    CHECK_EQ(sys_xend(), 0);
    CHECK_EQ(shared->runs, 0);
}

static int value_of_next(int signal) {
    siginfo_t info;
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, signal);
    struct timespec now = {0, 0};
    return sigtimedwait(&set, &info, &now) == signal ? info.si_value.sival_int : -1;
}

// Also of numbers of which some waited before: those stay, in their order.
static void what_waited_before_is_told_from_what_a_try_sends(void) {
    prepare();
    block(SIGRTMIN);
    for (int i = 100; i < 102; i++) {
        CHECK_EQ(sigqueue(getpid(), SIGRTMIN, (union sigval){.sival_int = i}), 0);
    }
    int tries = sys_xbegin(FLAGS);
    // As the process's and as the thread's, which the kernel has in two queues.
    CHECK_EQ(sigqueue(getpid(), SIGRTMIN, (union sigval){.sival_int = tries}), 0);
    CHECK_EQ(raise(SIGRTMIN), 0);
    if (tries == 0) from_outside("RTMIN");
    if (tries < 3) sys_xabort(0);
    CHECK_EQ(tries, 3);
    CHECK_EQ(value_of_next(SIGRTMIN), 100);
    CHECK_EQ(value_of_next(SIGRTMIN), 101);
    int left = 0;
    while (value_of_next(SIGRTMIN) >= 0) left++;
    // Two of this try, and the one from outside.
    CHECK_EQ(left, 3);
    CHECK_EQ(sys_xend(), 0);
}

// One that was taken inside does not stand for one that the try sends.
static void what_waited_before_and_was_taken_is_not_counted(void) {
    prepare();
    block(SIGRTMIN);
    from_outside("RTMIN");
    int tries = sys_xbegin(FLAGS);
    if (tries < 2) {
        CHECK_THAT(value_of_next(SIGRTMIN), >=, 0);
        for (int i = 0; i < 3; i++) CHECK_EQ(raise(SIGRTMIN), 0);
        sys_xabort(0);
    }
    siginfo_t info;
    CHECK_EQ(take(SIGRTMIN, &info), SIGRTMIN);
    CHECK(info.si_pid != getpid());
    CHECK_EQ(is_pending(SIGRTMIN), 0);
    CHECK_EQ(sys_xend(), 0);
}

static void what_waits_comes_after_a_commit(void) {
    prepare();
    signal(SIGUSR1, handler);
    sigset_t none;
    sigemptyset(&none);
    CHECK_EQ(sys_xbegin(FLAGS), 0);
    block_all();
    CHECK_EQ(raise(SIGUSR1), 0);
    CHECK_EQ(sys_xend(), 0);
    CHECK_EQ(handled, 0);
    CHECK_EQ(sigprocmask(SIG_SETMASK, &none, NULL), 0);
    CHECK_EQ(handled, 1);
}

static void what_waits_from_others_goes_on_waiting(void) {
    prepare();
    sigset_t mine, waiting;
    sigemptyset(&mine);
    sigaddset(&mine, SIGUSR2);
    CHECK_EQ(sigprocmask(SIG_SETMASK, &mine, NULL), 0);
    CHECK_EQ(raise(SIGUSR2), 0);
    signal(SIGUSR1, handler);
    struct sigaction action = {.sa_sigaction = detailed, .sa_flags = SA_SIGINFO};
    CHECK_EQ(sigaction(SIGRTMIN, &action, NULL), 0);
    int begun = sys_xbegin(FLAGS);
    if (begun == 0) {
        block_all();
        from_outside("USR1");
        from_outside("RTMIN");
        from_outside("RTMIN");
        CHECK_EQ(sigqueue(getpid(), SIGRTMIN, (union sigval){.sival_int = 1}), 0);
        sys_xabort(1);
    }
    CHECK_EQ(begun, -ECANCELED);
    // They come from outside, three of them; what waited before still does.
    CHECK_EQ(handled, 3);
    CHECK_EQ(value, 0);
    CHECK(sender != getpid());
    CHECK_EQ(sigpending(&waiting), 0);
    CHECK(sigismember(&waiting, SIGUSR2));
}

static void of_children_that_go_with_a_try_nobody_is_told(void) {
    prepare();
    signal(SIGCHLD, handler);
    int begun = sys_xbegin(FLAGS);
    if (begun == 0) {
        block_all();
        pid_t child = fork();
        if (child == 0) _exit(0);
        CHECK_EQ(waitpid(child, NULL, 0), child);
        child = fork();
        CHECK_THAT(child, >=, 0);
        if (child == 0) {
            pause();
            _exit(0);
        }
        sys_xabort(1);
    }
    CHECK_EQ(begun, -ECANCELED);
    CHECK_EQ(shared->runs, 0);
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
        {"what_sigwait_took_comes_again", what_sigwait_took_comes_again},
        {"what_sigwait_took_waits_when_the_transaction_was_given_up",
         what_sigwait_took_waits_when_the_transaction_was_given_up},
        {"one_that_is_blocked_inside_comes_when_it_is", one_that_is_blocked_inside_comes_when_it_is},
        {"a_handler_set_inside_has_it_again", a_handler_set_inside_has_it_again},
        {"handlers_show_as_they_were_set", handlers_show_as_they_were_set},
        {"one_that_nobody_takes_comes_after_the_end", one_that_nobody_takes_comes_after_the_end},
        {"what_takes_signals_unseen_is_refused", what_takes_signals_unseen_is_refused},
        {"who_meets_a_change_begins_again_at_once", who_meets_a_change_begins_again_at_once},
        {"the_programs_own_urgent_signals_are_its_own", the_programs_own_urgent_signals_are_its_own},
        {"who_is_not_told_learns_of_it_at_the_end", who_is_not_told_learns_of_it_at_the_end},
        {"what_waits_of_a_try_goes_with_it", what_waits_of_a_try_goes_with_it},
        {"what_waited_before_is_told_from_what_a_try_sends",
         what_waited_before_is_told_from_what_a_try_sends},
        {"what_waited_before_and_was_taken_is_not_counted",
         what_waited_before_and_was_taken_is_not_counted},
        {"what_waits_comes_after_a_commit", what_waits_comes_after_a_commit},
        {"what_waits_from_others_goes_on_waiting", what_waits_from_others_goes_on_waiting},
        {"of_children_that_go_with_a_try_nobody_is_told",
         of_children_that_go_with_a_try_nobody_is_told},
        {"group_and_scheduling_come_back", group_and_scheduling_come_back},
        {"a_session_of_its_own_ends_it", a_session_of_its_own_ends_it},
        {NULL, NULL},
    };
    return run_cases(argc, argv, tests);
}

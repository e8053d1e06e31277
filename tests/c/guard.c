// What a transaction does not support, and signals to others: every sentence of sys_xbegin(2) about them.
#include "check.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/ipc.h>
#include <sys/mount.h>
#include <sys/msg.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/timex.h>
#include <sys/un.h>

#define PLAIN (TX_NO_USER_ROLLBACK | TX_NONDURABLE)
#define ERROR (PLAIN | TX_ERROR_UNSUPPORTED)

// Makes a call that is not supported; gives its error number.
static int mounts(void) {
    CHECK_EQ(mount("none", "/no/such/place", "tmpfs", 0, ""), -1);
    return errno;
}

static void by_default_it_aborts(void) {
    CHECK_EQ(sys_xbegin(PLAIN), 0);
    put("file", "x");
    CHECK_EQ(mounts(), ENOTXSUPPORT);
    CHECK_EQ(sys_xstatus(), 1);
    CHECK_EQ(sys_xend(), -ENOTXSUPPORT);
    CHECK(!exists("file"));
    // With rollback: not tried again, and memory stays as it is.
    CHECK_EQ(sys_xbegin(TX_NONDURABLE), 0);
    put("file", "x");
    CHECK_EQ(mounts(), ENOTXSUPPORT);
    CHECK_EQ(sys_xend(), -ENOTXSUPPORT);
    CHECK(!exists("file"));
}

static void as_an_error_the_transaction_goes_on(void) {
    CHECK_EQ(sys_xbegin(ERROR), 0);
    CHECK_EQ(mounts(), ENOTXSUPPORT);
    put("file", "x");
    CHECK_EQ(sys_xend(), 0);
    CHECK(is("file", "x"));
}

static void dangerously_it_is_made(void) {
    CHECK_EQ(sys_xbegin(PLAIN | TX_LIVE_DANGEROUSLY), 0);
    CHECK_EQ(mounts(), ENOENT);
    put("file", "x");
    CHECK_EQ(sys_xend(), 0);
    CHECK(is("file", "x"));
    // Also by a thread that has the guard.
    CHECK_EQ(sys_xbegin(ERROR), 0);
    CHECK_EQ(mounts(), ENOTXSUPPORT);
    CHECK_EQ(sys_xend(), 0);
    CHECK_EQ(sys_xbegin(PLAIN | TX_LIVE_DANGEROUSLY), 0);
    CHECK_EQ(mounts(), ENOENT);
    CHECK_EQ(sys_xend(), 0);
}

static void outside_everything_goes_on(void) {
    CHECK_EQ(mounts(), ENOENT);
    CHECK_EQ(sys_xbegin(ERROR), 0);
    CHECK_EQ(sys_xend(), 0);
    CHECK_EQ(mounts(), ENOENT);
    struct timex timex = {0};
    CHECK_THAT(adjtimex(&timex), >=, 0);
    CHECK_EQ(system("mount -t tmpfs none /no/such/place 2>/dev/null; test $? = 32 -o $? = 1"), 0);
}

static void each_of_them(void) {
    outsider_start();
    int queue = msgget(IPC_PRIVATE, 0600);
    CHECK_THAT(queue, >=, 0);
    struct { long type; char text[8]; } message = {1, "x"};
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(9)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    struct sockaddr_un abstract = {.sun_family = AF_UNIX, .sun_path = "\0none"};
    struct sockaddr_un named = {.sun_family = AF_UNIX, .sun_path = "no such socket"};
    int datagrams = socket(AF_INET, SOCK_DGRAM, 0), local = socket(AF_UNIX, SOCK_STREAM, 0);
    CHECK_EQ(sys_xbegin(ERROR), 0);
#define UNSUPPORTED(call) do { errno = 0; CHECK_EQ(call, -1); CHECK_EQ(errno, ENOTXSUPPORT); } while (0)
    UNSUPPORTED(connect(datagrams, (struct sockaddr *)&address, sizeof address));
    UNSUPPORTED(bind(datagrams, (struct sockaddr *)&address, sizeof address));
    UNSUPPORTED(sendto(datagrams, "x", 1, 0, (struct sockaddr *)&address, sizeof address));
    UNSUPPORTED(connect(local, (struct sockaddr *)&abstract, sizeof abstract));
    CHECK_EQ(connect(local, (struct sockaddr *)&named, sizeof named), -1);
    CHECK_EQ(errno, ENOENT);
    UNSUPPORTED(msgsnd(queue, &message, 1, 0));
    UNSUPPORTED(sethostname("x", 1));
    UNSUPPORTED(unshare(CLONE_NEWNS));
    UNSUPPORTED(umount("/no/such/place"));
    UNSUPPORTED(kill(0, SIGCONT)); // the outsider is in the group
    struct timex timex = {0};
    CHECK_THAT(adjtimex(&timex), >=, 0);
    timex.modes = ADJ_TICK;
    timex.tick = 10000;
    UNSUPPORTED(adjtimex(&timex));
    CHECK_EQ(syscall(SYS_io_uring_setup, 4, NULL), -1);
    CHECK_EQ(errno, ENOSYS);
    // Children as well.
    CHECK_EQ(system("mount -t tmpfs none /no/such/place 2>/dev/null; test $? = 32"), 0);
    CHECK_EQ(sys_xend(), 0);
    CHECK_EQ(msgctl(queue, IPC_RMID, NULL), 0);
}

static pid_t receiver(const char *log) {
    int ready[2];
    CHECK_EQ(pipe(ready), 0);
    pid_t pid = fork();
    if (pid == 0) {
        sigset_t set;
        sigfillset(&set);
        sigprocmask(SIG_BLOCK, &set, NULL);
        CHECK_EQ(write(ready[1], "x", 1), 1);
        for (;;) {
            siginfo_t info;
            int got = sigwaitinfo(&set, &info);
            int fd = open(log, O_WRONLY | O_CREAT | O_APPEND, 0644);
            dprintf(fd, "%d:%d ", got, got == SIGUSR2 ? info.si_value.sival_int : 0);
            close(fd);
            if (got == SIGTERM) _exit(0);
        }
    }
    char byte;
    CHECK_EQ(read(ready[0], &byte, 1), 1);
    return pid;
}

static void signals_to_others_wait_for_the_commit(void) {
    pid_t pid = receiver("log");
    CHECK_EQ(sys_xbegin(PLAIN), 0);
    CHECK_EQ(kill(pid, SIGUSR1), 0);
    union sigval value = {.sival_int = 7};
    CHECK_EQ(sigqueue(pid, SIGUSR2, value), 0);
    char command[64];
    snprintf(command, sizeof command, "kill -TERM %d", pid);
    CHECK_EQ(system(command), 0);
    usleep(100000);
    CHECK_EQ(waitpid(pid, NULL, WNOHANG), 0);
    CHECK_EQ(kill(pid, 0), 0);
    CHECK_EQ(sys_xend(), 0);
    CHECK_EQ(waitpid(pid, NULL, 0), pid);
    char wanted[64];
    snprintf(wanted, sizeof wanted, "%d:0 %d:7 %d:0 ", SIGUSR1, SIGUSR2, SIGTERM);
    CHECK(is("log", wanted));
}

static void an_abort_drops_them(void) {
    pid_t pid = receiver("log");
    CHECK_EQ(sys_xbegin(PLAIN), 0);
    CHECK_EQ(kill(pid, SIGTERM), 0);
    sys_xabort(1);
    usleep(100000);
    CHECK_EQ(waitpid(pid, NULL, WNOHANG), 0);
    CHECK_EQ(kill(pid, SIGTERM), 0); // outside: at once
    CHECK_EQ(waitpid(pid, NULL, 0), pid);
    CHECK(!exists("log") || is("log", "15:0 "));
}

static volatile sig_atomic_t handled;
static void handler(int signal) {
    (void)signal;
    handled++;
}

static void signals_to_members_go_at_once(void) {
    signal(SIGUSR1, handler);
    CHECK_EQ(sys_xbegin(PLAIN), 0);
    CHECK_EQ(raise(SIGUSR1), 0);
    CHECK_EQ(handled, 1);
    CHECK_EQ(kill(getpid(), SIGUSR1), 0);
    CHECK_EQ(handled, 2);
    pid_t pid = fork();
    if (pid == 0) {
        while (handled == 2) usleep(1000);
        _exit(handled);
    }
    CHECK_EQ(kill(pid, SIGUSR1), 0);
    int status;
    CHECK_EQ(waitpid(pid, &status, 0), pid);
    CHECK_EQ(WEXITSTATUS(status), 3);
    CHECK_EQ(kill(999999999, SIGUSR1), -1);
    CHECK_EQ(errno, ESRCH);
    CHECK_EQ(sys_xend(), 0);
}

static void of_a_group_only_the_living_count(void) {
    CHECK_EQ(setpgid(0, 0), 0);
    signal(SIGUSR1, handler);
    pid_t before = fork();
    if (before == 0) _exit(0);
    siginfo_t info;
    CHECK_EQ(waitid(P_PID, before, &info, WEXITED | WNOWAIT), 0);
    CHECK_EQ(sys_xbegin(PLAIN), 0);
    pid_t inside = fork();
    if (inside == 0) _exit(0);
    CHECK_EQ(waitid(P_PID, inside, &info, WEXITED | WNOWAIT), 0);
    CHECK_EQ(kill(0, SIGUSR1), 0);
    CHECK_EQ(handled, 1);
    CHECK_EQ(kill(-getpid(), SIGUSR1), 0);
    CHECK_EQ(handled, 2);
    CHECK_EQ(kill(inside, SIGUSR1), 0);
    CHECK_EQ(kill(before, SIGUSR1), 0);
    CHECK_EQ(kill(-999999999, SIGUSR1), -1);
    CHECK_EQ(errno, ESRCH);
    CHECK_EQ(sys_xend(), 0);
    CHECK_EQ(waitpid(before, NULL, 0), before);
    CHECK_EQ(waitpid(inside, NULL, 0), inside);
}

static void who_may_not_send_is_told(void) {
    pid_t pid = receiver("log");
    CHECK_EQ(sys_xbegin(PLAIN), 0);
    CHECK_EQ(seteuid(65534), 0);
    CHECK_EQ(kill(pid, SIGTERM), 0); // the real user is the receiver's
    CHECK_EQ(setresuid(65534, 65534, 0), 0);
    CHECK_EQ(kill(pid, SIGTERM), -1);
    CHECK_EQ(errno, EPERM);
    CHECK_EQ(setresuid(0, 0, 0), 0);
    CHECK_EQ(sys_xend(), 0);
    CHECK_EQ(waitpid(pid, NULL, 0), pid);
}

static void *begins(void *argument) {
    CHECK_EQ(sys_xbegin(ERROR), 0);
    CHECK_EQ(mounts(), ENOTXSUPPORT);
    CHECK_EQ(sys_xend(), 0);
    return argument;
}

// They have the filter already, and so has a program that is started.
static void threads_and_programs_that_are_started_later(void) {
    CHECK_EQ(sys_xbegin(ERROR), 0);
    CHECK_EQ(sys_xend(), 0);
    for (int i = 0; i < 3; i++) {
        pthread_t thread;
        CHECK_EQ(pthread_create(&thread, NULL, begins, NULL), 0);
        pthread_join(thread, NULL);
    }
    char self[4096], command[5000];
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    CHECK_THAT(length, >, 0);
    self[length] = 0;
    snprintf(command, sizeof command, "%s as_an_error_the_transaction_goes_on", self);
    CHECK_EQ(system(command), 0);
    CHECK(is("file", "x"));
}

int main(int argc, char **argv) {
    const struct test tests[] = {
        {"by_default_it_aborts", by_default_it_aborts},
        {"as_an_error_the_transaction_goes_on", as_an_error_the_transaction_goes_on},
        {"dangerously_it_is_made", dangerously_it_is_made},
        {"outside_everything_goes_on", outside_everything_goes_on},
        {"each_of_them", each_of_them},
        {"signals_to_others_wait_for_the_commit", signals_to_others_wait_for_the_commit},
        {"an_abort_drops_them", an_abort_drops_them},
        {"signals_to_members_go_at_once", signals_to_members_go_at_once},
        {"of_a_group_only_the_living_count", of_a_group_only_the_living_count},
        {"who_may_not_send_is_told", who_may_not_send_is_told},
        {"threads_and_programs_that_are_started_later", threads_and_programs_that_are_started_later},
        {NULL, NULL},
    };
    return run_cases(argc, argv, tests);
}

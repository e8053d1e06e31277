// Bad input, and what cannot be isolated: the answers that sys_xbegin(2) promises.
#include "check.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>

#define PLAIN (TX_NO_USER_ROLLBACK | TX_NONDURABLE)
#define ERROR (PLAIN | TX_ERROR_UNSUPPORTED)

// No transaction has begun, and one can.
static void nothing_has_begun(void) {
    CHECK_EQ(sys_xend(), -EINVAL);
    CHECK_EQ(sys_xstatus(), -EINVAL);
    CHECK_EQ(tx_id(), -EINVAL);
}

static void works(void) {
    CHECK_EQ(sys_xbegin(PLAIN), 0);
    put("works", "x");
    CHECK_EQ(sys_xend(), 0);
    CHECK(is("works", "x"));
    CHECK_EQ(unlink("works"), 0);
}

static void flags_that_there_are_not(void) {
    for (int bit = 6; bit < 32; bit++) {
        CHECK_EQ(sys_xbegin((int)(1u << bit)), -EINVAL);
        CHECK_EQ(sys_xbegin(PLAIN | (int)(1u << bit)), -EINVAL);
        CHECK_EQ(sys_xbegin_ordered((int)(1u << bit), 1, 0), -EINVAL);
    }
    nothing_has_begun();
    // Inside as well.
    CHECK_EQ(sys_xbegin(PLAIN), 0);
    CHECK_EQ(sys_xbegin(64), -EINVAL);
    CHECK_EQ(sys_xend(), 0);
    nothing_has_begun();
}

static void ends_without_a_beginning(void) {
    nothing_has_begun();
    sys_xabort(0);
    sys_xabort(1);
    nothing_has_begun();
    CHECK_EQ(tx_join(-1), -EINVAL);
    CHECK_EQ(tx_join(1 << 30), -ESRCH);
    CHECK_EQ(tx_exempt_fd(-1), -EBADF);
    CHECK_EQ(tx_exempt_fd(999), -EBADF);
    CHECK_EQ(sys_xbegin(PLAIN), 0);
    CHECK_EQ(tx_join(tx_id()), -EINVAL);
    CHECK_EQ(sys_xend(), 0);
    nothing_has_begun();
    works();
}

static volatile int begun, ended, depth;
static void begins(int signal) {
    (void)signal;
    begun = sys_xbegin(PLAIN);
    put("handler", depth ? "inside" : "outside");
    ended = sys_xend();
}

static void in_a_signal_handler(void) {
    signal(SIGUSR1, begins);
    CHECK_EQ(raise(SIGUSR1), 0);
    CHECK_EQ(begun, 0);
    CHECK_EQ(ended, 0);
    CHECK(is("handler", "outside"));
    // One that interrupts a transaction is a part of it.
    depth = 1;
    CHECK_EQ(sys_xbegin(PLAIN), 0);
    CHECK_EQ(raise(SIGUSR1), 0);
    CHECK_EQ(begun, 0);
    CHECK_EQ(ended, 0);
    CHECK(is("handler", "inside"));
    sys_xabort(1);
    CHECK(is("handler", "outside"));
    nothing_has_begun();
}

static void *exits_inside(void *argument) {
    CHECK_EQ(sys_xbegin(PLAIN), 0);
    CHECK_EQ(sys_xbegin(PLAIN), 0);
    put("thread", "x");
    pthread_exit(argument);
}

static void a_thread_that_exits_inside(void) {
    pthread_t thread;
    CHECK_EQ(pthread_create(&thread, NULL, exits_inside, NULL), 0);
    CHECK_EQ(pthread_join(thread, NULL), 0);
    CHECK(is("thread", "x"));
    nothing_has_begun();
}

static jmp_buf out;
static void jumps(void) {
    put("jump", "x");
    longjmp(out, 1);
}

static void longjmp_out_of_it(void) {
    CHECK_EQ(sys_xbegin(PLAIN), 0);
    if (setjmp(out) == 0) jumps();
    // It goes on.
    CHECK_THAT(tx_id(), >, 0);
    CHECK_EQ(sys_xend(), 0);
    CHECK(is("jump", "x"));
    // Out of the function that began, with rollback.
    CHECK_EQ(sys_xbegin(TX_NONDURABLE), 0);
    if (setjmp(out) == 0) jumps();
    CHECK_EQ(sys_xend(), 0);
    nothing_has_begun();
}

static void a_program_with_other_rights(void) {
    CHECK_EQ(chmod(".", 0777), 0);
    CHECK_EQ(system("cp \"$(command -v id)\" id && chown 65534 id && chmod 4755 id"), 0);
    CHECK_EQ(sys_xbegin(PLAIN), 0);
    // The shell opens the file, the program runs as somebody else, in the view.
    CHECK_EQ(system("echo x > seen; ./id -u > who"), 0);
    CHECK_EQ(sys_xend(), 0);
    CHECK(is("who", "65534\n"));
    CHECK(is("seen", "x\n"));
}

static void out_of_descriptors(void) {
    int data[2];
    CHECK_EQ(pipe(data), 0);
    works(); // the session is there
    struct rlimit before, now;
    CHECK_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
    int highest = dup(0);
    close(highest);
    for (int flags = PLAIN;; flags = TX_NONDURABLE) {
        for (int more = 0; more < 3; more++) {
            now = before;
            now.rlim_cur = highest + more;
            CHECK_EQ(setrlimit(RLIMIT_NOFILE, &now), 0);
            CHECK_EQ(sys_xbegin(flags), -EMFILE);
            nothing_has_begun();
            CHECK_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
        }
        if (flags == TX_NONDURABLE) break;
    }
    int next = dup(0);
    CHECK_EQ(next, highest); // nothing was left open
    CHECK_EQ(write(data[1], "x", 1), 1);
    works();
}

static void out_of_memory(void) {
    works();
    struct rlimit before, none;
    CHECK_EQ(getrlimit(RLIMIT_AS, &before), 0);
    none = before;
    none.rlim_cur = 0;
    for (int flags = PLAIN;; flags = TX_NONDURABLE) {
        CHECK_EQ(setrlimit(RLIMIT_AS, &none), 0);
        int answer = sys_xbegin(flags);
        CHECK_EQ(setrlimit(RLIMIT_AS, &before), 0);
        CHECK_EQ(answer, -ENOMEM);
        nothing_has_begun();
        works();
        if (flags == TX_NONDURABLE) break;
    }
}

// A beginning that this program must not make.
static void is_refused(int fd) {
    CHECK_EQ(sys_xbegin(PLAIN), -ENOTXSUPPORT);
    CHECK_EQ(sys_xbegin(TX_NONDURABLE), -ENOTXSUPPORT);
    nothing_has_begun();
    CHECK_EQ(sys_xbegin(PLAIN | TX_LIVE_DANGEROUSLY), 0);
    CHECK_EQ(sys_xend(), 0);
    if (fd >= 0) {
        CHECK_EQ(tx_exempt_fd(fd), 0);
        works();
    }
}

static void a_connected_socket(void) {
    int pair[2];
    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    CHECK_EQ(tx_exempt_fd(pair[1]), 0);
    is_refused(pair[0]);
    CHECK_EQ(write(pair[0], "x", 1), 1);
    char byte;
    CHECK_EQ(read(pair[1], &byte, 1), 1);
}

static void a_socket_that_others_reach(void) {
    struct sockaddr_in address = {.sin_family = AF_INET};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int datagrams = socket(AF_INET, SOCK_DGRAM, 0);
    works(); // it leads nowhere yet
    CHECK_EQ(bind(datagrams, (struct sockaddr *)&address, sizeof address), 0);
    is_refused(datagrams);
    int listens = socket(AF_UNIX, SOCK_STREAM, 0);
    struct sockaddr_un name = {.sun_family = AF_UNIX, .sun_path = "socket"};
    CHECK_EQ(bind(listens, (struct sockaddr *)&name, sizeof name), 0);
    CHECK_EQ(listen(listens, 1), 0);
    is_refused(listens);
}

static void a_high_number(void) {
    int pair[2];
    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    CHECK_EQ(dup2(pair[0], 900), 900);
    close(pair[0]);
    CHECK_EQ(tx_exempt_fd(pair[1]), 0);
    is_refused(900);
    // Files with such numbers are carried.
    put("file", "0123456789");
    int fd = open("file", O_RDWR);
    CHECK_EQ(dup2(fd, 901), 901);
    close(fd);
    CHECK_EQ(sys_xbegin(PLAIN), 0);
    CHECK_EQ(write(901, "ab", 2), 2);
    sys_xabort(1);
    CHECK(is("file", "0123456789"));
    CHECK_EQ(sys_xbegin(PLAIN), 0);
    CHECK_EQ(write(901, "ab", 2), 2);
    CHECK_EQ(sys_xend(), 0);
    CHECK(is("file", "ab23456789"));
}

static void an_open_ring(void) {
    struct {
        unsigned entries[30];
    } parameters = {{0}};
    int ring = syscall(SYS_io_uring_setup, 4, &parameters);
    if (ring < 0) {
        printf("Skip: no io_uring here (errno %d)\n", errno);
        return;
    }
    is_refused(ring);
}

// Record locks belong to the process, and closing a descriptor would release them.
static void record_locks(void) {
    put("locked", "0123456789");
    int fd = open("locked", O_RDWR);
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 2, .l_len = 3};
    CHECK_EQ(fcntl(fd, F_SETLK, &lock), 0);
    CHECK_EQ(sys_xbegin(PLAIN), -ENOTXSUPPORT);
    CHECK_EQ(sys_xbegin(PLAIN | TX_LIVE_DANGEROUSLY), 0);
    CHECK_EQ(sys_xend(), 0);
    // It is still there: another process meets it.
    pid_t pid = fork();
    if (pid == 0) {
        struct flock other = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
        CHECK_EQ(fcntl(fd, F_GETLK, &other), 0);
        CHECK_EQ(other.l_type, F_WRLCK);
        CHECK_EQ(other.l_pid, getppid());
        _exit(0);
    }
    int status;
    CHECK_EQ(waitpid(pid, &status, 0), pid);
    CHECK_EQ(status, 0);
    lock.l_type = F_UNLCK;
    CHECK_EQ(fcntl(fd, F_SETLK, &lock), 0);
    works();
    // One that was taken through another descriptor, which is exempt.
    int exempt = open("locked", O_RDWR);
    CHECK_EQ(tx_exempt_fd(exempt), 0);
    lock.l_type = F_WRLCK;
    CHECK_EQ(fcntl(exempt, F_SETLK, &lock), 0);
    CHECK_EQ(sys_xbegin(PLAIN), -ENOTXSUPPORT);
    CHECK_EQ(close(exempt), 0);
    works();
    // Locks of the open file stay.
    CHECK_EQ(flock(fd, LOCK_EX), 0);
    CHECK_EQ(sys_xbegin(PLAIN), 0);
    CHECK_EQ(write(fd, "x", 1), 1);
    CHECK_EQ(sys_xend(), 0);
    int other = open("locked", O_RDWR);
    CHECK_EQ(flock(other, LOCK_EX | LOCK_NB), -1);
    CHECK_EQ(errno, EWOULDBLOCK);
    CHECK(is("locked", "x123456789"));
}

static void settings_of_the_machine(void) {
    const char *names[] = {"/proc/sys/kernel/core_pattern", "/proc/sysrq-trigger", NULL};
    for (const char **name = names; *name; name++) {
        if (access(*name, W_OK) != 0) continue;
        CHECK_EQ(sys_xbegin(PLAIN), 0);
        CHECK_EQ(open(*name, O_WRONLY), -1);
        CHECK_EQ(errno, EROFS);
        CHECK_EQ(sys_xend(), 0);
        int fd = open(*name, O_WRONLY);
        CHECK_THAT(fd, >=, 0);
        close(fd);
    }
    CHECK_EQ(sys_xbegin(PLAIN), 0);
    CHECK_EQ(mkdir("/sys/txos", 0700), -1);
    CHECK_EQ(errno, EROFS);
    CHECK_EQ(sys_xend(), 0);
    // One that is open already.
    int fd = open("/proc/sys/kernel/core_pattern", O_RDWR);
    if (fd >= 0) {
        CHECK_EQ(sys_xbegin(PLAIN), -ENOTXSUPPORT);
        CHECK_EQ(tx_exempt_fd(fd), 0);
        works();
    }
    // What is the process's own can be written.
    CHECK_EQ(sys_xbegin(PLAIN), 0);
    put("/proc/self/comm", "renamed");
    CHECK_EQ(sys_xend(), 0);
    CHECK(is("/proc/self/comm", "renamed\n"));
}

#ifdef __x86_64__
// getpid(2) the way a program for 32 bits calls it.
static long foreign_getpid(void) {
    long result;
    __asm__ volatile("int $0x80" : "=a"(result) : "a"(20L) : "memory", "r8", "r9", "r10", "r11");
    return result;
}

static void calls_of_32_bits(void) {
    pid_t pid = fork();
    if (pid == 0) _exit(foreign_getpid() == getpid() ? 0 : 1);
    int status;
    CHECK_EQ(waitpid(pid, &status, 0), pid);
    if (status != 0) {
        printf("Skip: the kernel has no calls of 32 bits\n");
        return;
    }
    CHECK_EQ(sys_xbegin(ERROR), 0);
    CHECK_EQ(foreign_getpid(), -ENOTXSUPPORT);
    put("file", "x");
    CHECK_EQ(sys_xend(), 0);
    CHECK(is("file", "x"));
    CHECK_EQ(sys_xbegin(PLAIN), 0);
    put("file", "y");
    CHECK_EQ(foreign_getpid(), -ENOTXSUPPORT);
    CHECK_EQ(sys_xend(), -ENOTXSUPPORT);
    CHECK(is("file", "x"));
    CHECK_EQ(sys_xbegin(PLAIN | TX_LIVE_DANGEROUSLY), 0);
    CHECK_EQ(foreign_getpid(), getpid());
    CHECK_EQ(sys_xend(), 0);
    CHECK_EQ(foreign_getpid(), getpid());
}
#else
static void calls_of_32_bits(void) {
    printf("Skip: only on x86-64\n");
}
#endif

// Newer than any that txos knows: programs fall back.
static void unknown_calls(void) {
    CHECK_EQ(sys_xbegin(PLAIN), 0);
    CHECK_EQ(syscall(4000), -1);
    CHECK_EQ(errno, ENOSYS);
    CHECK_EQ(sys_xend(), 0);
    CHECK_EQ(syscall(4000), -1);
    CHECK_EQ(errno, ENOSYS);
}

// For a user, whom the kernel counts: a limit on processes is none for root.
static void no_process_is_left(void) {
    CHECK_EQ(sys_xbegin(TX_NONDURABLE), 0);
    CHECK_EQ(sys_xend(), 0);
    struct rlimit before, none;
    CHECK_EQ(getrlimit(RLIMIT_NPROC, &before), 0);
    none = before;
    none.rlim_cur = 0;
    CHECK_EQ(setrlimit(RLIMIT_NPROC, &none), 0);
    CHECK_EQ(sys_xbegin(TX_NONDURABLE), -EAGAIN);
    put("outside", "x");
    // Without a checkpoint nothing is forked.
    CHECK_EQ(sys_xbegin(TX_NONDURABLE | TX_NO_USER_ROLLBACK), 0);
    put("inside", "x");
    CHECK_EQ(sys_xend(), 0);
    CHECK_EQ(setrlimit(RLIMIT_NPROC, &before), 0);
    CHECK_EQ(sys_xbegin(TX_NONDURABLE), 0);
    CHECK_EQ(sys_xend(), 0);
}

int main(int argc, char **argv) {
    const struct test tests[] = {
        {"flags_that_there_are_not", flags_that_there_are_not},
        {"ends_without_a_beginning", ends_without_a_beginning},
        {"in_a_signal_handler", in_a_signal_handler},
        {"a_thread_that_exits_inside", a_thread_that_exits_inside},
        {"longjmp_out_of_it", longjmp_out_of_it},
        {"a_program_with_other_rights", a_program_with_other_rights},
        {"out_of_descriptors", out_of_descriptors},
        {"out_of_memory", out_of_memory},
        {"a_connected_socket", a_connected_socket},
        {"a_socket_that_others_reach", a_socket_that_others_reach},
        {"a_high_number", a_high_number},
        {"an_open_ring", an_open_ring},
        {"record_locks", record_locks},
        {"settings_of_the_machine", settings_of_the_machine},
        {"calls_of_32_bits", calls_of_32_bits},
        {"unknown_calls", unknown_calls},
        {NULL, NULL},
    };
    if (argc == 2 && strcmp(argv[1], "no_process_is_left") == 0) {
        no_process_is_left();
        return 0;
    }
    return run_cases(argc, argv, tests);
}

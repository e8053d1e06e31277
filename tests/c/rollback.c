// Rollback of the program itself: every sentence of sys_xbegin(2) about it.
#include "check.h"

#include <dirent.h>
#include <grp.h>
#include <linux/capability.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>

#define FLAGS TX_NONDURABLE

static int global = 1;
static char pages[16][4096] __attribute__((aligned(4096)));

static void memory_comes_back(void) {
    char *heap = malloc(100000);
    volatile int local = 1;
    memset(heap, 'a', 100000);
    int tries = sys_xbegin(FLAGS);
    if (tries == 0) {
        global = 2;
        local = 2;
        memset(heap, 'b', 100000);
        memset(pages, 1, sizeof pages);
        free(heap);
        for (int i = 0; i < 100; i++) CHECK(malloc(5000));
        put("file", "first");
        sys_xabort(0);
        CHECK(0);
    }
    CHECK_EQ(tries, 1);
    CHECK_EQ(global, 1);
    CHECK_EQ(local, 1);
    for (int i = 0; i < 100000; i++) CHECK(heap[i] == 'a');
    for (size_t i = 0; i < sizeof pages; i++) CHECK(((char *)pages)[i] == 0);
    CHECK(!exists("file"));
    global = 3;
    CHECK_EQ(sys_xend(), 0);
    CHECK_EQ(global, 3);
    free(heap);
}

static void a_lost_conflict_runs_again(void) {
    outsider_start();
    put("file", "1");
    static int runs_by_memory;
    int log = open("runs", O_WRONLY | O_CREAT | O_APPEND, 0644);
    CHECK_EQ(tx_exempt_fd(log), 0);
    int tries = sys_xbegin(FLAGS);
    CHECK_THAT(tries, >=, 0);
    runs_by_memory++;
    CHECK_EQ(write(log, "x", 1), 1);
    int seen = atoi(get("file"));
    if (tries < 3) {
        CHECK_EQ(outsider("echo $(( $(cat file) + 10 )) > file"), 0);
    } else {
        char text[16];
        snprintf(text, sizeof text, "%d", seen + 1);
        put("file", text);
    }
    CHECK_EQ(sys_xend(), 0);
    CHECK_EQ(tries, 3);
    CHECK_EQ(runs_by_memory, 1);
    CHECK_EQ(atoi(get("file")), 32);
    CHECK(is("runs", "xxxx"));
}

static void no_restart(void) {
    int code = sys_xbegin(FLAGS);
    if (code == 0) {
        global = 5;
        sys_xabort(1);
    }
    CHECK_EQ(code, -ECANCELED);
    CHECK_EQ(global, 1);
    CHECK_EQ(sys_xend(), -EINVAL);
}

static void no_auto_retry_means_no_restart(void) {
    int code = sys_xbegin(FLAGS | TX_NO_AUTO_RETRY);
    if (code == 0) {
        global = 5;
        sys_xabort(0);
    }
    CHECK_EQ(code, -ECANCELED);
    CHECK_EQ(global, 1);
}

static void bounded(void) {
    tx_set_max_retries(5);
    int code = sys_xbegin(FLAGS);
    if (code >= 0) sys_xabort(0);
    CHECK_EQ(code, -EBUSY);
    code = sys_xbegin(FLAGS);
    CHECK_EQ(code, 0);
    CHECK_EQ(sys_xend(), 0);
}

static void mappings_come_back(void) {
    long page = 4096;
    char *kept = mmap(NULL, 4 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *closed = mmap(NULL, 4 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *sealed = mmap(NULL, 4 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    put("data", "content of a mapped file");
    int fd = open("data", O_RDONLY);
    char *file = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    char *file2 = mmap(NULL, page, PROT_READ, MAP_PRIVATE, fd, 0);
    CHECK(kept != MAP_FAILED && closed != MAP_FAILED && sealed != MAP_FAILED && file != MAP_FAILED);
    strcpy(kept, "kept");
    strcpy(closed + page, "closed");
    strcpy(sealed, "sealed");
    file[0] = 'C';
    CHECK_EQ(mprotect(sealed, page, PROT_READ), 0);
    char *fresh = NULL;
    // Not on the stack, which comes back.
    int out = open("fresh", O_RDWR | O_CREAT, 0644);
    CHECK_EQ(tx_exempt_fd(out), 0);
    int tries = sys_xbegin(FLAGS);
    if (tries < 2) {
        CHECK_EQ(munmap(closed, 4 * page), 0);
        CHECK_EQ(munmap(kept + 2 * page, page), 0);
        CHECK_EQ(mprotect(sealed, 2 * page, PROT_READ | PROT_WRITE), 0);
        strcpy(sealed, "broken");
        strcpy(kept, "lost");
        file[0] = 'X';
        CHECK_EQ(munmap(file2, page), 0);
        CHECK_EQ(madvise(kept, page, MADV_DONTNEED), 0);
        CHECK(kept[0] == 0);
        fresh = mmap(NULL, 64 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        memset(fresh, 1, 64 * page);
        CHECK_EQ(pwrite(out, &fresh, sizeof fresh, 0), sizeof fresh);
        sbrk(1 << 20);
        sys_xabort(0);
    }
    CHECK_EQ(tries, 2);
    CHECK(strcmp(kept, "kept") == 0 && strcmp(closed + page, "closed") == 0);
    CHECK(kept[2 * page] == 0 && closed[3 * page] == 0);
    CHECK(strcmp(sealed, "sealed") == 0);
    CHECK(strcmp(file, "Content of a mapped file") == 0);
    CHECK(strcmp(file2, "content of a mapped file") == 0);
    CHECK_EQ(pread(out, &fresh, sizeof fresh, 0), sizeof fresh);
    unsigned char in;
    CHECK_EQ(mincore(fresh, page, &in), -1);
    CHECK_EQ(errno, ENOMEM);
    CHECK_EQ(sys_xend(), 0);
    // The protection is back as well.
    pid_t pid = fork();
    if (pid == 0) {
        signal(SIGSEGV, SIG_DFL);
        sealed[0] = 'x';
        _exit(0);
    }
    int status;
    CHECK_EQ(waitpid(pid, &status, 0), pid);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
}

static void descriptors_come_back(void) {
    put("file", "0123456789");
    int fd = open("file", O_RDWR), gone = open("file", O_RDONLY | O_CLOEXEC), null = open("/dev/null", O_RDWR);
    CHECK_EQ(lseek(fd, 4, SEEK_SET), 4);
    int tries = sys_xbegin(FLAGS);
    if (tries == 0) {
        CHECK_EQ(write(fd, "abc", 3), 3);
        CHECK_EQ(close(gone), 0);
        CHECK_EQ(dup2(fd, null), null);
        CHECK_EQ(fcntl(fd, F_SETFD, FD_CLOEXEC), 0);
        for (int i = 0; i < 20; i++) CHECK_THAT(open("more", O_RDWR | O_CREAT, 0644), >=, 0);
        sys_xabort(0);
    }
    CHECK_EQ(tries, 1);
    CHECK_EQ(lseek(fd, 0, SEEK_CUR), 4);
    CHECK_EQ(fcntl(fd, F_GETFD), 0);
    CHECK_EQ(fcntl(gone, F_GETFD), FD_CLOEXEC);
    CHECK_EQ(fcntl(null + 1, F_GETFD), -1);
    CHECK_EQ(write(null, "x", 1), 1);
    CHECK_EQ(sys_xend(), 0);
    CHECK(is("file", "0123456789") && !exists("more"));
    char byte;
    CHECK_EQ(read(gone, &byte, 1), 1);
    CHECK_EQ(byte, '0');
}

static volatile int handled;
static void handler(int signal) {
    (void)signal;
    handled++;
}

static void signals_come_back(void) {
    sigset_t set, now;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR2);
    CHECK_EQ(sigprocmask(SIG_SETMASK, &set, NULL), 0);
    signal(SIGUSR1, handler);
    int tries = sys_xbegin(FLAGS);
    if (tries == 0) {
        signal(SIGUSR1, SIG_IGN);
        signal(SIGHUP, handler);
        sigfillset(&now);
        CHECK_EQ(sigprocmask(SIG_SETMASK, &now, NULL), 0);
        sys_xabort(0);
    }
    CHECK_EQ(sigprocmask(SIG_SETMASK, NULL, &now), 0);
    CHECK(sigismember(&now, SIGUSR2) && !sigismember(&now, SIGUSR1));
    CHECK_EQ(raise(SIGUSR1), 0);
    CHECK_EQ(handled, 1);
    CHECK(signal(SIGHUP, SIG_DFL) == SIG_DFL);
    CHECK_EQ(sys_xend(), 0);
}

static void deferred_signals_wait(void) {
    signal(SIGUSR1, handler);
    sigset_t now;
    CHECK_EQ(sys_xbegin(FLAGS | TX_DEFER_SIGNALS), 0);
    CHECK_EQ(raise(SIGUSR1), 0);
    CHECK_EQ(handled, 0);
    CHECK_EQ(sys_xend(), 0);
    CHECK_EQ(handled, 1);
    CHECK_EQ(sigprocmask(SIG_SETMASK, NULL, &now), 0);
    CHECK(!sigismember(&now, SIGUSR1));
    int tries = sys_xbegin(FLAGS | TX_DEFER_SIGNALS);
    if (tries == 0) {
        CHECK_EQ(raise(SIGUSR1), 0);
        CHECK_EQ(handled, 1);
        sys_xabort(0);
    }
    // Not lost by the rollback.
    CHECK_EQ(handled, 1);
    CHECK_EQ(sys_xend(), 0);
    CHECK_EQ(handled, 2);
    // By default they come at once.
    CHECK_EQ(sys_xbegin(FLAGS), 0);
    CHECK_EQ(raise(SIGUSR1), 0);
    CHECK_EQ(handled, 3);
    CHECK_EQ(sys_xend(), 0);
}

static void rights_and_limits_come_back(void) {
    umask(027);
    struct stat here, there;
    CHECK_EQ(stat("/proc/self/ns/mnt", &here), 0);
    struct rlimit before, now;
    CHECK_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
    now = before;
    now.rlim_cur = before.rlim_cur / 2;
    int tries = sys_xbegin(FLAGS);
    if (tries == 0) {
        umask(0);
        CHECK_EQ(setrlimit(RLIMIT_NOFILE, &now), 0);
        CHECK_EQ(setresgid(65534, 65534, 0), 0);
        CHECK_EQ(setresuid(65534, 65534, 0), 0);
        sys_xabort(0);
    }
    CHECK_EQ(tries, 1);
    CHECK_EQ(geteuid(), 0);
    CHECK_EQ(getuid(), 0);
    CHECK_EQ(getegid(), 0);
    CHECK_EQ(getrlimit(RLIMIT_NOFILE, &now), 0);
    CHECK_EQ(now.rlim_cur, before.rlim_cur);
    CHECK_EQ(umask(0), 027);
    CHECK_EQ(prctl(PR_GET_DUMPABLE), 1);
    // It is where it was before, not in the view that was given up.
    put("file", "x");
    CHECK_EQ(sys_xend(), 0);
    CHECK_EQ(stat("/proc/self/ns/mnt", &there), 0);
    CHECK_EQ(there.st_ino, here.st_ino);
    CHECK(is("file", "x"));
}

// What the kernel has as a limit of this process, whatever the library shows.
static struct rlimit real_limit(int resource) {
    struct rlimit limit;
    CHECK_EQ(syscall(SYS_prlimit64, 0, resource, NULL, &limit), 0);
    return limit;
}

static void check_limit(struct rlimit found, rlim_t soft, rlim_t hard) {
    CHECK_EQ(found.rlim_cur, soft);
    CHECK_EQ(found.rlim_max, hard);
}

static struct rlimit shown_limit(int resource) {
    struct rlimit limit;
    CHECK_EQ(getrlimit(resource, &limit), 0);
    return limit;
}

// From here on a hard limit that was lowered cannot be raised again, as for an ordinary user.
static void give_up_raising_limits(void) {
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct rights[2];
    CHECK_EQ(syscall(SYS_capget, &header, rights), 0);
    rights[0].effective &= ~(1u << CAP_SYS_RESOURCE);
    rights[0].permitted &= ~(1u << CAP_SYS_RESOURCE);
    rights[0].inheritable &= ~(1u << CAP_SYS_RESOURCE);
    CHECK_EQ(syscall(SYS_capset, &header, rights), 0);
}

#define LIMIT (1 << 20)

static const struct rlimit once = {LIMIT, LIMIT}, twice = {LIMIT, 2 * LIMIT};
static const struct rlimit thrice = {LIMIT, 3 * LIMIT}, wrong = {2 * LIMIT, LIMIT};

static void hard_limits_come_back(void) {
    give_up_raising_limits();
    struct rlimit before = real_limit(RLIMIT_FSIZE), files = real_limit(RLIMIT_NOFILE), old;
    CHECK_THAT(before.rlim_max / LIMIT, >, 3);
    int tries = sys_xbegin(FLAGS);
    check_limit(shown_limit(RLIMIT_FSIZE), before.rlim_cur, before.rlim_max);
    check_limit(real_limit(RLIMIT_FSIZE), before.rlim_cur, before.rlim_max);
    if (tries < 0) {
        CHECK_EQ(tries, -ECANCELED);
        CHECK_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
        return;
    }
    check_limit(shown_limit(RLIMIT_NOFILE), files.rlim_cur, files.rlim_max);
    CHECK_EQ(setrlimit(RLIMIT_FSIZE, &twice), 0);
    check_limit(shown_limit(RLIMIT_FSIZE), LIMIT, 2 * LIMIT);
    // The soft one is real.
    CHECK_EQ(real_limit(RLIMIT_FSIZE).rlim_cur, LIMIT);
    CHECK_EQ(setrlimit(RLIMIT_FSIZE, &thrice), -1);
    CHECK_EQ(errno, EPERM);
    CHECK_EQ(setrlimit64(RLIMIT_FSIZE, (const struct rlimit64 *)&wrong), -1);
    CHECK_EQ(errno, EINVAL);
    check_limit(shown_limit(RLIMIT_FSIZE), LIMIT, 2 * LIMIT);
    const struct rlimit soft = {2 * LIMIT, 2 * LIMIT};
    CHECK_EQ(prlimit(0, RLIMIT_FSIZE, &soft, &old), 0);
    check_limit(old, LIMIT, 2 * LIMIT);
    CHECK_EQ(prlimit(getpid(), RLIMIT_FSIZE, &once, &old), 0);
    check_limit(old, 2 * LIMIT, 2 * LIMIT);
    struct rlimit64 now;
    CHECK_EQ(prlimit64(getpid(), RLIMIT_FSIZE, NULL, &now), 0);
    CHECK_EQ(now.rlim_max, LIMIT);
    CHECK_EQ(getrlimit64(RLIMIT_FSIZE, &now), 0);
    CHECK_EQ(now.rlim_max, LIMIT);
    CHECK_EQ(setrlimit(RLIMIT_FSIZE, &twice), -1);
    CHECK_EQ(errno, EPERM);
    files.rlim_max = files.rlim_cur;
    CHECK_EQ(setrlimit(RLIMIT_NOFILE, &files), 0);
    CHECK_EQ(prlimit(0, 1000, NULL, &old), -1);
    CHECK_EQ(errno, EINVAL);
    CHECK_EQ(setrlimit(1000, &once), -1);
    CHECK_EQ(errno, EINVAL);
    sys_xabort(tries == 2);
    CHECK(0);
}

static void lowered_hard_limits_commit(void) {
    give_up_raising_limits();
    outsider_start();
    put("file", "1");
    CHECK_EQ(sys_xbegin(FLAGS), 0);
    CHECK_EQ(setrlimit(RLIMIT_FSIZE, &thrice), 0);
    CHECK_EQ(sys_xend(), 0);
    check_limit(real_limit(RLIMIT_FSIZE), LIMIT, 3 * LIMIT);
    int tries = sys_xbegin(FLAGS);
    CHECK_THAT(tries, >=, 0);
    check_limit(shown_limit(RLIMIT_FSIZE), LIMIT, 3 * LIMIT);
    if (tries == 0) {
        CHECK_EQ(setrlimit(RLIMIT_FSIZE, &once), 0);
        CHECK_EQ(sys_xbegin(FLAGS), 0);
        CHECK_EQ(setrlimit(__RLIMIT_LOCKS, &thrice), 0);
        CHECK_EQ(sys_xend(), 0);
        CHECK_THAT(real_limit(__RLIMIT_LOCKS).rlim_max / LIMIT, >, 3);
        sys_xabort(0);
    }
    CHECK_EQ(sys_xend(), 0);
    check_limit(real_limit(RLIMIT_FSIZE), LIMIT, 3 * LIMIT);
    // An end that loses without a rollback leaves memory as it is, and the limits.
    CHECK_EQ(sys_xbegin(FLAGS | TX_NO_AUTO_RETRY), 0);
    CHECK(is("file", "1"));
    CHECK_EQ(outsider("echo 2 > file"), 0);
    CHECK_EQ(setrlimit(RLIMIT_FSIZE, &twice), 0);
    CHECK_EQ(sys_xend(), -ECANCELED);
    check_limit(real_limit(RLIMIT_FSIZE), LIMIT, 2 * LIMIT);
    // Without rollback, and outside, the calls are as ever.
    CHECK_EQ(sys_xbegin(FLAGS | TX_NO_USER_ROLLBACK), 0);
    CHECK_EQ(setrlimit(RLIMIT_FSIZE, &once), 0);
    check_limit(real_limit(RLIMIT_FSIZE), LIMIT, LIMIT);
    sys_xabort(1);
    check_limit(shown_limit(RLIMIT_FSIZE), LIMIT, LIMIT);
    CHECK_EQ(setrlimit(RLIMIT_FSIZE, &twice), -1);
    CHECK_EQ(errno, EPERM);
}

static void children_have_lowered_hard_limits(void) {
    give_up_raising_limits();
    struct rlimit before = real_limit(RLIMIT_FSIZE);
    int tries = sys_xbegin(FLAGS);
    CHECK_THAT(tries, >=, 0);
    if (tries < 2) {
        check_limit(shown_limit(RLIMIT_FSIZE), before.rlim_cur, before.rlim_max);
        CHECK_EQ(setrlimit(RLIMIT_FSIZE, &twice), 0);
        pid_t pid = fork();
        CHECK_THAT(pid, >=, 0);
        if (pid == 0) {
            check_limit(real_limit(RLIMIT_FSIZE), LIMIT, 2 * LIMIT);
            check_limit(shown_limit(RLIMIT_FSIZE), LIMIT, 2 * LIMIT);
            CHECK_EQ(setrlimit(RLIMIT_FSIZE, &thrice), -1);
            const char *line = "Max file size *1048576 *2097152 ";
            execlp("grep", "grep", "-q", line, "/proc/self/limits", NULL);
            CHECK(0);
        }
        int status;
        CHECK_EQ(waitpid(pid, &status, 0), pid);
        CHECK_EQ(status, 0);
        // Started without a fork: the soft limit.
        CHECK_EQ(system("grep -q 'Max file size *1048576 ' /proc/self/limits"), 0);
        sys_xabort(0);
    }
    check_limit(real_limit(RLIMIT_FSIZE), before.rlim_cur, before.rlim_max);
    CHECK_EQ(sys_xend(), 0);
}

// What was lowered can be raised again, so it is no hindrance on the way out; it stays as it is after a
// commit.
static void lowered_rights_commit(void) {
    CHECK_EQ(chmod(".", 0777), 0);
    put("secret", "x");
    CHECK_EQ(chmod("secret", 0600), 0);
    CHECK_EQ(sys_xbegin(FLAGS), 0);
    CHECK_EQ(seteuid(65534), 0);
    put("file", "x");
    CHECK_EQ(sys_xend(), 0);
    CHECK_EQ(geteuid(), 65534);
    CHECK_EQ(open("secret", O_RDONLY), -1);
    CHECK_EQ(sys_xbegin(FLAGS | TX_NO_USER_ROLLBACK), 0);
    put("file2", "x");
    CHECK_EQ(sys_xend(), 0);
    CHECK_EQ(seteuid(0), 0);
    struct stat st;
    CHECK_EQ(stat("file", &st), 0);
    CHECK_EQ(st.st_uid, 65534);
    CHECK(exists("file2"));
}

// Who cannot leave any more ends with the transaction.
static void rights_given_up_for_good(void) {
    for (int rolls_back = 0; rolls_back < 2; rolls_back++) {
        pid_t pid = fork();
        if (pid == 0) {
            dup2(open("/dev/null", O_WRONLY), 2);
            CHECK_EQ(sys_xbegin(FLAGS | (rolls_back ? 0 : TX_NO_USER_ROLLBACK)), 0);
            put("file", "x");
            CHECK_EQ(setresuid(65534, 65534, 65534), 0);
            if (rolls_back) sys_xabort(0);
            else sys_xend();
            _exit(0);
        }
        int status;
        CHECK_EQ(waitpid(pid, &status, 0), pid);
        CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        CHECK(!exists("file"));
    }
}

static void timers_come_back(void) {
    struct itimerval off = {{0, 0}, {0, 0}}, hour = {{0, 0}, {3600, 0}}, now;
    CHECK_EQ(setitimer(ITIMER_REAL, &hour, NULL), 0);
    int tries = sys_xbegin(FLAGS);
    if (tries == 0) {
        CHECK_EQ(setitimer(ITIMER_REAL, &off, NULL), 0);
        sys_xabort(0);
    }
    CHECK_EQ(getitimer(ITIMER_REAL, &now), 0);
    CHECK_THAT(now.it_value.tv_sec, >=, 3500);
    CHECK_EQ(sys_xend(), 0);
}

static void posix_timers_come_back(void) {
    timer_t kept, deleted, made;
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR2};
    struct itimerspec hour = {{0, 0}, {3600, 0}}, tenth = {{0, 100000000}, {0, 1000000}}, now;
    CHECK_EQ(timer_create(CLOCK_MONOTONIC, NULL, &kept), 0);
    event.sigev_value.sival_int = 77;
    CHECK_EQ(timer_create(CLOCK_REALTIME, &event, &deleted), 0);
    CHECK_EQ(timer_settime(kept, 0, &hour, NULL), 0);
    CHECK_EQ(timer_settime(deleted, 0, &hour, NULL), 0);
    signal(SIGUSR1, handler);
    int tries = sys_xbegin(FLAGS);
    if (tries == 0) {
        hour.it_value.tv_sec = 10;
        CHECK_EQ(timer_settime(kept, 0, &hour, NULL), 0);
        CHECK_EQ(timer_delete(deleted), 0);
        event.sigev_signo = SIGUSR1;
        CHECK_EQ(timer_create(CLOCK_MONOTONIC, &event, &made), 0);
        CHECK_EQ(timer_settime(made, 0, &tenth, NULL), 0);
        sys_xabort(0);
    }
    CHECK_EQ(tries, 1);
    handled = 0;
    CHECK_EQ(timer_gettime(kept, &now), 0);
    CHECK_THAT(now.it_value.tv_sec, >=, 3500);
    CHECK_EQ(timer_gettime(deleted, &now), 0);
    CHECK_THAT(now.it_value.tv_sec, >=, 3500);
    usleep(300000);
    CHECK_EQ(handled, 0);
    // It does what it did.
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR2);
    CHECK_EQ(sigprocmask(SIG_BLOCK, &set, NULL), 0);
    CHECK_EQ(timer_settime(deleted, 0, &tenth, NULL), 0);
    siginfo_t info;
    CHECK_EQ(sigwaitinfo(&set, &info), SIGUSR2);
    CHECK_EQ(info.si_value.sival_int, 77);
    CHECK_EQ(sys_xend(), 0);
}

static void working_directory_comes_back(void) {
    CHECK_EQ(mkdir("there", 0755), 0);
    int tries = sys_xbegin(FLAGS);
    if (tries == 0) {
        CHECK_EQ(chdir("there"), 0);
        put("x", "x");
        sys_xabort(0);
    }
    CHECK(exists("there") && !exists("x"));
    CHECK_EQ(sys_xend(), 0);
}

// Pages that are mapped, and pages of its own that are in memory.
static long resident(void) {
    long size, pages = 0, shared = 0;
    FILE *statm = fopen("/proc/self/statm", "r");
    CHECK(statm && fscanf(statm, "%ld %ld %ld", &size, &pages, &shared) == 3);
    fclose(statm);
    return size + pages - shared;
}

// An allocator that takes memory from the kernel each time it is tried again.
static void nothing_leaks_over_retries(void) {
    const int rounds = getenv("ROUNDS") ? atoi(getenv("ROUNDS")) : 100;
    tx_set_max_retries(rounds + 1);
    put("file", "");
    CHECK_EQ(sys_xbegin(FLAGS), 0); // what the library itself needs is there then
    CHECK_EQ(sys_xend(), 0);
    long before = resident();
    int tries = sys_xbegin(FLAGS);
    CHECK_THAT(tries, >=, 0);
    if (tries < rounds) {
        for (int i = 0; i < 8; i++) {
            char *got = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            CHECK(got != MAP_FAILED);
            got[4096] = 1;
            CHECK(malloc(50000));
        }
        CHECK_THAT(open("file", O_RDWR), >=, 0);
        sys_xabort(0);
    }
    CHECK_EQ(tries, rounds);
    CHECK_EQ(sys_xend(), 0);
    long after = resident();
    if (after > before + 64) {
        fprintf(stderr, "%ld pages before, %ld after\n", before, after);
        _exit(1);
    }
}

static void floating_point_comes_back(void) {
    volatile double value = 1.5;
    int tries = sys_xbegin(FLAGS);
    if (tries == 0) {
        value = 7.0;
        sys_xabort(0);
    }
    CHECK(value == 1.5);
    CHECK_EQ(sys_xend(), 0);
}

static int deep(int depth) {
    char frame[2000];
    memset(frame, depth, sizeof frame);
    if (depth > 0) return deep(depth - 1) + frame[7];
    sys_xabort(0);
    return 0;
}

static void from_deep_in_the_stack(void) {
    int tries = sys_xbegin(FLAGS);
    if (tries == 0) deep(100);
    CHECK_EQ(tries, 1);
    CHECK_EQ(sys_xend(), 0);
}

static int begin_in_a_function(void) {
    char frame[5000];
    memset(frame, 3, sizeof frame);
    int tries = sys_xbegin(FLAGS);
    return tries + frame[4000] - 3;
}

static void the_function_that_began_has_returned(void) {
    int tries = begin_in_a_function();
    char frame[9000];
    memset(frame, 9, sizeof frame);
    if (tries == 0) sys_xabort(0);
    CHECK_EQ(tries, 1);
    CHECK_EQ(frame[3], 9);
    CHECK_EQ(sys_xend(), 0);
}

static void the_snapshot_is_no_child(void) {
    CHECK_EQ(sys_xbegin(FLAGS), 0);
    errno = 0;
    CHECK_EQ(waitpid(-1, NULL, 0), -1);
    CHECK_EQ(errno, ECHILD);
    CHECK_EQ(system("exit 3") >> 8, 3);
    CHECK_EQ(sys_xend(), 0);
    errno = 0;
    CHECK_EQ(waitpid(-1, NULL, 0), -1);
    CHECK_EQ(errno, ECHILD);
}

// Children of a try that was given up are not children of the next.
static void children_of_a_try_go_with_it(void) {
    int before = fork(), status;
    if (before == 0) {
        pause();
        _exit(0);
    }
    int tries = sys_xbegin(FLAGS);
    CHECK_THAT(tries, >=, 0);
    int child = fork();
    if (child == 0) {
        if (tries < 3) pause();
        _exit(7);
    }
    if (tries < 3) sys_xabort(0);
    CHECK_EQ(waitpid(-1, &status, 0), child);
    CHECK_EQ(WEXITSTATUS(status), 7);
    CHECK_EQ(sys_xend(), 0);
    CHECK_EQ(kill(before, SIGKILL), 0);
    CHECK_EQ(waitpid(-1, &status, 0), before);
    CHECK_EQ(waitpid(-1, &status, 0), -1);
}

static void offsets_of_nameless_files_come_back(void) {
    FILE *file = tmpfile();
    CHECK(file);
    fputs("base\n", file);
    CHECK_EQ(fflush(file), 0);
    int tries = sys_xbegin(FLAGS);
    CHECK_THAT(tries, >=, 0);
    fprintf(file, "one\n");
    CHECK_EQ(fflush(file), 0);
    if (tries < 2) sys_xabort(0);
    CHECK_EQ(sys_xend(), 0);
    CHECK_EQ(ftell(file), 9);
    CHECK_EQ(lseek(fileno(file), 0, SEEK_END), 9);
}

static void offsets_in_proc_come_back(void) {
    char text[8];
    int fd = open("/proc/self/status", O_RDONLY);
    CHECK_EQ(read(fd, text, 5), 5);
    DIR *tasks = opendir("/proc/self");
    CHECK(tasks && readdir(tasks));
    int at = dirfd(tasks);
    CHECK_EQ(lseek(at, 0, SEEK_SET), 0);
    int tries = sys_xbegin(FLAGS);
    CHECK_THAT(tries, >=, 0);
    CHECK_EQ(lseek(fd, 0, SEEK_CUR), 5);
    CHECK_EQ(lseek(at, 0, SEEK_CUR), 0);
    CHECK_EQ(read(fd, text, 3), 3);
    CHECK_THAT(syscall(SYS_getdents64, at, (char[32768]){0}, 32768), >, 0);
    if (tries < 2) sys_xabort(0);
    CHECK_EQ(sys_xend(), 0);
    CHECK_EQ(lseek(fd, 0, SEEK_CUR), 8);
    CHECK_EQ(closedir(tasks), 0);
}

static void an_exempt_file_keeps_its_offset(void) {
    FILE *file = tmpfile();
    CHECK(file);
    CHECK_EQ(tx_exempt_fd(fileno(file)), 0);
    int tries = sys_xbegin(FLAGS);
    CHECK_THAT(tries, >=, 0);
    CHECK_EQ(write(fileno(file), "try ", 4), 4);
    if (tries < 2) sys_xabort(0);
    CHECK_EQ(sys_xend(), 0);
    CHECK_EQ(lseek(fileno(file), 0, SEEK_END), 12);
}

int main(int argc, char **argv) {
    const struct test tests[] = {
        {"memory_comes_back", memory_comes_back},
        {"a_lost_conflict_runs_again", a_lost_conflict_runs_again},
        {"no_restart", no_restart},
        {"no_auto_retry_means_no_restart", no_auto_retry_means_no_restart},
        {"bounded", bounded},
        {"mappings_come_back", mappings_come_back},
        {"descriptors_come_back", descriptors_come_back},
        {"signals_come_back", signals_come_back},
        {"deferred_signals_wait", deferred_signals_wait},
        {"rights_and_limits_come_back", rights_and_limits_come_back},
        {"hard_limits_come_back", hard_limits_come_back},
        {"lowered_hard_limits_commit", lowered_hard_limits_commit},
        {"children_have_lowered_hard_limits", children_have_lowered_hard_limits},
        {"lowered_rights_commit", lowered_rights_commit},
        {"rights_given_up_for_good", rights_given_up_for_good},
        {"timers_come_back", timers_come_back},
        {"posix_timers_come_back", posix_timers_come_back},
        {"working_directory_comes_back", working_directory_comes_back},
        {"nothing_leaks_over_retries", nothing_leaks_over_retries},
        {"floating_point_comes_back", floating_point_comes_back},
        {"from_deep_in_the_stack", from_deep_in_the_stack},
        {"the_function_that_began_has_returned", the_function_that_began_has_returned},
        {"the_snapshot_is_no_child", the_snapshot_is_no_child},
        {"children_of_a_try_go_with_it", children_of_a_try_go_with_it},
        {"offsets_in_proc_come_back", offsets_in_proc_come_back},
        {"an_exempt_file_keeps_its_offset", an_exempt_file_keeps_its_offset},
        {"offsets_of_nameless_files_come_back", offsets_of_nameless_files_come_back},
        {NULL, NULL},
    };
    return run_cases(argc, argv, tests);
}

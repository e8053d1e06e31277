// Transactions of threads that have files, pipes and rights in common with others.
#include "check.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#define PLAIN (TX_NO_USER_ROLLBACK | TX_NONDURABLE)

static pthread_barrier_t barrier;

// A thread with a table of descriptors of its own has files as a program with one thread has them.
static void *with_a_table_of_its_own(void *argument) {
    int number = (int)(long)argument, twice;
    char name[16], made[16], text[16] = {0};
    snprintf(name, sizeof name, "file%d", number);
    snprintf(made, sizeof made, "made%d", number);
    CHECK_EQ(unshare(CLONE_FILES), 0);
    int fd = open(name, O_RDWR | O_CREAT, 0644);
    CHECK_THAT(fd, >=, 0);
    CHECK_EQ(write(fd, "before", 6), 6);
    twice = dup(fd);
    CHECK_EQ(sys_xbegin(PLAIN), 0);
    CHECK_EQ(write(fd, "inside", 6), 6);
    CHECK_EQ(lseek(twice, 0, SEEK_CUR), 12);
    int kept = open(made, O_RDWR | O_CREAT, 0644);
    CHECK_EQ(write(kept, name, 5), 5);
    pthread_barrier_wait(&barrier);
    // The main thread looks.
    pthread_barrier_wait(&barrier);
    if (number == 2) sys_xabort(1);
    else CHECK_EQ(sys_xend(), 0);
    pthread_barrier_wait(&barrier);
    CHECK_EQ(lseek(twice, 0, SEEK_CUR), number == 2 ? 6 : 12);
    CHECK_EQ(write(fd, "!", 1), 1);
    CHECK_EQ(pread(fd, text, sizeof text, 0), number == 2 ? 7 : 13);
    if (number == 2) {
        CHECK_EQ(fcntl(kept, F_GETFD), -1);
    } else {
        CHECK_EQ(write(kept, "+", 1), 1);
        CHECK(is(made, number == 0 ? "file0+" : "file1+"));
    }
    return NULL;
}

static void a_thread_with_its_own_table_carries_its_files(void) {
    pthread_t threads[3];
    pthread_barrier_init(&barrier, NULL, 4);
    for (long i = 0; i < 3; i++) {
        CHECK_EQ(pthread_create(&threads[i], NULL, with_a_table_of_its_own, (void *)i), 0);
    }
    pthread_barrier_wait(&barrier);
    CHECK(is("file0", "before") && is("file1", "before") && is("file2", "before"));
    CHECK(!exists("made0"));
    // Numbers that it never had.
    for (int fd = 3; fd < 9; fd++) CHECK_EQ(fcntl(fd, F_GETFD), -1);
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
    CHECK(is("file0", "beforeinside!") && is("file2", "before!") && !exists("made2"));
}

static void *nothing(void *argument) {
    return argument;
}

// The kernel lists a thread a moment longer than pthread_join() waits.
static void a_thread_that_was_joined_does_not_count(void) {
    for (int i = 0; i < 200; i++) {
        pthread_t threads[3];
        for (int j = 0; j < 3; j++) CHECK_EQ(pthread_create(&threads[j], NULL, nothing, NULL), 0);
        for (int j = 0; j < 3; j++) pthread_join(threads[j], NULL);
        CHECK_EQ(sys_xbegin(TX_NONDURABLE), 0);
        CHECK_EQ(sys_xend(), 0);
    }
}

// A directory or a file that another thread has open for a moment is no reason to refuse.
static volatile int stop;

static void *opens_and_closes(void *argument) {
    while (!stop) {
        close(open(".", O_RDONLY | O_DIRECTORY));
        close(open("list", O_RDONLY));
    }
    return argument;
}

static void what_others_open_for_a_moment_does_not_count(void) {
    pthread_t threads[3];
    put("list", "x");
    for (int i = 0; i < 3; i++) CHECK_EQ(pthread_create(&threads[i], NULL, opens_and_closes, NULL), 0);
    for (int i = 0; i < 30; i++) {
        CHECK_EQ(sys_xbegin(PLAIN), 0);
        CHECK_EQ(sys_xend(), 0);
    }
    stop = 1;
    for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
}

// Open files of a table that all threads share: each transaction has the view's, and the others see nothing of it.
static int shared[3], kept[3], closed[3], self[3];

static void *with_the_table_of_all(void *argument) {
    int number = (int)(long)argument, fd = shared[number];
    char made[16];
    snprintf(made, sizeof made, "made%d", number);
    self[number] = gettid();
    int result, tries = 0;
    do {
        CHECK_THAT(sys_xbegin(PLAIN), >=, 0);
        CHECK_EQ(write(fd, "inside", 6), 6);
        CHECK_EQ(lseek(fd, 0, SEEK_CUR), 12);
        kept[number] = open(made, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
        CHECK_EQ(write(kept[number], made, 5), 5);
        CHECK_EQ(close(closed[number]), 0);
        if (tries++ == 0) {
            pthread_barrier_wait(&barrier);
            // The main thread looks.
            pthread_barrier_wait(&barrier);
        }
        if (number == 2) {
            sys_xabort(1);
            return NULL;
        }
        // All have opened the lowest number that was free: it can be one thread's.
        result = sys_xend();
        CHECK(result == 0 || result == -EAGAIN);
        if (result) CHECK_EQ(lseek(fd, 0, SEEK_CUR), 6);
    } while (result);
    CHECK_EQ(gettid(), self[number]);
    return NULL;
}

static void threads_carry_the_files_of_all(void) {
    pthread_t threads[3];
    char name[16];
    closefrom(3);
    for (int i = 0; i < 3; i++) {
        snprintf(name, sizeof name, "file%d", i);
        shared[i] = open(name, O_RDWR | O_CREAT, 0644);
        CHECK_EQ(write(shared[i], "before", 6), 6);
        closed[i] = open(name, O_RDONLY);
        CHECK_THAT(closed[i], >, 2);
    }
    int highest = dup(0);
    close(highest);
    pthread_barrier_init(&barrier, NULL, 4);
    for (long i = 0; i < 3; i++) {
        CHECK_EQ(pthread_create(&threads[i], NULL, with_the_table_of_all, (void *)i), 0);
    }
    pthread_barrier_wait(&barrier);
    CHECK(is("file0", "before") && is("file1", "before") && is("file2", "before") && !exists("made0"));
    for (int i = 0; i < 3; i++) {
        // At its numbers are the files outside.
        CHECK_EQ(lseek(shared[i], 0, SEEK_CUR), 6);
        CHECK_EQ(fcntl(closed[i], F_GETFD), 0);
        CHECK_EQ(fcntl(highest + i, F_GETFD), -1);
    }
    pthread_barrier_wait(&barrier);
    for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
    CHECK(is("file0", "beforeinside") && is("file1", "beforeinside") && is("file2", "before"));
    CHECK(!exists("made2"));
    CHECK(kept[0] != kept[1]);
    for (int i = 0; i < 2; i++) {
        char text[16] = {0};
        snprintf(name, sizeof name, "made%d", i);
        CHECK_EQ(lseek(shared[i], 0, SEEK_CUR), 12);
        // The other thread may have the number since.
        CHECK(fcntl(closed[i], F_GETFD) == -1 || closed[i] == kept[1 - i]);
        CHECK_EQ(fcntl(kept[i], F_GETFD), FD_CLOEXEC);
        CHECK_EQ(lseek(kept[i], 0, SEEK_CUR), 5);
        CHECK_EQ(pread(kept[i], text, sizeof text, 0), 5);
        CHECK_EQ(strcmp(text, name), 0);
        CHECK_EQ(write(kept[i], "+", 1), 1);
        char expected[24];
        snprintf(expected, sizeof expected, "%s+", name);
        CHECK(is(name, expected));
        close(kept[i]);
    }
    CHECK_EQ(lseek(shared[2], 0, SEEK_CUR), 6);
    CHECK_EQ(fcntl(closed[2], F_GETFD), 0);
    // Nothing else is left open.
    for (int fd = highest; fd < highest + 40; fd++) CHECK_EQ(fcntl(fd, F_GETFD), -1);
}

// What a thread does to itself inside it has done; what it does to its files by dup2, too.
static void *changes_itself(void *argument) {
    int fd = *(int *)argument;
    CHECK_EQ(sys_xbegin(PLAIN), 0);
    umask(027);
    CHECK_EQ(setpriority(PRIO_PROCESS, 0, 7), 0);
    CHECK_EQ(chdir("below"), 0);
    int other = open("other", O_RDWR | O_CREAT, 0666);
    CHECK_EQ(dup2(other, fd), fd);
    close(other);
    CHECK_EQ(write(fd, "other", 5), 5);
    CHECK_EQ(fcntl(fd, F_SETFD, FD_CLOEXEC), 0);
    pid_t child = fork();
    if (child == 0) {
        CHECK_EQ(write(fd, "+child", 6), 6);
        if (sys_xend() != 0) _exit(1);
        // Free, and outside.
        _exit(access("../below/other", F_OK) == 0);
    }
    int status;
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK_EQ(status, 0);
    CHECK_EQ(system("echo +shell >> other"), 0);
    CHECK_EQ(sys_xend(), 0);
    CHECK_EQ(umask(022), 027);
    CHECK_EQ(getpriority(PRIO_PROCESS, 0), 7);
    CHECK(is("other", "other+child+shell\n"));
    struct stat stat;
    CHECK_EQ(fstat(fd, &stat), 0);
    CHECK_EQ(stat.st_mode & 0777, 0640);
    return NULL;
}

static void a_thread_keeps_what_it_did_to_itself(void) {
    pthread_t thread;
    CHECK_EQ(mkdir("below", 0755), 0);
    int fd = open("file", O_RDWR | O_CREAT, 0644);
    CHECK_EQ(pthread_create(&thread, NULL, changes_itself, &fd), 0);
    pthread_join(thread, NULL);
    char text[32] = {0};
    CHECK_THAT(pread(fd, text, sizeof text, 0), >, 0);
    CHECK_EQ(strcmp(text, "other+child+shell\n"), 0);
    CHECK_EQ(fcntl(fd, F_GETFD), FD_CLOEXEC);
    CHECK(is("file", ""));
    CHECK(exists("file")); // it is where it was: the thread's directory was its own
}

// The kernel's own view of a thread: its processor (restartable sequences), its stack for handlers.
static volatile uintptr_t handler_ran_at;

static void notes_its_stack(int signal) {
    (void)signal;
    char here;
    handler_ran_at = (uintptr_t)&here;
}

static void stays_on(int processor) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(processor, &one);
    CHECK_EQ(sched_setaffinity(0, sizeof one, &one), 0);
    for (int i = 0; i < 3; i++) {
        CHECK_EQ(sched_getcpu(), processor);
        sched_yield();
    }
}

static void *asks_where_it_is(void *argument) {
    static char memory[64 * 1024];
    stack_t stack = {.ss_sp = memory, .ss_size = sizeof memory}, now;
    cpu_set_t may;
    CHECK_EQ(sigaltstack(&stack, NULL), 0);
    CHECK_EQ(sched_getaffinity(0, sizeof may, &may), 0);
    int last = 0;
    CHECK_EQ(sys_xbegin(PLAIN), 0);
    for (int i = 0; i < CPU_SETSIZE; i++) {
        if (CPU_ISSET(i, &may)) stays_on(last = i);
    }
    put("x", "x");
    handler_ran_at = 0;
    CHECK_EQ(raise(SIGUSR1), 0);
    CHECK(handler_ran_at - (uintptr_t)memory < sizeof memory);
    CHECK_EQ(sys_xend(), 0);
    CHECK_EQ(sched_getcpu(), last);
    for (int i = 0; i < CPU_SETSIZE; i++) {
        if (CPU_ISSET(i, &may)) stays_on(i);
    }
    CHECK_EQ(sigaltstack(NULL, &now), 0);
    CHECK(now.ss_sp == memory);
    return argument;
}

static void a_thread_is_where_it_is(void) {
    pthread_t thread;
    struct sigaction action = {.sa_handler = notes_its_stack, .sa_flags = SA_ONSTACK};
    CHECK_EQ(sigaction(SIGUSR1, &action, NULL), 0);
    CHECK_THAT(open("open", O_RDWR | O_CREAT, 0644), >, 2);
    CHECK_EQ(pthread_create(&thread, NULL, asks_where_it_is, NULL), 0);
    pthread_join(thread, NULL);
}

// Ends that nobody in the process hears of.
static void *ends_by_the_bare_call(void *argument) {
    CHECK_EQ(sys_xbegin(PLAIN), 0);
    put("never", "x");
    syscall(SYS_exit, 0);
    return argument;
}

static void *becomes_another_program(void *argument) {
    CHECK_EQ(sys_xbegin(PLAIN), 0);
    put("by the thread", "x");
    execl("/bin/sh", "sh", "-c", "echo x > 'by the program'", NULL);
    return argument;
}

static void a_thread_with_files_open_ends_by_a_call(void) {
    pthread_t thread;
    CHECK_THAT(open("open", O_RDWR | O_CREAT, 0644), >, 2);
    CHECK_EQ(pthread_create(&thread, NULL, ends_by_the_bare_call, NULL), 0);
    pthread_join(thread, NULL);
    CHECK(!exists("never"));
    pid_t pid = fork();
    if (pid == 0) {
        pthread_create(&thread, NULL, becomes_another_program, NULL);
        for (;;) pause();
    }
    int status;
    CHECK_EQ(waitpid(pid, &status, 0), pid);
    CHECK_EQ(status, 0);
    for (int i = 0; i < 1000 && !exists("by the program"); i++) usleep(10000);
    CHECK(exists("by the program") && exists("by the thread"));
}

// Locks of the C library, its thread-specific data and cancellation know nothing of a stand-in.
static pthread_mutex_t checked;
static pthread_t ending;
static _Thread_local int own_value;

static void *ends_with_files_open(void *argument) {
    own_value = 5;
    CHECK_EQ(pthread_mutex_lock(&checked), 0);
    CHECK_EQ(sys_xbegin(PLAIN), 0);
    CHECK_EQ(own_value, 5);
    CHECK_EQ(pthread_mutex_lock(&checked), EDEADLK);
    CHECK_EQ(pthread_mutex_unlock(&checked), 0);
    CHECK_EQ(pthread_equal(pthread_self(), ending), 1);
    own_value = 6;
    errno = 0;
    CHECK_EQ(open("nothing", O_RDONLY), -1);
    CHECK_EQ(errno, ENOENT);
    put("by the one that ends", "x");
    (void)argument;
    pthread_exit((void *)(long)own_value);
}

static void *is_cancelled(void *argument) {
    CHECK_EQ(sys_xbegin(PLAIN), 0);
    put("by the cancelled", "x");
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    CHECK_EQ(sys_xend(), 0);
    for (;;) pause();
    return argument;
}

static void a_thread_with_files_open_ends_inside(void) {
    pthread_t thread;
    pthread_mutexattr_t kind;
    pthread_mutexattr_init(&kind);
    pthread_mutexattr_settype(&kind, PTHREAD_MUTEX_ERRORCHECK);
    pthread_mutex_init(&checked, &kind);
    CHECK_THAT(open("open", O_RDWR | O_CREAT, 0644), >, 2);
    pthread_mutex_lock(&checked);
    CHECK_EQ(pthread_create(&ending, NULL, ends_with_files_open, NULL), 0);
    pthread_mutex_unlock(&checked);
    void *result;
    CHECK_EQ(pthread_join(ending, &result), 0);
    CHECK_EQ((long)result, 6);
    CHECK(exists("by the one that ends"));
    pthread_barrier_init(&barrier, NULL, 2);
    CHECK_EQ(pthread_create(&thread, NULL, is_cancelled, NULL), 0);
    pthread_barrier_wait(&barrier);
    CHECK_EQ(pthread_cancel(thread), 0);
    pthread_barrier_wait(&barrier);
    CHECK_EQ(pthread_join(thread, &result), 0);
    CHECK(result == PTHREAD_CANCELED && exists("by the cancelled"));
}

// A thread that is started inside nests.
static volatile int aborts;

static void *nests(void *argument) {
    CHECK(is("outer", "o"));
    CHECK_EQ(sys_xbegin(PLAIN), 0);
    put("inner", "i");
    if (aborts) sys_xabort(1);
    else CHECK_EQ(sys_xend(), 0);
    return argument;
}

static void *begins_and_starts_one(void *argument) {
    pthread_t thread;
    CHECK_EQ(sys_xbegin(PLAIN), 0);
    put("outer", "o");
    CHECK_EQ(pthread_create(&thread, NULL, nests, NULL), 0);
    pthread_join(thread, NULL);
    if (aborts) CHECK_EQ(sys_xend(), -ECANCELED);
    else if (argument) sys_xabort(1);
    else CHECK_EQ(sys_xend(), 0);
    return argument;
}

static void a_thread_started_inside_nests(void) {
    pthread_t thread;
    for (int files = 0; files < 2; files++) {
        if (files) CHECK_THAT(open("open", O_RDWR | O_CREAT, 0644), >, 2);
        for (long way = 0; way < 3; way++) {
            aborts = way == 2;
            void *given_up = way == 1 ? &thread : NULL;
            CHECK_EQ(pthread_create(&thread, NULL, begins_and_starts_one, given_up), 0);
            pthread_join(thread, NULL);
            CHECK_EQ(exists("inner") && exists("outer"), way == 0);
            CHECK_EQ(exists("inner") || exists("outer"), way == 0);
            unlink("inner");
            unlink("outer");
            begins_and_starts_one(given_up);
            CHECK_EQ(exists("inner") && exists("outer"), way == 0);
            CHECK_EQ(exists("inner") || exists("outer"), way == 0);
            unlink("inner");
            unlink("outer");
        }
    }
}

// /proc/self/fd is the table of the thread that looks, which is what a program takes it for.
static void *opens_by_number(void *argument) {
    char path[32];
    int fd = *(int *)argument;
    CHECK_EQ(sys_xbegin(PLAIN), 0);
    snprintf(path, sizeof path, "/dev/fd/%d", fd);
    int again = open(path, O_WRONLY | O_TRUNC);
    CHECK_EQ(write(again, "inside", 6), 6);
    close(again);
    CHECK(is("file", "inside"));
    int nameless = open(".", O_TMPFILE | O_RDWR, 0600);
    CHECK_EQ(write(nameless, "named", 5), 5);
    snprintf(path, sizeof path, "/proc/self/fd/%d", nameless);
    CHECK_EQ(linkat(AT_FDCWD, path, AT_FDCWD, "linked", AT_SYMLINK_FOLLOW), 0);
    sys_xabort(1);
    CHECK(is("file", "outside") && !exists("linked"));
    return NULL;
}

static void a_number_in_proc_is_the_threads(void) {
    pthread_t thread;
    put("file", "outside");
    int fd = open("file", O_RDWR);
    CHECK_EQ(pthread_create(&thread, NULL, opens_by_number, &fd), 0);
    pthread_join(thread, NULL);
}

// At a point of cancellation inside, too, it waits for the end.
static void *sleeps_inside(void *argument) {
    CHECK_EQ(sys_xbegin(PLAIN), 0);
    put("by the sleeper", "x");
    pthread_barrier_wait(&barrier);
    usleep(300000);
    CHECK_EQ(sys_xend(), 0);
    pthread_testcancel();
    return argument;
}

static void a_thread_is_cancelled_at_the_end(void) {
    pthread_t thread;
    void *result;
    CHECK_THAT(open("open", O_RDWR | O_CREAT, 0644), >, 2);
    pthread_barrier_init(&barrier, NULL, 2);
    CHECK_EQ(pthread_create(&thread, NULL, sleeps_inside, NULL), 0);
    pthread_barrier_wait(&barrier);
    usleep(50000);
    CHECK_EQ(pthread_cancel(thread), 0);
    CHECK_EQ(pthread_join(thread, &result), 0);
    CHECK(result == PTHREAD_CANCELED && exists("by the sleeper"));
}

// All threads have the rights that one of them gave up.
static void *gives_up_rights(void *argument) {
    CHECK_EQ(sys_xbegin(PLAIN), 0);
    CHECK_EQ(setegid(12345), 0);
    put("by the group", "x");
    CHECK_EQ(sys_xend(), 0);
    CHECK_EQ(getegid(), 12345);
    return argument;
}

static void *waits_inside(void *argument) {
    CHECK_EQ(sys_xbegin(PLAIN), 0);
    put("by the waiting", "x");
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    CHECK_EQ(sys_xend(), 0);
    CHECK_EQ(getegid(), 12345);
    return argument;
}

static void rights_are_those_of_all_threads(void) {
    pthread_t waits, gives;
    CHECK_THAT(open("open", O_RDWR | O_CREAT, 0644), >, 2);
    pthread_barrier_init(&barrier, NULL, 2);
    CHECK_EQ(pthread_create(&waits, NULL, waits_inside, NULL), 0);
    pthread_barrier_wait(&barrier);
    CHECK_EQ(pthread_create(&gives, NULL, gives_up_rights, NULL), 0);
    pthread_join(gives, NULL);
    CHECK_EQ(getegid(), 12345);
    pthread_barrier_wait(&barrier);
    pthread_join(waits, NULL);
    CHECK_EQ(setegid(0), 0);
}

// A pipe of all threads is another one inside.
static void *writes_to_the_pipe(void *argument) {
    int *ends = argument;
    CHECK_EQ(sys_xbegin(PLAIN), 0);
    CHECK_EQ(write(ends[1], "dropped", 7), 7);
    sys_xabort(1);
    CHECK_EQ(sys_xbegin(PLAIN), 0);
    CHECK_EQ(write(ends[1], "written", 7), 7);
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    CHECK_EQ(sys_xend(), 0);
    return NULL;
}

static void pipes_of_all_threads(void) {
    pthread_t thread;
    int ends[2], waiting = -1;
    CHECK_EQ(pipe(ends), 0);
    pthread_barrier_init(&barrier, NULL, 2);
    CHECK_EQ(pthread_create(&thread, NULL, writes_to_the_pipe, ends), 0);
    pthread_barrier_wait(&barrier);
    CHECK_EQ(ioctl(ends[0], FIONREAD, &waiting), 0);
    CHECK_EQ(waiting, 0);
    pthread_barrier_wait(&barrier);
    pthread_join(thread, NULL);
    char text[16] = {0};
    CHECK_EQ(read(ends[0], text, sizeof text), 7);
    CHECK_EQ(strcmp(text, "written"), 0);
}

// Many times, beside threads that open and close without rest: no number is lost, no content mixed up.
static void *begins_and_ends(void *argument) {
    int number = (int)(long)argument;
    for (int i = 0; i < 20; i++) {
        int result;
        char line[16];
        snprintf(line, sizeof line, "%d", i % 10);
        do {
            CHECK_THAT(sys_xbegin(PLAIN), >=, 0);
            CHECK_EQ(write(shared[number], line, 1), 1);
            result = sys_xend();
        } while (result == -EAGAIN);
        CHECK_EQ(result, 0);
    }
    return NULL;
}

static void beside_threads_that_open_and_close(void) {
    pthread_t threads[5];
    put("list", "x");
    closefrom(3);
    tx_set_max_retries(100000);
    for (int i = 0; i < 3; i++) {
        char name[16];
        snprintf(name, sizeof name, "file%d", i);
        shared[i] = open(name, O_WRONLY | O_CREAT, 0644);
    }
    stop = 0;
    for (int i = 0; i < 2; i++) CHECK_EQ(pthread_create(&threads[3 + i], NULL, opens_and_closes, NULL), 0);
    for (long i = 0; i < 3; i++) CHECK_EQ(pthread_create(&threads[i], NULL, begins_and_ends, (void *)i), 0);
    for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
    stop = 1;
    for (int i = 3; i < 5; i++) pthread_join(threads[i], NULL);
    CHECK(is("file0", "01234567890123456789") && is("file1", "01234567890123456789"));
    CHECK(is("file2", "01234567890123456789"));
    for (int fd = shared[2] + 1; fd < shared[2] + 40; fd++) CHECK_EQ(fcntl(fd, F_GETFD), -1);
}

int main(int argc, char **argv) {
    const struct test tests[] = {
        {"a_thread_with_its_own_table_carries_its_files",
         a_thread_with_its_own_table_carries_its_files},
        {"a_thread_that_was_joined_does_not_count", a_thread_that_was_joined_does_not_count},
        {"what_others_open_for_a_moment_does_not_count",
         what_others_open_for_a_moment_does_not_count},
        {"threads_carry_the_files_of_all", threads_carry_the_files_of_all},
        {"a_thread_keeps_what_it_did_to_itself", a_thread_keeps_what_it_did_to_itself},
        {"a_thread_is_where_it_is", a_thread_is_where_it_is},
        {"a_thread_with_files_open_ends_by_a_call", a_thread_with_files_open_ends_by_a_call},
        {"a_thread_with_files_open_ends_inside", a_thread_with_files_open_ends_inside},
        {"a_thread_started_inside_nests", a_thread_started_inside_nests},
        {"a_number_in_proc_is_the_threads", a_number_in_proc_is_the_threads},
        {"a_thread_is_cancelled_at_the_end", a_thread_is_cancelled_at_the_end},
        {"rights_are_those_of_all_threads", rights_are_those_of_all_threads},
        {"pipes_of_all_threads", pipes_of_all_threads},
        {"beside_threads_that_open_and_close", beside_threads_that_open_and_close},
        {NULL, NULL},
    };
    return run_cases(argc, argv, tests);
}

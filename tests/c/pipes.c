// Pipes and FIFOs across the border of a transaction: every sentence of sys_xbegin(2) about them.
#include "check.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/mman.h>

#define PLAIN (TX_NO_USER_ROLLBACK | TX_NONDURABLE)
#define FLAGS TX_NONDURABLE

// Bytes that wait in a pipe, as text.
static const char *waits(int fd) {
    static char text[256];
    struct pollfd poll_in = {.fd = fd, .events = POLLIN};
    memset(text, 0, sizeof text);
    if (poll(&poll_in, 1, 0) == 1 && poll_in.revents & POLLIN) {
        CHECK_THAT(read(fd, text, sizeof text - 1), >=, 0);
    }
    return text;
}

static int text_is(const char *found, const char *wanted) {
    if (strcmp(found, wanted) == 0) return 1;
    fprintf(stderr, "found \"%s\", not \"%s\"\n", found, wanted);
    return 0;
}

// A pipe of which the program has the writing end; the other one is an outsider's, which tells what has
// come when it is asked.
static int out = -1;
static pid_t reader_pid;
static int ask = -1, answer = -1;

static void reader_start(void) {
    int data[2], asking[2], answering[2];
    CHECK_EQ(pipe(data), 0);
    CHECK_EQ(pipe(asking), 0);
    CHECK_EQ(pipe(answering), 0);
    reader_pid = fork();
    if (reader_pid == 0) {
        close(data[1]);
        close(asking[1]);
        close(answering[0]);
        char byte;
        while (read(asking[0], &byte, 1) == 1) {
            const char *text = waits(data[0]);
            CHECK_EQ(write(answering[1], text, strlen(text) + 1), strlen(text) + 1);
        }
        _exit(0);
    }
    close(data[0]);
    close(asking[0]);
    close(answering[1]);
    out = data[1];
    ask = asking[1];
    answer = answering[0];
    CHECK_EQ(tx_exempt_fd(ask), 0);
    CHECK_EQ(tx_exempt_fd(answer), 0);
}

static const char *has_come(void) {
    static char text[256];
    CHECK_EQ(write(ask, "?", 1), 1);
    CHECK_THAT(read(answer, text, sizeof text), >, 0);
    return text;
}

static void says(int fd, const char *text) {
    CHECK_EQ(write(fd, text, strlen(text)), strlen(text));
}

static int hears(int fd, const char *text) {
    char found[256] = {0};
    size_t length = 0, wanted = strlen(text);
    while (length < wanted) {
        ssize_t some = read(fd, found + length, wanted - length);
        CHECK_THAT(some, >, 0);
        length += some;
    }
    return text_is(found, text);
}

// The reading end of a pipe into which an outsider, which is this process before, has written.
static int in = -1, filler = -1;

// The writing end goes to a process that writes what it is told to.
static void writer_start(void) {
    int data[2], telling[2];
    CHECK_EQ(pipe(data), 0);
    CHECK_EQ(pipe(telling), 0);
    if (fork() == 0) {
        close(data[0]);
        close(telling[1]);
        char bytes[4096];
        ssize_t length;
        while ((length = read(telling[0], bytes, sizeof bytes)) > 0) {
            CHECK_EQ(write(data[1], bytes, length), length);
        }
        _exit(0);
    }
    close(data[1]);
    close(telling[0]);
    in = data[0];
    filler = telling[1];
    CHECK_EQ(tx_exempt_fd(filler), 0);
}

static void comes(const char *text) {
    says(filler, text);
}

static int waits_for(int fd) {
    struct pollfd poll_in = {.fd = fd, .events = POLLIN};
    return poll(&poll_in, 1, 60000);
}

static void written_data_appears_at_the_commit(void) {
    reader_start();
    says(out, "before ");
    CHECK(text_is(has_come(), "before "));
    CHECK_EQ(sys_xbegin(PLAIN), 0);
    says(out, "one ");
    says(out, "three");
    CHECK(text_is(has_come(), ""));
    CHECK_EQ(sys_xend(), 0);
    CHECK(text_is(has_come(), "one three"));
    says(out, "after");
    CHECK(text_is(has_come(), "after"));
}

static void what_children_write_too(void) {
    reader_start();
    char command[64];
    snprintf(command, sizeof command, "echo child >&%d", out);
    CHECK_EQ(sys_xbegin(PLAIN), 0);
    says(out, "parent ");
    CHECK_EQ(system(command), 0);
    CHECK(text_is(has_come(), ""));
    CHECK_EQ(sys_xend(), 0);
    CHECK(text_is(has_come(), "parent child\n"));
    // One that goes on after the parent's end.
    CHECK_EQ(sys_xbegin(PLAIN), 0);
    if (fork() == 0) {
        usleep(200000);
        says(out, "late");
        _exit(0);
    }
    CHECK_EQ(sys_xend(), 0);
    CHECK(text_is(has_come(), "late"));
}

static void an_abort_drops_what_was_written(void) {
    reader_start();
    CHECK_EQ(sys_xbegin(PLAIN), 0);
    says(out, "never");
    sys_xabort(1);
    says(out, "x");
    CHECK(text_is(has_come(), "x"));
}

static void a_retry_writes_it_once(void) {
    reader_start();
    int tries = sys_xbegin(FLAGS);
    says(out, tries == 0 ? "first " : "again ");
    if (tries < 2) sys_xabort(0);
    CHECK(text_is(has_come(), ""));
    CHECK_EQ(sys_xend(), 0);
    CHECK(text_is(has_come(), "again "));
}

// More than any pipe holds: nobody waits for a reader before the commit.
static void more_than_fits(void) {
    int data[2];
    CHECK_EQ(pipe(data), 0);
    pid_t pid = fork();
    if (pid == 0) {
        close(data[1]);
        static char bytes[65536];
        long sum = 0, all = 0;
        ssize_t length;
        while ((length = read(data[0], bytes, sizeof bytes)) > 0) {
            for (ssize_t i = 0; i < length; i++) sum += bytes[i];
            all += length;
        }
        _exit(all == 3 << 20 && sum == 7L * (3 << 20) ? 0 : 1);
    }
    close(data[0]);
    static char bytes[1 << 20];
    memset(bytes, 7, sizeof bytes);
    CHECK_EQ(sys_xbegin(PLAIN), 0);
    for (int i = 0; i < 3; i++) CHECK_EQ(write(data[1], bytes, sizeof bytes), sizeof bytes);
    CHECK_EQ(sys_xend(), 0);
    close(data[1]);
    int status;
    CHECK_EQ(waitpid(pid, &status, 0), pid);
    CHECK_EQ(status, 0);
}

static void nobody_reads(void) {
    int data[2];
    CHECK_EQ(pipe(data), 0);
    close(data[0]);
    signal(SIGPIPE, SIG_IGN);
    CHECK_EQ(sys_xbegin(PLAIN), 0);
    CHECK_EQ(write(data[1], "x", 1), -1);
    CHECK_EQ(errno, EPIPE);
    CHECK_EQ(sys_xend(), 0);
    CHECK_EQ(write(data[1], "x", 1), -1);
}

static void read_data_is_taken_at_the_commit(void) {
    writer_start();
    comes("hello world");
    CHECK_EQ(waits_for(in), 1);
    CHECK_EQ(sys_xbegin(PLAIN), 0);
    CHECK(hears(in, "hello"));
    CHECK_EQ(sys_xend(), 0);
    CHECK(hears(in, " world"));
    // What comes while it runs.
    CHECK_EQ(sys_xbegin(PLAIN), 0);
    comes("more");
    CHECK_EQ(waits_for(in), 1);
    CHECK(hears(in, "mor"));
    CHECK_EQ(sys_xend(), 0);
    CHECK(hears(in, "e"));
    CHECK(text_is(waits(in), ""));
}

static void an_abort_brings_it_back(void) {
    writer_start();
    comes("hello world");
    CHECK_EQ(waits_for(in), 1);
    CHECK_EQ(sys_xbegin(PLAIN), 0);
    CHECK(hears(in, "hello"));
    sys_xabort(1);
    CHECK(hears(in, "hello world"));
}

static void a_retry_reads_it_again(void) {
    writer_start();
    comes("hello world");
    CHECK_EQ(waits_for(in), 1);
    int tries = sys_xbegin(FLAGS);
    CHECK(hears(in, "hello "));
    if (tries == 0) {
        comes("!");
        sys_xabort(0);
    }
    CHECK(hears(in, "world!"));
    CHECK_EQ(sys_xend(), 0);
    CHECK_EQ(tries, 1);
    CHECK(text_is(waits(in), ""));
}

static void the_end_is_seen(void) {
    writer_start();
    comes("last");
    close(filler);
    CHECK_EQ(sys_xbegin(PLAIN), 0);
    char text[8];
    CHECK(hears(in, "last"));
    CHECK_EQ(read(in, text, sizeof text), 0);
    CHECK_EQ(sys_xend(), 0);
    CHECK_EQ(read(in, text, sizeof text), 0);
}

// The writer goes on although what it has written is not taken yet.
static void more_than_a_pipe_holds(void) {
    int data[2];
    CHECK_EQ(pipe(data), 0);
    pid_t pid = fork();
    if (pid == 0) {
        close(data[0]);
        static char bytes[4096];
        memset(bytes, 3, sizeof bytes);
        for (int i = 0; i < 128; i++) CHECK_EQ(write(data[1], bytes, sizeof bytes), sizeof bytes);
        _exit(0);
    }
    close(data[1]);
    for (int round = 0; round < 2; round++) {
        CHECK_EQ(sys_xbegin(PLAIN), 0);
        char bytes[1000];
        long all = 0, sum = 0;
        ssize_t length;
        while ((length = read(data[0], bytes, sizeof bytes)) > 0) {
            for (ssize_t i = 0; i < length; i++) sum += bytes[i];
            all += length;
        }
        CHECK_EQ(all, 128 * 4096);
        CHECK_EQ(sum, 3 * 128 * 4096);
        if (round == 0) sys_xabort(1);
        else CHECK_EQ(sys_xend(), 0);
    }
    char byte;
    CHECK_EQ(read(data[0], &byte, 1), 0);
    CHECK_EQ(waitpid(pid, NULL, 0), pid);
    close(data[0]);
}

// How much there is room for when is a matter of luck.
static void more_than_a_pipe_holds_is_read(void) {
    for (int i = 0; i < 10; i++) more_than_a_pipe_holds();
}

struct shared {
    volatile int began, done, go;
};

// Workers that share a pipe of jobs: each job is done once, also one whose first worker gave it up.
static void one_reader_at_a_time(void) {
    struct shared *shared =
        mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int jobs[2];
    CHECK_EQ(pipe(jobs), 0);
    pid_t workers[2];
    for (int i = 0; i < 2; i++) {
        workers[i] = fork();
        if (workers[i] == 0) {
            close(jobs[1]);
            char job[2] = "";
            for (int round = 0;; round++) {
                CHECK_THAT(sys_xbegin(PLAIN), >=, 0);
                ssize_t length = read(jobs[0], job, 1);
                if (length == 0) break;
                CHECK_EQ(length, 1);
                __atomic_add_fetch(&shared->began, 1, __ATOMIC_SEQ_CST);
                int fd = open("done", O_WRONLY | O_CREAT | O_APPEND, 0644);
                CHECK_EQ(write(fd, job, 1), 1);
                close(fd);
                usleep(1000);
                if (round % 3 == 2) sys_xabort(1);
                else CHECK_THAT(sys_xend(), <=, 0);
            }
            CHECK_EQ(sys_xend(), 0);
            _exit(0);
        }
    }
    close(jobs[0]);
    const char *all = "abcdefghijkl";
    says(jobs[1], all);
    close(jobs[1]);
    for (int i = 0; i < 2; i++) {
        int status;
        CHECK_EQ(waitpid(workers[i], &status, 0), workers[i]);
        CHECK_EQ(status, 0);
    }
    CHECK_THAT(shared->began, >, 12);
    CHECK(is("done", all));
}

// Each of several gets its turn, also when what is to be read was there before all of them.
static void several_take_turns(void) {
    enum { WORKERS = 5, JOBS = 20 };
    int jobs[2];
    CHECK_EQ(sys_xbegin(PLAIN), 0);
    CHECK_EQ(sys_xend(), 0);
    CHECK_EQ(pipe(jobs), 0);
    for (char job = 'a'; job < 'a' + JOBS; job++) CHECK_EQ(write(jobs[1], &job, 1), 1);
    for (int i = 0; i < WORKERS; i++) {
        pid_t pid = fork();
        CHECK_THAT(pid, >=, 0);
        if (pid != 0) continue;
        close(jobs[1]);
        for (ssize_t length = 1; length > 0;) {
            char job[2] = "";
            CHECK_THAT(sys_xbegin(PLAIN), >=, 0);
            length = read(jobs[0], job, 1);
            CHECK_THAT(length, >=, 0);
            if (length == 1) put(job, "done");
            int ended = sys_xend();
            // Another try.
            if (ended == -EAGAIN) length = 1;
            else CHECK_EQ(ended, 0);
        }
        _exit(0);
    }
    close(jobs[1]);
    // One that waits for ever ends the test.
    alarm(60);
    int status;
    for (int i = 0; i < WORKERS; i++) {
        CHECK_THAT(wait(&status), >, 0);
        CHECK_EQ(status, 0);
    }
    for (char job[2] = "a"; job[0] < 'a' + JOBS; job[0]++) CHECK(is(job, "done"));
}

// One that has the pipe open and reads nothing does not keep others from it.
static void who_reads_nothing_gives_way(void) {
    struct shared *shared =
        mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    writer_start();
    comes("job");
    CHECK_EQ(waits_for(in), 1);
    CHECK_EQ(sys_xbegin(PLAIN), 0);
    CHECK_EQ(sys_xend(), 0);
    pid_t pid = fork();
    if (pid == 0) {
        while (!shared->go) usleep(1000);
        CHECK_EQ(sys_xbegin(PLAIN), 0);
        CHECK(hears(in, "job"));
        CHECK_EQ(sys_xend(), 0);
        shared->done = 1;
        _exit(0);
    }
    CHECK_EQ(sys_xbegin(PLAIN), 0);
    CHECK_EQ(waits_for(in), 1);
    shared->go = 1;
    for (int i = 0; i < 6000 && !shared->done; i++) usleep(10000);
    CHECK(shared->done);
    CHECK_EQ(sys_xend(), 0);
    CHECK_EQ(waitpid(pid, NULL, 0), pid);
    CHECK(text_is(waits(in), ""));
}

// An outsider that takes what a transaction has read makes it lose.
static void somebody_else_was_faster(void) {
    writer_start();
    comes("one two ");
    CHECK_EQ(waits_for(in), 1);
    int go[2], gone[2];
    CHECK_EQ(pipe(go), 0);
    CHECK_EQ(pipe(gone), 0);
    for (int i = 0; i < 2; i++) {
        CHECK_EQ(tx_exempt_fd(go[i]), 0);
        CHECK_EQ(tx_exempt_fd(gone[i]), 0);
    }
    pid_t pid = fork();
    if (pid == 0) {
        char byte;
        CHECK_EQ(read(go[0], &byte, 1), 1);
        CHECK(hears(in, "one "));
        says(gone[1], "x");
        _exit(0);
    }
    CHECK_EQ(sys_xbegin(PLAIN), 0);
    CHECK(hears(in, "one "));
    says(go[1], "x");
    CHECK(hears(gone[0], "x"));
    CHECK_EQ(sys_xend(), -EAGAIN);
    CHECK_EQ(sys_xbegin(PLAIN), 1);
    CHECK(hears(in, "two "));
    CHECK_EQ(sys_xend(), 0);
    CHECK_EQ(waitpid(pid, NULL, 0), pid);
}

// Both ends are the program's: between members it is a pipe like any other.
static void between_members_it_is_plain(void) {
    int data[2];
    CHECK_EQ(pipe(data), 0);
    says(data[1], "old ");
    CHECK_EQ(sys_xbegin(PLAIN), 0);
    pid_t pid = fork();
    if (pid == 0) {
        says(data[1], "from the child");
        _exit(0);
    }
    CHECK(hears(data[0], "old from the child"));
    says(data[1], "left");
    CHECK_EQ(waitpid(pid, NULL, 0), pid);
    CHECK_EQ(sys_xend(), 0);
    CHECK(text_is(waits(data[0]), "left"));
    // An abort brings back what was there.
    says(data[1], "kept");
    CHECK_EQ(sys_xbegin(PLAIN), 0);
    CHECK(hears(data[0], "ke"));
    says(data[1], "new");
    sys_xabort(1);
    CHECK(text_is(waits(data[0]), "kept"));
    // Its end is seen when members have closed theirs.
    CHECK_EQ(sys_xbegin(PLAIN), 0);
    pid = fork();
    if (pid == 0) {
        says(data[1], "x");
        _exit(0);
    }
    close(data[1]);
    CHECK(hears(data[0], "x"));
    char byte;
    CHECK_EQ(read(data[0], &byte, 1), 0);
    CHECK_EQ(waitpid(pid, NULL, 0), pid);
    CHECK_EQ(sys_xend(), 0);
}

static void a_fifo_too(void) {
    CHECK_EQ(mkfifo("fifo", 0600), 0);
    pid_t pid = fork();
    if (pid == 0) {
        int fd = open("fifo", O_RDONLY);
        while (!exists("committed")) usleep(1000);
        char text[16] = {0};
        CHECK_EQ(read(fd, text, sizeof text), 4);
        CHECK(text_is(text, "data"));
        _exit(0);
    }
    int fd = open("fifo", O_WRONLY);
    CHECK_EQ(sys_xbegin(PLAIN), 0);
    says(fd, "da");
    put("committed", "");
    says(fd, "ta");
    CHECK_EQ(sys_xend(), 0);
    close(fd);
    int status;
    CHECK_EQ(waitpid(pid, &status, 0), pid);
    CHECK_EQ(status, 0);
    // One that is open for both.
    fd = open("fifo", O_RDWR);
    says(fd, "xyz");
    CHECK_EQ(sys_xbegin(PLAIN), 0);
    CHECK(hears(fd, "xy"));
    says(fd, "w");
    CHECK_EQ(sys_xend(), 0);
    CHECK(hears(fd, "zw"));
}

static void copies_stay_copies(void) {
    reader_start();
    int twin = dup(out), inside;
    CHECK_EQ(fcntl(out, F_SETFL, O_NONBLOCK), 0);
    CHECK_EQ(sys_xbegin(PLAIN), 0);
    CHECK(fcntl(twin, F_GETFL) & O_NONBLOCK);
    CHECK_EQ(fcntl(twin, F_SETFL, 0), 0);
    CHECK(!(fcntl(out, F_GETFL) & O_NONBLOCK));
    says(out, "a");
    says(twin, "b");
    inside = dup(out);
    says(inside, "c");
    CHECK_EQ(close(twin), 0);
    CHECK_EQ(sys_xend(), 0);
    CHECK(text_is(has_come(), "abc"));
    CHECK_EQ(write(twin, "x", 1), -1);
    CHECK(!(fcntl(out, F_GETFL) & O_NONBLOCK));
    says(inside, "d");
    says(out, "e");
    CHECK(text_is(has_come(), "de"));
}

static void an_exempt_one_is_left_alone(void) {
    reader_start();
    CHECK_EQ(tx_exempt_fd(out), 0);
    CHECK_EQ(sys_xbegin(PLAIN), 0);
    says(out, "now");
    CHECK(text_is(has_come(), "now"));
    sys_xabort(1);
}

static void dangerously_all_are(void) {
    reader_start();
    CHECK_EQ(sys_xbegin(PLAIN | TX_LIVE_DANGEROUSLY), 0);
    says(out, "now");
    CHECK(text_is(has_come(), "now"));
    sys_xabort(1);
}

static void one_of_packets_is_refused(void) {
    int data[2];
    CHECK_EQ(pipe2(data, O_DIRECT), 0);
    CHECK_EQ(sys_xbegin(PLAIN), -ENOTXSUPPORT);
    CHECK_EQ(sys_xend(), -EINVAL);
    says(data[1], "x");
    CHECK(hears(data[0], "x"));
}

static void a_program_that_is_executed_inside(void) {
    reader_start();
    pid_t pid = fork();
    if (pid == 0) {
        CHECK_EQ(sys_xbegin(PLAIN), 0);
        dup2(out, 1);
        execlp("sh", "sh", "-c", "echo executed; echo x > file", NULL);
        _exit(1);
    }
    int status;
    CHECK_EQ(waitpid(pid, &status, 0), pid);
    CHECK(appears("file"));
    const char *text = "";
    for (int i = 0; i < 6000 && !*text; i++) {
        usleep(10000);
        text = has_come();
    }
    CHECK(text_is(text, "executed\n"));
}

int main(int argc, char **argv) {
    const struct test tests[] = {
        {"written_data_appears_at_the_commit", written_data_appears_at_the_commit},
        {"what_children_write_too", what_children_write_too},
        {"an_abort_drops_what_was_written", an_abort_drops_what_was_written},
        {"a_retry_writes_it_once", a_retry_writes_it_once},
        {"more_than_fits", more_than_fits},
        {"nobody_reads", nobody_reads},
        {"read_data_is_taken_at_the_commit", read_data_is_taken_at_the_commit},
        {"an_abort_brings_it_back", an_abort_brings_it_back},
        {"a_retry_reads_it_again", a_retry_reads_it_again},
        {"the_end_is_seen", the_end_is_seen},
        {"more_than_a_pipe_holds_is_read", more_than_a_pipe_holds_is_read},
        {"one_reader_at_a_time", one_reader_at_a_time},
        {"several_take_turns", several_take_turns},
        {"who_reads_nothing_gives_way", who_reads_nothing_gives_way},
        {"somebody_else_was_faster", somebody_else_was_faster},
        {"between_members_it_is_plain", between_members_it_is_plain},
        {"a_fifo_too", a_fifo_too},
        {"copies_stay_copies", copies_stay_copies},
        {"an_exempt_one_is_left_alone", an_exempt_one_is_left_alone},
        {"dangerously_all_are", dangerously_all_are},
        {"one_of_packets_is_refused", one_of_packets_is_refused},
        {"a_program_that_is_executed_inside", a_program_that_is_executed_inside},
        {NULL, NULL},
    };
    return run_cases(argc, argv, tests);
}

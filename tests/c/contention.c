// A program's transaction beside others: a thread is in it, and the main thread tells of it by marks in a
// directory, which nobody in a transaction could do.

#include "check.h"

#include <pthread.h>
#include <stdatomic.h>

static atomic_int attempts, reached, doomed, go;
static const char *marks;

static void append(const char *path, const char *text) {
    int fd = open(path, O_WRONLY | O_APPEND);
    // In a doomed transaction a call may fail; its end says so.
    if (fd < 0) return;
    if (write(fd, text, strlen(text)) < 0) perror(path);
    close(fd);
}

// Reads `f`, waits for leave, writes it. Until then it asks whether it has lost.
static void *reads_and_writes(void *unused) {
    int code;
    do {
        CHECK_THAT(sys_xbegin(TX_NO_USER_ROLLBACK), >=, 0);
        attempts++;
        get("f");
        reached = 1;
        while (!go) {
            if (sys_xstatus() == 1) {
                doomed = 1;
                break;
            }
            usleep(1000);
        }
        append("f", "program\n");
        code = sys_xend();
    } while (code == -EAGAIN);
    CHECK_EQ(code, 0);
    return unused;
}

static void *writes(void *unused) {
    int code;
    do {
        CHECK_THAT(sys_xbegin(TX_NO_USER_ROLLBACK), >=, 0);
        attempts++;
        append("f", "program\n");
        reached = 1;
        code = sys_xend();
    } while (code == -EAGAIN);
    CHECK_EQ(code, 0);
    return unused;
}

// The same by the explicit API, each in a transaction of its own.
static void *writes_explicitly(void *unused) {
    int code;
    do {
        struct txos_tx *tx;
        CHECK_EQ(txos_begin(&tx, 0), 0);
        attempts++;
        CHECK_THAT(txos_append(tx, "f", "program\n", 8), >=, 0);
        reached = 1;
        code = txos_commit(tx);
    } while (code == -ECANCELED);
    CHECK_EQ(code, 0);
    return unused;
}

// Reads `f`, and has a child inside that does not end by itself: its own end waits for that.
static void *waits_for_child(void *unused) {
    int code;
    do {
        CHECK_THAT(sys_xbegin(TX_NO_USER_ROLLBACK), >=, 0);
        attempts++;
        get("f");
        if (attempts == 1) {
            pid_t child = fork();
            CHECK_THAT(child, >=, 0);
            if (!child) {
                pause();
                _exit(0);
            }
        }
        reached = 1;
        code = sys_xend();
    } while (code == -EAGAIN);
    CHECK_EQ(code, 0);
    return unused;
}

// With rollback: reads `f`, says so, and computes without end unless it is told that it has lost.
static void computes(void) {
    char command[4096];
    snprintf(command, sizeof command, "touch %s/read", marks);
    outsider_start();
    int tries = sys_xbegin(TX_DEFAULTS);
    get("f");
    if (tries == 0) {
        CHECK_EQ(outsider(command), 0);
        for (;;) attempts++;
    }
    append("f", "program\n");
    CHECK_EQ(sys_xend(), 0);
    printf("%d\n", tries + 1);
}

static const char *mark(const char *name) {
    static char path[4096];
    snprintf(path, sizeof path, "%s/%s", marks, name);
    return path;
}

int main(int argc, char **argv) {
    CHECK_EQ(argc, 3);
    void *(*work)(void *) = !strcmp(argv[1], "reads-and-writes") ? reads_and_writes
                            : !strcmp(argv[1], "writes")         ? writes
                            : !strcmp(argv[1], "waits-for-child") ? waits_for_child
                                                                 : writes_explicitly;
    marks = argv[2];
    if (!strcmp(argv[1], "computes")) {
        computes();
        return 0;
    }
    pthread_t thread;
    CHECK_EQ(pthread_create(&thread, NULL, work, NULL), 0);
    while (!reached) usleep(1000);
    put(mark("read"), "");
    void *result;
    while (pthread_tryjoin_np(thread, &result) == EBUSY) {
        if (doomed) put(mark("doomed"), "");
        if (!access(mark("go"), F_OK)) go = 1;
        usleep(1000);
    }
    printf("%d\n", attempts);
    return 0;
}

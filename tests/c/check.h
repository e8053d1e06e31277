// What the programs of this directory share: cases by name, checks that say what failed.
#ifndef CHECK_H
#define CHECK_H

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include "txos.h"

#define CHECK(condition)                                                                          \
    do {                                                                                          \
        if (!(condition)) {                                                                       \
            fprintf(stderr, "%s:%d: %s (errno %d)\n", __FILE__, __LINE__, #condition, errno);     \
            _exit(1);                                                                             \
        }                                                                                         \
    } while (0)

// Compares two numbers, and says what the first one is if it is not as wanted.
#define CHECK_THAT(found, is, wanted)                                                             \
    do {                                                                                          \
        long found_ = (long)(found), wanted_ = (long)(wanted);                                    \
        if (!(found_ is wanted_)) {                                                               \
            fprintf(stderr, "%s:%d: %s is %ld, not " #is " %ld (errno %d)\n", __FILE__, __LINE__, \
                    #found, found_, wanted_, errno);                                              \
            _exit(1);                                                                             \
        }                                                                                         \
    } while (0)

#define CHECK_EQ(found, wanted) CHECK_THAT(found, ==, wanted)

// A case of a program.
struct test {
    const char *name;
    void (*run)(void);
};

__attribute__((unused)) static void put(const char *path, const char *text) {
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    CHECK_THAT(fd, >=, 0);
    CHECK_EQ(write(fd, text, strlen(text)), strlen(text));
    CHECK_EQ(close(fd), 0);
}

// The content of a file, until the calling thread asks for another; "" if there is none.
__attribute__((unused)) static const char *get(const char *path) {
    static _Thread_local char text[65536];
    int fd = open(path, O_RDONLY);
    ssize_t length = fd < 0 ? 0 : read(fd, text, sizeof text - 1);
    CHECK_THAT(length, >=, 0);
    text[length] = 0;
    if (fd >= 0) close(fd);
    return text;
}

__attribute__((unused)) static int is(const char *path, const char *text) {
    const char *found = get(path);
    if (strcmp(found, text) == 0) return 1;
    fprintf(stderr, "%s holds \"%s\", not \"%s\"\n", path, found, text);
    return 0;
}

__attribute__((unused)) static int exists(const char *path) {
    struct stat st;
    return lstat(path, &st) == 0;
}

// Waits until a name is there, for a minute at the most.
__attribute__((unused)) static int appears(const char *path) {
    for (int i = 0; i < 6000 && !exists(path); i++) usleep(10000);
    return exists(path);
}

// Lets another process, which is no member of any transaction, run a shell command. It is started by
// outsider_start() before a transaction begins.
static int outsider_ask = -1, outsider_answer = -1;

__attribute__((unused)) static void outsider_start(void) {
    int ask[2], answer[2];
    CHECK_EQ(pipe2(ask, O_CLOEXEC), 0);
    CHECK_EQ(pipe2(answer, O_CLOEXEC), 0);
    pid_t pid = fork();
    CHECK_THAT(pid, >=, 0);
    if (pid == 0) {
        close(ask[1]);
        close(answer[0]);
        char command[4096];
        ssize_t length;
        while ((length = read(ask[0], command, sizeof command - 1)) > 0) {
            command[length] = 0;
            int status = system(command);
            if (write(answer[1], &status, sizeof status) != sizeof status) break;
        }
        _exit(0);
    }
    close(ask[0]);
    close(answer[1]);
    outsider_ask = ask[1];
    outsider_answer = answer[0];
    // It is asked, and answers, while a transaction runs.
    CHECK_EQ(tx_exempt_fd(outsider_ask), 0);
    CHECK_EQ(tx_exempt_fd(outsider_answer), 0);
}

__attribute__((unused)) static int outsider(const char *command) {
    int status;
    CHECK_EQ(write(outsider_ask, command, strlen(command)), strlen(command));
    CHECK_EQ(read(outsider_answer, &status, sizeof status), sizeof status);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

__attribute__((unused)) static int run_cases(int argc, char **argv, const struct test *tests) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc != 2) return 2;
    if (strcmp(argv[1], "list") == 0) {
        for (; tests->name; tests++) puts(tests->name);
        return 0;
    }
    for (; tests->name; tests++) {
        if (strcmp(tests->name, argv[1]) == 0) {
            tests->run();
            return 0;
        }
    }
    return 2;
}

#endif

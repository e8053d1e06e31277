// Children in a transaction: every sentence of sys_xbegin(2) about them.
#include "check.h"

#include <setjmp.h>
#include <signal.h>
#include <spawn.h>

#define PLAIN (TX_NO_USER_ROLLBACK | TX_NONDURABLE)

extern char **environ;

static void system_belongs_to_it(void) {
    outsider_start();
    CHECK_EQ(sys_xbegin(PLAIN), 0);
    CHECK_EQ(system("mkdir -p src/a && echo x > src/a/b && tar cf all.tar src && rm -r src && tar xf all.tar"), 0);
    CHECK(exists("src/a/b"));
    CHECK_EQ(outsider("test ! -e src -a ! -e all.tar"), 0);
    CHECK_EQ(sys_xend(), 0);
    CHECK(is("src/a/b", "x\n") && exists("all.tar"));
}

static void system_is_undone(void) {
    put("keep", "keep");
    int tries = sys_xbegin(TX_NONDURABLE);
    if (tries == 0) {
        CHECK_EQ(system("echo lost > keep; mkdir new; exit 5") >> 8, 5);
        sys_xabort(0);
    }
    CHECK_EQ(tries, 1);
    CHECK(is("keep", "keep") && !exists("new"));
    CHECK_EQ(sys_xend(), 0);
}

static void popen_belongs_to_it(void) {
    CHECK_EQ(sys_xbegin(PLAIN), 0);
    put("file", "words");
    FILE *pipe = popen("cat file; echo made > made", "r");
    char text[64] = "";
    CHECK(fgets(text, sizeof text, pipe));
    CHECK(strcmp(text, "words") == 0);
    pclose(pipe);
    CHECK_EQ(sys_xend(), 0);
    CHECK(is("made", "made\n"));
}

static void fork_vfork_and_spawn_belong_to_it(void) {
    CHECK_EQ(sys_xbegin(PLAIN), 0);
    if (fork() == 0) {
        put("forked", "x");
        _exit(7); // any status counts as the end
    }
    if (vfork() == 0) {
        execl("/bin/sh", "sh", "-c", "echo x > vforked", NULL);
        _exit(1);
    }
    pid_t pid;
    char *args[] = {"sh", "-c", "echo x > spawned", NULL};
    CHECK_EQ(posix_spawn(&pid, "/bin/sh", NULL, NULL, args, environ), 0);
    while (wait(NULL) > 0) {}
    CHECK_EQ(sys_xend(), 0);
    CHECK(exists("forked") && exists("vforked") && exists("spawned"));
}

static void the_last_one_out_commits(void) {
    outsider_start();
    CHECK_EQ(sys_xbegin(PLAIN), 0);
    if (fork() == 0) {
        usleep(300000);
        put("late", "x");
        _exit(0);
    }
    put("early", "x");
    CHECK_EQ(outsider("test ! -e early"), 0);
    CHECK_EQ(sys_xend(), 0);
    CHECK(exists("early") && exists("late"));
    CHECK_THAT(wait(NULL), >, 0);
}

static void grandchildren_count(void) {
    CHECK_EQ(sys_xbegin(PLAIN), 0);
    if (fork() == 0) {
        if (fork() == 0) {
            setsid();
            usleep(300000);
            put("late", "x");
            _exit(0);
        }
        _exit(0);
    }
    CHECK_THAT(wait(NULL), >, 0);
    CHECK_EQ(sys_xend(), 0);
    CHECK(exists("late"));
}

static void a_child_that_ends_it_is_free(void) {
    outsider_start();
    CHECK_EQ(sys_xbegin(PLAIN), 0);
    pid_t pid = fork();
    if (pid == 0) {
        put("inside", "x");
        CHECK_EQ(sys_xend(), 0);
        put("outside", "x"); // at once
        CHECK_EQ(sys_xbegin(PLAIN), 0);
        put("own", "x");
        CHECK_EQ(sys_xend(), 0);
        CHECK(exists("own") && exists("outside"));
        pause();
    }
    for (int i = 0; i < 6000 && outsider("test -e own"); i++) usleep(10000);
    CHECK_EQ(outsider("test -e own -a -e outside -a ! -e inside"), 0);
    CHECK_EQ(sys_xend(), 0);
    CHECK(exists("inside"));
    CHECK_EQ(kill(pid, SIGKILL), 0);
    CHECK_EQ(waitpid(pid, NULL, 0), pid);
}

static void death_by_a_signal_aborts(void) {
    CHECK_EQ(sys_xbegin(PLAIN), 0);
    put("file", "x");
    if (fork() == 0) {
        usleep(100000);
        raise(SIGKILL);
    }
    CHECK_EQ(sys_xend(), -ECANCELED);
    CHECK(!exists("file"));
    CHECK_THAT(wait(NULL), >, 0);
    // Also if it died before, and was waited for.
    CHECK_EQ(sys_xbegin(PLAIN), 0);
    put("file", "x");
    system("kill -9 $$");
    CHECK_EQ(sys_xend(), -ECANCELED);
    CHECK(!exists("file"));
}

static void an_abort_ends_the_children(void) {
    CHECK_EQ(sys_xbegin(PLAIN), 0);
    pid_t pid = fork();
    if (pid == 0) {
        for (;;) pause();
    }
    sys_xabort(1);
    int status;
    CHECK_EQ(waitpid(pid, &status, 0), pid);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

static void a_child_aborts_all(void) {
    CHECK_EQ(sys_xbegin(PLAIN), 0);
    put("file", "x");
    pid_t pid = fork();
    if (pid == 0) {
        sys_xabort(1);
        _exit(0);
    }
    CHECK_EQ(waitpid(pid, NULL, 0), pid);
    CHECK_EQ(sys_xend(), -ECANCELED);
    CHECK(!exists("file"));
}

static void a_child_makes_it_run_again(void) {
    int tries = sys_xbegin(TX_NONDURABLE);
    CHECK_THAT(tries, >=, 0);
    put("file", tries ? "second" : "first");
    if (tries == 0) {
        pid_t pid = fork();
        if (pid == 0) sys_xabort(0);
        CHECK_EQ(waitpid(pid, NULL, 0), pid);
    }
    CHECK_EQ(sys_xend(), 0);
    CHECK_EQ(tries, 1);
    CHECK(is("file", "second"));
}

static void programs_that_begin_themselves_nest(void) {
    char self[4096];
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    CHECK_THAT(length, >, 0);
    self[length] = 0;
    char command[5000];
    snprintf(command, sizeof command, "%s nested_helper", self);
    outsider_start();
    CHECK_EQ(sys_xbegin(PLAIN), 0);
    CHECK_EQ(system(command), 0);
    CHECK(exists("helped"));
    CHECK_EQ(outsider("test ! -e helped"), 0);
    CHECK_EQ(sys_xend(), 0);
    CHECK(exists("helped"));
}

static void nested_helper(void) {
    int before = sys_xbegin(PLAIN);
    if (before < 0) {
        fprintf(stderr, "nested: %d\n", before);
        _exit(1);
    }
    put("helped", "x");
    CHECK_EQ(sys_xend(), 0);
}

static void a_process_joins(void) {
    int ask[2], answer[2];
    CHECK_EQ(pipe(ask), 0);
    CHECK_EQ(pipe(answer), 0);
    for (int i = 0; i < 2; i++) {
        CHECK_EQ(tx_exempt_fd(ask[i]), 0);
        CHECK_EQ(tx_exempt_fd(answer[i]), 0);
    }
    CHECK_EQ(sys_xbegin(PLAIN), 0); // so that both have one session
    CHECK_EQ(sys_xend(), 0);
    pid_t pid = fork();
    if (pid == 0) {
        int64_t id;
        CHECK_EQ(read(ask[0], &id, sizeof id), sizeof id);
        CHECK_EQ(tx_join(id + 1000000), -ESRCH);
        CHECK_EQ(tx_join(id), 0);
        CHECK_EQ(tx_id(), id);
        CHECK(is("file", "x"));
        put("joined", "x");
        CHECK_EQ(write(answer[1], "1", 1), 1);
        usleep(200000);
        put("later", "x");
        CHECK_EQ(sys_xend(), 0);
        CHECK_EQ(tx_id(), -EINVAL);
        _exit(0);
    }
    CHECK_EQ(tx_id(), -EINVAL);
    CHECK_EQ(sys_xbegin(PLAIN), 0);
    put("file", "x");
    int64_t id = tx_id();
    CHECK_THAT(id, >, 0);
    CHECK_EQ(write(ask[1], &id, sizeof id), sizeof id);
    char byte;
    CHECK_EQ(read(answer[0], &byte, 1), 1);
    CHECK(exists("joined"));
    CHECK_EQ(sys_xend(), 0);
    CHECK(exists("file") && exists("joined") && exists("later"));
    int status;
    CHECK_EQ(waitpid(pid, &status, 0), pid);
    CHECK_EQ(status, 0);
}

static void under_txos_exec(void) {
    char self[4096];
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    CHECK_THAT(length, >, 0);
    self[length] = 0;
    char command[9000];
    snprintf(command, sizeof command, "$TXOS_PROGRAM exec -- sh -c '%s nested_helper && %s system_is_undone; exit 3'", self, self);
    CHECK_EQ(system(command) >> 8, 3);
    CHECK(exists("helped") && is("keep", "keep"));
    CHECK_EQ(system("$TXOS_PROGRAM exec -- /no/such/program 2>/dev/null") >> 8, 127);
    CHECK_EQ(system("$TXOS_PROGRAM exec -- sh -c 'kill -9 $$'") >> 8, 137);
}

static void longjmp_only_leaves_frames(void) {
    // A jump out of the code between begin and end changes nothing of the transaction.
    jmp_buf place;
    volatile int jumped = 0;
    CHECK_EQ(sys_xbegin(PLAIN), 0);
    if (setjmp(place) == 0) {
        put("file", "x");
        jumped = 1;
        longjmp(place, 1);
    }
    CHECK_EQ(jumped, 1);
    CHECK_EQ(sys_xend(), 0);
    CHECK(exists("file"));
}

static void exit_inside_commits(void) {
    pid_t pid = fork();
    if (pid == 0) {
        CHECK_EQ(sys_xbegin(PLAIN), 0);
        put("exited", "x");
        exit(3);
    }
    CHECK_EQ(waitpid(pid, NULL, 0), pid);
    CHECK(appears("exited"));
    pid = fork();
    if (pid == 0) {
        CHECK_EQ(sys_xbegin(TX_NONDURABLE), 0);
        put("exited2", "x");
        _exit(0);
    }
    CHECK_EQ(waitpid(pid, NULL, 0), pid);
    CHECK(appears("exited2"));
}

static void a_killed_program_leaves_nothing(void) {
    pid_t pid = fork();
    if (pid == 0) {
        CHECK_EQ(sys_xbegin(PLAIN), 0);
        put("killed", "x");
        raise(SIGKILL);
    }
    CHECK_EQ(waitpid(pid, NULL, 0), pid);
    usleep(500000);
    CHECK(!exists("killed"));
}

static void exec_inside_belongs_to_it(void) {
    pid_t pid = fork();
    if (pid == 0) {
        CHECK_EQ(sys_xbegin(PLAIN), 0);
        put("before", "x");
        execl("/bin/sh", "sh", "-c", "sleep 0.2; cat before > after", NULL);
        _exit(1);
    }
    CHECK_EQ(waitpid(pid, NULL, 0), pid);
    CHECK(appears("after") && exists("before"));
    CHECK(is("after", "x"));
}

int main(int argc, char **argv) {
    if (argc == 2 && strcmp(argv[1], "nested_helper") == 0) {
        nested_helper();
        return 0;
    }
    const struct test tests[] = {
        {"system_belongs_to_it", system_belongs_to_it},
        {"system_is_undone", system_is_undone},
        {"popen_belongs_to_it", popen_belongs_to_it},
        {"fork_vfork_and_spawn_belong_to_it", fork_vfork_and_spawn_belong_to_it},
        {"the_last_one_out_commits", the_last_one_out_commits},
        {"grandchildren_count", grandchildren_count},
        {"a_child_that_ends_it_is_free", a_child_that_ends_it_is_free},
        {"death_by_a_signal_aborts", death_by_a_signal_aborts},
        {"an_abort_ends_the_children", an_abort_ends_the_children},
        {"a_child_aborts_all", a_child_aborts_all},
        {"a_child_makes_it_run_again", a_child_makes_it_run_again},
        {"programs_that_begin_themselves_nest", programs_that_begin_themselves_nest},
        {"a_process_joins", a_process_joins},
        {"under_txos_exec", under_txos_exec},
        {"longjmp_only_leaves_frames", longjmp_only_leaves_frames},
        {"exit_inside_commits", exit_inside_commits},
        {"a_killed_program_leaves_nothing", a_killed_program_leaves_nothing},
        {"exec_inside_belongs_to_it", exec_inside_belongs_to_it},
        {NULL, NULL},
    };
    return run_cases(argc, argv, tests);
}

// Transactions of one thread without rollback of the program: every sentence of sys_xbegin(2) about them.
#include "check.h"

#include <dirent.h>
#include <limits.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>

#define FLAGS (TX_NO_USER_ROLLBACK | TX_NONDURABLE)

static void commits_all(void) {
    put("old", "old");
    put("gone", "gone");
    CHECK_EQ(sys_xbegin(FLAGS), 0);
    put("new", "new");
    CHECK_EQ(mkdir("dir", 0750), 0);
    CHECK_EQ(rename("old", "dir/moved"), 0);
    CHECK_EQ(unlink("gone"), 0);
    CHECK_EQ(symlink("target", "link"), 0);
    CHECK_EQ(link("new", "twin"), 0);
    CHECK_EQ(sys_xend(), 0);
    CHECK(is("new", "new") && is("twin", "new") && is("dir/moved", "old"));
    CHECK(!exists("gone") && !exists("old") && exists("link"));
    struct stat st;
    CHECK_EQ(stat("dir", &st), 0);
    CHECK_EQ(st.st_mode & 07777, 0750);
}

static void durable_commits_too(void) {
    CHECK_EQ(sys_xbegin(TX_NO_USER_ROLLBACK), 0);
    put("new", "new");
    CHECK_EQ(sys_xend(), 0);
    CHECK(is("new", "new"));
}

static void nothing_shows_before_the_end(void) {
    outsider_start();
    put("file", "before");
    CHECK_EQ(sys_xbegin(FLAGS), 0);
    put("file", "after");
    put("new", "new");
    CHECK_EQ(outsider("test $(cat file) = before && test ! -e new"), 0);
    CHECK_EQ(sys_xend(), 0);
    CHECK_EQ(outsider("test $(cat file) = after && test $(cat new) = new"), 0);
}

static void abort_undoes_all(void) {
    put("file", "before");
    CHECK_EQ(sys_xbegin(FLAGS), 0);
    put("file", "after");
    put("new", "new");
    sys_xabort(1);
    CHECK(is("file", "before") && !exists("new"));
    CHECK_EQ(sys_xend(), -EINVAL);
    CHECK_EQ(sys_xbegin(FLAGS), 0);
    CHECK_EQ(sys_xend(), 0);
}

static void a_lost_conflict_is_told(void) {
    outsider_start();
    put("file", "1");
    int seen = -1, tries = 0, result;
    do {
        CHECK_EQ(sys_xbegin(FLAGS), tries);
        seen = atoi(get("file"));
        if (tries++ == 0) CHECK_EQ(outsider("printf 5 > file"), 0);
        // In a doomed transaction a call may fail (ESTALE).
        int fd = open("file", O_WRONLY | O_TRUNC);
        CHECK(fd >= 0 || (tries == 1 && errno == ESTALE));
        dprintf(fd, "%d", seen + 1);
        close(fd);
    } while ((result = sys_xend()) == -EAGAIN);
    CHECK_EQ(result, 0);
    CHECK_EQ(tries, 2);
    CHECK(is("file", "6"));
}

static void a_reader_loses_too(void) {
    outsider_start();
    put("file", "1");
    CHECK_EQ(sys_xbegin(FLAGS), 0);
    CHECK(is("file", "1"));
    CHECK_EQ(outsider("printf 2 > file"), 0);
    CHECK(is("file", "1")); // repeatable
    CHECK_EQ(sys_xend(), -EAGAIN);
}

// What its view was shown on the way to the working directory is what it has read: a view in which that
// has changed is of no use to the next one, though nothing happened in it.
static void an_empty_one_that_lost_comes_to_its_end(void) {
    outsider_start();
    CHECK_EQ(mkdir("deep", 0755), 0);
    CHECK_EQ(chdir("deep"), 0);
    // Until the views that wait have been here.
    for (int i = 0; i < 20; i++) {
        CHECK_EQ(sys_xbegin(FLAGS), 0);
        put("file", "1");
        CHECK_EQ(sys_xend(), 0);
    }
    for (int i = 0; i < 6; i++) {
        CHECK_EQ(chmod("..", i % 2 ? 0755 : 0711), 0);
        int tries = 0;
        do CHECK_EQ(sys_xbegin(FLAGS), tries++);
        while (sys_xend() == -EAGAIN && tries < 40);
        CHECK_THAT(tries, <, 40);
    }
}

static void absence_is_read(void) {
    outsider_start();
    CHECK_EQ(sys_xbegin(FLAGS), 0);
    CHECK(!exists("name"));
    CHECK_EQ(outsider("touch name"), 0);
    put("other", "");
    CHECK_EQ(sys_xend(), -EAGAIN);
    CHECK(exists("name") && !exists("other"));
}

static void no_auto_retry(void) {
    outsider_start();
    put("file", "1");
    CHECK_EQ(sys_xbegin(FLAGS | TX_NO_AUTO_RETRY), 0);
    CHECK(is("file", "1"));
    CHECK_EQ(outsider("printf 2 > file"), 0);
    CHECK_EQ(sys_xend(), -ECANCELED);
    CHECK_EQ(sys_xbegin(FLAGS), 0);
    CHECK_EQ(sys_xend(), 0);
}

static void retries_are_bounded(void) {
    outsider_start();
    tx_set_max_retries(3);
    put("file", "1");
    int result, tries = 0;
    do {
        CHECK_EQ(sys_xbegin(FLAGS), tries++);
        get("file");
        CHECK_EQ(outsider("date +%N >> file"), 0);
    } while ((result = sys_xend()) == -EAGAIN);
    CHECK_EQ(result, -EBUSY);
    CHECK_EQ(tries, 4);
}

static void status_tells_a_doomed_one(void) {
    outsider_start();
    put("file", "1");
    CHECK_EQ(sys_xstatus(), -EINVAL);
    CHECK_EQ(sys_xbegin(FLAGS), 0);
    CHECK(is("file", "1"));
    CHECK_EQ(sys_xstatus(), 0);
    CHECK_EQ(outsider("printf 2 > file"), 0);
    CHECK_EQ(sys_xstatus(), 1);
    sys_xabort(1);
}

static void nesting_is_flat(void) {
    CHECK_EQ(sys_xbegin(FLAGS), 0);
    put("a", "a");
    CHECK_EQ(sys_xbegin(TX_DEFAULTS), 0);
    put("b", "b");
    CHECK_EQ(sys_xend(), 0);
    sys_xabort(1);
    CHECK(!exists("a") && !exists("b"));
    CHECK_EQ(sys_xbegin(FLAGS), 0);
    CHECK_EQ(sys_xbegin(FLAGS), 0);
    put("a", "a");
    CHECK_EQ(sys_xend(), 0);
    CHECK_EQ(sys_xend(), 0);
    CHECK(is("a", "a"));
    CHECK_EQ(sys_xend(), -EINVAL);
}

static void an_inner_abort_aborts_all(void) {
    CHECK_EQ(sys_xbegin(FLAGS), 0);
    put("a", "a");
    CHECK_EQ(sys_xbegin(FLAGS), 0);
    sys_xabort(1);
    CHECK_EQ(sys_xend(), -EINVAL);
    CHECK(!exists("a"));
}

static void unknown_flags(void) {
    CHECK_EQ(sys_xbegin(1 << 20), -EINVAL);
    CHECK_EQ(sys_xbegin(-1), -EINVAL);
    CHECK_EQ(sys_xend(), -EINVAL);
    sys_xabort(0); // outside a transaction: nothing
}

static void writes_outside_are_seen_next_time(void) {
    for (int i = 0; i < 8; i++) {
        char text[16];
        snprintf(text, sizeof text, "%d", i);
        put("file", text);
        CHECK_EQ(sys_xbegin(FLAGS), 0);
        CHECK(is("file", text));
        snprintf(text, sizeof text, "in %d", i);
        put("file", text);
        CHECK_EQ(sys_xend(), 0);
        CHECK(is("file", text));
    }
}

static void working_directory(void) {
    char before[PATH_MAX], now[PATH_MAX];
    CHECK(getcwd(before, sizeof before));
    CHECK_EQ(mkdir("there", 0755), 0);
    CHECK_EQ(sys_xbegin(FLAGS), 0);
    CHECK(getcwd(now, sizeof now));
    CHECK(strcmp(before, now) == 0);
    CHECK_EQ(chdir("there"), 0);
    put("file", "x");
    sys_xabort(1);
    CHECK(getcwd(now, sizeof now));
    CHECK(strcmp(before, now) == 0);
    CHECK_EQ(sys_xbegin(FLAGS), 0);
    CHECK_EQ(mkdir("fresh", 0755), 0);
    CHECK_EQ(chdir("fresh"), 0);
    put("file", "x");
    CHECK_EQ(sys_xend(), 0);
    CHECK(is("file", "x"));
    CHECK(getcwd(now, sizeof now));
    CHECK(strcmp(strrchr(now, '/'), "/fresh") == 0);
}

static void a_working_directory_that_is_removed_again(void) {
    outsider_start();
    int place = open(".", O_PATH | O_DIRECTORY);
    CHECK_EQ(tx_exempt_fd(place), 0);
    for (int i = 0; i < 5; i++) {
        CHECK_EQ(sys_xbegin(FLAGS), 0);
        CHECK_EQ(mkdir("fresh", 0755), 0);
        CHECK_EQ(chdir("fresh"), 0);
        CHECK_EQ(sys_xend(), 0);
        CHECK_EQ(outsider("rmdir fresh"), 0);
        // It is in a directory that has gone, and nowhere else.
        CHECK_EQ(open("file", O_WRONLY | O_CREAT, 0644), -1);
        CHECK_EQ(errno, ENOENT);
        CHECK_EQ(sys_xbegin(FLAGS), -ENOENT);
        CHECK_EQ(fchdir(place), 0);
    }
}

static void root_directory(void) {
    CHECK_EQ(sys_xbegin(FLAGS), 0); // the session is there
    CHECK_EQ(sys_xend(), 0);
    CHECK_EQ(mkdir("jail", 0755), 0);
    CHECK_EQ(mkdir("jail/proc", 0755), 0);
    CHECK_EQ(mkdir("jail/sub", 0755), 0);
    CHECK_EQ(chroot("jail"), 0);
    CHECK_EQ(chdir("/sub"), 0);
    CHECK_EQ(sys_xbegin(FLAGS), -ENOENT); // there is nothing in its /proc
    CHECK_EQ(mkdir("still", 0755), 0);
}

static void root_directory_with_proc(void) {
    CHECK_EQ(sys_xbegin(FLAGS), 0);
    CHECK_EQ(sys_xend(), 0);
    CHECK_EQ(mkdir("jail", 0755), 0);
    CHECK_EQ(mkdir("jail/proc", 0755), 0);
    CHECK_EQ(mkdir("jail/sub", 0755), 0);
    CHECK_EQ(unshare(CLONE_NEWNS), 0);
    CHECK_EQ(mount("", "/", "", MS_REC | MS_PRIVATE, ""), 0);
    CHECK_EQ(mount("proc", "jail/proc", "proc", 0, ""), 0);
    CHECK_EQ(chroot("jail"), 0);
    CHECK_EQ(chdir("/sub"), 0);
    // The session shows its own mount namespace, in which that /proc is not mounted.
    CHECK_EQ(sys_xbegin(FLAGS), 0);
    put("file", "x");
    CHECK(exists("/sub/file") && !exists("/jail"));
    CHECK_EQ(sys_xend(), -ENOENT); // nor can the library look at its descriptors there
    CHECK(!exists("/sub/file") && !exists("/jail"));
}

static void umask_stays(void) {
    umask(027);
    CHECK_EQ(sys_xbegin(FLAGS), 0);
    CHECK_EQ(mkdir("dir", 0777), 0);
    CHECK_EQ(umask(077), 027);
    CHECK_EQ(sys_xend(), 0);
    CHECK_EQ(umask(022), 077);
    struct stat st;
    CHECK_EQ(stat("dir", &st), 0);
    CHECK_EQ(st.st_mode & 07777, 0750);
}

static void a_file_open_before(void) {
    int fd = open("file", O_RDWR | O_CREAT, 0644);
    CHECK_EQ(write(fd, "0123456789", 10), 10);
    CHECK_EQ(lseek(fd, 3, SEEK_SET), 3);
    CHECK_EQ(sys_xbegin(FLAGS), 0);
    CHECK_EQ(write(fd, "abc", 3), 3);
    CHECK_EQ(lseek(fd, 0, SEEK_CUR), 6);
    sys_xabort(1);
    CHECK_EQ(lseek(fd, 0, SEEK_CUR), 3);
    CHECK(is("file", "0123456789"));
    CHECK_EQ(sys_xbegin(FLAGS), 0);
    CHECK_EQ(write(fd, "abc", 3), 3);
    CHECK_EQ(sys_xend(), 0);
    CHECK_EQ(lseek(fd, 0, SEEK_CUR), 6);
    CHECK_EQ(write(fd, "X", 1), 1);
    CHECK(is("file", "012abcX789"));
}

static void twins_stay_twins(void) {
    int fd = open("file", O_RDWR | O_CREAT, 0644), twin = dup(fd);
    CHECK_EQ(sys_xbegin(FLAGS), 0);
    CHECK_EQ(write(fd, "ab", 2), 2);
    CHECK_EQ(write(twin, "cd", 2), 2);
    int third = dup(twin);
    CHECK_EQ(sys_xend(), 0);
    CHECK_EQ(write(third, "ef", 2), 2);
    CHECK_EQ(lseek(fd, 0, SEEK_CUR), 6);
    CHECK(is("file", "abcdef"));
}

static void a_directory_open_before(void) {
    CHECK_EQ(mkdir("dir", 0755), 0);
    int fd = open("dir", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    CHECK_EQ(sys_xbegin(FLAGS), 0);
    int file = openat(fd, "file", O_WRONLY | O_CREAT, 0644);
    CHECK_EQ(write(file, "x", 1), 1);
    CHECK_EQ(close(file), 0);
    CHECK_EQ(faccessat(AT_FDCWD, "dir/file", R_OK, 0), 0);
    sys_xabort(1);
    CHECK(!exists("dir/file"));
    CHECK_EQ(faccessat(fd, "file", R_OK, 0), -1);
    CHECK_EQ(fcntl(fd, F_GETFD), FD_CLOEXEC);
}

static void a_file_opened_inside_stays_open(void) {
    CHECK_EQ(sys_xbegin(FLAGS), 0);
    int fd = open("file", O_RDWR | O_CREAT | O_EXCL, 0644);
    CHECK_EQ(write(fd, "inside", 6), 6);
    int twin = dup(fd);
    CHECK_EQ(sys_xend(), 0);
    CHECK_EQ(write(twin, " outside", 8), 8);
    CHECK(is("file", "inside outside"));
    struct stat by_name, by_fd;
    CHECK_EQ(stat("file", &by_name), 0);
    CHECK_EQ(fstat(fd, &by_fd), 0);
    CHECK_EQ(by_name.st_ino, by_fd.st_ino);
    CHECK_EQ(lseek(fd, 0, SEEK_CUR), 14);
}

static void a_file_opened_inside_closes_with_an_abort(void) {
    CHECK_EQ(sys_xbegin(FLAGS), 0);
    int fd = open("file", O_RDWR | O_CREAT | O_EXCL, 0644);
    CHECK_THAT(fd, >=, 0);
    sys_xabort(1);
    CHECK_EQ(fcntl(fd, F_GETFD), -1);
}

static void closed_inside_stays_closed(void) {
    int fd = open("file", O_RDWR | O_CREAT, 0644);
    CHECK_EQ(sys_xbegin(FLAGS), 0);
    CHECK_EQ(close(fd), 0);
    sys_xabort(1);
    CHECK_EQ(write(fd, "x", 1), 1);
    CHECK_EQ(sys_xbegin(FLAGS), 0);
    CHECK_EQ(close(fd), 0);
    CHECK_EQ(sys_xend(), 0);
    CHECK_EQ(fcntl(fd, F_GETFD), -1);
}

static void a_file_without_a_name(void) {
    CHECK_EQ(sys_xbegin(FLAGS), 0);
    int fd = open("file", O_RDWR | O_CREAT | O_EXCL, 0644);
    CHECK_EQ(unlink("file"), 0);
    CHECK_EQ(write(fd, "private", 7), 7);
    CHECK_EQ(sys_xend(), 0);
    char text[8] = "";
    CHECK_EQ(pread(fd, text, 7, 0), 7);
    CHECK(strcmp(text, "private") == 0);
    CHECK(!exists("file"));
    CHECK_EQ(sys_xbegin(FLAGS), 0);
    CHECK_EQ(sys_xend(), 0);
    CHECK_EQ(pread(fd, text, 7, 0), 7);
}

static void an_exempt_log_survives(void) {
    CHECK_EQ(tx_exempt_fd(99), -EBADF);
    CHECK_EQ(tx_exempt_fd(-1), -EBADF);
    int log = open("log", O_WRONLY | O_CREAT | O_APPEND, 0644);
    CHECK_EQ(tx_exempt_fd(log), 0);
    CHECK_EQ(sys_xbegin(FLAGS), 0);
    CHECK_EQ(write(log, "tried\n", 6), 6);
    put("file", "x");
    sys_xabort(1);
    CHECK(is("log", "tried\n") && !exists("file"));
}

// Whoever has a file open that goes inside has what was written to it.
static void a_file_that_goes_inside(void) {
    for (int replaced = 0; replaced < 2; replaced++) {
        char text[8] = {0};
        put("open", "0123");
        int fd = open("open", O_RDWR);
        CHECK_EQ(sys_xbegin(FLAGS), 0);
        CHECK_EQ(write(fd, "XX", 2), 2);
        put("other", "other");
        CHECK_EQ(replaced ? rename("other", "open") : unlink("open"), 0);
        CHECK_EQ(sys_xend(), 0);
        CHECK_EQ(pread(fd, text, sizeof text, 0), 4);
        CHECK_EQ(strcmp(text, "XX23"), 0);
        CHECK_EQ(lseek(fd, 0, SEEK_CUR), 2);
        CHECK(replaced ? is("open", "other") : !exists("open"));
        close(fd);
    }
}

static void a_fifo_that_stays_open(void) {
    CHECK_EQ(mkfifo("fifo", 0600), 0);
    CHECK_EQ(sys_xbegin(FLAGS), 0);
    int reads = open("fifo", O_RDONLY | O_NONBLOCK), writes = open("fifo", O_WRONLY);
    CHECK(reads >= 0 && writes >= 0);
    close(reads);
    CHECK_EQ(sys_xend(), 0); // it waits for no reader
    close(writes);
    CHECK_EQ(sys_xbegin(FLAGS), 0);
    reads = open("fifo", O_RDONLY | O_NONBLOCK);
    CHECK_EQ(fcntl(reads, F_SETFL, 0), 0);
    CHECK_EQ(sys_xend(), 0); // nor for a writer
    CHECK_EQ(fcntl(reads, F_GETFL) & O_NONBLOCK, 0);
}

static void flags_that_are_set_inside_stay(void) {
    put("open", "0123");
    int fd = open("open", O_RDWR);
    CHECK_EQ(sys_xbegin(FLAGS), 0);
    CHECK_EQ(fcntl(fd, F_SETFL, O_APPEND | O_NONBLOCK), 0);
    CHECK_EQ(write(fd, "4", 1), 1);
    CHECK_EQ(sys_xend(), 0);
    CHECK_EQ(fcntl(fd, F_GETFL) & (O_APPEND | O_NONBLOCK), O_APPEND | O_NONBLOCK);
    CHECK_EQ(lseek(fd, 0, SEEK_SET), 0);
    CHECK_EQ(write(fd, "5", 1), 1);
    CHECK(is("open", "012345"));
    CHECK_EQ(sys_xbegin(FLAGS), 0);
    CHECK_EQ(fcntl(fd, F_SETFL, 0), 0);
    sys_xabort(1);
    CHECK_EQ(fcntl(fd, F_GETFL) & O_APPEND, O_APPEND);
}

static void exempt_is_what_was_not_carried(void) {
    int fd = open("log", O_RDWR | O_CREAT, 0644);
    CHECK_EQ(sys_xbegin(FLAGS), 0);
    CHECK_EQ(tx_exempt_fd(fd), -EBUSY);
    CHECK_EQ(sys_xend(), 0);
    CHECK_EQ(tx_exempt_fd(fd), 0);
}

// The explicit API and these transactions: one after the other, and never one in the other.
static void beside_the_explicit_api(void) {
    struct txos_tx *tx = (struct txos_tx *)1;
    for (int i = 0; i < 2; i++) {
        CHECK_EQ(txos_begin(&tx, TXOS_NONDURABLE), 0);
        CHECK_EQ(txos_write(tx, "explicit", "x", 1), 0);
        CHECK_EQ(txos_commit(tx), 0);
        CHECK_EQ(sys_xbegin(FLAGS), 0);
        put("plain", "x");
        CHECK_EQ(txos_begin(&tx, TXOS_NONDURABLE), -ENOTXSUPPORT);
        CHECK(tx == NULL);
        CHECK_EQ(sys_xend(), 0);
        CHECK(is("explicit", "x") && is("plain", "x"));
    }
}

static void a_live_mapping(void) {
    int fd = open("file", O_RDWR | O_CREAT, 0644);
    CHECK_EQ(ftruncate(fd, 4096), 0);
    char *at = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(at != MAP_FAILED);
    CHECK_EQ(sys_xbegin(FLAGS), -ENOTXSUPPORT);
    CHECK_EQ(sys_xbegin(FLAGS | TX_LIVE_DANGEROUSLY), 0);
    CHECK_EQ(sys_xend(), 0);
    CHECK_EQ(munmap(at, 4096), 0);
    CHECK_EQ(sys_xbegin(FLAGS), 0);
    // One made inside is the view's.
    at = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    strcpy(at, "mapped");
    CHECK_EQ(munmap(at, 4096), 0);
    CHECK_EQ(sys_xend(), 0);
    CHECK(is("file", "mapped"));
    // One with another name may be changed by it.
    at = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK_EQ(link("file", "other"), 0);
    CHECK_EQ(unlink("file"), 0);
    CHECK_EQ(sys_xbegin(FLAGS), -ENOTXSUPPORT);
    // One without any is memory of whoever has it.
    CHECK_EQ(unlink("other"), 0);
    CHECK_EQ(close(fd), 0);
    CHECK_EQ(sys_xbegin(FLAGS), 0);
    strcpy(at, "shared");
    CHECK_EQ(sys_xend(), 0);
    CHECK_EQ(strcmp(at, "shared"), 0);
    CHECK_EQ(sys_xbegin(TX_NONDURABLE), 0);
    CHECK_EQ(sys_xend(), 0);
    CHECK_EQ(munmap(at, 4096), 0);
    // Memory without a file is the program's own affair.
    at = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK_EQ(sys_xbegin(FLAGS), 0);
    CHECK_EQ(sys_xend(), 0);
}

static void nothing_of_the_library_shows(void) {
    CHECK_EQ(system("ls /proc/self/fd > before"), 0);
    int fd = open("file", O_RDWR | O_CREAT, 0644);
    CHECK_EQ(sys_xbegin(FLAGS), 0);
    CHECK_EQ(open("other", O_RDWR | O_CREAT, 0644), fd + 1);
    close(fd + 1);
    close(fd);
    CHECK_EQ(system("ls /proc/self/fd > inside; cmp before inside"), 0);
    CHECK_EQ(sys_xend(), 0);
    // Nothing that is started inherits the library's descriptors, and no child of its own shows.
    CHECK_EQ(system("ls /proc/self/fd > after; cmp before after"), 0);
    errno = 0;
    CHECK_EQ(waitpid(-1, NULL, WNOHANG), -1);
    CHECK_EQ(errno, ECHILD);
}

static void out_of_descriptors(void) {
    int fd, last = -1;
    CHECK_EQ(sys_xbegin(FLAGS), 0); // the connection is there
    CHECK_EQ(sys_xend(), 0);
    while ((fd = open("/dev/null", O_RDONLY)) >= 0) last = fd;
    CHECK_EQ(errno, EMFILE);
    CHECK_EQ(sys_xbegin(FLAGS), -EMFILE);
    // Every number that there is, the library's as well.
    for (fd = 3; fd <= last; fd++) close(fd);
    CHECK_EQ(sys_xbegin(FLAGS), 0);
    put("file", "x");
    CHECK_EQ(sys_xend(), 0);
    CHECK(is("file", "x"));
}

static void limits_of_the_program_are_not_the_sessions(void) {
    // What the caller may have left at higher numbers.
    CHECK_EQ(close_range(3, ~0U, 0), 0);
    const struct { int resource, limit; } few[] = {{RLIMIT_NOFILE, 64}, {RLIMIT_FSIZE, 16}};
    for (size_t i = 0; i < sizeof few / sizeof *few; i++) {
        struct rlimit limit;
        CHECK_EQ(getrlimit(few[i].resource, &limit), 0);
        limit.rlim_cur = few[i].limit;
        CHECK_EQ(setrlimit(few[i].resource, &limit), 0);
    }
    // Its session is started by this.
    for (int i = 0; i < 20; i++) {
        char name[16];
        snprintf(name, sizeof name, "file%d", i);
        CHECK_EQ(sys_xbegin(i % 2 ? TX_NO_USER_ROLLBACK : FLAGS), 0);
        put(name, "x");
        CHECK_EQ(sys_xend(), 0);
        CHECK(is(name, "x"));
    }
}

static void leaves_with_a_lost_one(void) {
    // Many in a row: nothing is used up.
    for (int i = 0; i < 200; i++) {
        CHECK_EQ(sys_xbegin(FLAGS), 0);
        put("file", "x");
        if (i % 2) sys_xabort(1);
        else CHECK_EQ(sys_xend(), 0);
    }
}

int main(int argc, char **argv) {
    const struct test tests[] = {
        {"commits_all", commits_all},
        {"durable_commits_too", durable_commits_too},
        {"nothing_shows_before_the_end", nothing_shows_before_the_end},
        {"abort_undoes_all", abort_undoes_all},
        {"a_lost_conflict_is_told", a_lost_conflict_is_told},
        {"a_reader_loses_too", a_reader_loses_too},
        {"an_empty_one_that_lost_comes_to_its_end", an_empty_one_that_lost_comes_to_its_end},
        {"absence_is_read", absence_is_read},
        {"no_auto_retry", no_auto_retry},
        {"retries_are_bounded", retries_are_bounded},
        {"status_tells_a_doomed_one", status_tells_a_doomed_one},
        {"nesting_is_flat", nesting_is_flat},
        {"an_inner_abort_aborts_all", an_inner_abort_aborts_all},
        {"unknown_flags", unknown_flags},
        {"writes_outside_are_seen_next_time", writes_outside_are_seen_next_time},
        {"working_directory", working_directory},
        {"a_working_directory_that_is_removed_again", a_working_directory_that_is_removed_again},
        {"root_directory", root_directory},
        {"root_directory_with_proc", root_directory_with_proc},
        {"umask_stays", umask_stays},
        {"a_file_open_before", a_file_open_before},
        {"twins_stay_twins", twins_stay_twins},
        {"a_directory_open_before", a_directory_open_before},
        {"a_file_opened_inside_stays_open", a_file_opened_inside_stays_open},
        {"a_file_opened_inside_closes_with_an_abort", a_file_opened_inside_closes_with_an_abort},
        {"closed_inside_stays_closed", closed_inside_stays_closed},
        {"a_file_without_a_name", a_file_without_a_name},
        {"an_exempt_log_survives", an_exempt_log_survives},
        {"a_file_that_goes_inside", a_file_that_goes_inside},
        {"a_fifo_that_stays_open", a_fifo_that_stays_open},
        {"flags_that_are_set_inside_stay", flags_that_are_set_inside_stay},
        {"exempt_is_what_was_not_carried", exempt_is_what_was_not_carried},
        {"beside_the_explicit_api", beside_the_explicit_api},
        {"a_live_mapping", a_live_mapping},
        {"nothing_of_the_library_shows", nothing_of_the_library_shows},
        {"out_of_descriptors", out_of_descriptors},
        {"limits_of_the_program_are_not_the_sessions",
         limits_of_the_program_are_not_the_sessions},
        {"leaves_with_a_lost_one", leaves_with_a_lost_one},
        {NULL, NULL},
    };
    return run_cases(argc, argv, tests);
}

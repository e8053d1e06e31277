// txos: system transactions inside programs. The C interface; see sys_xbegin(2).
//
// This file is generated from the Rust source; a test compares the two.

#ifndef TXOS_H
#define TXOS_H

#include <stddef.h>
#include <stdint.h>

// Durable, with rollback of the program, executed again after a lost conflict.
#define TX_DEFAULTS 0

// The changes need not survive a power cut when `sys_xend` returns.
#define TX_NONDURABLE 1

// The program's own state is not rolled back: `sys_xend` says `-EAGAIN`, and the program loops.
#define TX_NO_USER_ROLLBACK 2

// A lost conflict is not tried again: `sys_xend` says `-ECANCELED`.
#define TX_NO_AUTO_RETRY 4

// A call that cannot be isolated fails with `ENOTXSUPPORT`, and the transaction goes on; without this it
// is given up.
#define TX_ERROR_UNSUPPORTED 8

// What cannot be isolated is done all the same.
#define TX_LIVE_DANGEROUSLY 16

// Signals from outside wait until the transaction has ended.
#define TX_DEFER_SIGNALS 32

// The error number of what a transaction does not support.
#define ENOTXSUPPORT 134

// The commit may be lost in a power cut, as a whole; towards all who are running it is atomic.
#define TXOS_NONDURABLE 1

// [`txos_run`] gives up at the first conflict.
#define TXOS_NO_RETRY 2

// A running transaction of the explicit API. One thread at a time may use it.
typedef struct txos_tx txos_tx;

// What [`txos_stat`] shows of an object.
typedef struct {
  // Type and permission bits, as `st_mode` of `stat(2)`.
  uint32_t mode;
  // Owner.
  uint32_t uid;
  // Group.
  uint32_t gid;
  // Last change of the content: nanoseconds, 0 to 999,999,999.
  uint32_t mtime_nsec;
  // Last change of the content: seconds since 1970.
  int64_t mtime_sec;
  // Size in bytes.
  uint64_t size;
  // Number of names.
  uint64_t nlink;
  // Inode number; 0 for an object that the transaction has made.
  uint64_t ino;
} txos_stat_t;

// A point in time for [`txos_utimens`].
typedef struct {
  // Seconds since 1970.
  int64_t sec;
  // Nanoseconds, 0 to 999,999,999.
  uint32_t nsec;
} txos_time_t;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Begins a transaction: everything that this thread, the libraries it calls and the programs it starts
// do with files until sys_xend() happens as one, or not at all.
//
// `flags` is 0 (TX_DEFAULTS) or any of the TX_* bits. Inside a transaction it only counts.
//
// Returns how many times the transaction was tried before, or a negative error number.
int sys_xbegin(int flags);

// Like sys_xbegin(), for one of a group of transactions that become visible in the order of their
// sequence numbers (0, 1, 2, …), whatever order they run in.
int sys_xbegin_ordered(int flags,
                       uint64_t group,
                       uint64_t sequence);

// Ends the transaction and commits it.
//
// Returns 0, or a negative error number: then nothing that was done in it has happened.
int sys_xend(void);

// Gives the transaction up: nothing that was done in it has happened. It is not tried again if
// `no_restart` is not 0.
void sys_xabort(int no_restart);

// Whether the transaction can still commit, as far as is known.
//
// Returns 0 if so, 1 if it is doomed and may as well give up, or a negative error number.
int sys_xstatus(void);

// The transaction's number, for tx_join() in another process; -EINVAL outside.
int64_t tx_id(void);

// Makes the calling thread a member of a running transaction of the same session. Its sys_xend() makes it
// free again; the transaction commits when the last member has left.
//
// Returns 0 or a negative error number.
int tx_join(int64_t id);

// Leaves a descriptor out of all transactions: what is written to it happens at once and stays, also
// after an abort.
//
// Returns 0 or a negative error number.
int tx_exempt_fd(int fd);

// Sets how many lost conflicts in a row this process bears before it is told -EBUSY (100 unless set).
void tx_set_max_retries(uint32_t limit);

// The attributes of an object, following symbolic links.
//
// Returns 0, or a negative error number.
//
// # Safety
// `tx` is a live handle, `path` a string, `stat` has room for the result.
int txos_stat(txos_tx *tx, const char *path, txos_stat_t *stat);

// The attributes of an object; of a symbolic link itself.
//
// Returns 0, or a negative error number.
//
// # Safety
// `tx` is a live handle, `path` a string, `stat` has room for the result.
int txos_lstat(txos_tx *tx, const char *path, txos_stat_t *stat);

// Sets the permission bits of an object, following symbolic links, as `chmod(2)`.
//
// Returns 0, or a negative error number.
//
// # Safety
// `tx` is a live handle, `path` a string.
int txos_chmod(txos_tx *tx, const char *path, unsigned int mode);

// Sets owner and group, of a symbolic link itself, as `lchown(2)`; -1 leaves one as it is.
//
// Returns 0, or a negative error number.
//
// # Safety
// `tx` is a live handle, `path` a string.
int txos_lchown(txos_tx *tx, const char *path, uint32_t uid, uint32_t gid);

// Sets the times of the last access and of the last change, of a symbolic link itself; null leaves
// one as it is.
//
// Returns 0, or a negative error number.
//
// # Safety
// `tx` is a live handle, `path` a string, the times are null or valid.
int txos_utimens(txos_tx *tx,
                 const char *path,
                 const txos_time_t *atime,
                 const txos_time_t *mtime);

// Sets an extended attribute, of a symbolic link itself, as `lsetxattr(2)` without flags; null as
// `value` removes it, as `lremovexattr(2)`.
//
// Returns 0, or a negative error number.
//
// # Safety
// `tx` is a live handle, `path` and `name` are strings, `value` is null or points to `len` bytes.
int txos_setxattr(txos_tx *tx,
                  const char *path,
                  const char *name,
                  const void *value,
                  size_t len);

// Reads an extended attribute, of a symbolic link itself, into memory that `free(3)` gives back:
// its address into `*value`, its size into `*len`.
//
// Returns 0, or a negative error number (`-ENODATA` if there is none of this name); then nothing
// was written.
//
// # Safety
// `tx` is a live handle, `path` and `name` are strings, `value` and `len` have room for what they
// get.
int txos_getxattr(txos_tx *tx,
                  const char *path,
                  const char *name,
                  void **value,
                  size_t *len);

// Reads at most `len` bytes of a file from `offset` on into `buffer`.
//
// Returns how many, fewer where the file ends before; or a negative error number.
//
// # Safety
// `tx` is a live handle, `path` a string, `buffer` has room for `len` bytes.
ptrdiff_t txos_pread(txos_tx *tx, const char *path, void *buffer, size_t len, uint64_t offset);

// Reads a whole file into memory that `free(3)` gives back, with a NUL after the last byte: its
// address into `*data`, its size without the NUL into `*len`, which may be null.
//
// Returns 0, or a negative error number; then `*data` is untouched.
//
// # Safety
// `tx` is a live handle, `path` a string, `data` and `len` have room for what they get.
int txos_read(txos_tx *tx, const char *path, void **data, size_t *len);

// Makes these bytes the whole content of a file: an existing one keeps its inode, mode and other
// names, an absent one is made with mode 0666 less the umask.
//
// Returns 0, or a negative error number.
//
// # Safety
// `tx` is a live handle, `path` a string, `data` points to `len` bytes.
int txos_write(txos_tx *tx,
               const char *path,
               const void *data,
               size_t len);

// Writes into an existing file at `offset`.
//
// Returns 0, or a negative error number.
//
// # Safety
// `tx` is a live handle, `path` a string, `data` points to `len` bytes.
int txos_pwrite(txos_tx *tx, const char *path, const void *data, size_t len, uint64_t offset);

// Appends to a file, which is made if it is absent. Two transactions that append to one file
// without reading it both commit.
//
// Returns 0, or a negative error number.
//
// # Safety
// `tx` is a live handle, `path` a string, `data` points to `len` bytes.
int txos_append(txos_tx *tx, const char *path, const void *data, size_t len);

// Sets the size of an existing file.
//
// Returns 0, or a negative error number.
//
// # Safety
// `tx` is a live handle, `path` a string.
int txos_truncate(txos_tx *tx, const char *path, uint64_t size);

// What the last failed call of this thread has to say, with the object and the remedy; null if
// none has failed. The text is valid until the thread's next failed call.
const char *txos_message(void);

// Makes a new, empty file with `mode` less the umask; `-EEXIST` if the name is taken.
//
// Returns 0, or a negative error number.
//
// # Safety
// `tx` is a live handle, `path` a string.
int txos_create(txos_tx *tx, const char *path, unsigned int mode);

// Makes a directory with `mode` less the umask, as `mkdir(2)`.
//
// Returns 0, or a negative error number.
//
// # Safety
// `tx` is a live handle, `path` a string.
int txos_mkdir(txos_tx *tx, const char *path, unsigned int mode);

// Removes an empty directory, as `rmdir(2)`.
//
// Returns 0, or a negative error number.
//
// # Safety
// `tx` is a live handle, `path` a string.
int txos_rmdir(txos_tx *tx, const char *path);

// Removes a name that is not of a directory, as `unlink(2)`.
//
// Returns 0, or a negative error number.
//
// # Safety
// `tx` is a live handle, `path` a string.
int txos_unlink(txos_tx *tx, const char *path);

// Gives an object another name, displacing what has it, as `rename(2)`.
//
// Returns 0, or a negative error number.
//
// # Safety
// `tx` is a live handle, the paths are strings.
int txos_rename(txos_tx *tx, const char *from, const char *to);

// Gives an object another name, which must be free, as `renameat2(2)` with `RENAME_NOREPLACE`.
//
// Returns 0, or a negative error number.
//
// # Safety
// `tx` is a live handle, the paths are strings.
int txos_rename_new(txos_tx *tx, const char *from, const char *to);

// Gives the object at `path` the further name `name`, as `link(2)`.
//
// Returns 0, or a negative error number.
//
// # Safety
// `tx` is a live handle, the paths are strings.
int txos_link(txos_tx *tx, const char *path, const char *name);

// Makes a symbolic link at `path` that points to `target`, as `symlink(2)`.
//
// Returns 0, or a negative error number.
//
// # Safety
// `tx` is a live handle, the paths are strings.
int txos_symlink(txos_tx *tx, const char *target, const char *path);

// Whether `path` leads to an object: 1 or 0, or a negative error number.
//
// # Safety
// `tx` is a live handle, `path` a string.
int txos_exists(txos_tx *tx, const char *path);

// Where a symbolic link points, as a string in memory that `free(3)` gives back.
//
// Returns 0, or a negative error number; then `*target` is untouched.
//
// # Safety
// `tx` is a live handle, `path` a string, `target` has room for a pointer.
int txos_readlink(txos_tx *tx, const char *path, char **target);

// All names in a directory but `.` and `..`, sorted, each followed by a NUL, in memory that
// `free(3)` gives back: its address into `*names`, the number of bytes into `*len`.
//
// Returns how many names there are, or a negative error number; then nothing was written.
//
// # Safety
// `tx` is a live handle, `path` a string, `names` and `len` have room for what they get.
ptrdiff_t txos_list(txos_tx *tx, const char *path, char **names, size_t *len);

// Begins a transaction and puts its handle into `*tx`. `flags` is 0 or `TXOS_NONDURABLE`.
//
// Returns 0, or a negative error number: `-EINVAL` for an unknown flag, `-ENOTXSUPPORT` in a thread that is in a
// transaction of sys_xbegin(2).
//
// # Safety
// `tx` points to a place for a pointer.
int txos_begin(txos_tx **tx,
               unsigned int flags);

// Commits: all changes are made at once, if all that was read is still the same. The handle is
// dead afterwards, whatever the result.
//
// Returns 0; `-ECANCELED` if something that was read has changed: nothing was done, and the program
// may begin again; or another negative error number.
//
// # Safety
// `tx` is null or a live handle from [`txos_begin`] that no other thread uses.
int txos_commit(txos_tx *tx);

// Forgets all changes. The handle is dead afterwards; null is ignored.
//
// # Safety
// `tx` is null or a live handle from [`txos_begin`] that no other thread uses.
void txos_abort(txos_tx *tx);

// Runs `body(tx, argument)` as one transaction: if it returns 0 its changes are committed, and when
// something that it had read has changed it is run again, from the start. Another result aborts.
// The handle is the body's while it runs; it neither commits nor aborts it.
//
// Returns 0; what the body returned if that was not 0 (`-ECANCELED`, which its own calls return when
// the transaction has lost, makes it run again instead); `-EBUSY` after too many losses, or with
// `TXOS_NO_RETRY` `-ECANCELED` at the first; or another negative error number.
//
// # Safety
// `body` may be called with a handle and `argument`, several times.
int txos_run(int (*body)(txos_tx *tx, void *argument),
             void *argument,
             unsigned int flags);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* TXOS_H */

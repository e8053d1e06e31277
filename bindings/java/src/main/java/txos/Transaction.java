package txos;

import com.sun.jna.Memory;
import com.sun.jna.Native;
import com.sun.jna.Pointer;
import com.sun.jna.ptr.NativeLongByReference;
import com.sun.jna.ptr.PointerByReference;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.locks.LockSupport;

/**
 * A transaction over files, in process: reads are plain calls whose results are remembered, writes stay
 * in memory until the commit makes all of them at once.
 *
 * <p>Inside it a program sees what it has written. Relative paths begin in the directory that was the
 * working directory when the transaction began. One thread at a time may use it.
 *
 * <p>Every method throws {@link ConflictException} as soon as it is known that the transaction has lost,
 * {@link IllegalStateException} when it has ended, and what {@link java.nio.file.Files} throws when a call
 * fails as it would without a transaction.
 */
public final class Transaction implements AutoCloseable {
    private static final int NONDURABLE = 1;
    private static final long FIRST_PAUSE = 20_000;
    private static final long LONGEST_PAUSE = 20_000_000;
    private static final Library LIB = Library.LIB;

    private Pointer handle;

    private Transaction(Pointer handle) {
        this.handle = handle;
    }

    /**
     * What {@link #run(Body)} runs. It may run several times: what it does beside the transaction must
     * bear that.
     */
    @FunctionalInterface
    public interface Body<T, E extends Exception> {
        /** Does the work. */
        T run(Transaction tx) throws E, IOException;
    }

    /** Begins a durable transaction, which ends with {@link #commit} or {@link #close}. */
    public static Transaction begin() throws IOException {
        return begin(Options.DEFAULT);
    }

    /** Begins a transaction. */
    public static Transaction begin(Options options) throws IOException {
        PointerByReference handle = new PointerByReference();
        check(LIB.txos_begin(handle, options.durable() ? 0 : NONDURABLE), "begin", null);
        return new Transaction(handle.getValue());
    }

    /**
     * Runs a function as one durable transaction and commits what it did; runs it again, from its start,
     * when something that it had read has changed. An exception that it throws aborts the transaction and
     * comes back.
     */
    public static <T, E extends Exception> T run(Body<T, E> body) throws E, IOException {
        return run(Options.DEFAULT, body);
    }

    /** The same with options; a {@link ConflictException} says that it lost more often than they allow. */
    public static <T, E extends Exception> T run(Options options, Body<T, E> body)
            throws E, IOException {
        for (int loss = 0; ; loss++) {
            try (Transaction tx = begin(options)) {
                T result = body.run(tx);
                tx.commit();
                return result;
            } catch (ConflictException conflict) {
                if (loss >= options.retries()) {
                    throw new ConflictException("lost " + (loss + 1) + " times", conflict);
                }
            }
            long longest = Math.min(FIRST_PAUSE << Math.min(loss, 10), LONGEST_PAUSE);
            LockSupport.parkNanos(ThreadLocalRandom.current().nextLong(longest));
        }
    }

    /** Makes all changes at once, if everything that was read is still the same. */
    public void commit() throws IOException {
        Pointer ending = handle();
        handle = null;
        check(LIB.txos_commit(ending), "commit", null);
    }

    /** Forgets all changes; after a commit it does nothing. */
    @Override
    public void close() {
        if (handle != null) {
            LIB.txos_abort(handle);
            handle = null;
        }
    }

    /** The whole content of a file. */
    public byte[] read(Path path) throws IOException {
        PointerByReference data = new PointerByReference();
        NativeLongByReference length = new NativeLongByReference();
        check(LIB.txos_read(handle(), path.toString(), data, length), "read", path);
        return taken(data, length.getValue().longValue());
    }

    /** The whole content of a file, as UTF-8. */
    public String readString(Path path) throws IOException {
        return new String(read(path), StandardCharsets.UTF_8);
    }

    /** At most {@code size} bytes from an offset on. Changes of other parts are no conflict. */
    public byte[] read(Path path, long offset, int size) throws IOException {
        byte[] buffer = new byte[size];
        long length = LIB.txos_pread(handle(), path.toString(), buffer, size, offset);
        check(length, "read", path);
        return length == size ? buffer : java.util.Arrays.copyOf(buffer, (int) length);
    }

    /** Makes bytes the whole content of a file, which is made if it is absent. */
    public void write(Path path, byte[] content) throws IOException {
        check(LIB.txos_write(handle(), path.toString(), content, content.length), "write", path);
    }

    /** The same with a text, as UTF-8. */
    public void writeString(Path path, String content) throws IOException {
        write(path, content.getBytes(StandardCharsets.UTF_8));
    }

    /** Writes into an existing file at an offset. */
    public void write(Path path, long offset, byte[] bytes) throws IOException {
        int code = LIB.txos_pwrite(handle(), path.toString(), bytes, bytes.length, offset);
        check(code, "write", path);
    }

    /** Appends to a file, which is made if it is absent. Two that only append both commit. */
    public void append(Path path, byte[] bytes) throws IOException {
        check(LIB.txos_append(handle(), path.toString(), bytes, bytes.length), "append", path);
    }

    /** Sets the size of an existing file. */
    public void truncate(Path path, long size) throws IOException {
        check(LIB.txos_truncate(handle(), path.toString(), size), "truncate", path);
    }

    /** Makes a new, empty file with a mode less the umask. */
    public void create(Path path, int mode) throws IOException {
        check(LIB.txos_create(handle(), path.toString(), mode), "create", path);
    }

    /** Makes a directory with a mode less the umask. */
    public void createDirectory(Path path, int mode) throws IOException {
        check(LIB.txos_mkdir(handle(), path.toString(), mode), "mkdir", path);
    }

    /** Makes a symbolic link. */
    public void createSymbolicLink(Path path, String target) throws IOException {
        check(LIB.txos_symlink(handle(), target, path.toString()), "symlink", path);
    }

    /** Gives an object a further name. */
    public void createLink(Path name, Path existing) throws IOException {
        check(LIB.txos_link(handle(), existing.toString(), name.toString()), "link", name);
    }

    /** Where a symbolic link points. */
    public String readSymbolicLink(Path path) throws IOException {
        PointerByReference target = new PointerByReference();
        check(LIB.txos_readlink(handle(), path.toString(), target), "readlink", path);
        Pointer at = target.getValue();
        return new String(taken(target, at.indexOf(0, (byte) 0)), StandardCharsets.UTF_8);
    }

    /** Removes a name that is not of a directory. */
    public void delete(Path path) throws IOException {
        check(LIB.txos_unlink(handle(), path.toString()), "unlink", path);
    }

    /** Removes an empty directory. */
    public void deleteDirectory(Path path) throws IOException {
        check(LIB.txos_rmdir(handle(), path.toString()), "rmdir", path);
    }

    /** Gives an object another name, displacing what has it. */
    public void rename(Path from, Path to) throws IOException {
        check(LIB.txos_rename(handle(), from.toString(), to.toString()), "rename", from);
    }

    /** Gives an object another name, which must be free. */
    public void renameNew(Path from, Path to) throws IOException {
        check(LIB.txos_rename_new(handle(), from.toString(), to.toString()), "rename", to);
    }

    /** Whether a path leads to an object. */
    public boolean exists(Path path) throws IOException {
        return check(LIB.txos_exists(handle(), path.toString()), "access", path) == 1;
    }

    /** The attributes of an object, following symbolic links. */
    public Stat stat(Path path) throws IOException {
        try (Memory at = new Memory(Stat.BYTES)) {
            check(LIB.txos_stat(handle(), path.toString(), at), "stat", path);
            return Stat.of(at);
        }
    }

    /** The attributes of an object; of a symbolic link itself. */
    public Stat lstat(Path path) throws IOException {
        try (Memory at = new Memory(Stat.BYTES)) {
            check(LIB.txos_lstat(handle(), path.toString(), at), "stat", path);
            return Stat.of(at);
        }
    }

    /** All names in a directory, sorted. */
    public List<String> list(Path path) throws IOException {
        PointerByReference names = new PointerByReference();
        NativeLongByReference length = new NativeLongByReference();
        check(LIB.txos_list(handle(), path.toString(), names, length), "list", path);
        byte[] all = taken(names, length.getValue().longValue());
        List<String> list = new ArrayList<>();
        for (int begin = 0, at = 0; at < all.length; at++) {
            if (all[at] == 0) {
                list.add(new String(all, begin, at - begin, StandardCharsets.UTF_8));
                begin = at + 1;
            }
        }
        return list;
    }

    /** Sets the permission bits of an object. */
    public void setMode(Path path, int mode) throws IOException {
        check(LIB.txos_chmod(handle(), path.toString(), mode), "chmod", path);
    }

    /** Sets owner and group, of a symbolic link itself; -1 leaves one as it is. */
    public void setOwner(Path path, int uid, int gid) throws IOException {
        check(LIB.txos_lchown(handle(), path.toString(), uid, gid), "chown", path);
    }

    /** Sets the times of the last access and of the last change; null leaves one as it is. */
    public void setTimes(Path path, Instant accessed, Instant modified) throws IOException {
        try (Memory atime = time(accessed);
                Memory mtime = time(modified)) {
            check(LIB.txos_utimens(handle(), path.toString(), atime, mtime), "utimens", path);
        }
    }

    /** An extended attribute, of a symbolic link itself. */
    public byte[] getAttribute(Path path, String name) throws IOException {
        PointerByReference value = new PointerByReference();
        NativeLongByReference length = new NativeLongByReference();
        int code = LIB.txos_getxattr(handle(), path.toString(), name, value, length);
        check(code, "getxattr", path);
        return taken(value, length.getValue().longValue());
    }

    /** Sets an extended attribute, of a symbolic link itself; null removes it. */
    public void setAttribute(Path path, String name, byte[] value) throws IOException {
        long length = value == null ? 0 : value.length;
        int code = LIB.txos_setxattr(handle(), path.toString(), name, value, length);
        check(code, "setxattr", path);
    }

    private Pointer handle() {
        if (handle == null) {
            throw new IllegalStateException("the transaction has ended");
        }
        return handle;
    }

    private static long check(long code, String call, Path path) throws IOException {
        if (code < 0) {
            throw Failure.of(code, call, path == null ? null : path.toString());
        }
        return code;
    }

    /** A {@code txos_time_t}; null for none. */
    private static Memory time(Instant time) {
        if (time == null) {
            return null;
        }
        Memory at = new Memory(16);
        at.setLong(0, time.getEpochSecond());
        at.setInt(8, time.getNano());
        return at;
    }

    /** A copy of memory that the library allocated, which is given back. */
    private static byte[] taken(PointerByReference at, long length) {
        Pointer data = at.getValue();
        try {
            return data.getByteArray(0, Math.toIntExact(length));
        } finally {
            Native.free(Pointer.nativeValue(data));
        }
    }
}

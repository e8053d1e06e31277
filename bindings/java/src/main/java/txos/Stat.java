package txos;

import java.time.Instant;

/**
 * The attributes of an object.
 *
 * @param mode type and permission bits, as {@code st_mode} of stat(2)
 * @param uid owner
 * @param gid group
 * @param modified last change of the content
 * @param size in bytes
 * @param links number of names
 * @param inode inode number; 0 for an object that the transaction has made
 */
public record Stat(
        int mode, int uid, int gid, Instant modified, long size, long links, long inode) {
    private static final int TYPE = 0170000;

    /** Whether it is a regular file. */
    public boolean isRegularFile() {
        return (mode & TYPE) == 0100000;
    }

    /** Whether it is a directory. */
    public boolean isDirectory() {
        return (mode & TYPE) == 0040000;
    }

    /** Whether it is a symbolic link. */
    public boolean isSymbolicLink() {
        return (mode & TYPE) == 0120000;
    }

    /** The permission bits. */
    public int permissions() {
        return mode & 07777;
    }

    /** From the bytes of a {@code txos_stat_t}. */
    static Stat of(com.sun.jna.Memory at) {
        Instant modified = Instant.ofEpochSecond(at.getLong(16), at.getInt(12));
        return new Stat(
                at.getInt(0),
                at.getInt(4),
                at.getInt(8),
                modified,
                at.getLong(24),
                at.getLong(32),
                at.getLong(40));
    }

    /** Size of a {@code txos_stat_t}. */
    static final int BYTES = 48;
}

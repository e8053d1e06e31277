package txos;

import com.sun.jna.Native;
import com.sun.jna.Pointer;
import com.sun.jna.ptr.NativeLongByReference;
import com.sun.jna.ptr.PointerByReference;
import java.util.Map;

/** The functions of {@code txos.h}; {@code size_t} and {@code ptrdiff_t} are 64 bits wide. */
interface Library extends com.sun.jna.Library {
    Library LIB =
            Native.load(
                    "txos",
                    Library.class,
                    Map.of(com.sun.jna.Library.OPTION_STRING_ENCODING, "UTF-8"));

    int txos_begin(PointerByReference tx, int flags);

    int txos_commit(Pointer tx);

    void txos_abort(Pointer tx);

    String txos_message();

    int txos_read(Pointer tx, String path, PointerByReference data, NativeLongByReference len);

    long txos_pread(Pointer tx, String path, byte[] buffer, long len, long offset);

    int txos_write(Pointer tx, String path, byte[] data, long len);

    int txos_pwrite(Pointer tx, String path, byte[] data, long len, long offset);

    int txos_append(Pointer tx, String path, byte[] data, long len);

    int txos_truncate(Pointer tx, String path, long size);

    int txos_create(Pointer tx, String path, int mode);

    int txos_mkdir(Pointer tx, String path, int mode);

    int txos_rmdir(Pointer tx, String path);

    int txos_unlink(Pointer tx, String path);

    int txos_rename(Pointer tx, String from, String to);

    int txos_rename_new(Pointer tx, String from, String to);

    int txos_link(Pointer tx, String path, String name);

    int txos_symlink(Pointer tx, String target, String path);

    int txos_exists(Pointer tx, String path);

    int txos_readlink(Pointer tx, String path, PointerByReference target);

    long txos_list(Pointer tx, String path, PointerByReference names, NativeLongByReference len);

    int txos_stat(Pointer tx, String path, Pointer stat);

    int txos_lstat(Pointer tx, String path, Pointer stat);

    int txos_chmod(Pointer tx, String path, int mode);

    int txos_lchown(Pointer tx, String path, int uid, int gid);

    int txos_utimens(Pointer tx, String path, Pointer atime, Pointer mtime);

    int txos_setxattr(Pointer tx, String path, String name, byte[] value, long len);

    int txos_getxattr(
            Pointer tx, String path, String name, PointerByReference value, NativeLongByReference len);
}

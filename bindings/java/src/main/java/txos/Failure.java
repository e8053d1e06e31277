package txos;

import java.io.IOException;
import java.nio.file.AccessDeniedException;
import java.nio.file.DirectoryNotEmptyException;
import java.nio.file.FileAlreadyExistsException;
import java.nio.file.FileSystemException;
import java.nio.file.FileSystemLoopException;
import java.nio.file.NoSuchFileException;
import java.nio.file.NotDirectoryException;
import java.nio.file.NotLinkException;

/** From error numbers to exceptions. */
final class Failure {
    private static final int ENOENT = 2;
    private static final int EACCES = 13;
    private static final int EEXIST = 17;
    private static final int ENOTDIR = 20;
    private static final int EINVAL = 22;
    private static final int ENOTEMPTY = 39;
    private static final int ELOOP = 40;
    private static final int ECANCELED = 125;

    private Failure() {}

    /** The exception that says what a call on {@code path} gave; the path may be null. */
    static IOException of(long code, String call, String path) {
        String message = Library.LIB.txos_message();
        int errno = (int) -code;
        if (errno == ECANCELED) {
            return new ConflictException(message);
        }
        if (path == null) {
            return new IOException(message);
        }
        return switch (errno) {
            case ENOENT -> new NoSuchFileException(path);
            case EACCES -> new AccessDeniedException(path);
            case EEXIST -> new FileAlreadyExistsException(path);
            case ENOTDIR -> new NotDirectoryException(path);
            case ENOTEMPTY -> new DirectoryNotEmptyException(path);
            case ELOOP -> new FileSystemLoopException(path);
            default ->
                    errno == EINVAL && call.equals("readlink")
                            ? new NotLinkException(path)
                            : new FileSystemException(path, null, message);
        };
    }
}

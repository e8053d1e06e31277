package txos;

import java.io.IOException;

/**
 * Something that the transaction had read was changed by someone else. Nothing was changed by the
 * transaction; it may be run again, and {@link Transaction#run(Transaction.Body)} does so.
 */
public final class ConflictException extends IOException {
    private static final long serialVersionUID = 1L;

    ConflictException(String message) {
        super(message);
    }

    ConflictException(String message, ConflictException last) {
        super(message, last);
    }
}

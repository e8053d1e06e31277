package txos;

/**
 * How a transaction is run.
 *
 * @param durable whether its changes survive a power cut once it has committed; without it one may
 *     undo the commit, as a whole
 * @param retries how often a function is run again after a conflict
 */
public record Options(boolean durable, int retries) {
    /** Durable, and run again 100 times. */
    public static final Options DEFAULT = new Options(true, 100);

    /** The same, but not durable. */
    public Options nonDurable() {
        return new Options(false, retries);
    }
}

package txos.olf;

/** Leaves the body of a write section that has to run again. Never seen outside of {@link OlfGroup}. */
final class Retry extends RuntimeException {
    static final Retry NOW = new Retry();

    private Retry() {
        super("a section ran into an older one; let this pass", null, false, false);
    }
}

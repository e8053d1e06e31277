package txos.olf;

import java.util.concurrent.locks.LockSupport;

/** Spin, then yield the processor, then sleep: so that more threads than processors do no harm. */
final class Backoff {
    private static final int SPINS = 6;
    private static final int YIELDS = 24;
    private static final long NAP_NANOS = 50_000;

    private int step;
    private int naps;

    /** Whether this wait was a long one. */
    boolean beyondSpinning() {
        return step > SPINS;
    }

    void pause() {
        if (step <= SPINS) {
            for (int i = 0; i < 1 << step; i++) {
                Thread.onSpinWait();
            }
            step++;
        } else if (step <= SPINS + YIELDS) {
            Thread.yield();
            step++;
        } else {
            LockSupport.parkNanos(NAP_NANOS);
            naps++;
        }
    }

    /** Whether this wait is so long that the one waited for may be dead; true once in a while. */
    boolean isSuspicious() {
        return naps % 16 == 15;
    }
}

package txos.olf;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.Supplier;

/**
 * Lists that share counters, and so can be changed and read together.
 *
 * <p>{@link #write} runs a body as one atomic change of all the lists that it touches; {@link #read}
 * gives it one unchanging view of them. Operations outside of any section are sections of their own.
 *
 * <pre>{@code
 * OlfGroup group = new OlfGroup();
 * OptimisticList<Task> todo = new OptimisticList<>(group), done = new OptimisticList<>(group);
 * group.write(() -> {
 *     Task task = todo.pollFirst();
 *     if (task != null) done.add(task);
 * });
 * }</pre>
 *
 * <p>Readers wait for nobody. A write body runs again when an older section interferes (once, as then
 * it is in nobody's way), so it should have no other effects than on lists.
 *
 * <p>A thread that dies inside of a section (as by a stack overflow in the very code that would end it) is
 * found by those who wait for it, or by {@link #recover}; its changes are void, unless it had committed.
 */
public final class OlfGroup {
    private static final VarHandle LONGS = MethodHandles.arrayElementVarHandle(long[].class);
    /** Indices into {@link #counters}: each on cache lines of its own. */
    private static final int COMMITTED = 16;
    private static final int MAX = 32;
    private static final int READ = 48;

    private static final int PROCESSORS = Runtime.getRuntime().availableProcessors();
    private static final int GATE_TRIES = 128;
    private static final int ENTER_TRIES = 64;

    private final int enterTries;
    /** Held by the one that settles what the dead have left. */
    private final ReentrantLock settling = new ReentrantLock();
    private final long[] counters = new long[64];
    /** Replaced as a whole, under the lock of this group, when a thread appears. */
    private volatile Member[] members = {};
    private final ThreadLocal<Member> mine = ThreadLocal.withInitial(this::join);

    /** A group without lists. */
    public OlfGroup() {
        this(ENTER_TRIES);
    }

    /**
     * A group whose readers wait in the writers' queue after {@code enterTries} attempts to begin were
     * overtaken by commits. With 0 each reader does: fair to the utmost, and slow.
     *
     * @param enterTries how many attempts
     */
    public OlfGroup(int enterTries) {
        this.enterTries = enterTries;
    }

    /**
     * Runs {@code body} with one unchanging view of all lists of the group.
     *
     * @param body what to do; lists must not be changed in it
     * @param <T> what it returns
     * @return what it returned
     */
    public <T> T read(Supplier<T> body) {
        Member m = mine.get();
        boolean outermost = m.beginRead();
        try {
            return body.get();
        } finally {
            if (outermost) {
                m.endRead();
            }
        }
    }

    /**
     * Runs {@code body} as one atomic change; as part of the section that is open already, if one is.
     *
     * @param body what to do, perhaps more than once; if it throws, nothing is changed
     * @param <T> what it returns
     * @return what it returned in the run that took effect
     * @throws IllegalStateException inside of {@link #read}: the view could not stay what it is
     */
    public <T> T write(Supplier<T> body) {
        Objects.requireNonNull(body);
        Member m = mine.get();
        if (m.writing()) {
            return body.get();
        }
        m.beginWrite();
        try {
            while (true) {
                T result = null;
                RuntimeException failure = null;
                try {
                    result = body.get();
                } catch (RuntimeException e) {
                    // Retry too: the section knows that it has to run again.
                    failure = e;
                }
                if (m.endWrite(failure == null)) {
                    if (failure != null) {
                        throw failure;
                    }
                    return result;
                }
            }
        } finally {
            // An Error thrown by the body gets here with the section still open.
            m.abandon();
        }
    }

    /**
     * {@link #write(Supplier)} for bodies without a result.
     *
     * @param body what to do
     */
    public void write(Runnable body) {
        write(() -> {
            body.run();
            return null;
        });
    }

    /**
     * The newest committed epoch: two more for each write section that has ended.
     *
     * @return an even number
     */
    public long committed() {
        return (long) LONGS.getAcquire(counters, COMMITTED);
    }

    /**
     * Ends the sections of all threads that have died inside of one; waits for living ones that are older.
     * Others that wait long do the same by themselves.
     *
     * @return how many dead threads' sections this call ended
     * @throws IllegalStateException inside of a section
     */
    public int recover() {
        Member m = mine.get();
        if (m.writing() || m.reading()) {
            throw new IllegalStateException("recovery inside of a section; end that first");
        }
        int ended = 0;
        Backoff backoff = new Backoff();
        while (true) {
            ended += settleTheDead();
            if (!theDeadLeftSomething()) {
                return ended;
            }
            backoff.pause();
        }
    }

    private boolean theDeadLeftSomething() {
        for (Member m : members) {
            if (!m.isOfLivingThread() && m.leftSomething()) {
                return true;
            }
        }
        return false;
    }

    /**
     * Ends what dead threads have left, as far as that is possible without waiting: an epoch can be committed
     * only when all older ones are. Returns how many threads' sections it ended.
     */
    int settleTheDead() {
        if (!settling.tryLock()) {
            return 0;
        }
        try {
            int ended = 0;
            // Before the members: whoever owns an epoch up to here is among them.
            long target = (long) LONGS.getAcquire(counters, MAX);
            Member[] all = members;
            List<Member> dead = new ArrayList<>();
            for (Member m : all) {
                if (!m.isOfLivingThread() && m.leftSomething()) {
                    m.undoDead(committed());
                    dead.add(m);
                }
            }
            for (long c = committed(); c < target && hasNoLivingOwner(all, c + 2); c = committed()) {
                // Release: the slots were given up before. Fails if its owner was not dead, but done.
                LONGS.compareAndSet(counters, COMMITTED, c, c + 2);
            }
            for (Member m : dead) {
                if (m.isSettled(committed(), target)) {
                    m.buryDead();
                    ended++;
                }
            }
            return ended;
        } finally {
            settling.unlock();
        }
    }

    /**
     * Whether {@code epoch}, which is handed out and not committed, waits for nobody who will commit it. If
     * its owner is dead, the slots are given up when this returns.
     */
    private static boolean hasNoLivingOwner(Member[] all, long epoch) {
        for (Member m : all) {
            if (m.mayOwn(epoch)) {
                if (m.isOfLivingThread()) {
                    return false;
                }
                // It may have died only now.
                m.undoDead(epoch - 2);
            }
        }
        return true;
    }

    int enterTries() {
        return enterTries;
    }

    Member member() {
        return mine.get();
    }

    /** Release: what the section stored is visible to whoever sees the epoch. */
    void commit(long my) {
        LONGS.setRelease(counters, COMMITTED, my);
    }

    /**
     * Waits before a section takes its epoch: while as many writers are at work as there are processors,
     * or, for a {@code careful} one, while any is. A writer that waits without an epoch holds up nobody.
     * The wait is bounded; it is a matter of speed only.
     */
    void gate(boolean careful) {
        int most = careful ? 1 : PROCESSORS;
        Backoff backoff = null;
        for (int i = 0; i < GATE_TRIES; i++) {
            long atWork = ((long) LONGS.getOpaque(counters, MAX) - committed()) / 2;
            if (atWork < most) {
                return;
            }
            backoff = backoff == null ? new Backoff() : backoff;
            backoff.pause();
        }
    }

    long claim() {
        return (long) LONGS.getAndAdd(counters, MAX, 2L) + 2;
    }

    long readEpoch() {
        return (long) LONGS.getAcquire(counters, READ);
    }

    /** Waits until {@code target} is committed, and returns what is. */
    long awaitCommitted(long target) {
        long c = committed();
        return c >= target ? c : awaitCommitted(target, new Backoff());
    }

    /** As {@link #awaitCommitted(long)}; {@code backoff} tells afterwards how long it took. */
    long awaitCommitted(long target, Backoff backoff) {
        while (true) {
            long c = committed();
            if (c >= target) {
                return c;
            }
            backoff.pause();
            if (backoff.isSuspicious()) {
                settleTheDead();
            }
        }
    }

    /**
     * Raises the read epoch to the oldest one that is being read. The committed epoch is loaded before
     * the scan: a reader that the scan misses sees at least that one when it looks again.
     *
     * @return whether it rose
     */
    boolean advance() {
        long low = committed();
        VarHandle.fullFence();
        for (Member m : members) {
            long l = m.published();
            if ((l & 1) == 0) {
                low = Math.min(low, l);
            }
        }
        for (long r = readEpoch(); r < low; r = readEpoch()) {
            if (LONGS.compareAndSet(counters, READ, r, low)) {
                return true;
            }
        }
        return false;
    }

    private synchronized Member join() {
        List<Member> living = new ArrayList<>();
        for (Member m : members) {
            if (m.isOfLivingThread() || m.leftSomething()) {
                living.add(m);
            }
        }
        Member fresh = new Member(this, Thread.currentThread());
        living.add(fresh);
        members = living.toArray(new Member[0]);
        return fresh;
    }
}

package txos.olf;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.util.Arrays;
import java.util.function.Predicate;

/** One thread's section, its log, and the epoch that it publishes. Used by that thread alone. */
final class Member {
    private static final VarHandle READING;
    private static final VarHandle WRITING;
    /** {@link #writing}: no write section. */
    private static final long IDLE = 1;
    /** {@link #writing}: about to take an epoch, or has taken it and not yet said which. */
    private static final long CLAIMING = 3;
    private static final int READ_ONLY = -1;
    private static final int UNCLAIMED = -2;
    /** What a section that had to run again adds to {@link #caution}; one that did not takes 1 off. */
    private static final int COLLISION = 4;
    /** What a long wait for one's turn adds: there are more threads than processors. */
    private static final int LONG_WAIT = 32;
    /** With more caution than this a section begins only when nobody else is writing. */
    private static final int CAREFUL = 16;
    private static final int MOST = 80;

    static {
        try {
            READING = MethodHandles.lookup().findVarHandle(Member.class, "reading", long.class);
            WRITING = MethodHandles.lookup().findVarHandle(Member.class, "writing", long.class);
        } catch (ReflectiveOperationException e) {
            throw new ExceptionInInitializerError(e);
        }
    }

    private final OlfGroup group;
    private final Thread thread;
    /** Keeps the published word off its neighbours' cache lines. */
    @SuppressWarnings("unused")
    private long p0, p1, p2, p3, p4, p5, p6, p7;
    /** The epoch being read; odd: none. */
    private long reading = 1;
    /** The epoch being written, or {@link #IDLE}, or {@link #CLAIMING}. */
    private long writing = IDLE;
    @SuppressWarnings("unused")
    private long q0, q1, q2, q3, q4, q5, q6, q7;

    private boolean inRead;
    private boolean open;
    private long my;
    private int attempt;
    /** How much this member has suffered from others lately. */
    private int caution;
    private boolean needRetry;
    private boolean owns;
    private long validated;
    /** Epoch of the nested read; -1: none. */
    private long snapshot;
    /** Epoch of the last unlogged read; -1: none. */
    private long glancedAt;

    private Entry<?>[] nodes = new Entry<?>[32];
    private int[] slots = new int[32];
    private long[] seen = new long[32];
    private int logged;
    private final Scan scan = new Scan();

    Member(OlfGroup group, Thread thread) {
        this.group = group;
        this.thread = thread;
    }

    /** If it is not, all that it did happened before this answer. */
    boolean isOfLivingThread() {
        return thread.isAlive();
    }

    /** Of a thread that has died: whether it left something that holds up others. */
    boolean leftSomething() {
        return (reading & 1) == 0 || writing != IDLE;
    }

    /** Whether this member owns {@code epoch}, or may be about to say so. */
    boolean mayOwn(long epoch) {
        long w = (long) WRITING.getAcquire(this);
        return w == epoch || w == CLAIMING;
    }

    /** Of a thread that has died: its reading ends, and its changes are void unless committed. */
    void undoDead(long committed) {
        leave();
        if ((writing & 1) == 0 && committed < writing) {
            for (int i = 0; i < logged; i++) {
                if (slots[i] != READ_ONLY) {
                    nodes[i].giveUp(writing);
                }
            }
        }
    }

    /**
     * Of a thread that has died: whether nobody waits for it any more, when so much is committed and so much
     * had been handed out.
     */
    boolean isSettled(long committed, long handedOut) {
        return committed >= (writing == IDLE ? 0 : writing == CLAIMING ? handedOut : writing);
    }

    /** Of a thread that has died, once its epoch is committed by another. */
    void buryDead() {
        reset();
        WRITING.setRelease(this, IDLE);
    }

    long published() {
        return (long) READING.getAcquire(this);
    }

    boolean writing() {
        return open;
    }

    boolean reading() {
        return inRead;
    }

    // --- Reading -------------------------------------------------------------------------------

    /**
     * Publishes the epoch to be read, and looks again: see the Rust source for the argument.
     *
     * @return the epoch, or -1 if a commit came in between
     */
    private long tryEnter() {
        long e = group.committed();
        READING.setOpaque(this, e);
        VarHandle.fullFence();
        return group.committed() == e ? e : -1;
    }

    private void enter() {
        for (int i = 0; i < group.enterTries(); i++) {
            if (tryEnter() >= 0) {
                return;
            }
        }
        enterInTurn();
    }

    /**
     * The slow way in, for a reader that commits keep overtaking: it takes an epoch as if to write. When its
     * turn comes nobody else can commit, so what it publishes holds; then it commits nothing.
     */
    private void enterInTurn() {
        // The failed attempts left an epoch behind, which must not hold back writers now waited for.
        leave();
        long turn = claim();
        READING.setOpaque(this, group.awaitCommitted(turn - 2));
        // Release: who sees the commit, and so could let slots of older epochs go, sees what is read.
        group.commit(turn);
        WRITING.setRelease(this, IDLE);
    }

    /** The first half of {@link #claim}. */
    long beginClaim() {
        WRITING.setOpaque(this, CLAIMING);
        return group.claim();
    }

    /** Takes an epoch. A death before the last line leaves an epoch that no member names. */
    private long claim() {
        long epoch = beginClaim();
        WRITING.setRelease(this, epoch);
        return epoch;
    }

    private void leave() {
        READING.setRelease(this, reading | 1);
    }

    /** Says whether this began a section, rather than joining the one that is open. */
    boolean beginRead() {
        if (inRead || open) {
            return false;
        }
        enter();
        inRead = true;
        return true;
    }

    void endRead() {
        inRead = false;
        leave();
    }

    /** The entry behind (or before) {@code at}, in whatever section is open. */
    <E> Entry<E> step(Entry<E> at, boolean forwards, boolean logs) {
        int slot;
        if (open) {
            slot = look(at, logs);
        } else {
            slot = at.slotAt(reading);
        }
        return forwards ? at.next(slot) : at.prev(slot);
    }

    /** The first entry behind {@code head} that is accepted, or the head, in whatever section is open. */
    <E> Entry<E> find(Entry<E> head, Predicate<? super E> wanted) {
        if (open) {
            Entry<E> at = step(head, true, true);
            while (at != head && !wanted.test(at.value())) {
                at = step(at, true, true);
            }
            return at;
        }
        long e = reading;
        Entry<E> at = head.usualNext(e);
        while (at != head && !wanted.test(at.value())) {
            at = at.usualNext(e);
        }
        return at;
    }

    /**
     * The first entry behind {@code head} that is accepted, or the head; unlogged, within a write section.
     */
    <E> Entry<E> seek(Entry<E> head, Predicate<? super E> stop) {
        Entry<E> at = step(head, true, false);
        long e = snapshot;
        while (at != head && !stop.test(at.value())) {
            // As step does, while the section has no slots of its own and its view is the same.
            at = snapshot == e && !owns && !needRetry
                    ? at.indexedNext(e) : step(at, true, false);
        }
        return at;
    }

    // --- Writing -------------------------------------------------------------------------------

    void beginWrite() {
        if (inRead) {
            throw new IllegalStateException("a write section inside a read section; end that first");
        }
        group.gate(caution > CAREFUL);
        validated = group.committed();
        my = claim();
        attempt = 0;
        open = true;
        reset();
    }

    private void reset() {
        needRetry = false;
        owns = false;
        snapshot = -1;
        glancedAt = -1;
        Arrays.fill(nodes, 0, logged, null);
        logged = 0;
    }

    /** Waits for all older writers, and commits or takes everything back; false: run the body again. */
    boolean endWrite(boolean keep) {
        suspend();
        long c = group.committed();
        if (c < my - 2) {
            Backoff backoff = new Backoff();
            c = group.awaitCommitted(my - 2, backoff);
            if (backoff.beyondSpinning()) {
                caution = Math.min(MOST, caution + LONG_WAIT);
            }
        }
        if (needRetry || c != validated && !holdsAt(c)) {
            undo();
            reset();
            caution = Math.min(MOST, caution + COLLISION);
            attempt++;
            validated = c;
            return false;
        }
        if (keep) {
            announceAll();
        } else {
            undo();
        }
        close();
        caution = Math.max(0, caution - 1);
        return true;
    }

    /** Says in each changed entry which slot is its newest; by the one that may commit. */
    void announceAll() {
        for (int i = 0; i < logged; i++) {
            if (slots[i] >= 0) {
                nodes[i].announce(my, slots[i]);
            }
        }
    }

    /** Ends the section without effect, if it is open still. */
    void abandon() {
        if (open) {
            suspend();
            group.awaitCommitted(my - 2);
            undo();
            close();
        }
    }

    private void close() {
        reset();
        open = false;
        group.commit(my);
        WRITING.setRelease(this, IDLE);
    }

    private void undo() {
        for (int i = 0; i < logged; i++) {
            if (slots[i] != READ_ONLY) {
                int mine = nodes[i].slotOf(my);
                if (mine >= 0) {
                    Entry.EPOCHS.setRelease(nodes[i].epochs, mine, my | 1);
                }
            }
        }
    }

    /** Nothing logged was changed by a section that committed up to {@code c}. */
    private boolean holdsAt(long c) {
        for (int i = 0; i < logged; i++) {
            for (int s = 0; s < Entry.SLOTS; s++) {
                long x = (long) Entry.EPOCHS.getOpaque(nodes[i].epochs, s);
                if ((x & 1) == 0 && seen[i] < x && x <= c) {
                    return false;
                }
            }
        }
        return true;
    }

    private Retry lost() {
        needRetry = true;
        return Retry.NOW;
    }

    private int log(Entry<?> node, int slot, long epoch) {
        if (logged == nodes.length) {
            nodes = Arrays.copyOf(nodes, 2 * logged);
            slots = Arrays.copyOf(slots, 2 * logged);
            seen = Arrays.copyOf(seen, 2 * logged);
        }
        nodes[logged] = node;
        slots[logged] = slot;
        seen[logged] = epoch;
        return logged++;
    }

    /** The slot of {@code node} that belongs to this section, filled on the first call. */
    int acquire(Entry<?> node) {
        if (node.group != group) {
            throw new IllegalArgumentException("an entry of another group; share one group");
        }
        if (needRetry) {
            throw Retry.NOW;
        }
        int mine = owns ? node.slotOf(my) : -1;
        if (mine >= 0) {
            return mine;
        }
        int record = log(node, UNCLAIMED, my);
        Backoff backoff = null;
        while (true) {
            long older = scan.run(node, group, my, attempt);
            if (older >= 0) {
                boolean nested = suspend();
                group.awaitCommitted(older);
                resumeIf(nested);
                continue;
            }
            if (scan.source < 0) {
                backoff = backoff == null ? new Backoff() : backoff;
                backoff.pause();
                continue;
            }
            if (mine < 0) {
                if (scan.spare <= (scan.next ? 0 : 1)) {
                    backoff = makeRoom(scan.next, backoff);
                    continue;
                }
                if (!Entry.EPOCHS.compareAndSet(node.epochs, scan.victim, scan.victimEpoch, my)) {
                    continue;
                }
                // Whoever sees one of the pointers stored below sees that the epoch has changed.
                VarHandle.releaseFence();
                mine = scan.victim;
                node.attempts[mine] = attempt;
                owns = true;
            }
            if (node.copy(scan.source, scan.sourceEpoch, mine)) {
                slots[record] = mine;
                seen[record] = scan.sourceEpoch;
                stayConsistent(scan.sourceEpoch);
                return mine;
            }
        }
    }

    /** Returns the wait that goes on, if one does. */
    private Backoff makeRoom(boolean next, Backoff wait) {
        if (group.advance()) {
            return wait;
        }
        Backoff backoff = wait == null ? new Backoff() : wait;
        boolean nested = suspend();
        if (next) {
            backoff.pause();
            if (backoff.isSuspicious()) {
                group.settleTheDead();
            }
            group.advance();
        } else {
            group.awaitCommitted(my - 2);
        }
        resumeIf(nested);
        return backoff;
    }

    /** Opacity: even a section that will have to run again never sees two states mixed. */
    private void stayConsistent(long copied) {
        if (snapshot >= 0) {
            if (copied > snapshot) {
                resume();
            }
            return;
        }
        long c = group.committed();
        if (c != validated) {
            if (!holdsAt(c)) {
                throw lost();
            }
            validated = c;
        }
    }

    // --- Reading inside of a write section -------------------------------------------------------

    private boolean suspend() {
        if (snapshot < 0) {
            return false;
        }
        snapshot = -1;
        leave();
        return true;
    }

    private void resumeIf(boolean nested) {
        if (nested) {
            resume();
        }
    }

    private void resume() {
        suspend();
        long e = group.committed();
        // Next to commit: nobody else does, and slots that are read here are not taken; nothing to publish.
        if (e + 2 != my) {
            // Not in turn: that would take a second epoch, behind our own. Commits end before that one.
            do {
                e = tryEnter();
            } while (e < 0);
        }
        snapshot = e;
        if (glancedAt >= 0 && glancedAt != e || !holdsAt(e)) {
            throw lost();
        }
        validated = e;
    }

    private int look(Entry<?> node, boolean logs) {
        if (needRetry) {
            throw Retry.NOW;
        }
        if (snapshot < 0) {
            resume();
        }
        int mine = owns ? node.slotOf(my) : -1;
        if (mine >= 0) {
            return mine;
        }
        int slot = node.slotAt(snapshot);
        if (logs) {
            log(node, READ_ONLY, (long) Entry.EPOCHS.getOpaque(node.epochs, slot));
        } else {
            glancedAt = snapshot;
        }
        return slot;
    }

    /** What a pass over a node's slots finds; the table is in the Rust source, {@code acquire.rs}. */
    private static final class Scan {
        int source;
        long sourceEpoch;
        int victim;
        long victimEpoch;
        private int victimRank;
        int spare;
        boolean next;

        /** Returns the epoch of an older writer to wait for, or -1. */
        long run(Entry<?> node, OlfGroup group, long my, int attempt) {
            long c = group.committed();
            long r = group.readEpoch();
            source = -1;
            victim = -1;
            victimRank = Integer.MAX_VALUE;
            // One free slot is held back: the newest committed one up to r never counts.
            spare = -1;
            next = c + 2 == my;
            for (int i = 0; i < Entry.SLOTS; i++) {
                long x = (long) Entry.EPOCHS.getAcquire(node.epochs, i);
                boolean odd = (x & 1) != 0;
                if (x == my) {
                    continue;
                }
                if (x <= (c | 1)) {
                    if (!odd && (source < 0 || x > sourceEpoch)) {
                        source = i;
                        sourceEpoch = x;
                    }
                    if (odd || x <= r) {
                        offer(odd ? 1 : 2, x, i);
                    }
                } else if (x == (my | 1)) {
                    assert node.attempts[i] != attempt : "somebody else undid this section";
                    offer(0, x, i);
                } else if (x < my) {
                    return x & ~1L;
                }
            }
            return -1;
        }

        private void offer(int rank, long x, int i) {
            spare++;
            if (rank < victimRank || rank == victimRank && x < victimEpoch) {
                victim = i;
                victimEpoch = x;
                victimRank = rank;
            }
        }
    }
}

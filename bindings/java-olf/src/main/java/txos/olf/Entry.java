package txos.olf;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;

/**
 * A place on a list: a value, and {@value #SLOTS} versions of its links.
 *
 * <p>What a slot's epoch {@code x} means: even and at most the committed epoch, a committed version;
 * odd, a version that was given up; otherwise the private version of a writer still at work.
 *
 * @param <E> what is listed
 */
public final class Entry<E> {
    static final int SLOTS = 4;
    /** Bits of {@link #newest} that hold the slot. */
    private static final int SLOT_BITS = 2;

    static final VarHandle EPOCHS = MethodHandles.arrayElementVarHandle(long[].class);
    private static final VarHandle LINKS = MethodHandles.arrayElementVarHandle(Entry[].class);
    private static final VarHandle NEWEST;

    static {
        try {
            NEWEST = MethodHandles.lookup().findVarHandle(Entry.class, "newest", long.class);
        } catch (ReflectiveOperationException e) {
            throw new ExceptionInInitializerError(e);
        }
    }

    private final E value;
    /** The group that writes this entry; set once. */
    final OlfGroup group;
    final long[] epochs = {0, 1, 1, 1};
    /** Next at {@code 2 * slot}, previous behind it; null stands for the entry itself. */
    final Entry<?>[] links = new Entry<?>[2 * SLOTS];
    /** The attempt in which the owner of an epoch took its slot; only that owner looks at it. */
    final int[] attempts = new int[SLOTS];
    /** {@code epoch << SLOT_BITS | slot} of the newest committed version. */
    private long newest;

    Entry(OlfGroup group, E value) {
        this.group = group;
        this.value = value;
    }

    /**
     * The value.
     *
     * @return what was put on the list
     */
    public E value() {
        return value;
    }

    /** The slot with the greatest even epoch up to {@code e}: what a reader at {@code e} follows. */
    int slotAt(long e) {
        // A writer stores the word while it alone may commit, before it commits; the reader has seen
        // the committed epoch, so it sees this word at least as new.
        long hint = (long) NEWEST.getOpaque(this);
        if (hint >>> SLOT_BITS <= e) {
            return (int) hint & (SLOTS - 1);
        }
        int best = 0;
        long found = -1;
        for (int i = 0; i < SLOTS; i++) {
            long x = (long) EPOCHS.getOpaque(epochs, i);
            if ((x & 1) == 0 && x <= e && x > found) {
                found = x;
                best = i;
            }
        }
        return best;
    }

    /** The slot whose epoch is {@code my}, or -1. */
    int slotOf(long my) {
        for (int i = 0; i < SLOTS; i++) {
            if ((long) EPOCHS.getOpaque(epochs, i) == my) {
                return i;
            }
        }
        return -1;
    }

    /** Before the commit of {@code epoch}, by the only writer that may commit. */
    void announce(long epoch, int slot) {
        NEWEST.setOpaque(this, epoch << SLOT_BITS | slot);
    }

    @SuppressWarnings("unchecked") // Entries of one list have one type.
    private Entry<E> link(int i) {
        Entry<E> to = (Entry<E>) LINKS.getOpaque(links, i);
        return to == null ? this : to;
    }

    Entry<E> next(int slot) {
        return link(2 * slot);
    }

    Entry<E> prev(int slot) {
        return link(2 * slot + 1);
    }

    void setNext(int slot, Entry<E> to) {
        LINKS.setOpaque(links, 2 * slot, to == this ? null : to);
    }

    void setPrev(int slot, Entry<E> to) {
        LINKS.setOpaque(links, 2 * slot + 1, to == this ? null : to);
    }

    /**
     * Copies a committed version into a slot of the caller's.
     *
     * @return false if the version was overwritten meanwhile
     */
    boolean copy(int from, long x, int to) {
        Object next = LINKS.getOpaque(links, 2 * from);
        Object prev = LINKS.getOpaque(links, 2 * from + 1);
        VarHandle.acquireFence();
        if ((long) EPOCHS.getOpaque(epochs, from) != x) {
            return false;
        }
        LINKS.setOpaque(links, 2 * to, next);
        LINKS.setOpaque(links, 2 * to + 1, prev);
        return true;
    }
}

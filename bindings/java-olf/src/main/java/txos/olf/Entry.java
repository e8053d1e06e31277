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

    /** {@link #newest} that names no version: greater than any epoch. */
    private static final long NO_HINT = -1;

    static final VarHandle EPOCHS = MethodHandles.arrayElementVarHandle(long[].class);
    private static final VarHandle NEXT0 = handle("next0", Entry.class);
    private static final VarHandle NEXT1 = handle("next1", Entry.class);
    private static final VarHandle NEXT2 = handle("next2", Entry.class);
    private static final VarHandle NEXT3 = handle("next3", Entry.class);
    private static final VarHandle LINKS = MethodHandles.arrayElementVarHandle(Entry[].class);
    private static final VarHandle NEWEST = handle("newest", long.class);

    private static VarHandle handle(String field, Class<?> type) {
        try {
            return MethodHandles.lookup().findVarHandle(Entry.class, field, type);
        } catch (ReflectiveOperationException e) {
            throw new ExceptionInInitializerError(e);
        }
    }

    private final E value;
    /** The group that writes this entry; set once. */
    final OlfGroup group;
    final long[] epochs = {0, 1, 1, 1};
    /**
     * The next entry in each slot; null stands for the entry itself. Twice: the fields are for reading, where
     * the slot is predicted, as an array is one load farther; the array is for searches that write, where it
     * is not.
     */
    @SuppressWarnings("unused")
    private Entry<?> next0, next1, next2, next3;
    private final Entry<?>[] nexts = new Entry<?>[SLOTS];
    /** The previous entry in each slot; null stands for the entry itself. */
    private final Entry<?>[] prevs = new Entry<?>[SLOTS];
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

    /** Takes back the version of {@code epoch}, whose writer died: by anybody, while it cannot commit. */
    void giveUp(long epoch) {
        int slot = slotOf(epoch);
        if (slot >= 0) {
            EPOCHS.setRelease(epochs, slot, epoch | 1);
            if ((long) NEWEST.getOpaque(this) == (epoch << SLOT_BITS | slot)) {
                NEWEST.setOpaque(this, NO_HINT);
            }
        }
    }

    @SuppressWarnings("unchecked") // Entries of one list have one type.
    private Entry<E> orSelf(Object to) {
        return to == null ? this : (Entry<E>) to;
    }

    /**
     * What a reader at {@code e} follows, by way of a branch for each slot: the processor predicts it, and goes
     * on before the word that names the slot has arrived. For lists that seldom change.
     */
    Entry<E> usualNext(long e) {
        long hint = (long) NEWEST.getOpaque(this);
        return hint >>> SLOT_BITS <= e ? next((int) hint & (SLOTS - 1)) : next(slotAt(e));
    }

    /**
     * What a search at {@code e} follows, without such branches: for lists that change, where they are often
     * mispredicted.
     */
    Entry<E> indexedNext(long e) {
        long hint = (long) NEWEST.getOpaque(this);
        int slot = hint >>> SLOT_BITS <= e ? (int) hint & (SLOTS - 1) : slotAt(e);
        return orSelf(LINKS.getOpaque(nexts, slot));
    }

    private Object nextOrNull(int slot) {
        return switch (slot) {
            case 0 -> NEXT0.getOpaque(this);
            case 1 -> NEXT1.getOpaque(this);
            case 2 -> NEXT2.getOpaque(this);
            default -> NEXT3.getOpaque(this);
        };
    }

    private void storeNext(int slot, Object to) {
        LINKS.setOpaque(nexts, slot, to);
        switch (slot) {
            case 0 -> NEXT0.setOpaque(this, to);
            case 1 -> NEXT1.setOpaque(this, to);
            case 2 -> NEXT2.setOpaque(this, to);
            default -> NEXT3.setOpaque(this, to);
        }
    }

    Entry<E> next(int slot) {
        return orSelf(nextOrNull(slot));
    }

    Entry<E> prev(int slot) {
        return orSelf(LINKS.getOpaque(prevs, slot));
    }

    void setNext(int slot, Entry<E> to) {
        storeNext(slot, to == this ? null : to);
    }

    void setPrev(int slot, Entry<E> to) {
        LINKS.setOpaque(prevs, slot, to == this ? null : to);
    }

    /**
     * Copies a committed version into a slot of the caller's.
     *
     * @return false if the version was overwritten meanwhile
     */
    boolean copy(int from, long x, int to) {
        Object next = nextOrNull(from);
        Object prev = LINKS.getOpaque(prevs, from);
        VarHandle.acquireFence();
        if ((long) EPOCHS.getOpaque(epochs, from) != x) {
            return false;
        }
        storeNext(to, next);
        LINKS.setOpaque(prevs, to, prev);
        return true;
    }
}

package txos.olf;

import java.util.AbstractCollection;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.Objects;
import java.util.function.Consumer;
import java.util.function.Predicate;

/**
 * A doubly linked list for many threads, whose operations can be composed with those of other lists of
 * its {@link OlfGroup} into one atomic change.
 *
 * <p>Readers never wait. {@link #iterator} runs over a snapshot, and so never fails and never shows
 * later changes. Null values are refused. Operations at the ends and on an {@link Entry} take constant
 * time; searches take time in proportion to the length.
 *
 * @param <E> what is listed
 */
public class OptimisticList<E> extends AbstractCollection<E> {
    private final OlfGroup group;
    private final Entry<E> head;

    /** An empty list in a group of its own. */
    public OptimisticList() {
        this(new OlfGroup());
    }

    /**
     * An empty list.
     *
     * @param group whose lists it can be changed and read together with
     */
    public OptimisticList(OlfGroup group) {
        this.group = Objects.requireNonNull(group);
        this.head = new Entry<>(group, null);
    }

    /**
     * The group.
     *
     * @return what was given to the constructor
     */
    public OlfGroup group() {
        return group;
    }

    // --- Changing --------------------------------------------------------------------------------

    @Override
    public boolean add(E value) {
        addLast(value);
        return true;
    }

    /**
     * Puts a value at the back.
     *
     * @param value not null
     * @return its place, for {@link #remove(Entry)} and {@link #moveLast}
     */
    public Entry<E> addLast(E value) {
        Entry<E> entry = new Entry<>(group, Objects.requireNonNull(value));
        group.write(() -> linkBefore(head, entry));
        return entry;
    }

    /**
     * Puts a value at the front.
     *
     * @param value not null
     * @return its place
     */
    public Entry<E> addFirst(E value) {
        Entry<E> entry = new Entry<>(group, Objects.requireNonNull(value));
        group.write(() -> {
            Member m = group.member();
            linkBefore(head.next(m.acquire(head)), entry);
        });
        return entry;
    }

    /**
     * Takes the first value away.
     *
     * @return the value, or null if the list is empty
     */
    public E pollFirst() {
        return group.write(() -> {
            Entry<E> first = head.next(group.member().acquire(head));
            if (first == head) {
                return null;
            }
            unlink(first);
            return first.value();
        });
    }

    /**
     * Takes an entry off its list, whichever of the group that is.
     *
     * @param entry the place of a value
     * @return false if it was on none
     */
    public boolean remove(Entry<E> entry) {
        return group.write(() -> unlink(entry));
    }

    @Override
    public boolean remove(Object value) {
        return group.write(() -> {
            Entry<E> found = find(v -> v.equals(value));
            return found != null && unlink(found);
        });
    }

    @Override
    public void clear() {
        group.write(() -> {
            Member m = group.member();
            for (Entry<E> e = head.next(m.acquire(head)); e != head; e = head.next(m.acquire(head))) {
                unlink(e);
            }
        });
    }

    /**
     * Takes an entry off its list and puts it at the back of this one, in one step.
     *
     * @param entry the place of a value on any list of the group
     * @return false, and nothing is changed, if it was on none
     */
    public boolean moveLast(Entry<E> entry) {
        return group.write(() -> {
            if (!unlink(entry)) {
                return false;
            }
            linkBefore(head, entry);
            return true;
        });
    }

    /**
     * Puts a value before the first one that {@code stop} accepts, unless that one is accepted by
     * {@code same} too: for sorted lists without duplicates. The search is not part of what is checked
     * at commit; that the neighbours are still neighbours is.
     *
     * @param value not null
     * @param stop where the value belongs: in a sorted list, the first that is not less
     * @param same whether that one equals the value
     * @return whether the value was put there
     */
    public boolean addSorted(E value, Predicate<? super E> stop, Predicate<? super E> same) {
        Objects.requireNonNull(value);
        return group.write(() -> {
            Entry<E> at = seek(stop);
            if (at != head && same.test(at.value())) {
                return false;
            }
            linkBefore(at, new Entry<>(group, value));
            return true;
        });
    }

    /**
     * Takes away the first value that {@code stop} accepts, if {@code same} accepts it too.
     *
     * @param stop as in {@link #addSorted}
     * @param same as in {@link #addSorted}
     * @return whether a value was taken away
     */
    public boolean removeSorted(Predicate<? super E> stop, Predicate<? super E> same) {
        return group.write(() -> {
            Entry<E> at = seek(stop);
            return at != head && same.test(at.value()) && unlink(at);
        });
    }

    private void linkBefore(Entry<E> at, Entry<E> entry) {
        Member m = group.member();
        int n = m.acquire(entry);
        int a = m.acquire(at);
        Entry<E> before = at.prev(a);
        int b = m.acquire(before);
        entry.setNext(n, at);
        entry.setPrev(n, before);
        before.setNext(b, entry);
        at.setPrev(a, entry);
    }

    private boolean unlink(Entry<E> entry) {
        Member m = group.member();
        int n = m.acquire(entry);
        Entry<E> next = entry.next(n);
        Entry<E> prev = entry.prev(n);
        if (next == entry) {
            return false;
        }
        int a = m.acquire(next);
        int b = m.acquire(prev);
        prev.setNext(b, next);
        next.setPrev(a, prev);
        entry.setNext(n, entry);
        entry.setPrev(n, entry);
        return true;
    }

    /** The first entry accepted, or the head; unlogged. Within a write section. */
    private Entry<E> seek(Predicate<? super E> stop) {
        return group.member().seek(head, stop);
    }

    // --- Reading ---------------------------------------------------------------------------------

    /**
     * The first entry whose value is accepted.
     *
     * @param wanted what to look for
     * @return the entry, or null
     */
    public Entry<E> find(Predicate<? super E> wanted) {
        return group.read(() -> {
            Entry<E> at = group.member().find(head, wanted);
            return at == head ? null : at;
        });
    }

    @Override
    public boolean contains(Object value) {
        return find(v -> v.equals(value)) != null;
    }

    @Override
    public void forEach(Consumer<? super E> action) {
        walk(action, true);
    }

    /**
     * Calls {@code action} for each value, last to first, of one unchanging view.
     *
     * @param action what to do
     */
    public void forEachBackwards(Consumer<? super E> action) {
        walk(action, false);
    }

    private void walk(Consumer<? super E> action, boolean forwards) {
        group.read(() -> {
            Member m = group.member();
            Entry<E> at = m.step(head, forwards, true);
            while (at != head) {
                action.accept(at.value());
                at = m.step(at, forwards, true);
            }
            return null;
        });
    }

    /** Iterates over a snapshot; {@code remove} is not supported. */
    @Override
    public Iterator<E> iterator() {
        List<E> values = new ArrayList<>();
        forEach(values::add);
        return List.copyOf(values).iterator();
    }

    @Override
    public boolean isEmpty() {
        return find(v -> true) == null;
    }

    /** Counts, in time proportional to the length. */
    @Override
    public int size() {
        int[] n = {0};
        forEach(v -> n[0]++);
        return n[0];
    }
}

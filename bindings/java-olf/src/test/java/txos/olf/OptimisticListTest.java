package txos.olf;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import org.junit.jupiter.api.Test;

/** One thread: what the operations do, what they refuse, what is left of a section that failed. */
class OptimisticListTest {
    private final OlfGroup group = new OlfGroup();
    private final OptimisticList<String> list = new OptimisticList<>(group);
    private final OptimisticList<String> other = new OptimisticList<>(group);

    private static List<String> see(OptimisticList<String> list) {
        List<String> forwards = new ArrayList<>(list);
        List<String> backwards = new ArrayList<>();
        list.forEachBackwards(backwards::add);
        Collections.reverse(backwards);
        assertEquals(forwards, backwards);
        return forwards;
    }

    @Test
    void behavesAsACollection() {
        assertTrue(list.isEmpty());
        assertNull(list.pollFirst());
        assertTrue(list.addAll(List.of("b", "c", "b")));
        list.addFirst("a");
        assertEquals(List.of("a", "b", "c", "b"), see(list));
        assertEquals(4, list.size());
        assertTrue(list.contains("c"));
        assertTrue(list.remove("b"));
        assertFalse(list.remove("x"));
        assertEquals(List.of("a", "c", "b"), see(list));
        assertEquals("a", list.pollFirst());
        list.clear();
        assertTrue(list.isEmpty());
        assertThrows(NullPointerException.class, () -> list.add(null));
    }

    @Test
    void entriesMoveInConstantTime() {
        Entry<String> a = list.addLast("a");
        list.addLast("b");
        assertTrue(other.moveLast(a));
        assertEquals(List.of("b"), see(list));
        assertEquals(List.of("a"), see(other));
        assertTrue(list.remove(a));
        assertFalse(list.remove(a));
        assertFalse(other.moveLast(a));
        assertTrue(other.isEmpty());
    }

    @Test
    void sortedListsHaveNoDuplicates() {
        OptimisticList<Integer> sorted = new OptimisticList<>();
        for (int key : new int[] {5, 1, 3, 3, 9, 1}) {
            boolean fresh = !sorted.contains(key);
            assertEquals(fresh, sorted.addSorted(key, k -> k >= key, k -> k == key));
        }
        assertEquals(List.of(1, 3, 5, 9), new ArrayList<>(sorted));
        assertTrue(sorted.removeSorted(k -> k >= 5, k -> k == 5));
        assertFalse(sorted.removeSorted(k -> k >= 5, k -> k == 5));
    }

    @Test
    void sectionsComposeAndSeeTheirOwnChanges() {
        list.addAll(List.of("a", "b"));
        int seen = group.write(() -> {
            String first = list.pollFirst();
            other.add(first);
            other.add("z");
            assertTrue(other.contains("z"));
            assertFalse(list.contains("a"));
            return other.size();
        });
        assertEquals(2, seen);
        assertEquals(List.of("b"), see(list));
        assertEquals(List.of("a", "z"), see(other));
    }

    @Test
    void anExceptionLeavesEverythingAsItWas() {
        list.add("a");
        long before = group.committed();
        assertThrows(ArithmeticException.class, () -> group.write(() -> {
            other.add(list.pollFirst());
            throw new ArithmeticException();
        }));
        assertThrows(AssertionError.class, () -> group.write(() -> {
            other.add(list.pollFirst());
            throw new AssertionError();
        }));
        assertEquals(before + 4, group.committed());
        assertEquals(List.of("a"), see(list));
        assertTrue(other.isEmpty());
    }

    @Test
    void aViewStaysWhatItIs() throws InterruptedException {
        list.add("a");
        Iterable<String> snapshot = () -> list.iterator();
        var iterator = snapshot.iterator();
        group.read(() -> {
            Thread writer = new Thread(() -> {
                list.add("b");
                list.add("c");
            });
            writer.start();
            try {
                writer.join(100);
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
            }
            assertEquals(1, list.size());
            return null;
        });
        assertEquals("a", iterator.next());
        assertFalse(iterator.hasNext());
        assertThrows(UnsupportedOperationException.class, iterator::remove);
    }

    @Test
    void misuseIsRefused() {
        assertThrows(IllegalStateException.class, () -> group.read(() -> list.add("a")));
        assertTrue(list.isEmpty());
        Entry<String> stranger = new OptimisticList<String>().addLast("s");
        assertThrows(IllegalArgumentException.class, () -> list.moveLast(stranger));
        list.add("works still");
        assertEquals(1, list.size());
    }
}

import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.ConcurrentSkipListSet;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.locks.ReentrantReadWriteLock;
import java.util.function.Supplier;
import txos.olf.OptimisticList;

/**
 * Table 8.4 in Java. Prints lines as olf-bench does. Usage: java Bench MILLISECONDS REPEATS; each case is
 * run once more, first, for the compiler.
 */
public final class Bench {
    private static final int LENGTH = 100;
    private static final int KEYS = 2 * LENGTH;
    /** Boxed once, so that no list pays for boxing. */
    private static final Integer[] BOXED = new Integer[KEYS];

    static {
        Arrays.setAll(BOXED, i -> i);
    }

    interface Keys {
        boolean contains(int key);

        boolean insert(int key);

        boolean remove(int key);
    }

    /** On the port of olf. */
    static final class OlfKeys implements Keys {
        private final OptimisticList<Integer> list = new OptimisticList<>();

        @Override
        public boolean contains(int key) {
            var at = list.find(k -> k >= key);
            return at != null && at.value() == key;
        }

        @Override
        public boolean insert(int key) {
            return list.addSorted(BOXED[key], k -> k >= key, k -> k == key);
        }

        @Override
        public boolean remove(int key) {
            return list.removeSorted(k -> k >= key, k -> k == key);
        }
    }

    /** A plain sorted list; its users lock. */
    static final class Plain implements Keys {
        private static final class Node {
            final int key;
            Node next;

            Node(int key) {
                this.key = key;
            }
        }

        private final Node head = new Node(-1);

        private Node before(int key) {
            Node before = head;
            while (before.next != null && before.next.key < key) {
                before = before.next;
            }
            return before;
        }

        @Override
        public boolean contains(int key) {
            Node at = before(key).next;
            return at != null && at.key == key;
        }

        @Override
        public boolean insert(int key) {
            Node before = before(key);
            if (before.next != null && before.next.key == key) {
                return false;
            }
            Node fresh = new Node(key);
            fresh.next = before.next;
            before.next = fresh;
            return true;
        }

        @Override
        public boolean remove(int key) {
            Node before = before(key);
            if (before.next == null || before.next.key != key) {
                return false;
            }
            before.next = before.next.next;
            return true;
        }
    }

    static final class Synchronized implements Keys {
        private final Plain plain = new Plain();

        @Override
        public synchronized boolean contains(int key) {
            return plain.contains(key);
        }

        @Override
        public synchronized boolean insert(int key) {
            return plain.insert(key);
        }

        @Override
        public synchronized boolean remove(int key) {
            return plain.remove(key);
        }
    }

    static final class Spinlock implements Keys {
        private final Plain plain = new Plain();
        private final AtomicBoolean taken = new AtomicBoolean();

        private void lock() {
            while (taken.getAndSet(true)) {
                while (taken.get()) {
                    Thread.onSpinWait();
                }
            }
        }

        @Override
        public boolean contains(int key) {
            lock();
            boolean found = plain.contains(key);
            taken.setRelease(false);
            return found;
        }

        @Override
        public boolean insert(int key) {
            lock();
            boolean done = plain.insert(key);
            taken.setRelease(false);
            return done;
        }

        @Override
        public boolean remove(int key) {
            lock();
            boolean done = plain.remove(key);
            taken.setRelease(false);
            return done;
        }
    }

    static final class ReadWrite implements Keys {
        private final Plain plain = new Plain();
        private final ReentrantReadWriteLock lock = new ReentrantReadWriteLock();

        @Override
        public boolean contains(int key) {
            lock.readLock().lock();
            try {
                return plain.contains(key);
            } finally {
                lock.readLock().unlock();
            }
        }

        @Override
        public boolean insert(int key) {
            lock.writeLock().lock();
            try {
                return plain.insert(key);
            } finally {
                lock.writeLock().unlock();
            }
        }

        @Override
        public boolean remove(int key) {
            lock.writeLock().lock();
            try {
                return plain.remove(key);
            } finally {
                lock.writeLock().unlock();
            }
        }
    }

    static final class SkipList implements Keys {
        private final ConcurrentSkipListSet<Integer> set = new ConcurrentSkipListSet<>();

        @Override
        public boolean contains(int key) {
            return set.contains(BOXED[key]);
        }

        @Override
        public boolean insert(int key) {
            return set.add(BOXED[key]);
        }

        @Override
        public boolean remove(int key) {
            return set.remove(BOXED[key]);
        }
    }

    private static double measure(Keys keys, int threads, int writePercent, long milliseconds)
            throws Exception {
        long[] random = {0x9E3779B97F4A7C15L};
        for (int n = 0; n < LENGTH; ) {
            n += keys.insert((int) Clock.below(random, KEYS)) ? 1 : 0;
        }
        return Clock.run(threads, milliseconds, number -> {
            long[] own = Clock.seeded(number);
            return () -> {
                for (int i = 0; i < 16; i++) {
                    int key = (int) Clock.below(own, KEYS);
                    long dice = Clock.below(own, 200);
                    if (dice >= 2L * writePercent) {
                        keys.contains(key);
                    } else if (dice % 2 == 0) {
                        keys.insert(key);
                    } else {
                        keys.remove(key);
                    }
                }
            };
        });
    }

    public static void main(String[] args) throws Exception {
        long ms = args.length > 0 ? Long.parseLong(args[0]) : 100;
        int repeats = args.length > 1 ? Integer.parseInt(args[1]) : 5;
        Map<String, Supplier<Keys>> all = new LinkedHashMap<>();
        all.put("olf", OlfKeys::new);
        all.put("spinlock", Spinlock::new);
        all.put("synchronized", Synchronized::new);
        all.put("rwlock", ReadWrite::new);
        all.put("ConcurrentSkipListSet", SkipList::new);
        for (int write : new int[] {0, 10, 100}) {
            for (int threads : Clock.THREADS) {
                for (var each : all.entrySet()) {
                    Clock.row("list " + write, each.getKey(), threads, ms, repeats,
                            time -> measure(each.getValue().get(), threads, write, time));
                }
            }
        }
    }
}

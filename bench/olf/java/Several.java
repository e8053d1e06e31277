import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.locks.Lock;
import java.util.concurrent.locks.ReadWriteLock;
import java.util.concurrent.locks.ReentrantReadWriteLock;
import java.util.function.BiFunction;
import java.util.function.BooleanSupplier;
import txos.olf.Entry;
import txos.olf.OlfGroup;
import txos.olf.OptimisticList;

/**
 * Several lists in Java: moves (figure 8.13) and a structure like the dcache (for figure 8.14). The same cases
 * as src/several.rs. Prints lines as olf-bench does. Usage: java Several MILLISECONDS REPEATS
 */
public final class Several {
    private static final int EACH = 100;
    private static final int NAMES = 64;
    private static final int BUCKETS = 64;

    /** Numbered nodes on numbered lists. Each operation is atomic. */
    interface Arena {
        void link(int[][] places);

        void unlink(int[][] places);

        void moveTo(int node, int list);

        void findAndMove(int node, int from, int to);

        boolean lookup(int list, int node);
    }

    /** On the port of olf. */
    static final class Olf implements Arena {
        private final OlfGroup group = new OlfGroup();
        private final List<OptimisticList<Integer>> lists = new ArrayList<>();
        /** A node's place, for those that are not moved by search; written by one thread. */
        private final Entry<?>[] entries;
        private final Integer[] boxed;

        Olf(int nodes, int lists) {
            entries = new Entry<?>[nodes];
            boxed = new Integer[nodes];
            for (int i = 0; i < nodes; i++) {
                boxed[i] = i;
            }
            for (int i = 0; i < lists; i++) {
                this.lists.add(new OptimisticList<>(group));
            }
        }

        @SuppressWarnings("unchecked")
        private Entry<Integer> entry(int node) {
            return (Entry<Integer>) entries[node];
        }

        @Override
        public void link(int[][] places) {
            group.write(() -> {
                for (int[] place : places) {
                    entries[place[0]] = lists.get(place[1]).addLast(boxed[place[0]]);
                }
            });
        }

        @Override
        public void unlink(int[][] places) {
            group.write(() -> {
                for (int[] place : places) {
                    lists.get(place[1]).remove(entry(place[0]));
                }
            });
        }

        @Override
        public void moveTo(int node, int list) {
            lists.get(list).moveLast(entry(node));
        }

        @Override
        public void findAndMove(int node, int from, int to) {
            group.write(() -> {
                if (lists.get(from).removeSorted(n -> n >= node, n -> n == node)) {
                    lists.get(to).addSorted(boxed[node], n -> n >= node, n -> n == node);
                }
            });
        }

        @Override
        public boolean lookup(int list, int node) {
            return lists.get(list).find(n -> n == node) != null;
        }
    }

    /** Plain lists; their users lock. */
    static final class Plain implements Arena {
        private static final class Node {
            final int number;
            Node next = this;
            Node prev = this;

            Node(int number) {
                this.number = number;
            }
        }

        private final Node[] nodes;
        private final Node[] heads;

        Plain(int nodes, int lists) {
            this.nodes = new Node[nodes];
            heads = new Node[lists];
            for (int i = 0; i < nodes; i++) {
                this.nodes[i] = new Node(i);
            }
            for (int i = 0; i < lists; i++) {
                heads[i] = new Node(Integer.MAX_VALUE);
            }
        }

        private static void insertBefore(Node at, Node node) {
            node.next = at;
            node.prev = at.prev;
            at.prev.next = node;
            at.prev = node;
        }

        private static void take(Node node) {
            node.prev.next = node.next;
            node.next.prev = node.prev;
        }

        private Node from(int list, int number) {
            Node at = heads[list].next;
            while (at.number < number) {
                at = at.next;
            }
            return at;
        }

        @Override
        public void link(int[][] places) {
            for (int[] place : places) {
                insertBefore(heads[place[1]], nodes[place[0]]);
            }
        }

        @Override
        public void unlink(int[][] places) {
            for (int[] place : places) {
                take(nodes[place[0]]);
            }
        }

        @Override
        public void moveTo(int node, int list) {
            take(nodes[node]);
            insertBefore(heads[list], nodes[node]);
        }

        @Override
        public void findAndMove(int node, int from, int to) {
            Node found = from(from, node);
            if (found.number == node) {
                Node at = from(to, node);
                take(found);
                insertBefore(at, found);
            }
        }

        @Override
        public boolean lookup(int list, int node) {
            Node at = heads[list].next;
            while (at != heads[list] && at.number != node) {
                at = at.next;
            }
            return at != heads[list];
        }
    }

    /** Plain lists behind a lock. */
    static final class Locked implements Arena {
        private final Plain plain;
        private final ReadWriteLock lock;

        Locked(ReadWriteLock lock, int nodes, int lists) {
            this.lock = lock;
            plain = new Plain(nodes, lists);
        }

        private static boolean within(Lock lock, BooleanSupplier body) {
            lock.lock();
            try {
                return body.getAsBoolean();
            } finally {
                lock.unlock();
            }
        }

        private void writing(Runnable body) {
            within(lock.writeLock(), () -> {
                body.run();
                return true;
            });
        }

        @Override
        public void link(int[][] places) {
            writing(() -> plain.link(places));
        }

        @Override
        public void unlink(int[][] places) {
            writing(() -> plain.unlink(places));
        }

        @Override
        public void moveTo(int node, int list) {
            writing(() -> plain.moveTo(node, list));
        }

        @Override
        public void findAndMove(int node, int from, int to) {
            writing(() -> plain.findAndMove(node, from, to));
        }

        @Override
        public boolean lookup(int list, int node) {
            return within(lock.readLock(), () -> plain.lookup(list, node));
        }
    }

    /** One lock for both, of few methods. */
    private abstract static class Simple implements Lock, ReadWriteLock {
        @Override
        public Lock readLock() {
            return this;
        }

        @Override
        public Lock writeLock() {
            return this;
        }

        @Override
        public void lockInterruptibly() {
            lock();
        }

        @Override
        public boolean tryLock() {
            throw new UnsupportedOperationException();
        }

        @Override
        public boolean tryLock(long time, java.util.concurrent.TimeUnit unit) {
            throw new UnsupportedOperationException();
        }

        @Override
        public java.util.concurrent.locks.Condition newCondition() {
            throw new UnsupportedOperationException();
        }
    }

    static final class Spinlock extends Simple {
        private final AtomicBoolean taken = new AtomicBoolean();

        @Override
        public void lock() {
            while (taken.getAndSet(true)) {
                while (taken.get()) {
                    Thread.onSpinWait();
                }
            }
        }

        @Override
        public void unlock() {
            taken.setRelease(false);
        }
    }

    /** Plain lists behind their monitor. */
    static final class Synchronized implements Arena {
        private final Plain plain;

        Synchronized(int nodes, int lists) {
            plain = new Plain(nodes, lists);
        }

        @Override
        public synchronized void link(int[][] places) {
            plain.link(places);
        }

        @Override
        public synchronized void unlink(int[][] places) {
            plain.unlink(places);
        }

        @Override
        public synchronized void moveTo(int node, int list) {
            plain.moveTo(node, list);
        }

        @Override
        public synchronized void findAndMove(int node, int from, int to) {
            plain.findAndMove(node, from, to);
        }

        @Override
        public synchronized boolean lookup(int list, int node) {
            return plain.lookup(list, node);
        }
    }

    private static double moves(
            BiFunction<Integer, Integer, Arena> make, int threads, long ms) throws Exception {
        Arena arena = make.apply(EACH * threads, 2);
        for (int i = 0; i < EACH * threads; i++) {
            arena.link(new int[][] {{i, i % 2}});
        }
        return Clock.run(threads, ms, number -> {
            long[] random = Clock.seeded(number);
            int[] on = new int[EACH];
            for (int i = 0; i < EACH; i++) {
                on[i] = (number * EACH + i) % 2;
            }
            return () -> {
                for (int turn = 0; turn < 16; turn++) {
                    int i = (int) Clock.below(random, EACH);
                    on[i] = 1 - on[i];
                    arena.moveTo(number * EACH + i, on[i]);
                }
            };
        });
    }

    private static double searchingMoves(
            BiFunction<Integer, Integer, Arena> make, int threads, int nodes, long ms)
            throws Exception {
        Arena arena = make.apply(nodes, 2);
        for (int i = 0; i < nodes; i++) {
            arena.link(new int[][] {{i, i % 2}});
        }
        return Clock.run(threads, ms, number -> {
            long[] random = Clock.seeded(number);
            return () -> {
                for (int turn = 0; turn < 16; turn++) {
                    int node = (int) Clock.below(random, nodes);
                    int from = (int) Clock.below(random, 2);
                    arena.findAndMove(node, from, 1 - from);
                }
            };
        });
    }

    private static double dcache(
            BiFunction<Integer, Integer, Arena> make, int threads, int lookups, long ms)
            throws Exception {
        int names = NAMES * threads;
        int inodes = BUCKETS + threads;
        int lru = inodes + names / 4;
        Arena arena = make.apply(4 * names, lru + 1);
        int[][][] places = new int[names][][];
        for (int name = 0; name < names; name++) {
            int bucket = (int) (name * 0x9E3779B1L % BUCKETS);
            int[] lists = {bucket, BUCKETS + name / NAMES, inodes + name / 4, lru};
            places[name] = new int[4][];
            for (int i = 0; i < 4; i++) {
                places[name][i] = new int[] {4 * name + i, lists[i]};
            }
            if (name % 2 == 0) {
                arena.link(places[name]);
            }
        }
        return Clock.run(threads, ms, number -> {
            long[] random = Clock.seeded(number);
            boolean[] linked = new boolean[NAMES];
            for (int i = 0; i < NAMES; i += 2) {
                linked[i] = true;
            }
            return () -> {
                for (int turn = 0; turn < 16; turn++) {
                    int i = (int) Clock.below(random, NAMES);
                    int[][] own = places[number * NAMES + i];
                    if (Clock.below(random, 100) < lookups) {
                        arena.lookup(own[0][1], own[0][0]);
                    } else {
                        if (linked[i]) {
                            arena.unlink(own);
                        } else {
                            arena.link(own);
                        }
                        linked[i] = !linked[i];
                    }
                }
            };
        });
    }

    private record Contender(String name, BiFunction<Integer, Integer, Arena> make) {}

    private interface Experiment {
        double measure(BiFunction<Integer, Integer, Arena> make, int threads, long ms)
                throws Exception;
    }

    private static void run(String title, Experiment experiment, long ms, int repeats)
            throws Exception {
        List<Contender> contenders = List.of(
                new Contender("olf", Olf::new),
                new Contender("spinlock", (n, l) -> new Locked(new Spinlock(), n, l)),
                new Contender("synchronized", Synchronized::new),
                new Contender("rwlock", (n, l) -> new Locked(new ReentrantReadWriteLock(), n, l)));
        for (int threads : Clock.THREADS) {
            for (Contender c : contenders) {
                Clock.row(title, c.name, threads, ms, repeats,
                        time -> experiment.measure(c.make, threads, time));
            }
        }
    }

    public static void main(String[] args) throws Exception {
        long ms = args.length > 0 ? Long.parseLong(args[0]) : 100;
        int repeats = args.length > 1 ? Integer.parseInt(args[1]) : 5;
        run("move", Several::moves, ms, repeats);
        run("find and move", (m, t, time) -> searchingMoves(m, t, EACH, time), ms, repeats);
        run("find and move grown",
                (m, t, time) -> searchingMoves(m, t, EACH * t, time), ms, repeats);
        run("dcache link", (m, t, time) -> dcache(m, t, 0, time), ms, repeats);
        run("dcache 90% lookup", (m, t, time) -> dcache(m, t, 90, time), ms, repeats);
    }
}

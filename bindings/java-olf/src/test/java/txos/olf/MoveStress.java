package txos.olf;

import org.openjdk.jcstress.annotations.Actor;
import org.openjdk.jcstress.annotations.Arbiter;
import org.openjdk.jcstress.annotations.Expect;
import org.openjdk.jcstress.annotations.JCStressTest;
import org.openjdk.jcstress.annotations.Outcome;
import org.openjdk.jcstress.annotations.State;
import org.openjdk.jcstress.infra.results.III_Result;
import org.openjdk.jcstress.infra.results.II_Result;

/** jcstress: see {@code check.sh}. */
public class MoveStress {
    /** The lists between which entries move. */
    static class TwoLists {
        final OlfGroup group;
        final OptimisticList<Integer> a;
        final OptimisticList<Integer> b;

        TwoLists() {
            this(new OlfGroup());
        }

        TwoLists(OlfGroup group) {
            this.group = group;
            a = new OptimisticList<>(group);
            b = new OptimisticList<>(group);
        }

        /** How many entries both have, looked at twice by one reader. */
        void countTwice(II_Result r) {
            group.read(() -> {
                r.r1 = a.size() + b.size();
                r.r2 = a.size() + b.size();
                return null;
            });
        }
    }

    /** A reader sees an item that moves twice on exactly one list, and the same when it looks again. */
    @JCStressTest
    @Outcome(id = "1, 1", expect = Expect.ACCEPTABLE, desc = "on one list")
    @Outcome(expect = Expect.FORBIDDEN, desc = "on none, on both, or a view that changed")
    @State
    public static class Snapshot extends TwoLists {
        final Entry<Integer> item = a.addLast(1);

        @Actor
        public void mover() {
            b.moveLast(item);
            a.moveLast(item);
        }

        @Actor
        public void reader(II_Result r) {
            countTwice(r);
        }
    }

    /** As {@link Snapshot}, but the reader always takes a turn among the writers. */
    @JCStressTest
    @Outcome(id = "1, 1", expect = Expect.ACCEPTABLE, desc = "on one list")
    @Outcome(expect = Expect.FORBIDDEN, desc = "on none, on both, or a view that changed")
    @State
    public static class QueuedReader extends TwoLists {
        final Entry<Integer> item = a.addLast(1);

        public QueuedReader() {
            super(new OlfGroup(0));
        }

        @Actor
        public void mover() {
            b.moveLast(item);
            a.moveLast(item);
        }

        @Actor
        public void reader(II_Result r) {
            countTwice(r);
        }
    }

    /** A thread has died in a section; one thread recovers it while another one writes to its entries. */
    @JCStressTest
    @Outcome(id = {"0, 1, 1", "1, 1, 1"}, expect = Expect.ACCEPTABLE, desc = "undone once, and all goes on")
    @Outcome(expect = Expect.FORBIDDEN, desc = "half a section, or one undone twice")
    @State
    public static class Recovery extends TwoLists {
        final Entry<Integer> item = a.addLast(1);

        public Recovery() {
            Thread dying = new Thread(() -> {
                group.member().beginWrite();
                b.moveLast(item);
            });
            dying.start();
            try {
                dying.join();
            } catch (InterruptedException e) {
                throw new IllegalStateException(e);
            }
        }

        @Actor
        public void recoverer(III_Result r) {
            r.r1 = group.recover();
        }

        @Actor
        public void writer(III_Result r) {
            r.r2 = b.moveLast(item) ? 1 : 0;
        }

        @Arbiter
        public void both(III_Result r) {
            r.r3 = a.isEmpty() ? b.size() : -1;
        }
    }

    /** Two writers change the same nodes: neither change is lost, whoever comes first. */
    @JCStressTest
    @Outcome(id = "0, 2, 2", expect = Expect.ACCEPTABLE, desc = "both moved")
    @Outcome(expect = Expect.FORBIDDEN, desc = "an update is lost, or a list is torn")
    @State
    public static class TwoWriters extends TwoLists {
        final Entry<Integer> one = a.addLast(1);
        final Entry<Integer> two = a.addLast(2);

        @Actor
        public void first() {
            b.moveLast(one);
        }

        @Actor
        public void second() {
            b.moveLast(two);
        }

        @Arbiter
        public void both(III_Result r) {
            r.r1 = a.size();
            r.r2 = b.size();
            int[] backwards = {0};
            b.forEachBackwards(v -> backwards[0]++);
            r.r3 = backwards[0];
        }
    }

    /** A decision on a nested read holds at commit: the two bodies cannot both find the list empty. */
    @JCStressTest
    @Outcome(id = {"1, 0, 1", "0, 1, 1"}, expect = Expect.ACCEPTABLE, desc = "one of them added")
    @Outcome(expect = Expect.FORBIDDEN, desc = "write skew")
    @State
    public static class NestedRead extends TwoLists {
        private int addIfBothEmpty(OptimisticList<Integer> to) {
            return group.write(() -> {
                if (!a.isEmpty() || !b.isEmpty()) {
                    return 0;
                }
                to.add(1);
                return 1;
            });
        }

        @Actor
        public void first(III_Result r) {
            r.r1 = addIfBothEmpty(a);
        }

        @Actor
        public void second(III_Result r) {
            r.r2 = addIfBothEmpty(b);
        }

        @Arbiter
        public void both(III_Result r) {
            r.r3 = a.size() + b.size();
        }
    }

    /** What a writer did before its section is visible to whoever sees the section. */
    @JCStressTest
    @Outcome(id = {"0, 0", "0, 7", "1, 7"}, expect = Expect.ACCEPTABLE, desc = "published")
    @Outcome(expect = Expect.FORBIDDEN, desc = "the list was seen, what came before it was not")
    @State
    public static class Publication {
        final OptimisticList<Integer> list = new OptimisticList<>();
        int plain;

        @Actor
        public void writer() {
            plain = 7;
            list.add(1);
        }

        @Actor
        public void reader(II_Result r) {
            r.r1 = list.size();
            r.r2 = plain;
        }
    }
}

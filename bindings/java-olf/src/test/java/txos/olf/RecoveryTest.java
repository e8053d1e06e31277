package txos.olf;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/**
 * Threads that die at each step of a section, and readers that have to queue.
 *
 * <p>Death is a thread that ends with its section open, which only this package can bring about at a chosen
 * step: a body that throws ends its section, whatever it throws.
 */
@Timeout(30)
class RecoveryTest {
    private final OlfGroup group = new OlfGroup();
    private final OptimisticList<Integer> a = new OptimisticList<>(group);
    private final OptimisticList<Integer> b = new OptimisticList<>(group);
    private final List<Entry<Integer>> items = new ArrayList<>();

    /** How far the dead thread got. */
    enum Death { READING, CLAIMING, CLAIMED, TAKEN, CHANGED, NESTED, ANNOUNCED, COMMITTED }

    RecoveryTest() {
        for (int i = 0; i < 4; i++) {
            items.add(a.addLast(i));
        }
    }

    private static void inThread(Runnable body) throws InterruptedException {
        Thread t = new Thread(body);
        t.start();
        t.join();
    }

    /** Ends with its thread, which leaves everything as it is. */
    private void die(Death how) {
        Member m = group.member();
        switch (how) {
            case READING -> m.beginRead();
            case CLAIMING -> m.beginClaim();
            default -> {
                m.beginWrite();
                if (how == Death.CLAIMED) {
                    return;
                }
                if (how == Death.TAKEN) {
                    m.acquire(items.get(0));
                    return;
                }
                // As part of the section that is open.
                b.moveLast(items.get(0));
                if (how == Death.NESTED) {
                    assertEquals(4, a.size() + b.size());
                } else if (how != Death.CHANGED) {
                    m.announceAll();
                    if (how == Death.COMMITTED) {
                        group.commit(group.committed() + 2);
                    }
                }
            }
        }
    }

    private void allIsAsBefore(Death how) {
        List<List<Integer>> seen = group.read(() -> List.of(new ArrayList<>(a), new ArrayList<>(b)));
        if (how == Death.COMMITTED) {
            assertEquals(List.of(List.of(1, 2, 3), List.of(0)), seen);
        } else {
            assertEquals(List.of(List.of(0, 1, 2, 3), List.of()), seen, how + ": half a section");
        }
        // As many sections as would use up the slots several times over.
        for (int i = 0; i < 10; i++) {
            assertTrue(b.moveLast(items.get(0)));
            assertTrue(a.moveLast(items.get(0)));
        }
        assertEquals(List.of(1, 2, 3, 0), new ArrayList<>(a));
    }

    @ParameterizedTest
    @EnumSource(Death.class)
    void deathAtEveryStep(Death how) throws InterruptedException {
        inThread(() -> die(how));
        assertEquals(1, group.recover());
        assertEquals(0, group.recover(), "there is nothing left to do");
        allIsAsBefore(how);
    }

    @ParameterizedTest
    @EnumSource(Death.class)
    void whoeverWaitsFindsTheDead(Death how) throws InterruptedException {
        inThread(() -> die(how));
        allIsAsBefore(how);
    }

    @Test
    void severalDieAndSeveralHelp() throws Exception {
        // The second could not get further than its epoch, for it would wait for the first.
        inThread(() -> die(Death.CHANGED));
        inThread(() -> die(Death.CLAIMED));
        inThread(() -> die(Death.READING));
        ExecutorService pool = Executors.newFixedThreadPool(3);
        List<Future<Integer>> helpers = new ArrayList<>();
        for (int i = 0; i < 3; i++) {
            helpers.add(pool.submit(group::recover));
        }
        int ended = 0;
        for (Future<Integer> helper : helpers) {
            ended += helper.get(2, TimeUnit.MINUTES);
        }
        pool.shutdown();
        assertEquals(3, ended);
        allIsAsBefore(Death.CHANGED);
    }

    @Test
    void theLivingAreLeftAlone() throws InterruptedException {
        Thread writer = new Thread(() -> group.write(() -> {
            b.moveLast(items.get(1));
            try {
                Thread.sleep(100);
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
            }
        }));
        writer.start();
        inThread(() -> die(Death.CLAIMED));
        assertEquals(1, group.recover());
        writer.join();
        assertEquals(List.of(1), new ArrayList<>(b));
        assertThrows(IllegalStateException.class, () -> group.write(() -> group.recover()));
    }

    /** Every reader takes a turn among the writers, and sees one state all the same. */
    @Test
    void readersThatAlwaysQueue() throws Exception {
        OlfGroup queued = new OlfGroup(0);
        OptimisticList<Integer> left = new OptimisticList<>(queued);
        OptimisticList<Integer> right = new OptimisticList<>(queued);
        Entry<Integer> item = left.addLast(1);
        long before = queued.committed();
        assertEquals(1, left.size());
        assertEquals(before + 2, queued.committed(), "the reader took an epoch");
        ExecutorService pool = Executors.newFixedThreadPool(4);
        List<Future<?>> jobs = new ArrayList<>();
        for (int t = 0; t < 4; t++) {
            boolean writes = t < 2;
            jobs.add(pool.submit(() -> {
                for (int i = 0; i < 2000; i++) {
                    if (writes) {
                        (i % 2 == 0 ? right : left).moveLast(item);
                    } else {
                        int n = queued.read(() -> left.size() + right.size());
                        assertEquals(1, n);
                    }
                }
            }));
        }
        for (Future<?> job : jobs) {
            job.get(2, TimeUnit.MINUTES);
        }
        pool.shutdown();
    }

    /** A reader that commits keep overtaking begins all the same: it has to queue, and then does. */
    @Test
    void aReaderThatIsOvertakenQueues() throws Exception {
        OlfGroup busy = new OlfGroup(1);
        OptimisticList<Integer> list = new OptimisticList<>(busy);
        Thread writer = new Thread(() -> {
            while (!Thread.interrupted()) {
                list.add(1);
                list.pollFirst();
            }
        });
        writer.start();
        for (int i = 0; i < 20_000; i++) {
            int n = list.size();
            assertTrue(n == 0 || n == 1);
        }
        writer.interrupt();
        writer.join();
    }
}

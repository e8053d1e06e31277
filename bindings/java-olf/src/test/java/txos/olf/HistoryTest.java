package txos.olf;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.util.ArrayList;
import java.util.Collections;
import java.util.Comparator;
import java.util.List;
import java.util.Random;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/**
 * Random histories of several threads, replayed in the order of their commits on plain lists.
 *
 * <p>Each section takes a ticket by its commit: a counter list whose length the section reads and
 * extends, so the ticket itself is subject to the algorithm under test.
 */
class HistoryTest {
    private static final int LISTS = 3;
    private static final int ITEMS = 5;

    /** What a section did: moved an item, and the first item that it saw on the list. */
    private record Event(int ticket, int item, int to, Integer sawFirst) {}

    private static final class World {
        final OlfGroup group = new OlfGroup();
        final List<OptimisticList<Integer>> lists = new ArrayList<>();
        final List<Entry<Integer>> items = new ArrayList<>();
        final OptimisticList<Integer> tickets = new OptimisticList<>(group);

        World() {
            IntStream.range(0, LISTS).forEach(i -> lists.add(new OptimisticList<>(group)));
            IntStream.range(0, ITEMS).forEach(i -> items.add(lists.get(0).addLast(i)));
            tickets.add(0);
        }

        Event write(Random random) {
            int item = random.nextInt(ITEMS);
            int to = random.nextInt(LISTS);
            return group.write(() -> {
                int ticket = tickets.pollFirst();
                Entry<Integer> first = lists.get(to).find(v -> true);
                lists.get(to).moveLast(items.get(item));
                tickets.add(ticket + 1);
                return new Event(ticket, item, to, first == null ? null : first.value());
            });
        }

        void read() {
            group.read(() -> {
                List<List<Integer>> state = state();
                assertEquals(state, state(), "a repeated read differs");
                List<Integer> all = new ArrayList<>();
                state.forEach(all::addAll);
                Collections.sort(all);
                assertEquals(IntStream.range(0, ITEMS).boxed().toList(), all);
                return null;
            });
        }

        List<List<Integer>> state() {
            List<List<Integer>> state = new ArrayList<>();
            lists.forEach(l -> state.add(new ArrayList<>(l)));
            return state;
        }
    }

    private void history(int writers, int readers, int sections, long seed) throws Exception {
        World world = new World();
        ExecutorService pool = Executors.newFixedThreadPool(writers + readers);
        List<Callable<List<Event>>> jobs = new ArrayList<>();
        for (int w = 0; w < writers; w++) {
            Random random = new Random(seed * 100 + w);
            jobs.add(() -> {
                List<Event> events = new ArrayList<>();
                for (int i = 0; i < sections; i++) {
                    events.add(world.write(random));
                }
                return events;
            });
        }
        for (int r = 0; r < readers; r++) {
            jobs.add(() -> {
                for (int i = 0; i < sections; i++) {
                    world.read();
                }
                return List.of();
            });
        }
        List<Event> events = new ArrayList<>();
        for (Future<List<Event>> job : pool.invokeAll(jobs)) {
            events.addAll(job.get());
        }
        pool.shutdown();
        pool.awaitTermination(1, TimeUnit.MINUTES);

        events.sort(Comparator.comparingInt(Event::ticket));
        List<List<Integer>> model = new ArrayList<>();
        IntStream.range(0, LISTS).forEach(i -> model.add(new ArrayList<>()));
        IntStream.range(0, ITEMS).forEach(model.get(0)::add);
        for (int i = 0; i < events.size(); i++) {
            Event e = events.get(i);
            assertEquals(i, e.ticket, "an update was lost");
            List<Integer> to = model.get(e.to);
            assertEquals(to.isEmpty() ? null : to.get(0), e.sawFirst, "a nested read lied");
            model.forEach(l -> l.remove((Integer) e.item));
            to.add(e.item);
        }
        assertEquals(model, world.state());
    }

    @Test
    @Timeout(60)
    void fewThreads() throws Exception {
        for (int seed = 0; seed < 10; seed++) {
            history(2, 1, 500, seed);
        }
    }

    @Test
    @Timeout(60)
    void moreWritersThanSlotsAndProcessors() throws Exception {
        for (int seed = 0; seed < 5; seed++) {
            history(9, 3, 100, seed);
        }
    }
}

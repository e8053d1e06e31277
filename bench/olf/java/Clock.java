import java.util.Arrays;
import java.util.Locale;
import java.util.concurrent.CyclicBarrier;
import java.util.function.IntFunction;

/** Random numbers, threads that run for a while, and the time they take: as src/rng.rs and src/clock.rs. */
final class Clock {
    /** Numbers of threads; fewer if the system property {@code threads} says how many are the most. */
    static final int[] THREADS = Arrays.stream(new int[] {1, 2, 4, 8, 16})
            .filter(n -> n <= Integer.getInteger("threads", 16)).toArray();

    private static volatile boolean stop;

    private Clock() {}

    static long[] seeded(int number) {
        return new long[] {(number + 101) * 0x9E3779B97F4A7C15L | 1};
    }

    static long below(long[] state, long n) {
        long x = state[0];
        x ^= x << 13;
        x ^= x >>> 7;
        x ^= x << 17;
        state[0] = x;
        return (x >>> 33) % n;
    }

    /**
     * The average time of an operation times the number of threads, in ns. {@code worker} makes what thread
     * {@code n} does over and over: sixteen operations.
     */
    static double run(int threads, long milliseconds, IntFunction<Runnable> worker) throws Exception {
        stop = false;
        long[] done = new long[threads * 16];
        CyclicBarrier start = new CyclicBarrier(threads + 1);
        Thread[] workers = new Thread[threads];
        for (int t = 0; t < threads; t++) {
            int number = t;
            workers[t] = new Thread(() -> {
                Runnable sixteen = worker.apply(number);
                await(start);
                long n = 0;
                while (!stop) {
                    sixteen.run();
                    n += 16;
                }
                done[number * 16] = n;
            });
            workers[t].start();
        }
        long began = System.nanoTime();
        await(start);
        Thread.sleep(milliseconds);
        stop = true;
        for (Thread each : workers) {
            each.join();
        }
        long time = System.nanoTime() - began;
        return (double) time * threads / Math.max(1, Arrays.stream(done).sum());
    }

    private static void await(CyclicBarrier barrier) {
        try {
            barrier.await();
        } catch (Exception e) {
            throw new IllegalStateException(e);
        }
    }

    /** One measurement. */
    interface Case {
        double measure(long milliseconds) throws Exception;
    }

    /** Measures once for the compiler, then so many times, of which the best counts, and prints a line. */
    static void row(String experiment, String name, int threads, long ms, int repeats, Case one)
            throws Exception {
        one.measure(ms);
        double best = Double.MAX_VALUE;
        for (int i = 0; i < repeats; i++) {
            best = Math.min(best, one.measure(ms));
        }
        System.out.printf(Locale.ROOT, "%s,Java,%s,%d,%.1f%n", experiment, name, threads, best);
    }
}

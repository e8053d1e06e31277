package txos;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.DirectoryNotEmptyException;
import java.nio.file.FileAlreadyExistsException;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Each method, what failures look like, and that transactions are ones. */
class TransactionTest {
    private static final Options QUICK = Options.DEFAULT.nonDurable();

    @TempDir Path dir;

    private Path file;

    @BeforeEach
    void setUp() throws IOException {
        file = dir.resolve("file");
        Files.writeString(file, "0123456789");
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    @Test
    void everyMethodActsOnTheFilesAtTheCommit() throws IOException {
        Path made = dir.resolve("made");
        Path name = dir.resolve("ünï");
        Instant then = Instant.ofEpochSecond(1_000_000_000, 5);
        try (Transaction tx = Transaction.begin()) {
            tx.createDirectory(made, 0750);
            tx.create(made.resolve("empty"), 0600);
            tx.writeString(name, "text");
            tx.append(name, bytes(" and more"));
            tx.write(file, 2, bytes("xy"));
            tx.truncate(file, 6);
            tx.createLink(made.resolve("twin"), file);
            tx.createSymbolicLink(made.resolve("link"), "../file");
            tx.rename(name, made.resolve("moved"));
            tx.setMode(file, 0640);
            tx.setTimes(file, null, then);
            tx.setAttribute(file, "user.txos", bytes("value"));
            assertEquals("01xy45", tx.readString(file));
            assertEquals("xy4", new String(tx.read(file, 2, 3), StandardCharsets.UTF_8));
            assertEquals(1, tx.read(file, 5, 100).length);
            assertEquals("../file", tx.readSymbolicLink(made.resolve("link")));
            assertEquals(List.of("empty", "link", "moved", "twin"), tx.list(made));
            assertArrayEquals(bytes("value"), tx.getAttribute(file, "user.txos"));
            assertTrue(tx.exists(made) && !tx.exists(name));
            assertFalse(Files.exists(made));
            tx.commit();
        }
        assertEquals("01xy45", Files.readString(made.resolve("twin")));
        assertEquals("text and more", Files.readString(made.resolve("moved")));
        assertEquals(then, Files.getLastModifiedTime(file).toInstant());
        try (Transaction tx = Transaction.begin(QUICK)) {
            Stat stat = tx.stat(made.resolve("link"));
            assertEquals(0640, stat.permissions());
            assertEquals(then, stat.modified());
            assertEquals(6, stat.size());
            assertEquals(2, stat.links());
            assertTrue(stat.isRegularFile() && tx.stat(made).isDirectory());
            assertTrue(tx.lstat(made.resolve("link")).isSymbolicLink());
            tx.delete(made.resolve("empty"));
            tx.setAttribute(file, "user.txos", null);
            tx.renameNew(made.resolve("moved"), dir.resolve("back"));
            tx.delete(made.resolve("twin"));
            tx.delete(made.resolve("link"));
            tx.deleteDirectory(made);
            tx.commit();
        }
        assertFalse(Files.exists(made));
        assertTrue(Files.exists(dir.resolve("back")));
    }

    @Test
    void whatIsNotCommittedHasNotHappened() throws IOException {
        try (Transaction tx = Transaction.begin(QUICK)) {
            tx.writeString(file, "lost");
        }
        assertEquals("0123456789", Files.readString(file));
        assertThrows(
                IllegalArgumentException.class,
                () ->
                        Transaction.run(
                                QUICK,
                                tx -> {
                                    tx.writeString(file, "lost");
                                    throw new IllegalArgumentException();
                                }));
        assertEquals("0123456789", Files.readString(file));
        Transaction ended = Transaction.begin(QUICK);
        ended.commit();
        assertThrows(IllegalStateException.class, () -> ended.read(file));
        assertThrows(IllegalStateException.class, ended::commit);
        ended.close();
    }

    @Test
    void failuresAreThoseOfFiles() throws IOException {
        Path absent = dir.resolve("absent");
        try (Transaction tx = Transaction.begin(QUICK)) {
            assertThrows(NoSuchFileException.class, () -> tx.read(absent));
            assertThrows(FileAlreadyExistsException.class, () -> tx.create(file, 0600));
            assertThrows(DirectoryNotEmptyException.class, () -> tx.deleteDirectory(dir));
            assertThrows(IOException.class, () -> tx.readSymbolicLink(file));
            assertThrows(FileAlreadyExistsException.class, () -> tx.renameNew(file, file));
        }
    }

    @Test
    void aLostTransactionIsRunAgain() throws IOException {
        int[] runs = {0};
        int seen =
                Transaction.run(
                        QUICK,
                        tx -> {
                            int length = tx.read(file).length;
                            if (runs[0]++ == 0) {
                                Files.writeString(file, "changed by another");
                            }
                            tx.append(file, bytes("!"));
                            return length;
                        });
        assertEquals(2, runs[0]);
        assertEquals("changed by another".length(), seen);
        assertEquals("changed by another!", Files.readString(file));
        assertThrows(
                ConflictException.class,
                () ->
                        Transaction.run(
                                new Options(false, 3),
                                tx -> {
                                    byte[] content = tx.read(file);
                                    Files.writeString(file, new String(content) + ".");
                                    tx.writeString(file, "never");
                                    return null;
                                }));
        assertEquals("changed by another!....", Files.readString(file));
    }

    @Test
    void threadsCountTogether() throws Exception {
        Files.writeString(file, "0");
        ExecutorService pool = Executors.newFixedThreadPool(4);
        List<Future<?>> all = new ArrayList<>();
        for (int i = 0; i < 40; i++) {
            all.add(
                    pool.submit(
                            () ->
                                    Transaction.run(
                                            new Options(false, 100_000),
                                            tx -> {
                                                int now = Integer.parseInt(tx.readString(file));
                                                tx.writeString(file, now + 1 + "");
                                                return null;
                                            })));
        }
        for (Future<?> one : all) {
            one.get();
        }
        pool.shutdown();
        assertEquals("40", Files.readString(file));
    }

    @Test
    void differentPartsOfOneFileAreNoConflict() throws IOException {
        try (Transaction one = Transaction.begin(QUICK);
                Transaction two = Transaction.begin(QUICK)) {
            one.read(file, 0, 2);
            two.read(file, 5, 2);
            one.write(file, 0, bytes("ab"));
            two.write(file, 5, bytes("cd"));
            one.commit();
            two.commit();
        }
        assertEquals("ab234cd789", Files.readString(file));
    }
}

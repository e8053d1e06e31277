import java.nio.file.Path;
import txos.Transaction;

/**
 * Moves an amount between two accounts, each a file: both change, or none.
 *
 * <p>Try it from several shells at once, and kill some of them: the sum stays what it was.
 */
public final class MoveMoney {
    public static void main(String[] args) throws Exception {
        if (args.length != 3) {
            System.err.println("usage: MoveMoney FROM TO AMOUNT");
            System.exit(2);
        }
        Path from = Path.of(args[0]);
        Path to = Path.of(args[1]);
        long amount = Long.parseLong(args[2]);
        long left = Transaction.run(tx -> {
            long rest = Long.parseLong(tx.readString(from).strip()) - amount;
            if (rest < 0) {
                throw new IllegalArgumentException(from + " holds too little");
            }
            tx.writeString(from, rest + "\n");
            tx.writeString(to, Long.parseLong(tx.readString(to).strip()) + amount + "\n");
            return rest;
        });
        System.out.println(left + " left");
    }
}

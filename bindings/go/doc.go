// Package txos gives small ACID transactions over plain files, in process.
//
// What a transaction reads is remembered, what it writes stays in memory until it commits; it commits
// only if everything that it has read is still the same. [Run] runs a function as one transaction, and
// again, from its start, each time it has lost:
//
//	err := txos.Run(func(tx *txos.Tx) error {
//		text, err := tx.Read("counter")
//		if err != nil {
//			return err
//		}
//		number, err := strconv.Atoi(string(text))
//		if err != nil {
//			return err // aborts
//		}
//		return tx.Write("counter", []byte(strconv.Itoa(number+1)))
//	})
//
// The package is a skin over libtxos (txos.h), found by pkg-config.
package txos

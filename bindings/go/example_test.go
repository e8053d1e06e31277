package txos_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"txos"
)

// Two accounts, each a file: both change, or none.
func Example() {
	dir, err := os.MkdirTemp("", "accounts")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	alice, bob := filepath.Join(dir, "alice"), filepath.Join(dir, "bob")
	_ = os.WriteFile(alice, []byte("100"), 0o600)
	_ = os.WriteFile(bob, []byte("0"), 0o600)

	add := func(tx *txos.Tx, account string, amount int) error {
		text, err := tx.Read(account)
		if err != nil {
			return err
		}
		balance, err := strconv.Atoi(string(text))
		if err != nil {
			return err
		}
		return tx.Write(account, []byte(strconv.Itoa(balance+amount)))
	}
	err = txos.Run(func(tx *txos.Tx) error {
		if err := add(tx, alice, -10); err != nil {
			return err
		}
		return add(tx, bob, 10)
	})
	left, _ := os.ReadFile(alice)
	got, _ := os.ReadFile(bob)
	fmt.Println(string(left), string(got), err)
	// Output: 90 10 <nil>
}

package txos_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"txos"
)

func TestMain(m *testing.M) {
	state, err := os.MkdirTemp("", "txos-go-")
	if err != nil {
		panic(err)
	}
	os.Setenv("TXOS_STATE", filepath.Join(state, "state"))
	code := m.Run()
	os.RemoveAll(state)
	os.Exit(code)
}

func put(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func get(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestChangesComeTogetherAtTheEnd(t *testing.T) {
	a, b := filepath.Join(t.TempDir(), "a"), filepath.Join(t.TempDir(), "b")
	put(t, a, "1")
	err := txos.Run(func(tx *txos.Tx) error {
		if err := tx.Write(a, []byte("2")); err != nil {
			return err
		}
		if err := tx.Append(b, []byte("new")); err != nil {
			return err
		}
		inside, err := tx.Read(a)
		if err != nil || string(inside) != "2" {
			t.Errorf("inside: %q, %v", inside, err)
		}
		if get(t, a) != "1" {
			t.Error("seen outside before the commit")
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if get(t, a) != "2" || get(t, b) != "new" {
		t.Errorf("%q, %q", get(t, a), get(t, b))
	}
}

func TestAnErrorOrAPanicAborts(t *testing.T) {
	a := filepath.Join(t.TempDir(), "a")
	mine := errors.New("changed my mind")
	err := txos.Run(func(tx *txos.Tx) error {
		_ = tx.Write(a, []byte("never"))
		return mine
	})
	if err != mine {
		t.Error(err)
	}
	func() {
		defer func() { _ = recover() }()
		_ = txos.Run(func(tx *txos.Tx) error {
			_ = tx.Write(a, []byte("never"))
			panic("out of here")
		})
	}()
	if _, err := os.Stat(a); !errors.Is(err, fs.ErrNotExist) {
		t.Error("there is something:", err)
	}
}

func TestErrorsAreThoseOfPackageOs(t *testing.T) {
	tx, err := txos.Begin(txos.Options{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = tx.Read(filepath.Join(t.TempDir(), "absent"))
	var told *fs.PathError
	if !errors.Is(err, fs.ErrNotExist) || !errors.As(err, &told) {
		t.Error(err)
	}
	tx.Abort()
	if _, err := tx.Read("a"); !errors.Is(err, txos.ErrEnded) {
		t.Error(err)
	}
}

func TestAConflictIsToldAndRunAgain(t *testing.T) {
	a := filepath.Join(t.TempDir(), "a")
	put(t, a, "0")
	tx, err := txos.Begin(txos.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Read(a); err != nil {
		t.Fatal(err)
	}
	put(t, a, "changed")
	_ = tx.Write(a+".copy", nil)
	if err := tx.Commit(); !errors.Is(err, txos.ErrConflict) {
		t.Error(err)
	}
	runs := 0
	err = txos.RunWith(txos.Options{Retries: 2}, func(tx *txos.Tx) error {
		runs++
		if _, err := tx.Read(a); err != nil {
			return err
		}
		put(t, a, strconv.Itoa(runs))
		return tx.Write(a+".copy", nil)
	})
	if !errors.Is(err, txos.ErrRetries) || runs != 3 {
		t.Error(err, runs)
	}
}

func TestNoUpdateIsLost(t *testing.T) {
	counter := filepath.Join(t.TempDir(), "counter")
	put(t, counter, "0")
	var group sync.WaitGroup
	for range [3]int{} {
		group.Add(1)
		go func() {
			defer group.Done()
			for range [10]int{} {
				options := txos.Options{NotDurable: true, Retries: 100_000}
				err := txos.RunWith(options, func(tx *txos.Tx) error {
					text, err := tx.Read(counter)
					if err != nil {
						return err
					}
					number, err := strconv.Atoi(string(text))
					if err != nil {
						return err
					}
					return tx.Write(counter, []byte(strconv.Itoa(number+1)))
				})
				if err != nil {
					t.Error(err)
				}
			}
		}()
	}
	group.Wait()
	if get(t, counter) != "30" {
		t.Error(get(t, counter))
	}
}

func TestEveryCallDoesWhatItsPlainOneDoes(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	put(t, at("f"), "0123456789")
	put(t, at("gone"), "")
	stamp := time.Unix(1, 5)
	err := txos.Run(func(tx *txos.Tx) error {
		part, err := tx.ReadAt(at("f"), 2, 3)
		if err != nil || string(part) != "234" {
			t.Errorf("%q, %v", part, err)
		}
		found, _ := tx.Exists(at("nothing"))
		names, _ := tx.List(dir)
		if found || len(names) != 2 {
			t.Error(found, names)
		}
		steps := []error{
			tx.WriteAt(at("f"), 8, []byte("ab")), tx.Append(at("f"), []byte("cd")),
			tx.Create(at("made"), 0o640), tx.Mkdir(at("d"), 0o750),
			tx.Rename(at("made"), at("d/moved")), tx.Link(at("f"), at("second")),
			tx.Symlink("f", at("link")), tx.Remove(at("gone")), tx.Chmod(at("f"), 0o600),
			tx.Chtimes(at("f"), time.Time{}, stamp),
			tx.Setxattr(at("f"), "user.mark", []byte{0, 255}),
			tx.Setxattr(at("f"), "user.empty", []byte{}),
		}
		if err := errors.Join(steps...); err != nil {
			return err
		}
		target, err := tx.Readlink(at("link"))
		if err != nil || target != "f" {
			t.Errorf("%q, %v", target, err)
		}
		value, err := tx.Getxattr(at("f"), "user.mark")
		if err != nil || len(value) != 2 {
			t.Error(value, err)
		}
		shown, err := tx.Stat(at("link"))
		if err != nil || shown.Size != 12 || shown.Links != 2 || !shown.ModTime.Equal(stamp) {
			t.Errorf("%+v, %v", shown, err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if get(t, at("f")) != "01234567abcd" || get(t, at("second")) != "01234567abcd" {
		t.Error(get(t, at("f")))
	}
	info, err := os.Stat(at("f"))
	if err != nil || info.Mode().Perm() != 0o600 || !info.ModTime().Equal(stamp) {
		t.Error(info, err)
	}
	if _, err := os.Stat(at("d/moved")); err != nil {
		t.Error(err)
	}
}

package txos

import (
	"errors"
	"io/fs"
	"syscall"
)

// ErrConflict says that something that the transaction had read was changed by someone else. Nothing
// was changed; the transaction may be run again, and [Run] does so.
var ErrConflict = errors.New("something that the transaction had read has changed")

// ErrRetries says that a transaction lost so many times that it was not run again.
var ErrRetries = errors.New("the transaction lost too many times")

// ErrEnded says that a transaction was used after its commit or abort.
var ErrEnded = errors.New("the transaction has ended")

// A StoreError says why a transaction, or the state directory, cannot be used.
type StoreError struct {
	// Message names the object, the cause and the remedy.
	Message string
	// Errno is the error number.
	Errno syscall.Errno
}

func (e *StoreError) Error() string { return e.Message }

// Unwrap gives the error number.
func (e *StoreError) Unwrap() error { return e.Errno }

// conflict is ErrConflict with words about what has changed.
type conflict struct{ message string }

func (e *conflict) Error() string        { return e.message }
func (e *conflict) Is(target error) bool { return target == ErrConflict }

// failed is the error of a call with this negative error number; of a call on a path, the one that
// package os would give.
func failed(code int, op, path, message string) error {
	number := syscall.Errno(-code)
	switch {
	case number == syscall.ECANCELED:
		return &conflict{message}
	case path != "":
		return &fs.PathError{Op: op, Path: path, Err: number}
	default:
		return &StoreError{Message: message, Errno: number}
	}
}

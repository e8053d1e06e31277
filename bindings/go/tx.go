package txos

/*
#cgo pkg-config: txos
#include <stdlib.h>
#include <txos.h>
*/
import "C"

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand"
	"runtime"
	"time"
	"unsafe"
)

// Options say how a transaction is run.
type Options struct {
	// NotDurable lets a power cut undo the commit, as a whole.
	NotDurable bool
	// Retries is how often a function is run again after a conflict; 0 means 100, and a negative
	// number never.
	Retries int
}

const (
	defaultRetries = 100
	firstPause     = 20 * time.Microsecond
	longestPause   = 20 * time.Millisecond
)

// A Tx is a running transaction. One goroutine at a time may use it. Paths may be relative: they begin
// in what was the working directory when the transaction began. Errors are those that the calls of
// package os give, and [ErrConflict] as soon as it is known that the transaction has lost.
type Tx struct {
	handle *C.txos_tx
}

// Begin begins a transaction, which ends with [Tx.Commit] or [Tx.Abort].
func Begin(options Options) (*Tx, error) {
	var flags C.uint
	if options.NotDurable {
		flags = C.TXOS_NONDURABLE
	}
	tx := &Tx{}
	err := call("begin", "", func() int { return int(C.txos_begin(&tx.handle, flags)) })
	if err != nil {
		return nil, err
	}
	runtime.SetFinalizer(tx, (*Tx).Abort)
	return tx, nil
}

// Run runs body as one durable transaction: see [RunWith].
func Run(body func(tx *Tx) error) error { return RunWith(Options{}, body) }

// RunWith runs body as one transaction and commits what it did; runs it again, from its start, when
// something that it had read has changed. An error that it returns aborts the transaction and comes
// back. The body may run several times: what it does beside the transaction must bear that.
func RunWith(options Options, body func(tx *Tx) error) error {
	retries := options.Retries
	if retries == 0 {
		retries = defaultRetries
	}
	for loss := 0; ; loss++ {
		err := once(options, body)
		if !errors.Is(err, ErrConflict) {
			return err
		}
		if loss >= retries {
			return fmt.Errorf("%w (%d): %w", ErrRetries, loss+1, err)
		}
		longest := firstPause << min(loss, 10)
		time.Sleep(time.Duration(rand.Int63n(int64(min(longest, longestPause)))))
	}
}

func once(options Options, body func(tx *Tx) error) error {
	tx, err := Begin(options)
	if err != nil {
		return err
	}
	// Also if the body panics.
	defer tx.Abort()
	if err := body(tx); err != nil {
		return err
	}
	return tx.Commit()
}

// Commit makes all changes at once, if everything that was read is still the same.
func (tx *Tx) Commit() error {
	if tx.handle == nil {
		return ErrEnded
	}
	handle := tx.handle
	tx.handle = nil
	runtime.SetFinalizer(tx, nil)
	return call("commit", "", func() int { return int(C.txos_commit(handle)) })
}

// Abort forgets all changes. After a commit or an abort it does nothing.
func (tx *Tx) Abort() {
	if tx.handle != nil {
		C.txos_abort(tx.handle)
		tx.handle = nil
		runtime.SetFinalizer(tx, nil)
	}
}

// Read gives the whole content of a file.
func (tx *Tx) Read(path string) ([]byte, error) {
	var content []byte
	err := tx.on("read", path, func(p *C.char) int {
		var data unsafe.Pointer
		var size C.size_t
		code := int(C.txos_read(tx.handle, p, &data, &size))
		if code >= 0 {
			content = taken(data, size)
		}
		return code
	})
	return content, err
}

// ReadAt gives at most size bytes from offset on. Changes of other parts of the file are no conflict.
func (tx *Tx) ReadAt(path string, offset uint64, size int) ([]byte, error) {
	buffer := make([]byte, max(size, 1))
	count := 0
	err := tx.on("read", path, func(p *C.char) int {
		count = int(C.txos_pread(tx.handle, p, unsafe.Pointer(&buffer[0]), C.size_t(size), C.uint64_t(offset)))
		return count
	})
	if err != nil {
		return nil, err
	}
	return buffer[:count], nil
}

// Write makes data the content of a file, which is made if it is absent.
func (tx *Tx) Write(path string, data []byte) error {
	return tx.on("write", path, func(p *C.char) int {
		return int(C.txos_write(tx.handle, p, start(data), C.size_t(len(data))))
	})
}

// WriteAt writes data into an existing file at offset.
func (tx *Tx) WriteAt(path string, offset uint64, data []byte) error {
	return tx.on("write", path, func(p *C.char) int {
		return int(C.txos_pwrite(tx.handle, p, start(data), C.size_t(len(data)), C.uint64_t(offset)))
	})
}

// Append appends to a file, which is made if it is absent. Two that only append do not conflict.
func (tx *Tx) Append(path string, data []byte) error {
	return tx.on("append", path, func(p *C.char) int {
		return int(C.txos_append(tx.handle, p, start(data), C.size_t(len(data))))
	})
}

// Truncate sets the size of a file.
func (tx *Tx) Truncate(path string, size uint64) error {
	return tx.on("truncate", path, func(p *C.char) int {
		return int(C.txos_truncate(tx.handle, p, C.uint64_t(size)))
	})
}

// Create makes a new, empty file with the permission bits of mode less the umask.
func (tx *Tx) Create(path string, mode fs.FileMode) error {
	return tx.on("create", path, func(p *C.char) int {
		return int(C.txos_create(tx.handle, p, C.uint(mode.Perm())))
	})
}

// Mkdir makes a directory with the permission bits of mode less the umask.
func (tx *Tx) Mkdir(path string, mode fs.FileMode) error {
	return tx.on("mkdir", path, func(p *C.char) int {
		return int(C.txos_mkdir(tx.handle, p, C.uint(mode.Perm())))
	})
}

// Rmdir removes an empty directory.
func (tx *Tx) Rmdir(path string) error {
	return tx.on("rmdir", path, func(p *C.char) int { return int(C.txos_rmdir(tx.handle, p)) })
}

// Remove removes a name that is not of a directory.
func (tx *Tx) Remove(path string) error {
	return tx.on("remove", path, func(p *C.char) int { return int(C.txos_unlink(tx.handle, p)) })
}

// Rename gives an object another name, displacing what has it.
func (tx *Tx) Rename(from, to string) error {
	return tx.onTwo("rename", from, to, func(from, to *C.char) int {
		return int(C.txos_rename(tx.handle, from, to))
	})
}

// RenameNew gives an object another name, which must be free.
func (tx *Tx) RenameNew(from, to string) error {
	return tx.onTwo("rename", from, to, func(from, to *C.char) int {
		return int(C.txos_rename_new(tx.handle, from, to))
	})
}

// Link gives the object at path the further name name.
func (tx *Tx) Link(path, name string) error {
	return tx.onTwo("link", path, name, func(path, name *C.char) int {
		return int(C.txos_link(tx.handle, path, name))
	})
}

// Symlink makes a symbolic link at path that points to target.
func (tx *Tx) Symlink(target, path string) error {
	return tx.onTwo("symlink", target, path, func(target, path *C.char) int {
		return int(C.txos_symlink(tx.handle, target, path))
	})
}

// Readlink says where a symbolic link points.
func (tx *Tx) Readlink(path string) (string, error) {
	target := ""
	err := tx.on("readlink", path, func(p *C.char) int {
		var text *C.char
		code := int(C.txos_readlink(tx.handle, p, &text))
		if code >= 0 {
			target = C.GoString(text)
			C.free(unsafe.Pointer(text))
		}
		return code
	})
	return target, err
}

// Exists says whether there is something. That there is nothing is remembered, too.
func (tx *Tx) Exists(path string) (bool, error) {
	found := 0
	err := tx.on("stat", path, func(p *C.char) int {
		found = int(C.txos_exists(tx.handle, p))
		return found
	})
	return found == 1, err
}

// List gives all names in a directory, sorted.
func (tx *Tx) List(path string) ([]string, error) {
	var names []string
	err := tx.on("list", path, func(p *C.char) int {
		var text *C.char
		var size C.size_t
		count := int(C.txos_list(tx.handle, p, &text, &size))
		if count > 0 {
			joined := bytes.TrimSuffix(taken(unsafe.Pointer(text), size), []byte{0})
			for _, name := range bytes.Split(joined, []byte{0}) {
				names = append(names, string(name))
			}
		} else if count == 0 {
			C.free(unsafe.Pointer(text))
		}
		return count
	})
	return names, err
}

// A Stat is what [Tx.Stat] shows of an object.
type Stat struct {
	// Mode holds type and permission bits, as st_mode of stat(2).
	Mode     uint32
	UID, GID uint32
	Size     uint64
	// Links is the number of names.
	Links uint64
	// Inode is 0 for what the transaction has made.
	Inode   uint64
	ModTime time.Time
}

// Stat gives the attributes of an object, following symbolic links.
func (tx *Tx) Stat(path string) (Stat, error) {
	return tx.stat(path, func(p *C.char, out *C.txos_stat_t) int {
		return int(C.txos_stat(tx.handle, p, out))
	})
}

// Lstat gives the attributes of an object; of a symbolic link itself.
func (tx *Tx) Lstat(path string) (Stat, error) {
	return tx.stat(path, func(p *C.char, out *C.txos_stat_t) int {
		return int(C.txos_lstat(tx.handle, p, out))
	})
}

func (tx *Tx) stat(path string, examine func(*C.char, *C.txos_stat_t) int) (Stat, error) {
	var out C.txos_stat_t
	err := tx.on("stat", path, func(p *C.char) int { return examine(p, &out) })
	if err != nil {
		return Stat{}, err
	}
	return Stat{
		Mode: uint32(out.mode), UID: uint32(out.uid), GID: uint32(out.gid),
		Size: uint64(out.size), Links: uint64(out.nlink), Inode: uint64(out.ino),
		ModTime: time.Unix(int64(out.mtime_sec), int64(out.mtime_nsec)),
	}, nil
}

// Chmod sets the permission bits.
func (tx *Tx) Chmod(path string, mode fs.FileMode) error {
	return tx.on("chmod", path, func(p *C.char) int {
		return int(C.txos_chmod(tx.handle, p, C.uint(mode.Perm())))
	})
}

// Lchown sets owner and group, of a symbolic link itself; -1 leaves one as it is.
func (tx *Tx) Lchown(path string, uid, gid int) error {
	return tx.on("lchown", path, func(p *C.char) int {
		return int(C.txos_lchown(tx.handle, p, C.uint32_t(uid), C.uint32_t(gid)))
	})
}

// Chtimes sets the times of the last access and of the last change; a zero time leaves one as it is.
func (tx *Tx) Chtimes(path string, atime, mtime time.Time) error {
	return tx.on("chtimes", path, func(p *C.char) int {
		var stamps [2]C.txos_time_t
		var given [2]*C.txos_time_t
		for number, moment := range []time.Time{atime, mtime} {
			if !moment.IsZero() {
				stamps[number].sec = C.int64_t(moment.Unix())
				stamps[number].nsec = C.uint32_t(moment.Nanosecond())
				given[number] = &stamps[number]
			}
		}
		return int(C.txos_utimens(tx.handle, p, given[0], given[1]))
	})
}

// Setxattr sets an extended attribute; nil removes it.
func (tx *Tx) Setxattr(path, name string, value []byte) error {
	return tx.onTwo("setxattr", path, name, func(path, name *C.char) int {
		data := start(value)
		if value != nil && data == nil {
			data = unsafe.Pointer(path) // empty, and not absent
		}
		return int(C.txos_setxattr(tx.handle, path, name, data, C.size_t(len(value))))
	})
}

// Getxattr gives the value of an extended attribute.
func (tx *Tx) Getxattr(path, name string) ([]byte, error) {
	var content []byte
	err := tx.onTwo("getxattr", path, name, func(path, name *C.char) int {
		var data unsafe.Pointer
		var size C.size_t
		code := int(C.txos_getxattr(tx.handle, path, name, &data, &size))
		if code >= 0 {
			content = taken(data, size)
		}
		return code
	})
	return content, err
}

// on makes a call on a path.
func (tx *Tx) on(op, path string, body func(path *C.char) int) error {
	if tx.handle == nil {
		return ErrEnded
	}
	text := C.CString(path)
	defer C.free(unsafe.Pointer(text))
	if bytes.IndexByte([]byte(path), 0) >= 0 {
		return &fs.PathError{Op: op, Path: path, Err: fs.ErrInvalid}
	}
	err := call(op, path, func() int { return body(text) })
	runtime.KeepAlive(tx)
	return err
}

func (tx *Tx) onTwo(op, path, other string, body func(path, other *C.char) int) error {
	if bytes.IndexByte([]byte(other), 0) >= 0 {
		return &fs.PathError{Op: op, Path: other, Err: fs.ErrInvalid}
	}
	text := C.CString(other)
	defer C.free(unsafe.Pointer(text))
	return tx.on(op, path, func(path *C.char) int { return body(path, text) })
}

// call makes a call whose message, if it fails, belongs to the thread that made it.
func call(op, path string, body func() int) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if code := body(); code < 0 {
		return failed(code, op, path, C.GoString(C.txos_message()))
	}
	return nil
}

// start is where the bytes are, nil if there are none.
func start(data []byte) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(data)) }

// taken copies what the library gave, and gives its memory back.
func taken(data unsafe.Pointer, size C.size_t) []byte {
	defer C.free(data)
	return append([]byte{}, unsafe.Slice((*byte)(data), int(size))...)
}

"""Transactions."""

from __future__ import annotations

import ctypes
import functools
import os
import random
import stat as stat_module
import time
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import (
    Any,
    Callable,
    ContextManager,
    Iterator,
    List,
    Optional,
    Type,
    TypeVar,
    Union,
    overload,
)

from . import _native
from ._errors import Conflict, RetriesExhausted, error_of
from ._native import library

StrPath = Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"]
T = TypeVar("T")

#: How often a transaction is run again after a conflict, if the caller does not say.
DEFAULT_RETRIES = 100

_FIRST_PAUSE = 20e-6
_LONGEST_PAUSE = 20e-3


@dataclass(frozen=True)
class Stat:
    """What :meth:`Transaction.stat` shows."""

    #: Type and permission bits, as ``st_mode``.
    mode: int
    uid: int
    gid: int
    size: int
    #: Number of names.
    nlink: int
    #: Inode number; 0 for what the transaction has made.
    ino: int
    #: Last change of the content, in nanoseconds since 1970.
    mtime_ns: int

    def is_dir(self) -> bool:
        """Whether it is a directory."""
        return stat_module.S_ISDIR(self.mode)

    def is_file(self) -> bool:
        """Whether it is a regular file."""
        return stat_module.S_ISREG(self.mode)

    def is_symlink(self) -> bool:
        """Whether it is a symbolic link."""
        return stat_module.S_ISLNK(self.mode)


class Transaction:
    """A running transaction; see :func:`transaction`.

    One thread at a time may use it. Paths may be relative: they begin in what was the working directory
    when the transaction began. Calls raise what the plain calls would (``FileNotFoundError`` …), and
    :class:`Conflict` as soon as it is known that the transaction has lost.
    """

    def __init__(self, *, durable: bool = True) -> None:
        """Begins; if not ``durable``, a power cut may undo the commit, as a whole."""
        self._handle: Optional[ctypes.c_void_p] = None
        handle = ctypes.c_void_p()
        flags = 0 if durable else _native.NONDURABLE
        code = library.txos_begin(ctypes.byref(handle), flags)
        if code < 0:
            raise error_of(code, _native.message())
        self._handle = handle

    def read(self, path: StrPath) -> bytes:
        """The whole content of a file."""
        data, size = ctypes.c_void_p(), ctypes.c_size_t()
        self._call(path, library.txos_read, ctypes.byref(data), ctypes.byref(size))
        return _native.take(data, size.value)

    def read_text(self, path: StrPath, encoding: str = "utf-8") -> str:
        """The whole content of a file, decoded."""
        return self.read(path).decode(encoding)

    def read_range(self, path: StrPath, offset: int, length: int) -> bytes:
        """At most ``length`` bytes from ``offset`` on. Changes of other parts are no conflict."""
        if offset < 0 or length < 0:
            raise ValueError("offset and length must not be negative")
        buffer = ctypes.create_string_buffer(max(length, 1))
        count = self._call(path, library.txos_pread, buffer, length, offset)
        return buffer.raw[:count]

    def write(self, path: StrPath, data: bytes) -> None:
        """Makes ``data`` the content of a file, which is made if it is absent."""
        self._call(path, library.txos_write, data, len(data))

    def write_text(self, path: StrPath, text: str, encoding: str = "utf-8") -> None:
        """Makes ``text`` the content of a file, which is made if it is absent."""
        self.write(path, text.encode(encoding))

    def write_range(self, path: StrPath, offset: int, data: bytes) -> None:
        """Writes ``data`` into an existing file at ``offset``."""
        if offset < 0:
            raise ValueError("offset must not be negative")
        self._call(path, library.txos_pwrite, data, len(data), offset)

    def append(self, path: StrPath, data: bytes) -> None:
        """Appends to a file, which is made if it is absent. Two that only append do not conflict."""
        self._call(path, library.txos_append, data, len(data))

    def truncate(self, path: StrPath, size: int) -> None:
        """Sets the size of a file."""
        if size < 0:
            raise ValueError("size must not be negative")
        self._call(path, library.txos_truncate, size)

    def create(self, path: StrPath, mode: int = 0o666) -> None:
        """Makes a new, empty file with ``mode`` less the umask."""
        self._call(path, library.txos_create, mode)

    def mkdir(self, path: StrPath, mode: int = 0o777) -> None:
        """Makes a directory with ``mode`` less the umask."""
        self._call(path, library.txos_mkdir, mode)

    def rmdir(self, path: StrPath) -> None:
        """Removes an empty directory."""
        self._call(path, library.txos_rmdir)

    def remove(self, path: StrPath) -> None:
        """Removes a name that is not of a directory."""
        self._call(path, library.txos_unlink)

    def rename(self, source: StrPath, target: StrPath, *, replace: bool = True) -> None:
        """Gives an object another name; if not ``replace``, one that must be free."""
        call = library.txos_rename if replace else library.txos_rename_new
        self._call(source, call, _encoded(target))

    def link(self, path: StrPath, name: StrPath) -> None:
        """Gives the object at ``path`` the further name ``name``."""
        self._call(path, library.txos_link, _encoded(name))

    def symlink(self, target: StrPath, path: StrPath) -> None:
        """Makes a symbolic link at ``path`` that points to ``target``."""
        code = library.txos_symlink(self._live(), _encoded(target), _encoded(path))
        self._check(code, path)

    def readlink(self, path: StrPath) -> str:
        """Where a symbolic link points."""
        target = ctypes.c_void_p()
        self._call(path, library.txos_readlink, ctypes.byref(target))
        length = len(ctypes.string_at(target))
        return os.fsdecode(_native.take(target, length))

    def exists(self, path: StrPath) -> bool:
        """Whether there is something. That there is nothing is remembered, too."""
        return bool(self._call(path, library.txos_exists))

    def list(self, path: StrPath) -> List[str]:
        """All names in a directory, sorted."""
        names, size = ctypes.c_void_p(), ctypes.c_size_t()
        self._call(path, library.txos_list, ctypes.byref(names), ctypes.byref(size))
        joined = _native.take(names, size.value)
        return [os.fsdecode(name) for name in joined.split(b"\0")[:-1]]

    def stat(self, path: StrPath, *, follow_symlinks: bool = True) -> Stat:
        """The attributes of an object."""
        native = _native.NativeStat()
        call = library.txos_stat if follow_symlinks else library.txos_lstat
        self._call(path, call, ctypes.byref(native))
        return Stat(
            mode=native.mode,
            uid=native.uid,
            gid=native.gid,
            size=native.size,
            nlink=native.nlink,
            ino=native.ino,
            mtime_ns=native.mtime_sec * 1_000_000_000 + native.mtime_nsec,
        )

    def chmod(self, path: StrPath, mode: int) -> None:
        """Sets the permission bits."""
        self._call(path, library.txos_chmod, mode)

    def chown(self, path: StrPath, uid: int = -1, gid: int = -1) -> None:
        """Sets owner and group, of a symbolic link itself; -1 leaves one as it is."""
        self._call(path, library.txos_lchown, uid & 0xFFFFFFFF, gid & 0xFFFFFFFF)

    def utime(
        self,
        path: StrPath,
        *,
        atime_ns: Optional[int] = None,
        mtime_ns: Optional[int] = None,
    ) -> None:
        """Sets times, in nanoseconds since 1970; ``None`` leaves one as it is."""
        self._call(path, library.txos_utimens, _time(atime_ns), _time(mtime_ns))

    def setxattr(self, path: StrPath, name: str, value: bytes) -> None:
        """Sets an extended attribute."""
        self._call(path, library.txos_setxattr, os.fsencode(name), value, len(value))

    def removexattr(self, path: StrPath, name: str) -> None:
        """Removes an extended attribute."""
        self._call(path, library.txos_setxattr, os.fsencode(name), None, 0)

    def getxattr(self, path: StrPath, name: str) -> bytes:
        """The value of an extended attribute."""
        data, size = ctypes.c_void_p(), ctypes.c_size_t()
        self._call(
            path,
            library.txos_getxattr,
            os.fsencode(name),
            ctypes.byref(data),
            ctypes.byref(size),
        )
        return _native.take(data, size.value)

    def commit(self) -> None:
        """Makes all changes at once; raises :class:`Conflict` if what was read has changed."""
        handle, self._handle = self._live(), None
        code = library.txos_commit(handle)
        if code < 0:
            raise error_of(code, _native.message())

    def abort(self) -> None:
        """Forgets all changes. After a commit or an abort it does nothing."""
        handle, self._handle = self._handle, None
        if handle is not None:
            library.txos_abort(handle)

    def __enter__(self) -> Transaction:
        self._live()
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        value: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        if kind is not None:
            self.abort()
        elif self._handle is not None:
            self.commit()

    def __del__(self) -> None:
        self.abort()

    def _live(self) -> ctypes.c_void_p:
        if self._handle is None:
            raise ValueError("the transaction has ended")
        return self._handle

    def _call(self, path: StrPath, call: Callable[..., int], *more: Any) -> int:
        return self._check(call(self._live(), _encoded(path), *more), path)

    @staticmethod
    def _check(code: int, path: StrPath) -> int:
        if code < 0:
            raise error_of(code, _native.message(), os.fsdecode(path))
        return code


def transaction(*, durable: bool = True) -> Transaction:
    """Begins a transaction: ``with txos.transaction() as tx: …`` commits it at the end of the block."""
    return Transaction(durable=durable)


def attempts(
    *, durable: bool = True, retries: int = DEFAULT_RETRIES
) -> Iterator[ContextManager[Transaction]]:
    """Blocks to run until one commits::

        for attempt in txos.attempts():
            with attempt as tx:
                tx.append("log", b"once\\n")
    """
    done = False
    lost: Optional[Conflict] = None

    @contextmanager
    def attempt() -> Iterator[Transaction]:
        nonlocal done, lost
        try:
            with Transaction(durable=durable) as tx:
                yield tx
            done = True
        except Conflict as conflict:
            lost = conflict

    for number in range(retries + 1):
        if number > 0:
            longest = min(_FIRST_PAUSE * 2 ** min(number, 10), _LONGEST_PAUSE)
            time.sleep(random.uniform(0, longest))
        yield attempt()
        if done:
            return
        if lost is None:
            return  # the caller left the block in another way
    message = f"lost {retries + 1} times to changes by others: {lost}"
    raise RetriesExhausted(getattr(lost, "errno", None) or 0, message)


def run(
    body: Callable[[Transaction], T],
    *,
    durable: bool = True,
    retries: int = DEFAULT_RETRIES,
) -> T:
    """Runs ``body(tx)`` as one transaction, again if it has lost, and gives what it returned."""
    for attempt in attempts(durable=durable, retries=retries):
        with attempt as tx:
            result = body(tx)
            tx.commit()
            return result
    raise AssertionError("attempts end with a commit or an exception")


@overload
def transactional(body: Callable[..., T]) -> Callable[..., T]: ...


@overload
def transactional(
    *, durable: bool = True, retries: int = DEFAULT_RETRIES
) -> Callable[[Callable[..., T]], Callable[..., T]]: ...


def transactional(
    body: Optional[Callable[..., T]] = None,
    *,
    durable: bool = True,
    retries: int = DEFAULT_RETRIES,
) -> Any:
    """A decorator: the function is given a transaction as its first argument, and is run again,
    from its start, each time it has lost."""

    def decorate(function: Callable[..., T]) -> Callable[..., T]:
        @functools.wraps(function)
        def wrapped(*arguments: Any, **named: Any) -> T:
            return run(
                lambda tx: function(tx, *arguments, **named), durable=durable, retries=retries
            )

        return wrapped

    return decorate if body is None else decorate(body)


def _encoded(path: StrPath) -> bytes:
    encoded = os.fsencode(path)
    if b"\0" in encoded:
        raise ValueError("a path holds no NUL")
    return encoded


def _time(nanoseconds: Optional[int]) -> Optional[_native.NativeTime]:
    if nanoseconds is None:
        return None
    seconds, rest = divmod(nanoseconds, 1_000_000_000)
    return _native.NativeTime(seconds, rest)

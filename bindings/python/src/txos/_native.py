"""The calls of libtxos (``txos.h``), as Python sees them."""

from __future__ import annotations

import ctypes
import ctypes.util
import os
from pathlib import Path

NONDURABLE = 1


class NativeStat(ctypes.Structure):
    """``txos_stat_t``."""

    _fields_ = [
        ("mode", ctypes.c_uint32),
        ("uid", ctypes.c_uint32),
        ("gid", ctypes.c_uint32),
        ("mtime_nsec", ctypes.c_uint32),
        ("mtime_sec", ctypes.c_int64),
        ("size", ctypes.c_uint64),
        ("nlink", ctypes.c_uint64),
        ("ino", ctypes.c_uint64),
    ]


class NativeTime(ctypes.Structure):
    """``txos_time_t``."""

    _fields_ = [("sec", ctypes.c_int64), ("nsec", ctypes.c_uint32)]


def _open() -> ctypes.CDLL:
    """The library: where ``TXOS_LIBRARY`` says, beside this file (in a wheel), or installed."""
    named = os.environ.get("TXOS_LIBRARY")
    beside = Path(__file__).with_name("libtxos.so")
    for place in filter(None, (named, str(beside) if beside.exists() else None)):
        return ctypes.CDLL(place)
    try:
        return ctypes.CDLL("libtxos.so")
    except OSError as error:
        raise ImportError(
            "libtxos.so is not installed: run `make install` of txos, or set TXOS_LIBRARY to its path"
        ) from error


library = _open()

_tx = ctypes.c_void_p
_path = ctypes.c_char_p
_data = ctypes.c_char_p
_out = ctypes.POINTER(ctypes.c_void_p)
_size = ctypes.POINTER(ctypes.c_size_t)
_int = ctypes.c_int

_SIGNATURES = {
    "txos_message": (ctypes.c_char_p, []),
    "txos_begin": (_int, [_out, ctypes.c_uint]),
    "txos_commit": (_int, [_tx]),
    "txos_abort": (None, [_tx]),
    "txos_read": (_int, [_tx, _path, _out, _size]),
    "txos_pread": (
        ctypes.c_ssize_t,
        [_tx, _path, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint64],
    ),
    "txos_write": (_int, [_tx, _path, _data, ctypes.c_size_t]),
    "txos_pwrite": (_int, [_tx, _path, _data, ctypes.c_size_t, ctypes.c_uint64]),
    "txos_append": (_int, [_tx, _path, _data, ctypes.c_size_t]),
    "txos_truncate": (_int, [_tx, _path, ctypes.c_uint64]),
    "txos_create": (_int, [_tx, _path, ctypes.c_uint]),
    "txos_mkdir": (_int, [_tx, _path, ctypes.c_uint]),
    "txos_rmdir": (_int, [_tx, _path]),
    "txos_unlink": (_int, [_tx, _path]),
    "txos_rename": (_int, [_tx, _path, _path]),
    "txos_rename_new": (_int, [_tx, _path, _path]),
    "txos_link": (_int, [_tx, _path, _path]),
    "txos_symlink": (_int, [_tx, _path, _path]),
    "txos_readlink": (_int, [_tx, _path, _out]),
    "txos_exists": (_int, [_tx, _path]),
    "txos_list": (ctypes.c_ssize_t, [_tx, _path, _out, _size]),
    "txos_stat": (_int, [_tx, _path, ctypes.POINTER(NativeStat)]),
    "txos_lstat": (_int, [_tx, _path, ctypes.POINTER(NativeStat)]),
    "txos_chmod": (_int, [_tx, _path, ctypes.c_uint]),
    "txos_lchown": (_int, [_tx, _path, ctypes.c_uint32, ctypes.c_uint32]),
    "txos_utimens": (
        _int,
        [_tx, _path, ctypes.POINTER(NativeTime), ctypes.POINTER(NativeTime)],
    ),
    "txos_setxattr": (_int, [_tx, _path, _path, _data, ctypes.c_size_t]),
    "txos_getxattr": (_int, [_tx, _path, _path, _out, _size]),
}

for _name, (_result, _arguments) in _SIGNATURES.items():
    _function = getattr(library, _name)
    _function.restype = _result
    _function.argtypes = _arguments

_free = ctypes.CDLL(None).free
_free.restype = None
_free.argtypes = [ctypes.c_void_p]


def message() -> str:
    """What the last failed call of this thread has to say."""
    text = library.txos_message()
    return text.decode("utf-8", "replace") if text else ""


def take(pointer: ctypes.c_void_p, length: int) -> bytes:
    """The bytes that the library gave, whose memory is given back."""
    try:
        return ctypes.string_at(pointer, length)
    finally:
        _free(pointer)

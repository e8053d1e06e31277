"""What can go wrong, as exceptions."""

from __future__ import annotations

import errno
import os
from typing import Optional


class TxosError(OSError):
    """A transaction, or the state directory, cannot be used; ``strerror`` says why and what to do."""


class Conflict(TxosError):
    """Something that the transaction had read was changed by someone else. Nothing was changed; the
    transaction may be run again."""


class RetriesExhausted(Conflict):
    """The transaction lost so many times that it was not run again."""


def error_of(code: int, message: str, path: Optional[str] = None) -> OSError:
    """The exception for the negative error number ``code``.

    An error that a plain call would have is the exception that Python has for it
    (``FileNotFoundError`` and so on).
    """
    number = -code
    if number == errno.ECANCELED:
        return Conflict(number, message)
    if number in (errno.EIO, errno.EPERM) and path is None:
        return TxosError(number, message)
    if path is None:
        return TxosError(number, message or os.strerror(number))
    return OSError(number, os.strerror(number), path)

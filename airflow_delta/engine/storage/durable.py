"""Make what was written to a file system outlast a crash: bytes, and the names that lead to them.

All functions raise ``OSError``, as the calls that they make.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

__all__ = ["make_directories", "sync_directory"]

_SYNC_UNSUPPORTED = frozenset({errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EBADF})


def make_directories(directory: Path) -> None:
    """Make a directory and those above it, each of them safe from a crash."""
    missing = []
    while not directory.is_dir():
        missing.append(directory)
        directory = directory.parent
    for child in reversed(missing):
        child.mkdir(exist_ok=True)
        sync_directory(child.parent)


def sync_directory(directory: str | Path, *, within: int | None = None) -> None:
    """Have the names in a directory written through to the disk, as far as the file system can.

    Args:
        directory: its path.
        within: the descriptor of the directory where a relative path begins; the working directory
            unless given.
    """
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY, dir_fd=within)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some mounted file systems keep names safe by themselves and refuse to sync a directory.
        if error.errno not in _SYNC_UNSUPPORTED:
            raise
    finally:
        os.close(descriptor)

"""Make file system changes survive a crash: created directories, and new names in a directory.

All functions raise the ``OSError`` of the operating system.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

__all__ = ["make_directories", "sync_directory"]

_SYNC_UNSUPPORTED = frozenset({errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EBADF})


def make_directories(directory: Path) -> None:
    """Create a directory and its missing parents, each of them safe from a crash."""
    missing = []
    while not directory.is_dir():
        missing.append(directory)
        directory = directory.parent
    for child in reversed(missing):
        child.mkdir(exist_ok=True)
        sync_directory(child.parent)


def sync_directory(directory: str | Path, *, within: int | None = None) -> None:
    """Write the names in a directory through to the disk, if the file system supports it.

    Args:
        directory: the path of the directory.
        within: the descriptor of the directory that a relative path starts from; by default the working
            directory.
    """
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY, dir_fd=within)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some mounted file systems write names through by themselves, and refuse to sync a directory.
        if error.errno not in _SYNC_UNSUPPORTED:
            raise
    finally:
        os.close(descriptor)

"""The folder of one submission of a Spark job, and what becomes of folders whose task was killed.

A folder is locked for as long as the task, or the spark-submit that it has started, is there: the system
takes the lock away from processes that are killed. So a folder that nobody has locked is left over. Numbers
of processes would say less: they are given out again, and mean nothing in another container.
"""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

__all__ = ["LEFT_AFTER_SECONDS", "PREFIX", "JobFolder", "job_folder", "sweep_job_folders"]

PREFIX = "airflow-delta-job-"
"""What the names of the folders begin with."""

LEFT_AFTER_SECONDS = 3600.0
"""A folder that was changed more recently isn't looked at: it may not be locked yet."""

_LOCK = "in-use.lock"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class JobFolder:
    """The folder of a submission.

    Attributes:
        path: where it is.
        lock: the file descriptor that holds its lock, for the processes of the job to inherit.
    """

    path: Path
    lock: int


@contextmanager
def job_folder() -> Iterator[JobFolder]:
    """Make a folder that no other user can read, and delete it at the end; delete left-over ones before."""
    sweep_job_folders()
    with tempfile.TemporaryDirectory(prefix=PREFIX) as directory:
        path = Path(directory)
        lock = os.open(path / _LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            # A file system without locks: the folder is never taken for left over there.
            with suppress(OSError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield JobFolder(path, lock)
        finally:
            os.close(lock)


def sweep_job_folders() -> list[Path]:
    """Delete the folders of submissions that have ended without deleting them.

    Only this user's own, in the directory for temporary files; symbolic links aren't followed. What
    can't be deleted is logged and left.

    :returns: the folders that were deleted.
    """
    try:
        with os.scandir(tempfile.gettempdir()) as entries:
            found = [Path(entry.path) for entry in entries if entry.name.startswith(PREFIX)]
    except OSError as error:
        _log.warning("left-over folders of Spark jobs can't be listed: %s", error)
        return []
    return [folder for folder in found if _delete_if_left(folder)]


def _delete_if_left(folder: Path) -> bool:
    try:
        directory = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return False  # a link, a file, another user's, or gone by now
    try:
        state = os.fstat(directory)
        if state.st_uid != os.geteuid() or time.time() - state.st_mtime < LEFT_AFTER_SECONDS:
            return False
        with _free_lock(directory) as is_free:
            if not is_free:
                return False
            # Locked while it is deleted: no other task begins with the same.
            shutil.rmtree(folder)
    except OSError as error:
        _log.warning("the left-over folder %s can't be deleted: %s", folder, error)
        return False
    finally:
        os.close(directory)
    _log.info("deleted %s, which a Spark job that was killed has left", folder)
    return True


@contextmanager
def _free_lock(directory: int) -> Iterator[bool]:
    """Take the lock of a folder; False where it has none, or somebody has it."""
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        lock = os.open(_LOCK, flags, dir_fd=directory)
    except OSError:
        yield False  # not a folder that was made here
        return
    try:
        yield stat.S_ISREG(os.fstat(lock).st_mode) and _is_locked_now(lock)
    finally:
        os.close(lock)


def _is_locked_now(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False  # in use, or a file system without locks
    return True

"""Create the folder of a Spark job's submission, and delete the folders of killed tasks.

A folder is locked as long as the task, or its spark-submit, runs; the operating system releases the
locks of killed processes. So an unlocked folder is left over. Process ids wouldn't work: they are
reused, and mean nothing in another container.
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
"""The prefix of the folders' names."""

LEFT_AFTER_SECONDS = 3600.0
"""The age from which a folder may be left over; a younger one may not be locked yet."""

_LOCK = "in-use.lock"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class JobFolder:
    """The folder of a submission.

    Attributes:
        path: its path.
        lock: the file descriptor with its lock, which the processes of the job inherit.
    """

    path: Path
    lock: int


@contextmanager
def job_folder() -> Iterator[JobFolder]:
    """Create a private folder and delete it at the end; before that, delete left-over folders."""
    sweep_job_folders()
    with tempfile.TemporaryDirectory(prefix=PREFIX) as directory:
        path = Path(directory)
        lock = os.open(path / _LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            # On a file system without locks, folders are never considered left over.
            with suppress(OSError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield JobFolder(path, lock)
        finally:
            os.close(lock)


def sweep_job_folders() -> list[Path]:
    """Delete the folders that killed submissions have left.

    Only folders of this user in the directory for temporary files are deleted; symbolic links
    aren't followed. If one can't be deleted, this is logged.

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
            # Locked during the deletion, so that no other task deletes it as well.
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
    """Acquire the lock of a folder; False if it has none, or another process has it."""
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

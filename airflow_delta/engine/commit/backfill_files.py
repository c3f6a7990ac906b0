"""The files of un-backfilled commits: written under ``_commits``, and copied to their place in the log.

managed-commits.md, "Commit Files" and "Commit Backfills". Nothing here asks whether a commit counts; that
is for the owner, and whoever calls has asked it. A commit whose table was given back to the file system
before it was backfilled can be copied without the owner too, by anybody.

**Sequential.** A commit is copied when the one before it is there. So a version in the log tells that all
versions before it are in the log, or were.

**Never over another file.** A copy is put-if-absent. Where a file is there already it is compared: that
it holds the same bytes is the rule, because any number of clients may backfill at once; that it doesn't
means that somebody has written to the log without asking the owner, and that only a human can decide.

**Safe to break off.** What was copied stays, and a repetition goes on behind it. A put whose answer was
lost is settled by reading the file; a request that arrives late writes the bytes that belong there.

A store without put-if-absent is looked at before it is written to. Two clients that look at the same time
both write, and write the same; somebody who writes to the log without asking the owner could be overwritten
there, which is what such a store does to every table.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from types import MappingProxyType
from zlib import crc32

from airflow_delta.engine.errors import (
    CorruptLogError,
    InvalidArgumentError,
    ObjectExistsError,
    ObjectNotFoundError,
    StorageError,
    UnsafeStorageError,
)
from airflow_delta.engine.log.commit_file import check_ratified, is_as_ratified
from airflow_delta.engine.log.files import (
    UnbackfilledCommit,
    commit_path,
    unbackfilled_commit_path,
)
from airflow_delta.engine.log.listing import list_log
from airflow_delta.engine.storage.base import Storage

__all__ = [
    "backfill_commits",
    "check_copies",
    "is_backfilled",
    "is_whole",
    "newest_in_log",
    "write_unbackfilled",
]

_NAMES = 4
"""How many names are tried; that even one of them is taken is next to impossible."""

_BATCH_FILES, _BATCH_BYTES = 64, 16 * 1024 * 1024
"""So much is read ahead of the copying, which goes one by one."""


def write_unbackfilled(storage: Storage, version: int, data: bytes) -> UnbackfilledCommit:
    """Write a commit file that is no version yet.

    Its name is unique, so that it takes no put-if-absent of the store.

    Args:
        storage: where the table is.
        version: the version that it is to be.
        data: the whole commit file.

    Returns:
        The file. Its modification time is by the clock here; the times of such files mean nothing, which
        is why managed tables have in-commit timestamps.

    Raises:
        StorageError: the store failed. If a file was written, nobody knows of it.
    """
    failure: ObjectExistsError | None = None
    for _ in range(_NAMES):
        name = str(uuid.uuid4())
        path = unbackfilled_commit_path(version, name)
        try:
            if not _put_if_absent(storage, path, data):
                storage.replace(path, data)
        except ObjectExistsError as error:
            # Somebody's file, or ours: a client that repeats a request by itself finds its own.
            failure = error
        else:
            now_ms = time.time_ns() // 1_000_000
            return UnbackfilledCommit(version, name, path, len(data), now_ms, crc32(data))
    assert failure is not None
    raise failure


def backfill_commits(
    storage: Storage,
    commits: Sequence[UnbackfilledCommit],
    *,
    contents: Mapping[str, bytes] = MappingProxyType({}),
    on_copied: Callable[[int], object] | None = None,
) -> None:
    """Copy ratified commits to their place in the log, one after the other.

    Args:
        storage: where the table is.
        commits: ratified commits, ascending without a gap, of which the first follows one that is
            backfilled.
        contents: the bytes of commits by path, as far as the caller has them.
        on_copied: called with each version as soon as it is in the log, so that what was done is known
            even if an error ends it.

    Raises:
        InvalidArgumentError: the commits have a gap.
        CorruptLogError: the log has another file in the place of a commit; or the file of a commit is
            gone, or isn't whole, and the log doesn't have it. Facts: version, path.
        StorageError: the store failed.
    """
    _check_order(commits, table=storage.root)
    for batch in _batches(commits):
        for commit, data in _read(storage, batch, contents):
            if data is None:
                _check_gone(storage, commit)
            else:
                _copy(storage, commit, data)
            if on_copied is not None:
                on_copied(commit.version)


def check_copies(storage: Storage, commits: Iterable[UnbackfilledCommit]) -> int | None:
    """Make sure that the log has ratified commits as they are, as far as it has them.

    Args:
        storage: where the table is.
        commits: ratified commits, ascending without a gap.

    Returns:
        The newest of their versions that is in the log; None where none is.

    Raises:
        CorruptLogError: the log has another file in the place of a commit. Facts: version, path.
        StorageError: the store failed.
    """
    newest = None
    for commit in commits:
        copy = _content(storage, commit_path(commit.version))
        if copy is None:
            break
        ratified = _content(storage, commit.path)
        if ratified is not None:
            _check_same(storage, commit, ratified, copy)
        newest = commit.version
    return newest


def is_backfilled(storage: Storage, version: int) -> bool:
    """Whether the log has a version.

    Raises:
        StorageError: the store failed.
    """
    return _exists(storage, commit_path(version))


def is_whole(storage: Storage, commit: UnbackfilledCommit) -> bool:
    """Whether the file of an un-backfilled commit is there, as it was ratified.

    Raises:
        StorageError: the store failed.
    """
    content = _content(storage, commit.path)
    return content is not None and is_as_ratified(commit, content)


def newest_in_log(storage: Storage, start: int) -> int | None:
    """The newest version that the log has, by its commit or a checkpoint.

    Where that isn't below a version, the log has the version, or had it before it was cleaned up: of a log
    the oldest files go first, and never the newest.

    Args:
        storage: where the table is.
        start: the first version of interest.

    Returns:
        The version; None where the log has none from ``start`` on.

    Raises:
        StorageError: the store failed.
    """
    return list_log(storage, start=start).latest


def _check_order(commits: Sequence[UnbackfilledCommit], *, table: str) -> None:
    for before, after in pairwise(commits):
        if after.version != before.version + 1:
            raise InvalidArgumentError(
                f"version {after.version} can't be backfilled after {before.version}: commits are "
                "backfilled one after the other, without a gap",
                table=table,
            )


def _batches(commits: Sequence[UnbackfilledCommit]) -> Iterator[list[UnbackfilledCommit]]:
    batch: list[UnbackfilledCommit] = []
    size = 0
    for commit in commits:
        if batch and (len(batch) == _BATCH_FILES or size + commit.size > _BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(commit)
        size += commit.size
    if batch:
        yield batch


def _read(
    storage: Storage, batch: Sequence[UnbackfilledCommit], contents: Mapping[str, bytes]
) -> Iterator[tuple[UnbackfilledCommit, bytes | None]]:
    """Each commit with its bytes, None where its file is gone."""
    missing = [commit.path for commit in batch if commit.path not in contents]
    found = dict(zip(missing, storage.read_many(missing), strict=True)) if missing else {}
    for commit in batch:
        data = contents[commit.path] if commit.path in contents else found[commit.path]
        if data is not None:
            check_ratified(commit, data, path=commit.path, table=storage.root)
        yield commit, data


def _copy(storage: Storage, commit: UnbackfilledCommit, data: bytes) -> None:
    path = commit_path(commit.version)
    try:
        _create(storage, path, data)
    except StorageError:
        # There is a file, or the answer was lost: what is there decides.
        copy = _content(storage, path)
        if copy is None:
            raise
        _check_same(storage, commit, data, copy)


def _create(storage: Storage, path: str, data: bytes) -> None:
    """Write a file that isn't there, as exclusively as the store can."""
    if _put_if_absent(storage, path, data):
        return
    if _exists(storage, path):
        raise ObjectExistsError(
            f"create {path!r}: there is such an object already", table=storage.root, path=path
        )
    storage.replace(path, data)


def _put_if_absent(storage: Storage, path: str, data: bytes) -> bool:
    """Whether it was done; False where the store can't, and nothing was written."""
    if not storage.capabilities.put_if_absent:
        return False
    try:
        storage.create(path, data)
    except UnsafeStorageError:
        # Some stores promise it, and refuse when it is tried.
        return False
    return True


def _check_same(storage: Storage, commit: UnbackfilledCommit, ratified: bytes, copy: bytes) -> None:
    path = commit_path(commit.version)
    if copy != ratified:
        raise CorruptLogError(
            f"{path} isn't the commit that the owner of the table has ratified as version "
            f"{commit.version}, which is {commit.path}: somebody has written to the log without asking "
            "the owner. Stop them, compare the two files, and move the one in the log away if it is the "
            "ratified one that counts",
            table=storage.root,
            version=commit.version,
            path=path,
            ratified=commit.path,
        )


def _check_gone(storage: Storage, commit: UnbackfilledCommit) -> None:
    """A ratified file may only be gone where the log has it: others backfill and clean up as well."""
    path = commit_path(commit.version)
    if not _exists(storage, path) and newest_in_log(storage, commit.version) is None:
        raise CorruptLogError(
            f"{commit.path}, which the owner of the table has ratified as version {commit.version}, is "
            f"gone, and {path} isn't there: put one of them back from a backup",
            table=storage.root,
            version=commit.version,
            path=commit.path,
        )


def _content(storage: Storage, path: str) -> bytes | None:
    try:
        return storage.read(path)
    except ObjectNotFoundError:
        return None


def _exists(storage: Storage, path: str) -> bool:
    try:
        storage.head(path)
    except ObjectNotFoundError:
        return False
    return True

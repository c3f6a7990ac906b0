"""The files of un-backfilled commits: write them under ``_commits``, and copy them into the log.

Only the commit owner knows which of these files are versions. Callers ask it first; this module doesn't. It
also serves a table that was given back to the file system before its last commit was backfilled.

* Backfills are sequential: a commit is copied after the one before it. So a version in the log proves that
  all versions before it are in the log, or were.
* A copy never overwrites a file. If the file exists, it must have the same bytes.
* An interrupted backfill is continued by the next one. If a put fails, the file is read to see what
  happened.

Spec: RFC managed-commits, "Commit Files" and "Commit Backfills".
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from types import MappingProxyType
from zlib import crc32

from airflow_delta.engine import clock
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
from airflow_delta.engine.progress import report_progress
from airflow_delta.engine.storage.base import Storage, exists

__all__ = [
    "backfill_commits",
    "check_copies",
    "find_newest_version",
    "is_backfilled",
    "is_intact",
    "write_unbackfilled",
]

_MAX_NAMES = 4
"""The number of names that are tried. It is almost impossible that even one of them is taken."""

_BATCH_FILES, _BATCH_BYTES = 64, 16 * 1024 * 1024
"""The number and size of files that are read ahead; they are copied one by one."""


def write_unbackfilled(storage: Storage, version: int, data: bytes) -> UnbackfilledCommit:
    """Write the file of a commit that isn't ratified yet.

    Its name is unique, so it also works on a store without put-if-absent.

    Args:
        storage: the table's storage.
        version: the version that the commit will be.
        data: the whole commit file.

    Returns:
        The file. Its modification time is that of the local clock. Nobody relies on it, because managed
        tables have in-commit timestamps.

    Raises:
        StorageError: the store failed. If a file was written, it isn't referenced anywhere.
    """
    failure: ObjectExistsError | None = None
    for _ in range(_MAX_NAMES):
        name = str(uuid.uuid4())
        path = unbackfilled_commit_path(version, name)
        try:
            if not _put_if_absent(storage, path, data):
                storage.replace(path, data)
        except ObjectExistsError as error:
            # It may be our own file, if the store's client has repeated the request.
            failure = error
        else:
            now_ms = clock.now_ms()
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
    """Copy ratified commits into the log, one after the other.

    Args:
        storage: the table's storage.
        commits: ratified commits, ascending without a gap. The version before the first one is backfilled.
        contents: the bytes of commits by path, if the caller has them.
        on_copied: called with each version as soon as it is in the log. So the caller knows what was done
            even if an error follows.

    Raises:
        InvalidArgumentError: the commits have a gap.
        CorruptLogError: the log has another file for a version; or the file of a commit is gone or damaged,
            and the log doesn't have the version. Facts: version, path.
        StorageError: the store failed.
    """
    _check_order(commits, table=storage.root)
    with report_progress("backfill", "commits", len(commits)) as reporter:
        for batch in _split_into_batches(commits):
            for commit, data in _read_batch(storage, batch, contents):
                if data is None:
                    _check_gone(storage, commit)
                else:
                    _copy(storage, commit, data)
                if on_copied is not None:
                    on_copied(commit.version)
                reporter.advance(1)


def check_copies(storage: Storage, commits: Iterable[UnbackfilledCommit]) -> int | None:
    """Make sure that the copies of ratified commits in the log have the same bytes.

    Args:
        storage: the table's storage.
        commits: ratified commits, ascending without a gap.

    Returns:
        The newest of their versions that is in the log; None if none is.

    Raises:
        CorruptLogError: the log has another file for a version. Facts: version, path.
        StorageError: the store failed.
    """
    newest = None
    for commit in commits:
        copy = _read_or_none(storage, commit_path(commit.version))
        if copy is None:
            break
        ratified = _read_or_none(storage, commit.path)
        if ratified is not None:
            _check_same(storage, commit, ratified, copy)
        newest = commit.version
    return newest


def is_backfilled(storage: Storage, version: int) -> bool:
    """Whether the log has a version.

    Raises:
        StorageError: the store failed.
    """
    return exists(storage, commit_path(version))


def is_intact(storage: Storage, commit: UnbackfilledCommit) -> bool:
    """Whether the file of an un-backfilled commit exists and is unchanged since it was ratified.

    Raises:
        StorageError: the store failed.
    """
    content = _read_or_none(storage, commit.path)
    return content is not None and is_as_ratified(commit, content)


def find_newest_version(storage: Storage, start: int) -> int | None:
    """Return the newest version that the log has, as a commit or a checkpoint.

    The log has this version and all versions before it, or had them before metadata cleanup: a cleanup
    deletes the oldest files first, and never the newest.

    Args:
        storage: the table's storage.
        start: the first version to look for.

    Returns:
        The version; None if the log has none from ``start`` on.

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


def _split_into_batches(
    commits: Sequence[UnbackfilledCommit],
) -> Iterator[list[UnbackfilledCommit]]:
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


def _read_batch(
    storage: Storage, batch: Sequence[UnbackfilledCommit], contents: Mapping[str, bytes]
) -> Iterator[tuple[UnbackfilledCommit, bytes | None]]:
    """Yield each commit with its bytes; None if its file is gone."""
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
        # The file exists, or the answer was lost. The content of the file decides.
        copy = _read_or_none(storage, path)
        if copy is None:
            raise
        _check_same(storage, commit, data, copy)


def _create(storage: Storage, path: str, data: bytes) -> None:
    """Write a file that doesn't exist, as exclusively as the store can."""
    if _put_if_absent(storage, path, data):
        return
    # Without put-if-absent, two clients may both see no file and both write. They write the same bytes. But
    # a writer that bypasses the owner can be overwritten here, as in any other table on such a store.
    if exists(storage, path):
        raise ObjectExistsError(
            f"create {path!r}: there is such an object already", table=storage.root, path=path
        )
    storage.replace(path, data)


def _put_if_absent(storage: Storage, path: str, data: bytes) -> bool:
    """Return whether the file was created; False if the store has no put-if-absent."""
    if not storage.capabilities.put_if_absent:
        return False
    try:
        storage.create(path, data)
    except UnsafeStorageError:
        # Some stores claim the capability, and refuse when it is used.
        return False
    return True


def _check_same(storage: Storage, commit: UnbackfilledCommit, ratified: bytes, copy: bytes) -> None:
    path = commit_path(commit.version)
    if copy != ratified:
        raise CorruptLogError(
            f"{path} isn't the commit that the owner of the table has ratified as version "
            f"{commit.version}, which is {commit.path}: another writer has written to the log without "
            "asking the owner. Stop that writer and compare the two files; if the ratified one is right, "
            "move the one in the log away",
            table=storage.root,
            version=commit.version,
            path=path,
            ratified=commit.path,
        )


def _check_gone(storage: Storage, commit: UnbackfilledCommit) -> None:
    """Make sure that a missing ratified file is in the log: other clients backfill and clean up, too."""
    path = commit_path(commit.version)
    if not exists(storage, path) and find_newest_version(storage, commit.version) is None:
        raise CorruptLogError(
            f"{commit.path}, which the owner of the table has ratified as version {commit.version}, is "
            f"gone, and {path} doesn't exist: put one of them back from a backup",
            table=storage.root,
            version=commit.version,
            path=commit.path,
        )


def _read_or_none(storage: Storage, path: str) -> bytes | None:
    try:
        return storage.read(path)
    except ObjectNotFoundError:
        return None

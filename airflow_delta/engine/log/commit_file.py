"""Read commits, or only their ``commitInfo``.

History, commit timestamps and retries need a single line of a commit, which may have a million.
With in-commit timestamps the ``commitInfo`` must be the first line; without them it usually is. So
the start of the file is read first, and the rest only if the line isn't there. When many commits
are read, those known to be small are read whole, in batches. Lines of other kinds aren't parsed, so
that an unknown action never costs a table its history.

Spec: PROTOCOL.md, "Commit Provenance Information"; RFC in-commit-timestamps.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, TypeAlias
from zlib import crc32

from airflow_delta.engine.errors import CorruptLogError, ObjectNotFoundError
from airflow_delta.engine.log.files import (
    CompactedCommits,
    LogCommit,
    UnbackfilledCommit,
    commit_path,
)
from airflow_delta.engine.model.line_locations import larger_than_memory
from airflow_delta.engine.progress import report_progress
from airflow_delta.engine.remedies import PUT_FILE_BACK

if TYPE_CHECKING:
    from airflow_delta.engine.storage.base import Storage

__all__ = [
    "check_ratified",
    "is_as_ratified",
    "read_commit_info",
    "read_commit_infos",
    "read_commits",
]

_Found: TypeAlias = tuple[int, Mapping[str, Any] | None]

_HEAD = 4096
"""Bytes of the first read. A commitInfo is rarely longer, even with operation metrics."""

_COMMIT_INFO = b'"commitInfo"'

_GROWTH = 8
_SMALL = 64 * 1024
"""A commit of at most this size is read whole, in a single request."""

_BATCH = 64
"""Small commits that are read at once. It bounds their memory."""

_THREADS = 8
"""Starts of files that are read at once from a remote store."""


def read_commit_info(
    storage: Storage, version: int, *, path: str | None = None
) -> Mapping[str, Any] | None:
    """Read the ``commitInfo`` of one commit, as it is in the log.

    Args:
        storage: the table's storage.
        version: the version of the commit.
        path: the path of an un-backfilled commit. If it has been backfilled since and the file is
            gone, its copy in the log is read.

    Returns:
        The fields; None if the commit has no ``commitInfo``.

    Raises:
        ObjectNotFoundError: there is no such commit, or no longer.
        CorruptLogError: the commit is empty, begins with a long line with NUL characters, or
            its ``commitInfo`` is broken.
        StorageError: the store failed.
    """
    path = commit_path(version) if path is None else path
    length = _HEAD
    try:
        data = storage.read(path, start=0, length=length)
    except ObjectNotFoundError:
        if path == commit_path(version):
            raise
        return read_commit_info(storage, version)
    while b"\n" not in data and len(data) == length:
        if b"\0" in data:
            # A hole in a file may be longer than memory, and isn't worth reading to its end.
            raise _broken("has NUL characters, which JSON excludes", version, path, 1, storage.root)
        length *= _GROWTH
        data = storage.read(path, start=0, length=length)
    whole = len(data) < length
    head = data if whole else data[: data.rfind(b"\n") + 1]
    info = _find(head, version=version, path=path, table=storage.root)
    if info is None and not whole:
        data = storage.read(path)
        info = _find(data, version=version, path=path, table=storage.root)
    return info


def read_commits(
    storage: Storage, commits: Sequence[LogCommit | CompactedCommits]
) -> list[bytes | None]:
    """Read the contents of commits, in parallel where that helps; None for a commit that is gone.

    An un-backfilled commit may have been backfilled since, and its file deleted. Then it is read
    from the log.

    Args:
        storage: the table's storage.
        commits: commits, and compactions that replace commits.

    Raises:
        CorruptLogError: an un-backfilled commit isn't what its owner has ratified.
        StorageError: the store failed.
    """
    contents = storage.read_many([commit.path for commit in commits])
    for index, (commit, content) in enumerate(zip(commits, contents, strict=True)):
        if not isinstance(commit, UnbackfilledCommit):
            continue
        path = commit.path
        if content is None:
            path = commit_path(commit.version)
            [content] = storage.read_many([path])
            contents[index] = content
        if content is not None:
            check_ratified(commit, content, path=path, table=storage.root)
    return contents


def check_ratified(commit: UnbackfilledCommit, content: bytes, *, path: str, table: str) -> None:
    """Refuse the content of a commit that isn't what its owner has ratified.

    A file that was cut off at the end of a line is still a valid commit, with fewer actions. Its
    size shows the damage, which every owner records; so does its checksum, which our owners record.

    Args:
        commit: the commit, with the size and the checksum that its owner has recorded.
        content: all of its file, or of the copy in the log.
        path: the path of that file.
        table: the table's location, for errors.

    Raises:
        CorruptLogError: they differ. Facts: version, path, expected and found (the size in bytes
            and the CRC-32, which is None if the owner has recorded none).
    """
    if is_as_ratified(commit, content):
        return
    expected, found = (commit.size, commit.crc32), (len(content), crc32(content))
    what = (
        f"has {found[0]:,} bytes, expected {expected[0]:,}"
        if found[0] != expected[0]
        else f"has the CRC-32 {found[1]}, expected {expected[1]}"
    )
    raise CorruptLogError(
        f"{path}, which the commit owner has ratified as version {commit.version}, {what}: it was cut off, "
        "or changed since. Put the file back from a backup; if that can't be done, have the owner "
        "give that version up "
        "(`airflow-delta commits --accept-log`)",
        table=table,
        version=commit.version,
        path=path,
        expected=expected,
        found=found,
    )


def is_as_ratified(commit: UnbackfilledCommit, content: bytes) -> bool:
    """Whether the content of a commit has the size and the checksum that its owner has recorded."""
    return len(content) == commit.size and commit.crc32 in (None, crc32(content))


def read_commit_infos(
    storage: Storage,
    versions: Sequence[int],
    *,
    paths: Mapping[int, str] | None = None,
    sizes: Mapping[int, int] | None = None,
) -> dict[int, Mapping[str, Any] | None]:
    """Read the ``commitInfo`` of many commits, in parallel where that helps.

    Args:
        storage: the table's storage.
        versions: the versions of the commits.
        paths: by version, the paths of un-backfilled commits.
        sizes: by version, the sizes of commits in bytes, as far as a listing has shown them.

    Returns:
        By version, in the order of ``versions``: the fields, or None if a commit has no
        ``commitInfo``. Versions whose commit is gone are left out.

    Raises:
        CorruptLogError: a commit has zero bytes, or its ``commitInfo`` is broken.
        StorageError: the store failed.
    """
    files = {version: (paths or {}).get(version) or commit_path(version) for version in versions}
    known = sizes or {}
    small = {v: path for v, path in files.items() if known.get(v, _SMALL + 1) <= _SMALL}
    large = {v: path for v, path in files.items() if v not in small}
    found = chain(_read_whole(storage, small), _read_heads(storage, large))
    with report_progress("read commits", "commits", len(files)) as reporter:
        infos = dict(reporter.count(found))
    return {version: infos[version] for version in files if version in infos}


def _read_whole(storage: Storage, files: Mapping[int, str]) -> Iterator[_Found]:
    """Read the ``commitInfo`` of small commits; those that are gone are left out."""
    remaining = iter(files.items())
    while batch := [*islice(remaining, _BATCH)]:
        contents = storage.read_many([path for _, path in batch])
        for (version, path), data in zip(batch, contents, strict=True):
            if data is not None:
                yield version, _find(data, version=version, path=path, table=storage.root)
            elif path != commit_path(version):
                yield from _read_heads(storage, {version: commit_path(version)})


def _read_heads(storage: Storage, files: Mapping[int, str]) -> Iterator[_Found]:
    """Read the ``commitInfo`` of larger commits; those that are gone are left out."""
    read = partial(_read_head, storage)
    if not storage.capabilities.remote or len(files) < 2:
        yield from filter(None, map(read, files.items()))
        return
    with ThreadPoolExecutor(_THREADS) as pool:
        yield from filter(None, pool.map(read, files.items()))


def _read_head(storage: Storage, file: tuple[int, str]) -> _Found | None:
    version, path = file
    try:
        return version, read_commit_info(storage, version, path=path)
    except ObjectNotFoundError:
        return None


def _find(data: bytes, *, version: int, path: str, table: str) -> Mapping[str, Any] | None:
    """The ``commitInfo`` among the lines of a commit, or of its beginning."""
    if not data:
        raise CorruptLogError(
            f"the commit {path} has zero bytes: its writer died while writing, or the store lost "
            f"it; {PUT_FILE_BACK}",
            table=table,
            version=version,
            path=path,
        )
    # Statistics and paths may contain the word, too. Parsing such a line costs little.
    position = data.find(_COMMIT_INFO)
    while position >= 0:
        start, end = data.rfind(b"\n", 0, position) + 1, data.find(b"\n", position)
        number = data.count(b"\n", 0, start) + 1
        try:
            action = json.loads(data[start : end if end >= 0 else None])
        except (ValueError, RecursionError) as error:
            raise _broken(
                f"has a commitInfo that is not valid JSON ({error})", version, path, number, table
            ) from error
        except MemoryError as error:
            raise larger_than_memory(len(data), version=version, path=path, table=table) from error
        info = action.get("commitInfo") if isinstance(action, dict) else None
        if isinstance(info, dict):
            return info
        if info is not None:
            found = type(info).__name__
            raise _broken(
                f"has {found} as commitInfo, where an object is expected",
                version,
                path,
                number,
                table,
            )
        position = data.find(_COMMIT_INFO, end) if end >= 0 else -1
    return None


def _broken(what: str, version: int, path: str, line: int, table: str) -> CorruptLogError:
    return CorruptLogError(
        f"line {line} of {path} {what}; {PUT_FILE_BACK}",
        table=table,
        version=version,
        path=path,
        line=line,
    )

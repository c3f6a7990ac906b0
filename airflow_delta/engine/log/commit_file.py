"""The content of commits; and their ``commitInfo``, without reading their file actions.

History, commit timestamps and retries need one line of a commit that may hold a million. Where a
table has in-commit timestamps that line is the first by rule, elsewhere it mostly is by habit; so
the head of the file is read first, and the rest only where the head disappoints. Of many commits,
those that are known to be small are read whole, a batch at a time. Lines of other kinds are not
parsed, so that an action from the future never costs a table its history.

Spec: PROTOCOL.md, "Commit Provenance Information"; in-commit-timestamps.md.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeAlias
from zlib import crc32

from airflow_delta.engine.errors import CorruptLogError, ObjectNotFoundError
from airflow_delta.engine.log.files import (
    CompactedCommits,
    LogCommit,
    UnbackfilledCommit,
    commit_path,
)
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
"""Bytes of the first read: operation metrics and all, a commitInfo rarely has more."""

_GROWTH = 8
_SMALL = 64 * 1024
"""Up to so many bytes a commit is read whole: one request, and no second one."""

_BATCH = 64
"""Small commits read at a time, which bounds the memory that they take."""

_THREADS = 8
"""Heads read at a time from a store behind a network."""


def read_commit_info(
    storage: Storage, version: int, *, path: str | None = None
) -> Mapping[str, Any] | None:
    """The ``commitInfo`` of one commit, as it stands in the log.

    Args:
        storage: the table's storage.
        version: the version of the commit.
        path: where its file is, for a commit that wasn't backfilled when it was found. If it has been
            meanwhile, and the file is gone, its copy in the log is read.

    Returns:
        The fields, None where the commit has no ``commitInfo``.

    Raises:
        ObjectNotFoundError: there is no such commit, or no longer.
        CorruptLogError: the commit has zero bytes, or its ``commitInfo`` is broken.
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
        length *= _GROWTH
        data = storage.read(path, start=0, length=length)
    whole = len(data) < length
    lines = data.split(b"\n") if whole else data.split(b"\n")[:-1]
    info = _find(lines, data, version=version, path=path, table=storage.root)
    if info is None and not whole:
        data = storage.read(path)
        info = _find(data.split(b"\n"), data, version=version, path=path, table=storage.root)
    return info


def read_commits(
    storage: Storage, commits: Sequence[LogCommit | CompactedCommits]
) -> list[bytes | None]:
    """The contents of commits, in parallel where that helps; None for one that is gone.

    One that wasn't backfilled when it was found may have been since, and its file be gone; then it is read
    from the log.

    Args:
        storage: the table's storage.
        commits: commits, and compactions that stand for commits.

    Raises:
        CorruptLogError: one that isn't backfilled isn't what its owner has ratified.
        StorageError: the store failed.
    """
    contents = storage.read_many([commit.path for commit in commits])
    for place, (commit, content) in enumerate(zip(commits, contents, strict=True)):
        if not isinstance(commit, UnbackfilledCommit):
            continue
        path = commit.path
        if content is None:
            path = commit_path(commit.version)
            [content] = storage.read_many([path])
            contents[place] = content
        if content is not None:
            check_ratified(commit, content, path=path, table=storage.root)
    return contents


def check_ratified(commit: UnbackfilledCommit, content: bytes, *, path: str, table: str) -> None:
    """Refuse the content of a commit that isn't what its owner has ratified.

    A file that was cut off at the end of a line still reads as a commit, of fewer actions. Its size shows
    that, which every owner knows, and its checksum, which our owners keep.

    Args:
        commit: the commit, with the size and the checksum that its owner has.
        content: all of its file, or of the copy of it in the log.
        path: of that file.
        table: the table's location, for errors.

    Raises:
        CorruptLogError: they differ. Facts: version, path, expected and found (the size in bytes and the
            CRC-32, which is None where the owner keeps none).
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
    """Whether the content of a commit is what its owner has ratified, as far as the owner knows."""
    return len(content) == commit.size and commit.crc32 in (None, crc32(content))


def read_commit_infos(
    storage: Storage,
    versions: Sequence[int],
    *,
    paths: Mapping[int, str] | None = None,
    sizes: Mapping[int, int] | None = None,
) -> dict[int, Mapping[str, Any] | None]:
    """The ``commitInfo`` of many commits, read in parallel where the store gains by it.

    Args:
        storage: the table's storage.
        versions: the versions of the commits.
        paths: by version, the files of commits that are not backfilled.
        sizes: by version, the bytes of commits, as far as a listing has told them.

    Returns:
        By version, in the order asked for: the fields, or None where a commit has no
        ``commitInfo``. Versions whose commit is gone are left out.

    Raises:
        CorruptLogError: a commit has zero bytes, or its ``commitInfo`` is broken.
        StorageError: the store failed.
    """
    files = {version: (paths or {}).get(version) or commit_path(version) for version in versions}
    known = sizes or {}
    small = {v: path for v, path in files.items() if known.get(v, _SMALL + 1) <= _SMALL}
    large = {v: path for v, path in files.items() if v not in small}
    infos = {**dict(_read_whole(storage, small)), **dict(_read_heads(storage, large))}
    return {version: infos[version] for version in files if version in infos}


def _read_whole(storage: Storage, files: Mapping[int, str]) -> Iterator[_Found]:
    """The ``commitInfo`` of the small commits that are there."""
    remaining = iter(files.items())
    while batch := [*islice(remaining, _BATCH)]:
        contents = storage.read_many([path for _, path in batch])
        for (version, path), data in zip(batch, contents, strict=True):
            if data is not None:
                lines = data.split(b"\n")
                yield version, _find(lines, data, version=version, path=path, table=storage.root)
            elif path != commit_path(version):
                yield from _read_heads(storage, {version: commit_path(version)})


def _read_heads(storage: Storage, files: Mapping[int, str]) -> Iterator[_Found]:
    """The ``commitInfo`` of the other commits that are there."""
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


def _find(
    lines: Iterable[bytes], data: bytes, *, version: int, path: str, table: str
) -> Mapping[str, Any] | None:
    if not data:
        raise CorruptLogError(
            f"the commit {path} has zero bytes: its writer died while writing, or the store lost "
            f"it; {PUT_FILE_BACK}",
            table=table,
            version=version,
            path=path,
        )
    for number, line in enumerate(lines, start=1):
        # Statistics and paths may hold the word as well; parsing such a line now and then is fine.
        if b'"commitInfo"' not in line:
            continue
        try:
            action = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise _broken(f"is not valid JSON ({error})", version, path, number, table) from error
        info = action.get("commitInfo") if isinstance(action, dict) else None
        if isinstance(info, dict):
            return info
        if info is not None:
            found = type(info).__name__
            raise _broken(
                f"holds {found} where an object is expected", version, path, number, table
            )
    return None


def _broken(what: str, version: int, path: str, line: int, table: str) -> CorruptLogError:
    return CorruptLogError(
        f"the commitInfo in line {line} of {path} {what}; {PUT_FILE_BACK}",
        table=table,
        version=version,
        path=path,
        line=line,
    )

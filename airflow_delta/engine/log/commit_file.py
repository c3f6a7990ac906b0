"""The ``commitInfo`` of commits, without reading their file actions.

History, commit timestamps and retries need one line of a commit that may hold a million. Where a
table has in-commit timestamps that line is the first by rule, elsewhere it mostly is by habit; so
the head of the file is read first, and the rest only where the head disappoints. Lines of other
kinds are not parsed, so that an action from the future never costs a table its history.

Spec: PROTOCOL.md, "Commit Provenance Information"; in-commit-timestamps.md.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow_delta.engine.errors import CorruptLogError
from airflow_delta.engine.log.files import commit_path

if TYPE_CHECKING:
    from airflow_delta.engine.storage.base import Storage

__all__ = ["read_commit_info", "read_commit_infos"]

_HEAD = 4096
"""Bytes of the first read: operation metrics and all, a commitInfo rarely has more."""

_GROWTH = 8
_BATCH = 64
"""Commits read at a time, to bound the memory that whole commits take."""


def read_commit_info(
    storage: Storage, version: int, *, path: str | None = None
) -> Mapping[str, Any] | None:
    """The ``commitInfo`` of one commit, as it stands in the log.

    Args:
        storage: the table's storage.
        version: the version of the commit.
        path: where its file is, for a commit that is not backfilled.

    Returns:
        The fields, None where the commit has no ``commitInfo``.

    Raises:
        ObjectNotFoundError: there is no such commit, or no longer.
        CorruptLogError: the commit has zero bytes, or its ``commitInfo`` is broken.
        StorageError: the store failed.
    """
    path = commit_path(version) if path is None else path
    length = _HEAD
    data = storage.read(path, start=0, length=length)
    while b"\n" not in data and len(data) == length:
        length *= _GROWTH
        data = storage.read(path, start=0, length=length)
    whole = len(data) < length
    head, _, _ = data.partition(b"\n")
    lines = data.split(b"\n") if whole else [head]
    info = _find(lines, data, version=version, path=path, table=storage.root)
    if info is None and not whole:
        data = storage.read(path)
        info = _find(data.split(b"\n"), data, version=version, path=path, table=storage.root)
    return info


def read_commit_infos(
    storage: Storage, versions: Sequence[int], *, paths: Mapping[int, str] | None = None
) -> dict[int, Mapping[str, Any] | None]:
    """The ``commitInfo`` of many commits, read in parallel where the store gains by it.

    Args:
        storage: the table's storage.
        versions: the versions of the commits.
        paths: by version, the files of commits that are not backfilled.

    Returns:
        By version, in the order asked for: the fields, or None where a commit has no
        ``commitInfo``. Versions whose commit is gone are left out.

    Raises:
        CorruptLogError: a commit has zero bytes, or its ``commitInfo`` is broken.
        StorageError: the store failed.
    """
    elsewhere = paths or {}
    infos: dict[int, Mapping[str, Any] | None] = {}
    for begin in range(0, len(versions), _BATCH):
        batch = versions[begin : begin + _BATCH]
        batch_paths = [elsewhere.get(version) or commit_path(version) for version in batch]
        for version, path, data in zip(
            batch, batch_paths, storage.read_many(batch_paths), strict=True
        ):
            if data is not None:
                infos[version] = _find(
                    data.split(b"\n"), data, version=version, path=path, table=storage.root
                )
    return infos


def _find(
    lines: Iterable[bytes], data: bytes, *, version: int, path: str, table: str
) -> Mapping[str, Any] | None:
    if not data:
        raise CorruptLogError(
            f"the commit {path} has zero bytes: its writer died while writing, or the store lost "
            "it; restore the file",
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
        f"the commitInfo in line {line} of {path} {what}; restore the file",
        table=table,
        version=version,
        path=path,
        line=line,
    )

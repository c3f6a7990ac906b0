"""Identify a commit by its content, to notice that a version has become another commit."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow_delta.engine import Snapshot

__all__ = ["commit_mark", "read_commit_mark"]

_MARKS = ("txnId", "inCommitTimestamp", "timestamp")
# Fields of commitInfo. Not every writer sets the first; only few tables have the second.

_LONGEST = 200


def commit_mark(info: Mapping[str, Any]) -> str | None:
    """A value that identifies a commit; None if it has none.

    It comes from ``commitInfo``: the modification time of the file differs in each copy of a log. Any
    program can write it, so a value that is long or not ASCII is replaced by a digest.

    :param info: the ``commitInfo``, as it is in the log.
    """
    name = next((name for name in _MARKS if info.get(name) is not None), None)
    if name is None:
        return None
    mark = f"{name} {info[name]}"
    if len(mark) <= _LONGEST and mark.isascii():
        return mark
    digest = hashlib.sha256(mark.encode(errors="surrogatepass")).hexdigest()
    return f"{name} sha256 {digest}"


def read_commit_mark(snapshot: Snapshot, version: int) -> str | None:
    """The `commit_mark` of a version; None if it has none, or its commit is cleaned up or damaged.

    :param snapshot: a snapshot of the version, or of a later one.
    :param version: the version.
    :raises DeltaError: the store failed.
    """
    from airflow_delta.engine.errors import CorruptLogError, ObjectNotFoundError
    from airflow_delta.engine.log.commit_file import read_commit_info

    path = snapshot.segment.path_of(version)
    try:
        info = read_commit_info(snapshot.storage, version, path=path) or {}
    except (ObjectNotFoundError, CorruptLogError):
        return None
    return commit_mark(info)

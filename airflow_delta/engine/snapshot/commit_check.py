"""Check the newest commit of a table with one request, for sensors that wait for it.

A sensor that only looks for the name of a commit would succeed for a commit that nobody can read.
So the commit is read once it exists: each of its lines, and its protocol if it has one. Of a large
commit only the beginning is read. Earlier commits aren't read; opening the table does that.

Spec: PROTOCOL.md, "Delta Log Entries", "Protocol Evolution".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from airflow_delta.engine.arrow.json.exact import InvalidLineError, read_line
from airflow_delta.engine.errors import ObjectNotFoundError
from airflow_delta.engine.features.protocol import check_readable
from airflow_delta.engine.log.files import commit_path
from airflow_delta.engine.model.line_locations import corrupt_line, empty_commit
from airflow_delta.engine.replay.non_file_actions import reconcile_non_file_actions
from airflow_delta.engine.storage.base import Storage

__all__ = ["check_logged_commit"]

_HEAD = 1 << 20
"""Bytes to read: all of nearly every commit, and the protocol of the others, which comes early."""

_BOM = b"\xef\xbb\xbf"


def check_logged_commit(storage: Storage, version: int, *, table: str) -> bool:
    """Check that a commit is valid, and that the engine can read a table with its protocol, if it has one.

    Args:
        storage: the table's storage.
        version: the version of the commit.
        table: the table's location, for messages.

    Returns:
        False if the log has no such file: it was cleaned up, or isn't backfilled.

    Raises:
        CorruptLogError: the commit is empty, or the protocol doesn't allow one of its lines.
        UnsupportedFeatureError: its protocol requires a feature that the engine doesn't support.
        InvalidTableError: its protocol contradicts itself.
        StorageError: the store failed.
    """
    try:
        content = storage.read(commit_path(version), start=0, length=_HEAD)
    except ObjectNotFoundError:
        return False
    if not content:
        raise empty_commit(version=version, path=commit_path(version), table=table)
    state = reconcile_non_file_actions(_actions(content, version=version, table=table))
    if state.protocol is not None:
        check_readable(state.protocol, state.metadata, table=table)
    return True


def _actions(
    content: bytes, *, version: int, table: str
) -> Iterator[tuple[str, Mapping[str, Any], str]]:
    """The actions of a commit by kind, each with its location."""
    path = commit_path(version)
    lines = content.removeprefix(_BOM).split(b"\n")
    if len(content) == _HEAD:
        lines.pop()  # The line may continue after the bytes that were read.
    for number, line in enumerate(lines, start=1):
        try:
            action = read_line(line.removesuffix(b"\r"))
        except InvalidLineError as error:
            raise corrupt_line(
                line, str(error), version=version, path=path, line=number, table=table
            ) from error
        if action is not None:
            yield *action, f"{path}, line {number}"

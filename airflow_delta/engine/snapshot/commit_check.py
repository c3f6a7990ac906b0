"""Check the newest commit of a table with one request, for those who wait for it.

Who waits for a version asks for names only, and would be told of a commit that nobody can read. So the
commit itself is read once it is there: each of its lines, and the protocol where it has one. Of a large
commit that is the beginning. Earlier commits aren't read: opening the table does that.

Spec: PROTOCOL.md, "Delta Log Entries", "Protocol Evolution".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from airflow_delta.engine.arrow.json.exact import InvalidLineError, read_line
from airflow_delta.engine.arrow.json.line_locations import corrupt_line, empty_commit
from airflow_delta.engine.errors import ObjectNotFoundError
from airflow_delta.engine.features.protocol import check_readable
from airflow_delta.engine.log.files import commit_path
from airflow_delta.engine.replay.non_file_actions import reconcile_non_file_actions
from airflow_delta.engine.storage.base import Storage

__all__ = ["check_logged_commit"]

_HEAD = 1 << 20
"""Bytes that are read: all of nearly every commit, and the protocol of the others, which comes early."""

_BOM = b"\xef\xbb\xbf"


def check_logged_commit(storage: Storage, version: int, *, table: str) -> bool:
    """Check that a commit is one, and that its protocol, where it has one, lets the engine read the table.

    Args:
        storage: the table's storage.
        version: the version of the commit.
        table: the table's location, for messages.

    Returns:
        False where the log has no such file: it was cleaned up, or isn't backfilled.

    Raises:
        CorruptLogError: the commit is empty, or a line of it is not what the protocol allows.
        UnsupportedFeatureError: its protocol demands a feature that the engine lacks.
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
    """The actions of a commit by kind, each with where it stands."""
    path = commit_path(version)
    lines = content.removeprefix(_BOM).split(b"\n")
    if len(content) == _HEAD:
        lines.pop()  # It may go on beyond what was read.
    for number, line in enumerate(lines, start=1):
        try:
            action = read_line(line.removesuffix(b"\r"))
        except InvalidLineError as error:
            raise corrupt_line(
                line, str(error), version=version, path=path, line=number, table=table
            ) from error
        if action is not None:
            yield *action, f"{path}, line {number}"

"""Read the commits after a checkpoint: the tail of a segment.

The commits are read and parsed in runs of bounded size, so that the text of a long log is never in
memory as a whole; only the wanted columns of its file actions stay.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from airflow_delta.engine.arrow.action_schema import (
    POSITION,
    VERSION,
    FileActions,
    add_schema,
    remove_schema,
)
from airflow_delta.engine.arrow.json_actions import ParsedCommits, SmallAction, parse_commits
from airflow_delta.engine.errors import ObjectNotFoundError
from airflow_delta.engine.log.files import CompactedCommits, LogCommit
from airflow_delta.engine.storage.base import Storage

__all__ = ["Tail", "read_tail"]

_RUN_BYTES = 64 << 20
_RUN_FILES = 4096


@dataclass(frozen=True, slots=True)
class Tail:
    """The actions of the commits after a checkpoint, in the order of the log."""

    files: FileActions
    small: tuple[SmallAction, ...]


def read_tail(
    storage: Storage,
    commits: Sequence[LogCommit | CompactedCommits],
    *,
    columns: tuple[str, ...] | None,
    table: str,
) -> Tail:
    """Read and parse commits (and compactions that stand for commits).

    Args:
        storage: where the log is.
        commits: ascending by version.
        columns: the columns of file actions to keep; None for all.
        table: the table's location, for errors.

    Raises:
        ObjectNotFoundError: a file vanished since it was listed.
        CorruptLogError: a file breaks the protocol.
    """
    parsed: list[ParsedCommits] = []
    for run in _runs(commits):
        contents = storage.read_many([commit.path for commit in run])
        texts: list[tuple[int, bytes]] = []
        for commit, content in zip(run, contents, strict=True):
            if content is None:
                raise ObjectNotFoundError(
                    f"{commit.path} vanished after it was listed: a cleanup may be running",
                    table=table,
                    path=commit.path,
                )
            texts.append((_version(commit), content))
        parsed.append(parse_commits(texts, columns=columns, table=table))
    return _joined(parsed, columns)


def _version(commit: LogCommit | CompactedCommits) -> int:
    return commit.end if isinstance(commit, CompactedCommits) else commit.version


def _runs(
    commits: Sequence[LogCommit | CompactedCommits],
) -> Iterator[list[LogCommit | CompactedCommits]]:
    run: list[LogCommit | CompactedCommits] = []
    size = 0
    for commit in commits:
        run.append(commit)
        size += commit.size
        if size >= _RUN_BYTES or len(run) >= _RUN_FILES:
            yield run
            run, size = [], 0
    if run:
        yield run


def _joined(parsed: list[ParsedCommits], columns: tuple[str, ...] | None) -> Tail:
    if not parsed:
        return Tail(FileActions(_empty(add_schema(columns)), _empty(remove_schema(columns))), ())
    adds, removes = [], []
    first = 0
    # Each run counts its positions from zero; one after the other they count the whole log.
    for part in parsed:
        adds.append(_shifted(part.files.adds, first))
        removes.append(_shifted(part.files.removes, first))
        first += 1 + max(_last(part.files.adds), _last(part.files.removes))
    files = FileActions(pa.concat_tables(adds), pa.concat_tables(removes))
    return Tail(files, tuple(action for part in parsed for action in part.small))


def _empty(schema: pa.Schema) -> pa.Table:
    return (
        schema.append(pa.field(VERSION, pa.int64()))
        .append(pa.field(POSITION, pa.int64()))
        .empty_table()
    )


def _shifted(actions: pa.Table, by: int) -> pa.Table:
    if by == 0 or actions.num_rows == 0:
        return actions
    place = actions.schema.get_field_index(POSITION)
    return actions.set_column(place, POSITION, pc.add(actions[POSITION], by))


def _last(actions: pa.Table) -> int:
    return int(actions[POSITION][-1].as_py()) if actions.num_rows else -1

"""A log cut into parts that tasks of Spark read, each with the engine's own readers.

The file actions of a version are those of its checkpoint and of the commits after it, as the engine's
segment of the log names them. They are cut by what storage tells without reading:

* `CommitPart`: consecutive commits (or compactions that stand for commits), some megabytes together;
* `FilePart`: some of the row groups of a Parquet file of the checkpoint;
* `LinesPart`: the JSON lines of a V2 checkpoint, which may hold file actions themselves.

A commit is read whole, and so is a row group: neither can be cut.

Where an action stands in the log is told by its version and its position: both ascend, positions
within a version, and a version lies in one part. Rows of the checkpoint have `BASE_VERSION`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from airflow_delta.engine.arrow.action_schema import POSITION, VERSION, add_schema, remove_schema
from airflow_delta.engine.arrow.numpy_arrays import int64_array
from airflow_delta.engine.arrow.parquet.action_file import ActionFile, read_pieces
from airflow_delta.engine.checkpoint.action_rows import FileActionTable
from airflow_delta.engine.checkpoint.read import open_checkpoint
from airflow_delta.engine.checkpoint.v2 import JsonTopLevel, sidecar_file
from airflow_delta.engine.log.files import CompactedCommits, LogCommit, V2Checkpoint
from airflow_delta.engine.log.segment import LogSegment
from airflow_delta.engine.snapshot.segment_commits import parse_commit_files
from airflow_delta.engine.storage.base import FileInfo, Storage

__all__ = [
    "BASE_VERSION",
    "CommitPart",
    "FilePart",
    "LinesPart",
    "LogPart",
    "action_schemas",
    "commit_runs",
    "log_parts",
    "read_part",
]

BASE_VERSION = -1
"""The version of the rows of a checkpoint: older than every commit after it."""

_RUN_BYTES = 64 << 20
_RUN_COMMITS = 1000
"""A run of commits ends at whichever comes first; many small ones cost requests, not bytes."""

_SHARE_BYTES = 16 << 20
"""Of Parquet, which comes to several times as much in memory."""


@dataclass(frozen=True, slots=True)
class CommitPart:
    """Consecutive commits."""

    commits: tuple[LogCommit | CompactedCommits, ...]


@dataclass(frozen=True, slots=True)
class FilePart:
    """The row groups ``share``, ``share + shares``, … of a Parquet file of a checkpoint.

    Attributes:
        file: the file.
        exact_size: whether a file of another size is damage: the log tells the size of sidecars.
        share: from 0 on.
        shares: into how many the file is cut.
    """

    file: FileInfo
    exact_size: bool
    share: int
    shares: int


@dataclass(frozen=True, slots=True)
class LinesPart:
    """The JSON lines of a V2 checkpoint."""

    checkpoint: V2Checkpoint


LogPart: TypeAlias = CommitPart | FilePart | LinesPart
"""What one task reads."""


def log_parts(storage: Storage, segment: LogSegment) -> list[LogPart]:
    """Cut the log of a version into parts; of the log itself only the sidecars' names are read.

    Raises:
        CorruptLogError: the top level of the checkpoint is damaged.
        ObjectNotFoundError: it is gone.
    """
    return [*_checkpoint_parts(storage, segment), *commit_runs(segment.plan())]


def action_schemas(columns: Sequence[str] | None) -> dict[str, pa.Schema]:
    """The schemas of adds and removes, with their places in the log.

    Args:
        columns: the columns wanted beside those of the file's key; None for all.
    """
    wanted = None if columns is None else tuple(columns)
    places = [pa.field(VERSION, pa.int64()), pa.field(POSITION, pa.int64())]
    return {
        "add": pa.schema([*add_schema(wanted), *places]),
        "remove": pa.schema([*remove_schema(wanted), *places]),
    }


def read_part(
    storage: Storage, part: LogPart, *, columns: Sequence[str] | None
) -> Iterator[FileActionTable]:
    """Read the file actions of a part, in tables of `action_schemas`.

    Raises:
        CorruptLogError: a file of the log is damaged.
        ObjectNotFoundError: a file is gone.
    """
    wanted = None if columns is None else tuple(columns)
    match part:
        case CommitPart(commits):
            parsed = parse_commit_files(storage, commits, columns=wanted, table=storage.root)
            yield "add", parsed.files.adds
            yield "remove", parsed.files.removes
        case FilePart(file, exact_size, share, shares):
            actions = ActionFile(storage, file, exact_size=exact_size)
            for kind in ("add", "remove"):
                pieces = actions.pieces(kind, wanted)[share::shares]
                # One at a time: Spark runs as many tasks as there are cores.
                for table in read_pieces(pieces, workers=1):
                    yield kind, _placed_in_base(table)
        case LinesPart(checkpoint):
            top = JsonTopLevel(storage, checkpoint)
            for kind in ("add", "remove"):
                for table in top.files(kind, wanted):
                    yield kind, _placed_in_base(table)


def commit_runs(plan: Sequence[LogCommit | CompactedCommits]) -> Iterator[CommitPart]:
    """Cut consecutive commits into runs.

    Args:
        plan: commits, or compactions that stand for some, ascending.
    """
    run: list[LogCommit | CompactedCommits] = []
    size = 0
    for commit in plan:
        if run and (size + commit.size > _RUN_BYTES or len(run) == _RUN_COMMITS):
            yield CommitPart(tuple(run))
            run, size = [], 0
        run.append(commit)
        size += commit.size
    if run:
        yield CommitPart(tuple(run))


def _checkpoint_parts(storage: Storage, segment: LogSegment) -> Iterator[LogPart]:
    checkpoint = segment.checkpoint
    if checkpoint is None:
        return
    if segment.checkpoint_actions is None:  # else all file actions are in sidecars
        if isinstance(checkpoint, V2Checkpoint) and checkpoint.format == "json":
            yield LinesPart(checkpoint)
        else:
            for file in checkpoint.files:
                yield from _shares(file, exact_size=False)
    reader = open_checkpoint(
        storage, checkpoint, table=segment.table, actions=segment.checkpoint_actions
    )
    for sidecar in reader.sidecars:
        file = sidecar_file(sidecar, table=segment.table, checkpoint=checkpoint.path)
        yield from _shares(file, exact_size=True)


def _shares(file: FileInfo, *, exact_size: bool) -> Iterator[FilePart]:
    shares = max(1, -(-file.size // _SHARE_BYTES))
    for share in range(shares):
        yield FilePart(file, exact_size, share, shares)


def _placed_in_base(actions: pa.Table) -> pa.Table:
    for name, value in ((VERSION, BASE_VERSION), (POSITION, 0)):
        places = int64_array(np.full(actions.num_rows, value))
        actions = actions.append_column(pa.field(name, pa.int64()), places)
    return actions

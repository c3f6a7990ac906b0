"""Split a log into parts that Spark's tasks read with the engine's own readers.

The parts come from the engine's log segment, and are made from the sizes in listings:

* `CommitPart`: consecutive commits, or compactions of them, of some megabytes together;
* `FilePart`: some row groups of a Parquet file of the checkpoint;
* `LinesPart`: the JSON lines of a V2 checkpoint, which may contain file actions themselves.

Version and position give the order of actions: positions ascend within a version, and a version is
in one part. Rows of the checkpoint have `BASE_VERSION`.
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
"""The limits of a run of commits; the cost of many small ones is their requests, not their bytes."""

_SHARE_BYTES = 16 << 20
"""The size of Parquet per part; in memory it is several times larger."""


@dataclass(frozen=True, slots=True)
class CommitPart:
    """Consecutive commits."""

    commits: tuple[LogCommit | CompactedCommits, ...]


@dataclass(frozen=True, slots=True)
class FilePart:
    """The row groups ``share``, ``share + shares``, … of a Parquet file of a checkpoint.

    Attributes:
        file: the file.
        exact_size: whether another size means damage: the log contains the size of sidecars only.
        share: the number of the part, from 0.
        shares: the number of parts of the file.
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
"""The part of a log that one task reads."""


def log_parts(storage: Storage, segment: LogSegment) -> list[LogPart]:
    """Split the log of a version into parts; reads only the top level of the checkpoint.

    Raises:
        CorruptLogError: the top level of the checkpoint is damaged.
        ObjectNotFoundError: it is gone.
    """
    return [*_checkpoint_parts(storage, segment), *commit_runs(segment.plan())]


def action_schemas(columns: Sequence[str] | None) -> dict[str, pa.Schema]:
    """The schemas of adds and removes, with their version and position in the log.

    Args:
        columns: the columns to read besides those of the file key; None for all.
    """
    wanted = None if columns is None else tuple(columns)
    order = [pa.field(VERSION, pa.int64()), pa.field(POSITION, pa.int64())]
    return {
        "add": pa.schema([*add_schema(wanted), *order]),
        "remove": pa.schema([*remove_schema(wanted), *order]),
    }


def read_part(
    storage: Storage, part: LogPart, *, columns: Sequence[str] | None
) -> Iterator[FileActionTable]:
    """Read the file actions of a part, as tables with `action_schemas`.

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
                    yield kind, _with_base_version(table)
        case LinesPart(checkpoint):
            top = JsonTopLevel(storage, checkpoint)
            for kind in ("add", "remove"):
                for table in top.files(kind, wanted):
                    yield kind, _with_base_version(table)


def commit_runs(plan: Sequence[LogCommit | CompactedCommits]) -> Iterator[CommitPart]:
    """Split consecutive commits into runs.

    Args:
        plan: commits, or compactions of some, ascending.
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


def _with_base_version(actions: pa.Table) -> pa.Table:
    for name, value in ((VERSION, BASE_VERSION), (POSITION, 0)):
        values = int64_array(np.full(actions.num_rows, value))
        actions = actions.append_column(pa.field(name, pa.int64()), values)
    return actions

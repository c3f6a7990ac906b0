"""The files by which two versions of a table differ, and the actions that lead from one to the other.

Files are told apart by path and deletion vector (PROTOCOL.md, "Action Reconciliation"): one of which rows
were deleted since is another file, so that these rows come back with the former vector. The keys of both
versions are compared in Arrow; of the other columns only those of the files in which they differ are read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from airflow_delta.engine.arrow.action_schema import FILE_KEY_COLUMNS
from airflow_delta.engine.features.protocol import supported_features
from airflow_delta.engine.features.row_tracking import FEATURE as ROW_TRACKING
from airflow_delta.engine.model.actions import AddFile, RemoveFile
from airflow_delta.engine.replay.file_key import file_keys
from airflow_delta.engine.snapshot.snapshot import Snapshot

__all__ = ["FileDifferences", "add_actions", "file_differences", "remove_actions"]

_ROW_IDS = ("baseRowId", "defaultRowCommitVersion")
_MAPS = ("partitionValues", "tags")


@dataclass(frozen=True, slots=True)
class FileDifferences:
    """What has to be done to the files of the newest version to have those of an earlier one.

    Attributes:
        restored: files that come back.
        removed: files that go.
        renumbered: files that stay, and get back the row ids that the table has lost since.
    """

    restored: pa.Table
    removed: pa.Table
    renumbered: pa.Table


def file_differences(base: Snapshot, target: Snapshot) -> FileDifferences:
    """Compare the files of two versions; all columns of ``add`` for those that differ.

    Args:
        base: the newest version.
        target: the version to be brought back.

    Raises:
        CorruptLogError: the files of one of them can't be read.
        StorageError: the store failed.
    """
    now, then = _keys(base), _keys(target)
    return FileDifferences(
        restored=_files_of(target, _without(then, now), of=len(then)),
        removed=_files_of(base, _without(now, then), of=len(now)),
        renumbered=_files_of(target, _losers_of_ids(base, target), of=len(then)),
    )


def _losers_of_ids(base: Snapshot, target: Snapshot) -> pa.ChunkedArray:
    """The keys of files that are in both versions, and have row ids in the earlier one alone."""
    if ROW_TRACKING not in supported_features(target.protocol):
        return pa.chunked_array([], pa.string())
    columns = (*FILE_KEY_COLUMNS, *_ROW_IDS)
    now, then = base.files(columns=columns), target.files(columns=columns)
    without = now.filter(pc.or_(*(pc.is_null(now[name]) for name in _ROW_IDS)))
    numbered = then.filter(pc.and_(*(pc.is_valid(then[name]) for name in _ROW_IDS)))
    keys = file_keys(numbered, table=base.table)
    return keys.filter(pc.is_in(keys, value_set=file_keys(without, table=base.table)))


def _keys(snapshot: Snapshot) -> pa.ChunkedArray:
    return file_keys(snapshot.files(columns=FILE_KEY_COLUMNS), table=snapshot.table)


def _without(keys: pa.ChunkedArray, others: pa.ChunkedArray) -> pa.ChunkedArray:
    return keys.filter(pc.invert(pc.is_in(keys, value_set=others)))


def _files_of(snapshot: Snapshot, keys: pa.ChunkedArray, *, of: int) -> pa.Table:
    """The files with some keys.

    Args:
        snapshot: the version that has them.
        keys: their keys.
        of: how many files the version has.
    """
    if len(keys) == of:
        return snapshot.files()
    return snapshot.state.live_adds(row_filter=_Among(keys, snapshot.table))


class _Among:
    """Keeps the files with some keys; see `RowFilter`."""

    columns = FILE_KEY_COLUMNS

    def __init__(self, keys: pa.ChunkedArray, table: str) -> None:
        self._keys = keys
        self._table = table

    def parsed_leaves(self, stored: pa.DataType, *, all_needed: bool) -> None:
        """None: statistics don't matter."""

    def kept(self, adds: pa.RecordBatch) -> pa.BooleanArray:
        """Which rows have one of the keys."""
        return pa.concat_arrays(self._mask(pa.Table.from_batches([adds])).chunks)

    def prune(self, adds: pa.Table) -> pa.Table:
        """The rows that have one of the keys."""
        return adds.filter(self._mask(adds))

    def _mask(self, adds: pa.Table) -> pa.ChunkedArray:
        return pc.is_in(file_keys(adds, table=self._table), value_set=self._keys)


def add_actions(files: pa.Table, *, data_change: bool) -> Iterator[AddFile]:
    """The actions that bring files back: as they were, with whether they change data.

    Args:
        files: rows of adds, all columns.
        data_change: what the actions say.
    """
    for file in _objects(files):
        yield AddFile.from_json({**file, "dataChange": data_change}, "add")


def remove_actions(files: pa.Table) -> Iterator[RemoveFile]:
    """The actions that take files out, by all that their adds tell.

    Args:
        files: rows of adds, all columns.
    """
    for file in _objects(files):
        told = {**file, "dataChange": True, "extendedFileMetadata": True}
        yield RemoveFile.from_json(told, "remove")


def _objects(files: pa.Table) -> Iterator[Mapping[str, Any]]:
    """The rows as the JSON objects that they stand for."""
    # A loop over files, though not all of the table's: a commit is made of its actions one by one.
    for batch in files.to_batches():
        for row in batch.to_pylist():
            yield {**row, **{name: dict(row[name]) for name in _MAPS if row[name] is not None}}

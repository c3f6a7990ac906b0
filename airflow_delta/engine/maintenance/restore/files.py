"""Find the files by which two versions of a table differ.

A file is identified by path and deletion vector (PROTOCOL.md, "Action Reconciliation"). If rows of a file
were deleted since, it counts as another file, so its earlier deletion vector is restored.
`compare_versions` compares the keys in Arrow, and reads the other columns only of files that differ.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from airflow_delta.engine.arrow.action_schema import FILE_KEY_COLUMNS
from airflow_delta.engine.features.protocol import supported_features
from airflow_delta.engine.features.row_tracking import FEATURE as ROW_TRACKING
from airflow_delta.engine.replay.file_filter import FilesAmong
from airflow_delta.engine.replay.file_key import file_keys
from airflow_delta.engine.snapshot.snapshot import Snapshot

__all__ = ["FileDifferences", "compare_versions"]

_ROW_IDS = ("baseRowId", "defaultRowCommitVersion")


@dataclass(frozen=True, slots=True)
class FileDifferences:
    """The changes that turn the files of the newest version into those of an earlier one.

    Attributes:
        restored: files to add again.
        removed: files to remove.
        renumbered: files that stay and get back row ids that the table has lost since.
    """

    restored: pa.Table
    removed: pa.Table
    renumbered: pa.Table


def compare_versions(base: Snapshot, target: Snapshot) -> FileDifferences:
    """Compare the files of two versions. The result has all columns of ``add``.

    Args:
        base: the newest version.
        target: the version to restore.

    Raises:
        CorruptLogError: the files of one of them can't be read.
        StorageError: the store failed.
    """
    now, then = _make_keys(base), _make_keys(target)
    return FileDifferences(
        restored=_read_files(target, _without(then, now), of=len(then)),
        removed=_read_files(base, _without(now, then), of=len(now)),
        renumbered=_read_files(target, _find_keys_without_ids(base, target), of=len(then)),
    )


def _find_keys_without_ids(base: Snapshot, target: Snapshot) -> pa.ChunkedArray:
    """Return the keys of files in both versions that have row ids only in the earlier one."""
    if ROW_TRACKING not in supported_features(target.protocol):
        return pa.chunked_array([], pa.string())
    columns = (*FILE_KEY_COLUMNS, *_ROW_IDS)
    now, then = base.files(columns=columns), target.files(columns=columns)
    without = now.filter(pc.or_(*(pc.is_null(now[name]) for name in _ROW_IDS)))
    numbered = then.filter(pc.and_(*(pc.is_valid(then[name]) for name in _ROW_IDS)))
    keys = file_keys(numbered, table=base.table)
    return keys.filter(pc.is_in(keys, value_set=file_keys(without, table=base.table)))


def _make_keys(snapshot: Snapshot) -> pa.ChunkedArray:
    return file_keys(snapshot.files(columns=FILE_KEY_COLUMNS), table=snapshot.table)


def _without(keys: pa.ChunkedArray, others: pa.ChunkedArray) -> pa.ChunkedArray:
    return keys.filter(pc.invert(pc.is_in(keys, value_set=others)))


def _read_files(snapshot: Snapshot, keys: pa.ChunkedArray, *, of: int) -> pa.Table:
    """Read the files with some keys.

    Args:
        snapshot: the version that has them.
        keys: their keys.
        of: how many files the version has.
    """
    if len(keys) == of:
        return snapshot.files()
    return snapshot.state.live_adds(row_filter=FilesAmong(keys, table=snapshot.table))

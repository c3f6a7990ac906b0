"""Check that no two rows of a version have the same default row id.

New ids are always higher than all ids assigned before. Only a file that is restored with its old ids can
collide with others, because its rows may have been committed again since, under other paths.

PROTOCOL.md, "Writer Requirements for Row Tracking": "Writers must never commit duplicate Row IDs in the
table in any version."
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from airflow_delta.engine.arrow.action_schema import ADD_FIELDS
from airflow_delta.engine.arrow.python_arrays import array_of, scalar_of
from airflow_delta.engine.arrow.statistics.parse import num_records
from airflow_delta.engine.model.file_actions import AddFile, RemoveFile
from airflow_delta.engine.replay.file_filter import path_keys
from airflow_delta.engine.transaction.context import CommitContext

__all__ = ["check_row_ids_are_unique"]

_COLUMNS = ("path", "stats", "baseRowId")
_FIRST, _LAST = "first", "last"


def check_row_ids_are_unique(
    adds: Sequence[AddFile], removes: Sequence[RemoveFile], mark: int, context: CommitContext
) -> None:
    """Check that the files of the table and those of a commit have disjoint ranges of row ids.

    If a file lacks ``numRecords``, its range is assumed to extend to the next file's.

    Args:
        adds: the added files, all with ids.
        removes: the removed files.
        mark: the highest id that was assigned before the commit.
        context: the table.

    Raises:
        ConstraintViolationError: two ranges overlap.
        CorruptLogError: the table's live files can't be read.
        StorageError: the store failed.
    """
    added = pa.table(
        {
            "path": array_of([file.path for file in adds], pa.string()),
            "stats": array_of([file.stats for file in adds], pa.string()),
            "baseRowId": array_of([file.base_row_id for file in adds], pa.int64()),
        }
    )
    ranges = [_ranges(files, mark) for files in (_kept_files((*adds, *removes), context), added)]
    rows = pa.concat_tables(ranges).sort_by(_FIRST)
    # A range overlaps an earlier one if it begins before the highest end so far.
    overlaps = pc.less_equal(rows[_FIRST][1:], pc.cumulative_max(rows[_LAST])[:-1])
    second = pc.index(overlaps, scalar_of(True, pa.bool_())).as_py() + 1
    if second > 0:
        path, first = rows["path"][second].as_py(), rows[_FIRST][second].as_py()
        raise context.violation(
            f"the row ids of the file {path!r}, from {first} on, overlap with those of another file, such "
            f"as {rows['path'][second - 1].as_py()!r}; omit baseRowId to get new ones"
        )


def _kept_files(touched: Sequence[AddFile | RemoveFile], context: CommitContext) -> pa.Table:
    """The live files that the commit doesn't touch, with ids."""
    if context.base is None:
        return pa.table({name: pa.nulls(0, ADD_FIELDS[name]) for name in _COLUMNS})
    live = context.base.files(columns=_COLUMNS)
    keys = array_of([context.path_key(file) for file in touched], pa.string())
    kept = live.filter(
        pc.invert(pc.is_in(path_keys(live["path"], table=context.table), value_set=keys))
    )
    return kept.filter(kept["baseRowId"].is_valid())


def _ranges(files: pa.Table, mark: int) -> pa.Table:
    """The first and the last id of each file that has records."""
    files = files.sort_by("baseRowId")
    first, records = files["baseRowId"], num_records(files["stats"])
    following = pa.chunked_array([*first[1:].chunks, array_of([mark + 1], pa.int64())])
    end = pc.coalesce(pc.add(first, records), following[: len(first)])
    last = pc.subtract(end, scalar_of(1, pa.int64()))
    ranges = pa.table({"path": files["path"], _FIRST: first, _LAST: last})
    return ranges.filter(pc.less_equal(first, last))

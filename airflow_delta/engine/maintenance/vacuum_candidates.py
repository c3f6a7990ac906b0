"""The files that there are, as a store lists them: what a full vacuum goes through.

A walk yields an object for each file; they become Arrow columns some thousands at a time, so that a
million files are three columns and never a million objects.

In object stores some programs make empty objects for directories (``part=x/``). Clients list them without
their slash, as files that there aren't and that can't be deleted by that name, so they are left out: that
of the root itself, and all that are told to be directories by other files.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_delta.engine.arrow.numpy_arrays import Int64Vector, int64_array, int64_view
from airflow_delta.engine.arrow.python_arrays import array_of, scalar_of
from airflow_delta.engine.storage.base import FileInfo, Storage

__all__ = ["FOUND", "each_once", "list_files"]

FOUND = pa.schema(
    [
        pa.field("path", pa.string()),
        pa.field("size", pa.int64()),
        pa.field("modificationTime", pa.int64()),
    ]
)
"""Files that were found: the path below the root, decoded; bytes, null where unknown; epoch ms."""

_BATCH = 1 << 16
_LOG = "_delta_log/"


def list_files(storage: Storage) -> pa.Table:
    """All files of a table's directory, but for those of its log; columns as in `FOUND`.

    Files whose names aren't UTF-8 are left out: no log can name them, and nobody knows whose they are.

    Raises:
        StorageError: the store failed.
    """
    walk = storage.walk("")
    batches = []
    while infos := list(islice(walk, _BATCH)):
        kept = [info for info in infos if info.path and not info.path.startswith(_LOG)]
        batches.append(_batch(kept))
    files = pa.Table.from_batches(batches, FOUND)
    return _without_directories(files) if storage.capabilities.remote else files


def each_once(files: pa.Table) -> pa.Table:
    """Files of which some may be there twice, each once: the youngest row of each.

    Args:
        files: with the columns of `FOUND`; without a time it counts as the oldest.
    """
    distinct = pc.unique(files["path"])
    if len(distinct) == files.num_rows:
        return files
    # Not Arrow's own grouping, which loads pandas.
    paths = _vector(pc.index_in(files["path"], value_set=distinct).cast(pa.int64()))
    times = _vector(pc.coalesce(files["modificationTime"], scalar_of(0, pa.int64())))
    order = np.lexsort((-times, paths))
    is_first = np.diff(paths[order], prepend=-1) != 0
    return files.take(int64_array(order[is_first]))


def _without_directories(files: pa.Table) -> pa.Table:
    is_empty = pc.equal(files["size"], scalar_of(0, pa.int64()))
    empty = files["path"].filter(is_empty)
    if not len(empty):
        return files
    folders = pc.unique(
        pc.replace_substring_regex(files["path"], "(?s)(^|/)[^/]*$", "")
    ).to_pylist()
    # A loop over directories: those in between may have no files of their own.
    parents = {folder[:end] for folder in folders for end in _ends(folder)}
    names = array_of([path for path in empty.to_pylist() if path in parents], pa.string())
    return files.filter(pc.invert(pc.is_in(files["path"], value_set=names)))


def _ends(folder: str) -> list[int]:
    """Where the path of each directory ends that a path goes through."""
    return [place for place, sign in enumerate(f"{folder}/") if sign == "/"]


def _vector(column: pa.ChunkedArray) -> Int64Vector:
    return np.concatenate([int64_view(chunk) for chunk in column.chunks])


def _batch(infos: Sequence[FileInfo]) -> pa.RecordBatch:
    try:
        paths = array_of([info.path for info in infos], pa.string())
    except UnicodeEncodeError:
        return _batch([info for info in infos if _is_text(info.path)])
    columns = [
        paths,
        array_of([info.size for info in infos], pa.int64()),
        array_of([info.modified_ms for info in infos], pa.int64()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=FOUND)


def _is_text(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True

"""List the files of a table's directory, for a full vacuum and for the search of missing files.

A walk yields one object per file. `list_files` turns some thousands of them at a time into Arrow columns,
so that a million files are three columns and never a million objects.

Some programs create empty objects for directories in object stores (``part=x/``). Clients list them without
the slash, as files that don't exist under that name. So listings leave out the root's, and those of
directories that have files (`find_directory_markers`). Nothing in a listing reveals the marker of an empty
directory: before a vacuum deletes an empty file, `drop_phantoms` asks the store whether it exists.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import islice

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_delta.engine.arrow.numpy_arrays import Int64Vector, bool_array, int64_view
from airflow_delta.engine.arrow.parallel import map_ordered
from airflow_delta.engine.arrow.python_arrays import array_of, scalar_of
from airflow_delta.engine.progress import report_progress
from airflow_delta.engine.storage.base import FileInfo, Storage, exists

__all__ = [
    "LISTED_SCHEMA",
    "drop_duplicates",
    "drop_phantoms",
    "find_directory_markers",
    "list_files",
    "make_listing_batch",
]

LISTED_SCHEMA = pa.schema(
    [
        pa.field("path", pa.string()),
        pa.field("size", pa.int64()),
        pa.field("modificationTime", pa.int64()),
    ]
)
"""Listed files: the decoded path below the root; bytes, null where unknown; epoch ms."""

_BATCH = 1 << 16
_WORKERS = 32
_LOG = "_delta_log/"


def list_files(storage: Storage) -> pa.Table:
    """List all files of a table's directory except those of its log; columns as in `LISTED_SCHEMA`.

    Files whose names aren't UTF-8 are left out: no log can name them, so nobody knows whose they are.

    Raises:
        StorageError: the store failed.
    """
    walk = storage.walk("")
    batches = []
    with report_progress("list", "files") as reporter:
        while infos := list(islice(walk, _BATCH)):
            batches.append(make_listing_batch(infos))
            reporter.advance(batches[-1].num_rows)
    files = pa.Table.from_batches(batches, LISTED_SCHEMA)
    return _without_directories(files) if storage.capabilities.remote else files


def make_listing_batch(infos: Sequence[FileInfo]) -> pa.RecordBatch:
    """Make a batch of `LISTED_SCHEMA` of listed files.

    It leaves out the files of the log, and those whose names aren't UTF-8.

    Args:
        infos: files of a table's directory.
    """
    return _make_batch([info for info in infos if info.path and not info.path.startswith(_LOG)])


def find_directory_markers(empty: pa.ChunkedArray, paths: pa.ChunkedArray) -> pa.Array:
    """Find the empty objects that stand for directories: those below which other paths lie.

    Args:
        empty: the paths of empty objects.
        paths: of all objects, or some.
    """
    folders = pc.unique(pc.replace_substring_regex(paths, "(?s)(^|/)[^/]*$", "")).to_pylist()
    candidates = {*empty.to_pylist()}
    # A loop over directories, since a directory may have subdirectories only. Only candidates are kept:
    # all parents together may be many times as much text as the paths.
    parents = {
        folder[:end]
        for folder in folders
        for end in _list_ends(folder)
        if folder[:end] in candidates
    }
    return array_of([path for path in empty.to_pylist() if path in parents], pa.string())


def drop_duplicates(files: pa.Table) -> pa.Table:
    """Keep the youngest row of each file.

    Args:
        files: with the columns of `LISTED_SCHEMA`; a row without a time counts as the oldest.
    """
    # An array of plain strings has no more than 2 GB.
    names = files["path"].cast(pa.large_string())
    distinct = pc.unique(names)
    if len(distinct) == files.num_rows:
        return files
    # Not Arrow's own grouping, which loads pandas.
    paths = _to_vector(pc.index_in(names, value_set=distinct).cast(pa.int64()))
    times = _to_vector(pc.coalesce(files["modificationTime"], scalar_of(0, pa.int64())))
    order = np.lexsort((-times, paths))
    is_first = np.empty(len(order), np.bool_)
    is_first[order] = np.diff(paths[order], prepend=-1) != 0
    return files.filter(bool_array(is_first))


def drop_phantoms(files: pa.Table, storage: Storage) -> pa.Table:
    """Drop the empty files of an object store that don't exist under their listed names.

    Args:
        files: with the columns of `LISTED_SCHEMA`, or more.
        storage: the table's.

    Raises:
        StorageError: the store failed.
    """
    if not storage.capabilities.remote:
        return files
    is_empty = pc.equal(files["size"], scalar_of(0, pa.int64()))
    # One request each. That is cheap, because no data file is empty.
    empty = files["path"].filter(is_empty).to_pylist()
    are_there = map_ordered(partial(exists, storage), empty, workers=_WORKERS)
    gone = [path for path, is_there in zip(empty, are_there, strict=True) if not is_there]
    return files.filter(pc.invert(pc.is_in(files["path"], value_set=array_of(gone, pa.string()))))


def _without_directories(files: pa.Table) -> pa.Table:
    is_empty = pc.equal(files["size"], scalar_of(0, pa.int64()))
    empty = files["path"].filter(is_empty)
    if not len(empty):
        return files
    names = find_directory_markers(empty, files["path"])
    return files.filter(pc.invert(pc.is_in(files["path"], value_set=names)))


def _list_ends(folder: str) -> list[int]:
    """The end of each directory in a path: of the path itself and of its parents."""
    return [index for index, sign in enumerate(f"{folder}/") if sign == "/"]


def _to_vector(column: pa.ChunkedArray) -> Int64Vector:
    return np.concatenate([int64_view(chunk) for chunk in column.chunks])


def _make_batch(infos: Sequence[FileInfo]) -> pa.RecordBatch:
    try:
        paths = array_of([info.path for info in infos], pa.string())
    except UnicodeEncodeError:
        return _make_batch([info for info in infos if _is_text(info.path)])
    columns = [
        paths,
        array_of([info.size for info in infos], pa.int64()),
        array_of([info.modified_ms for info in infos], pa.int64()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=LISTED_SCHEMA)


def _is_text(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True

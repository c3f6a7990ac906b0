"""The files that there are, as a store lists them: what a full vacuum goes through.

A walk yields an object for each file; they become Arrow columns some thousands at a time, so that a
million files are three columns and never a million objects.

In object stores some programs make empty objects for directories (``part=x/``). Clients list them without
their slash, as files that there aren't and that can't be deleted by that name, so they are left out: that
of the root itself, and all that are told to be directories by other files. Of a directory with nothing in
it no other file tells; so the store is asked for each empty file that is to be deleted (`existing`).
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
from airflow_delta.engine.errors import ObjectNotFoundError
from airflow_delta.engine.storage.base import FileInfo, Storage

__all__ = [
    "FOUND",
    "each_once",
    "existing",
    "found_batch",
    "list_files",
    "marked_directories",
]

FOUND = pa.schema(
    [
        pa.field("path", pa.string()),
        pa.field("size", pa.int64()),
        pa.field("modificationTime", pa.int64()),
    ]
)
"""Files that were found: the path below the root, decoded; bytes, null where unknown; epoch ms."""

_BATCH = 1 << 16
_WORKERS = 32
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
        batches.append(found_batch(infos))
    files = pa.Table.from_batches(batches, FOUND)
    return _without_directories(files) if storage.capabilities.remote else files


def found_batch(infos: Sequence[FileInfo]) -> pa.RecordBatch:
    """Some files as a store lists them, but for those of the log, and those whose names aren't UTF-8.

    Args:
        infos: the files, of a table's directory.
    """
    return _batch([info for info in infos if info.path and not info.path.startswith(_LOG)])


def marked_directories(empty: pa.ChunkedArray, paths: pa.ChunkedArray) -> pa.Array:
    """Which empty objects are directories, as the paths of files tell.

    Args:
        empty: the paths of empty objects.
        paths: of all objects, or some.
    """
    folders = pc.unique(pc.replace_substring_regex(paths, "(?s)(^|/)[^/]*$", "")).to_pylist()
    asked = {*empty.to_pylist()}
    # A loop over directories: those in between may have no files of their own. Only what is asked for is
    # kept: all of them may be many times as much text as the paths.
    parents = {folder[:end] for folder in folders for end in _ends(folder) if folder[:end] in asked}
    return array_of([path for path in empty.to_pylist() if path in parents], pa.string())


def each_once(files: pa.Table) -> pa.Table:
    """Files of which some may be there twice, each once: the youngest row of each.

    Args:
        files: with the columns of `FOUND`; without a time it counts as the oldest.
    """
    # An array of plain strings has no more than 2 GB.
    names = files["path"].cast(pa.large_string())
    distinct = pc.unique(names)
    if len(distinct) == files.num_rows:
        return files
    # Not Arrow's own grouping, which loads pandas.
    paths = _vector(pc.index_in(names, value_set=distinct).cast(pa.int64()))
    times = _vector(pc.coalesce(files["modificationTime"], scalar_of(0, pa.int64())))
    order = np.lexsort((-times, paths))
    is_first = np.empty(len(order), np.bool_)
    is_first[order] = np.diff(paths[order], prepend=-1) != 0
    return files.filter(bool_array(is_first))


def existing(files: pa.Table, storage: Storage) -> pa.Table:
    """Listed files, without the empty ones of an object store that aren't there under their names.

    Args:
        files: with the columns of `FOUND`, or more.
        storage: the table's.

    Raises:
        StorageError: the store failed.
    """
    if not storage.capabilities.remote:
        return files
    is_empty = pc.equal(files["size"], scalar_of(0, pa.int64()))
    # A request for each: no data file is empty.
    empty = files["path"].filter(is_empty).to_pylist()
    are_there = map_ordered(partial(_is_there, storage), empty, workers=_WORKERS)
    gone = [path for path, is_there in zip(empty, are_there, strict=True) if not is_there]
    return files.filter(pc.invert(pc.is_in(files["path"], value_set=array_of(gone, pa.string()))))


def _is_there(storage: Storage, path: str) -> bool:
    try:
        storage.head(path)
    except ObjectNotFoundError:
        return False
    return True


def _without_directories(files: pa.Table) -> pa.Table:
    is_empty = pc.equal(files["size"], scalar_of(0, pa.int64()))
    empty = files["path"].filter(is_empty)
    if not len(empty):
        return files
    names = marked_directories(empty, files["path"])
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

"""List the files of a table's directory on executors: what a full vacuum goes through.

The driver looks at what is directly in the table's directory; each directory below is listed, at any depth,
by a task. That reaches the store with the engine's client, which asks for many pages at a time where the
store lets it. Files become Arrow batches where they are listed, and stay on the executors.

So a table without partitions, whose files lie all in one directory, is listed by the driver: stores list
one directory page by page anyway. In stores that don't tell directories from files, all is one task's work.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta, timezone
from itertools import islice
from typing import TYPE_CHECKING, Any

from airflow_delta.engine.maintenance.vacuum_candidates import found_batch
from airflow_delta.engine.storage.base import FileInfo, Storage
from airflow_delta.engine.storage.local import LocalStorage
from airflow_delta.engine.storage.object_store import ObjectStorage
from airflow_delta.engine.storage.obstore_errors import failures
from airflow_delta.spark.executor_errors import errors_for_driver
from airflow_delta.spark.key_shuffle import StorageAddress

if TYPE_CHECKING:
    from pyspark import RDD, SparkContext

__all__ = ["listed_files", "top_level"]

_LOG = "_delta_log"
_BATCH = 1 << 16
_TASKS_PER_CORE = 4
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MILLISECOND = timedelta(milliseconds=1)


def listed_files(context: SparkContext, storage: Storage, address: StorageAddress) -> RDD[bytes]:
    """All files of a table's directory but those of its log: batches of the schema `FOUND`, as bytes.

    Args:
        context: Spark's.
        storage: the table's storage.
        address: the same, for tasks.

    Raises:
        StorageError: the store failed.
    """
    files, directories = top_level(storage)

    def walk(given: Iterable[str]) -> Iterator[bytes]:
        with errors_for_driver():
            of_task = address.open()
            for directory in given:
                yield from _batches(of_task.walk(directory))

    slices = min(len(directories), _TASKS_PER_CORE * context.defaultParallelism)
    below: RDD[bytes] = context.parallelize(directories, max(slices, 1)).mapPartitions(walk)
    return below.union(context.parallelize([*_batches(files)], 1))


def top_level(storage: Storage) -> tuple[Iterator[FileInfo], list[str]]:
    """What is directly in a table's directory: files, and directories but that of the log.

    Where the store can't tell them apart, there are no files, and one directory, which is the table's.

    Raises:
        StorageError: the store failed.
    """
    if isinstance(storage, LocalStorage):
        files = storage.list("")
        with os.scandir(storage.root) as entries:
            # Linked directories aren't entered, as by the engine's own walk.
            names = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    elif isinstance(storage, ObjectStorage):
        with failures("list", "", root=storage.root):
            found = storage.store.list_with_delimiter()
        files, names = map(_info, found["objects"]), found["common_prefixes"]
    else:
        return iter(()), [""]
    return files, [name for name in names if name != _LOG]


def _info(meta: Any) -> FileInfo:
    """What obstore tells of an object."""
    return FileInfo(meta["path"], meta["size"], (meta["last_modified"] - _EPOCH) // _MILLISECOND)


def _batches(infos: Iterator[FileInfo]) -> Iterator[bytes]:
    while some := list(islice(infos, _BATCH)):
        yield found_batch(some).serialize().to_pybytes()

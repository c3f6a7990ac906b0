"""List the files of a table's directory on executors, for a full vacuum.

The driver lists the top level. A task lists each directory below it, at any depth, with the
engine's client, which requests many pages at a time if the store allows it. Tasks put the files
into Arrow batches, which stay on the executors.

So the driver lists a table without partitions alone; a store lists a single directory page by page anyway.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING

from airflow_delta.engine.maintenance.table_files.listing import make_listing_batch
from airflow_delta.engine.storage.base import FileInfo, Storage
from airflow_delta.spark.checkpoint.key_shuffle import StorageAddress
from airflow_delta.spark.runtime.executor_errors import errors_for_driver

if TYPE_CHECKING:
    from pyspark import RDD, SparkContext

__all__ = ["listed_files"]

_LOG = "_delta_log"
_BATCH = 1 << 16
_TASKS_PER_CORE = 4


def listed_files(context: SparkContext, storage: Storage, address: StorageAddress) -> RDD[bytes]:
    """List all files of a table's directory except its log, as serialized batches of the schema `FOUND`.

    Args:
        context: the Spark context.
        storage: the table's storage.
        address: the table's address, for tasks.

    Raises:
        StorageError: the store failed.
    """
    level = storage.level("")
    directories = [name for name in level.folders if name != _LOG]

    def walk(given: Iterable[str]) -> Iterator[bytes]:
        """List some directories to their bottom."""
        with errors_for_driver():
            of_task = address.open()
            for directory in given:
                yield from _batches(of_task.walk(directory))

    slices = min(len(directories), _TASKS_PER_CORE * context.defaultParallelism)
    below: RDD[bytes] = context.parallelize(directories, max(slices, 1)).mapPartitions(walk)
    batches = [*_batches(level.files)]
    return below.union(context.parallelize(batches, max(len(batches), 1)))


def _batches(infos: Iterable[FileInfo]) -> Iterator[bytes]:
    remaining = iter(infos)
    while some := list(islice(remaining, _BATCH)):
        yield make_listing_batch(some).serialize().to_pybytes()

"""Copy files byte for byte, by executors with the engine's storage.

An executor streams a file from one storage into the other; it takes little memory, whatever the size. A
copy is there whole or not at all. A task that Spark runs twice copies the same bytes to the same place.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, BinaryIO

from airflow_delta.engine.errors import InvalidTableError, ObjectNotFoundError
from airflow_delta.engine.storage.location import storage_for_uri
from airflow_delta.spark.clone_files import FileCopy
from airflow_delta.spark.executor_errors import errors_for_driver, errors_of_executors
from airflow_delta.spark.key_shuffle import StorageAddress

if TYPE_CHECKING:
    from pyspark import SparkContext

    from airflow_delta.engine.storage.base import Storage

__all__ = ["copy_file", "copy_files"]

_TASK_BYTES = 512 << 20
_TASK_FILES = 500
_CHUNK_BYTES = 8 << 20


def copy_files(
    context: SparkContext,
    copies: Sequence[FileCopy],
    *,
    source: StorageAddress,
    target: StorageAddress,
) -> None:
    """Copy files.

    Args:
        context: the Spark context.
        copies: what to copy.
        source: the storage of the table that they are copied from.
        target: the storage of the table that they are copied to.

    Raises:
        ObjectNotFoundError: a file isn't there.
        InvalidTableError: a file has another size than the log says.
        StorageError: a store failed.
        PySparkException, Py4JError: Spark's own errors.
    """
    if not copies:
        return

    def work(given: Iterable[FileCopy]) -> Iterator[None]:
        with errors_for_driver():
            table, clone = source.open(), target.open()
            for copy in given:
                copy_file(copy, table, clone, source)
        return iter(())

    total = sum(copy.size or 0 for copy in copies)
    wanted = max(context.defaultParallelism, total // _TASK_BYTES, len(copies) // _TASK_FILES)
    tasks = min(len(copies), wanted)
    # The largest first, dealt out in turn: no task gets all the large ones.
    ordered = sorted(copies, key=lambda copy: copy.size or 0, reverse=True)
    dealt = [copy for number in range(tasks) for copy in ordered[number::tasks]]
    with errors_of_executors():
        context.parallelize(dealt, tasks).mapPartitions(work).count()


def copy_file(copy: FileCopy, table: Storage, clone: Storage, address: StorageAddress) -> None:
    """Copy one file.

    Args:
        copy: what to copy.
        table: the storage of the table that it is copied from.
        clone: the storage of the table that it is copied to.
        address: of the former, whose options open files elsewhere.

    Raises:
        ObjectNotFoundError: the file isn't there.
        InvalidTableError: it has another size than the log says.
        StorageError: a store failed.
    """
    storage, path = (
        (table, copy.source) if copy.inside else storage_for_uri(copy.source, address.options)
    )
    size = 0
    with (
        _opened(storage, path, copy, table) as file,
        clone.writer(copy.target, overwrite=True) as out,
    ):
        while chunk := file.read(_CHUNK_BYTES):
            out.write(chunk)
            size += len(chunk)
        if copy.size is not None and size != copy.size:
            # Raised in here, so that the copy is abandoned.
            raise InvalidTableError(
                f"the file {copy.source!r} has {size} bytes, and the log says {copy.size}; the table is "
                "damaged",
                table=table.root,
                path=copy.source,
            )


def _opened(storage: Storage, path: str, copy: FileCopy, table: Storage) -> BinaryIO:
    try:
        # Without the size that the log has: a file that is longer would be cut off in silence.
        return storage.open(path)
    except ObjectNotFoundError as error:
        raise ObjectNotFoundError(
            f"the file {copy.source!r}, which the version needs, is gone, because of a vacuum perhaps; "
            "copy a later version, or put the file back from a backup",
            table=table.root,
            path=copy.source,
        ) from error

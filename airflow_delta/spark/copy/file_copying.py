"""Copy files byte for byte on executors, with the engine's storage.

An executor streams each file from one storage to the other, so memory doesn't depend on the file's
size. A copy appears whole or not at all. A task that Spark runs twice writes the same bytes to the
same path.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, BinaryIO

from airflow_delta.engine.errors import InvalidTableError, ObjectNotFoundError, OutsidePathError
from airflow_delta.engine.model.paths import resolve
from airflow_delta.engine.model.sizes import size_text
from airflow_delta.spark.checkpoint.key_shuffle import StorageAddress
from airflow_delta.spark.copy.clone_files import FileCopy
from airflow_delta.spark.copy.copied_content import content_check
from airflow_delta.spark.runtime.executor_errors import errors_for_driver, errors_of_executors

if TYPE_CHECKING:
    from pyspark import SparkContext

    from airflow_delta.engine.storage.base import Storage
    from airflow_delta.engine.storage.file_access import FileAccess

__all__ = ["copy_file", "copy_files", "locate_source"]

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
        copies: the files.
        source: the storage of the table that they are copied from.
        target: the storage of the table that they are copied to.

    Raises:
        ObjectNotFoundError: a file doesn't exist.
        OutsidePathError: the table isn't allowed to read the location of a file; nothing is copied
            then.
        InvalidTableError: a file has another size than in the log, or isn't of the expected kind.
        StorageError: a store failed.
        PySparkException, Py4JError: Spark's own errors.
    """
    if not copies:
        return

    access = source.access()
    for copy in copies:
        # Check all locations before the first byte is copied.
        locate_source(copy, access)

    def work(given: Iterable[FileCopy]) -> Iterator[None]:
        """Copy the files of one task."""
        with errors_for_driver():
            table, clone = source.access(), target.open()
            for copy in given:
                copy_file(copy, table, clone)
        return iter(())

    total = sum(copy.size or 0 for copy in copies)
    wanted = max(context.defaultParallelism, total // _TASK_BYTES, len(copies) // _TASK_FILES)
    tasks = min(len(copies), wanted)
    # Sorted by size and distributed in turn, so that no task gets all the large files.
    ordered = sorted(copies, key=lambda copy: copy.size or 0, reverse=True)
    dealt = [copy for number in range(tasks) for copy in ordered[number::tasks]]
    with errors_of_executors():
        context.parallelize(dealt, tasks).mapPartitions(work).count()


def copy_file(copy: FileCopy, source: FileAccess, clone: Storage) -> None:
    """Copy one file.

    Args:
        copy: the file.
        source: opens the files of the table that it is copied from.
        clone: the storage of the table that it is copied to.

    Raises:
        ObjectNotFoundError: the file doesn't exist.
        OutsidePathError: the table isn't allowed to read its location.
        InvalidTableError: it has another size than in the log, or isn't of the expected kind.
        StorageError: a store failed.
    """
    table = source.storage
    storage, path = locate_source(copy, source)
    check = content_check(copy.content, table=table.root, path=copy.source)
    size = 0
    with (
        _opened(storage, path, copy, table) as file,
        clone.writer(copy.target, overwrite=True) as out,
    ):
        # An error raised in here abandons the copy.
        while chunk := file.read(_CHUNK_BYTES):
            check.update(chunk)
            out.write(chunk)
            size += len(chunk)
        if copy.size is not None and size != copy.size:
            raise InvalidTableError(
                f"the file {copy.source!r} has {size_text(size)}, and the log says {size_text(copy.size)}; "
                "the table is damaged",
                table=table.root,
                path=copy.source,
            )
        check.finish()


def locate_source(copy: FileCopy, source: FileAccess) -> tuple[Storage, str]:
    """Find the storage and the path of a file to be copied.

    Raises:
        OutsidePathError: the table isn't allowed to read there; or the table is in an object store
            and the path leads to a local file of the machine that copies.
        CorruptLogError: the path isn't that of a file.
    """
    root = source.storage.root
    storage, path = source.locate(
        f"{resolve(root, '')}{copy.source}" if copy.inside else copy.source
    )
    if storage.root.startswith("/") and not root.startswith("/"):
        raise OutsidePathError(
            f"the path {copy.source!r} isn't copied: it is a local file of the machine that would copy it, "
            "and the table is in another store; copy the table that the file belongs to, or read this one",
            table=root,
            path=copy.source,
        )
    return storage, path


def _opened(storage: Storage, path: str, copy: FileCopy, table: Storage) -> BinaryIO:
    try:
        # Not with the size of the log: a longer file would be cut off silently.
        return storage.open(path)
    except ObjectNotFoundError as error:
        raise ObjectNotFoundError(
            f"the file {copy.source!r}, which the version needs, is gone, perhaps deleted by a vacuum; "
            "copy a later version, or put the file back from a backup",
            table=table.root,
            path=copy.source,
        ) from error

"""Give data files the field ids of elements, keys and values, which Spark's Parquet writer can't write.

Iceberg compatibility V2 needs them. After Spark has written the files, each gets another footer. A store
has no way to change the end of an object, so tasks write the files anew, with the same bytes before the
footer. Only tables with arrays or maps pay for that.

Spec: PROTOCOL.md, "Iceberg Compatibility V2".
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from airflow_delta.engine.parquet import FOOTER_END, add_field_ids, footer_start
from airflow_delta.spark.checkpoint.key_shuffle import StorageAddress
from airflow_delta.spark.reader.data_files import is_data_file
from airflow_delta.spark.runtime.executor_errors import errors_for_driver, errors_of_executors

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from airflow_delta.engine import DeltaTable
    from airflow_delta.engine.storage.base import Storage

__all__ = ["write_nested_ids"]

_CHUNK_BYTES = 8 << 20


def write_nested_ids(
    spark: SparkSession, table: DeltaTable, directory: str, ids: Mapping[tuple[str, ...], int]
) -> None:
    """Write field ids into the data files of a directory.

    Args:
        spark: the session.
        table: the table.
        directory: the directory below its root; nobody else knows the files yet.
        ids: the ids, by the paths of their nodes in the files; none: nothing is done.

    Raises:
        StorageError: the store failed.
        PySparkException, Py4JError: Spark's own errors.
    """
    if not ids:
        return
    storage = table.storage
    address = StorageAddress(storage.root, table.storage_options)

    def work(paths: Iterable[str]) -> Iterator[None]:
        """Write the ids into the files of one task."""
        with errors_for_driver():
            opened = address.open()
            for path in paths:
                _write_ids(opened, path, ids)
        return iter(())

    # A Python loop over the files of one write.
    found = [info.path for info in storage.walk(directory)]
    files = [path for path in found if is_data_file(path, directory)]
    if files:
        with errors_of_executors():
            context = spark.sparkContext
            tasks = min(len(files), 4 * context.defaultParallelism)
            context.parallelize(files, tasks).mapPartitions(work).count()
        # The checksums that Hadoop writes beside files of a local file system are those of the former ones.
        storage.delete([path for path in found if path.endswith(".crc")])


def _write_ids(storage: Storage, path: str, ids: Mapping[tuple[str, ...], int]) -> None:
    with storage.open(path) as file, storage.writer(path, overwrite=True) as out:
        size = file.seek(0, os.SEEK_END)
        file.seek(size - FOOTER_END)
        left = start = footer_start(file.read(FOOTER_END), size)
        file.seek(0)
        while left:
            chunk = file.read(min(_CHUNK_BYTES, left))
            out.write(chunk)
            left -= len(chunk)
        file.seek(start)
        out.write(add_field_ids(file.read(), ids))

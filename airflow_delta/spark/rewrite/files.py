"""Rewrite data files in the current form of the table (`stored_rows`), without a shuffle.

* `FileRewriter.rewrite` writes each file by itself: a new file has rows of one old file only. So the
  fields of the old file's ``add``, except for statistics, are also right for the new files: partition
  values, tags, and so on. A file that Spark reads in several tasks becomes several files. A file whose
  rows are all deleted becomes none.
* `FileRewriter.rewrite_together` writes a file for each task of Spark, which is faster.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa
from pyroaring import BitMap64
from pyspark.sql import functions as F  # noqa: N812

from airflow_delta.engine import AddFile, DeltaTable, Snapshot
from airflow_delta.engine.data_files.footer_statistics import file_statistics
from airflow_delta.engine.model.paths import encode_path, resolve
from airflow_delta.spark.reader.data_files import DataFile, list_data_files, write_data_files
from airflow_delta.spark.reader.file_rows import FILE_NUMBER
from airflow_delta.spark.rewrite.row_counts import (
    check_row_count,
    check_row_counts,
    rows_that_stay,
)
from airflow_delta.spark.rewrite.stored_rows import StoredRows
from airflow_delta.spark.runtime.java_errors import storage_errors
from airflow_delta.spark.runtime.locations import hadoop_path
from airflow_delta.spark.writer.log_actions import live_files
from airflow_delta.spark.writer.nested_ids import write_nested_ids

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from airflow_delta.spark.rewrite.stored_rows import FileForm

__all__ = ["FileRewriter", "Rewritten"]

_ICEBERG_TAG = "ICEBERG_COMPAT_VERSION"


@dataclass(frozen=True, slots=True)
class Rewritten:
    """A live file, and the new files with its rows.

    Attributes:
        file: the file.
        successors: the new files; none if all rows are deleted.
    """

    file: AddFile
    successors: tuple[AddFile, ...]


class FileRewriter:
    """Rewrites files of one version.

    Args:
        spark: the session.
        table: the table.
        snapshot: the version.
        after: what the new files must be like, if the commit changes protocol or metadata.
    """

    def __init__(
        self,
        spark: SparkSession,
        table: DeltaTable,
        snapshot: Snapshot,
        *,
        after: FileForm | None = None,
    ) -> None:
        self._spark = spark
        self._table = table
        self._snapshot = snapshot
        self._stored = StoredRows(spark, table, snapshot, after=after)
        self._layout = self._stored.layout
        self._number = self._layout.unused("file")

    def rewrite(
        self,
        adds: pa.Table,
        *,
        deleted: Mapping[int, BitMap64] | None = None,
        directory: str | None = None,
    ) -> list[Rewritten]:
        """Write the rows of files into new ones; on an error, the new files are deleted.

        Args:
            adds: live files, all columns of ``add``.
            deleted: the rows to leave out, by the index of the file; None: what the files' own deletion
                vectors delete.
            directory: a new directory below the table's root for the new files; None for any.

        Raises:
            UnsupportedFeatureError: Spark can't read a file because of its name, or the files have
                no columns.
            InvalidTableError: a file has another number of rows than in its statistics.
            DeltaError: a deletion vector can't be read.
            StorageError: the store failed, also for Spark.
            PySparkException: Spark's own errors.
        """
        directory = directory or f"rewrite-{uuid.uuid4()}"
        with self._deleted_on_error(directory):
            self._write(self._rows(adds, deleted), directory, (self._number,))
            by_number: dict[int, list[AddFile]] = defaultdict(list)
            sources = list(live_files(adds))
            counts = [0] * len(sources)
            # Python loops over files are fine: the footers of the batch are read anyway.
            for found in list_data_files(self._table.storage, directory):
                if found.num_rows:
                    index = int(found.info.path.split("/")[1].partition("=")[2])
                    by_number[index].append(self._successor(sources[index], found))
                    counts[index] += found.num_rows
            check_row_counts(self._table, adds, counts, deleted=deleted)
        return [Rewritten(file, tuple(by_number[index])) for index, file in enumerate(sources)]

    def rewrite_together(
        self, adds: pa.Table, *, deleted: Mapping[int, BitMap64], directory: str
    ) -> list[AddFile]:
        """Write the rows of files into new ones that may have rows of several files.

        Spark needn't sort the rows by their file for that, and small files become fewer. The new files
        have no tags of the former ones. Only for a table without partition columns.

        Args:
            adds: live files, all columns of ``add``.
            deleted: the rows to leave out, by the index of the file.
            directory: a new directory below the table's root for the new files.

        Raises:
            InvalidTableError: the files have another number of rows than in their statistics.
            DeltaError: see `rewrite`.
            PySparkException: Spark's own errors.
        """
        with self._deleted_on_error(directory):
            rows, columns = self._stored.read(adds, deleted=deleted)
            self._write(rows.select(*columns), directory)
            written = list_data_files(self._table.storage, directory)
            # Spark may write a file for a task without rows.
            self._table.storage.delete([file.info.path for file in written if not file.num_rows])
            written = [file for file in written if file.num_rows]
            stay = rows_that_stay(self._table, adds, deleted=deleted)
            num_rows = sum(file.num_rows for file in written)
            check_row_count(self._table, adds, num_rows, stay, deleted=deleted)
        # A Python loop over the files of one write, whose footers were read.
        return [self._new_file(file, {}, None) for file in written]

    def _write(self, rows: DataFrame, directory: str, partition_by: tuple[str, ...] = ()) -> None:
        with storage_errors(self._table.uri, "write"):
            write_data_files(
                rows,
                hadoop_path(resolve(self._table.storage.root, encode_path(directory))),
                partition_by=partition_by,
                compression=self._stored.form.properties.parquet_compression_codec,
            )
            write_nested_ids(self._spark, self._table, directory, self._layout.nested_ids)

    @contextmanager
    def _deleted_on_error(self, directory: str) -> Iterator[None]:
        storage = self._table.storage
        try:
            yield
        except BaseException:
            storage.delete([info.path for info in storage.walk(directory)])
            raise

    def _rows(self, adds: pa.Table, deleted: Mapping[int, BitMap64] | None) -> DataFrame:
        """The rows to be written, with the number of their file."""
        rows, columns = self._stored.read(adds, deleted=deleted)
        return rows.select(*columns, F.col(FILE_NUMBER).alias(self._number))

    def _successor(self, source: AddFile, written: DataFile) -> AddFile:
        values = {
            self._layout.partition_names.get(name, name): value
            for name, value in source.partition_values.items()
        }
        tags = None if source.tags is None else dict(source.tags)
        return replace(
            self._new_file(written, values, tags), clustering_provider=source.clustering_provider
        )

    def _new_file(
        self,
        written: DataFile,
        partition_values: Mapping[str, str | None],
        tags: Mapping[str, str | None] | None,
    ) -> AddFile:
        """The action of a new file, without change of data.

        Args:
            written: the file.
            partition_values: its partition values.
            tags: the tags of the former file.
        """
        layout, form, kept = self._layout, self._stored.form, dict(tags or {})
        # A tag of the former file says that it follows rules, which this one may not have to.
        kept.pop(_ICEBERG_TAG, None)
        if layout.iceberg is not None and layout.iceberg > 1:
            kept[_ICEBERG_TAG] = str(layout.iceberg)
        return AddFile(
            path=encode_path(written.info.path),
            partition_values=dict(partition_values),
            size=written.info.size,
            modification_time=written.info.modified_ms,
            data_change=False,
            stats=file_statistics(
                written.footer,
                layout.statistics,
                prefix=form.properties.data_skipping_string_prefix_length,
                states_tight_bounds="deletionVectors" in form.supported,
            ),
            tags=kept if kept or tags is not None else None,
        )

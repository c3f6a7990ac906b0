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
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64
from pyspark.sql import functions as F  # noqa: N812

from airflow_delta.engine import AddFile, DeltaTable, Snapshot
from airflow_delta.engine.arrow.statistics.parse import num_records
from airflow_delta.engine.data_files.footer_statistics import file_statistics
from airflow_delta.engine.errors import InvalidTableError
from airflow_delta.engine.model.paths import encode_path, resolve
from airflow_delta.spark.reader.columns import FIELD_IDS
from airflow_delta.spark.reader.data_files import (
    DataFile,
    list_data_files,
    read_footer,
    write_data_files,
)
from airflow_delta.spark.reader.file_rows import FILE_NUMBER
from airflow_delta.spark.rewrite.stored_rows import StoredRows
from airflow_delta.spark.runtime.locations import hadoop_path
from airflow_delta.spark.writer.log_actions import live_files
from airflow_delta.spark.writer.nested_ids import write_nested_ids

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from airflow_delta.spark.rewrite.stored_rows import FileForm

__all__ = ["FileRewriter", "Rewritten"]

_WRITE_IDS = {"spark.sql.parquet.fieldId.write.enabled": "true"}
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
            StorageError: the store failed.
            PySparkException: Spark's own errors.
        """
        directory = directory or f"rewrite-{uuid.uuid4()}"
        with self._deleted_on_error(directory):
            self._write(self._rows(adds, deleted), directory, (self._number,))
            by_number: dict[int, list[AddFile]] = defaultdict(list)
            sources = list(live_files(adds))
            # Python loops over files are fine: the footers of the batch are read anyway.
            for found in list_data_files(self._table.storage, directory):
                if found.num_rows:
                    index = int(found.info.path.split("/")[1].partition("=")[2])
                    by_number[index].append(self._successor(sources[index], found))
            self._check_counts(adds, deleted, by_number)
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
            self._check_count(adds, deleted, sum(file.num_rows for file in written))
        # A Python loop over the files of one write, whose footers were read.
        return [self._new_file(file, {}, None) for file in written]

    def _write(self, rows: DataFrame, directory: str, partition_by: tuple[str, ...] = ()) -> None:
        with _settings(
            self._spark, {FIELD_IDS: str(self._stored.mode == "id").lower(), **_WRITE_IDS}
        ):
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
        layout, kept = self._layout, dict(tags or {})
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
            stats=file_statistics(written.footer, layout.statistics),
            tags=kept if kept or tags is not None else None,
        )

    def _check_counts(
        self,
        adds: pa.Table,
        deleted: Mapping[int, BitMap64] | None,
        written: Mapping[int, Sequence[AddFile]],
    ) -> None:
        """Check that the new files have exactly the rows that should stay, according to the log."""
        expected = _expected_rows(adds, deleted)
        texts = [[file.stats for file in written.get(index, ())] for index in range(len(expected))]
        for path, count, stats in zip(adds["path"].to_pylist(), expected, texts, strict=True):
            found = pc.sum(num_records(pa.chunked_array([stats], pa.string()))).as_py() or 0
            if count is not None and found != count:
                raise self._other_rows(path, found, count)

    def _check_count(self, adds: pa.Table, deleted: Mapping[int, BitMap64], found: int) -> None:
        """Check likewise that they have as many rows as should stay in all files together."""
        known = _expected_rows(adds, deleted)
        # A Python loop over the few files whose statistics don't have a count.
        for index in (n for n, count in enumerate(known) if count is None):
            known[index] = self._rows_that_stay(adds, deleted, index)
        expected = sum(count or 0 for count in known)
        if found == expected:
            return
        for index, path in enumerate(adds["path"].to_pylist()):
            stay = self._rows_that_stay(adds, deleted, index)
            if stay != known[index]:
                raise self._other_rows(path, stay, known[index] or 0)
        raise InvalidTableError(
            f"the rows of {len(known)} files were rewritten: {found} of them, but {expected} should stay; "
            "nothing was committed; check the files by DeltaTable.check",
            table=self._snapshot.table,
        )

    def _rows_that_stay(self, adds: pa.Table, deleted: Mapping[int, BitMap64], index: int) -> int:
        """The rows of a file that stay, by its footer."""
        path, size = adds["path"][index].as_py(), adds["size"][index].as_py()
        rows = read_footer(self._table, path, size).num_rows
        return int(rows) - len(deleted.get(index, ()))

    def _other_rows(self, path: str, found: int, expected: int) -> InvalidTableError:
        return InvalidTableError(
            f"the file {path!r} has {found} rows that aren't deleted, but according to its "
            f"statistics and its deletion vector it has {expected}: nothing was committed; find out "
            "what is wrong with the file",
            table=self._snapshot.table,
            path=path,
        )


def _expected_rows(adds: pa.Table, deleted: Mapping[int, BitMap64] | None) -> list[int | None]:
    """The rows of each file that stay; None if its statistics don't say how many it has."""
    if deleted is None:
        left_out = pc.coalesce(pc.struct_field(adds["deletionVector"], "cardinality"), 0)
    else:
        counts = [len(deleted.get(index, ())) for index in range(adds.num_rows)]
        left_out = pa.array(counts, pa.int64())
    found: list[int | None] = pc.subtract(num_records(adds["stats"]), left_out).to_pylist()
    return found


@contextmanager
def _settings(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    before = {name: str(spark.conf.get(name)) for name in settings}
    try:
        for name, value in settings.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)

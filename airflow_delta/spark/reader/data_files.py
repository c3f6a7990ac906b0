"""Write rows as Parquet files, and read their footers.

Each write has a new directory, and its files stay there:

* Concurrent writers don't interfere. Spark's committer deletes the directory ``_temporary`` beside
  its files when it is done, with the unfinished files of any other writer in the same directory.
* Spark's committer moves the files from ``_temporary`` to their final paths. In an object store, where a
  rename is a copy, it moves them once only (`committer_options`).
* The result of a write is the content of the directory. Deleting the directory undoes a failed write.

Files have the protocol's form, whatever the settings of the session: timestamps as 64-bit
microseconds, lists and decimals in Parquet's current encoding, and statistics in the footers.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Observation
from pyspark.sql import functions as F  # noqa: N812

from airflow_delta.engine.errors import DataFileError, StorageError, UnsupportedFeatureError
from airflow_delta.engine.model.paths import resolve
from airflow_delta.engine.parquet import PyarrowFallback, has_encrypted_columns, read_file_end
from airflow_delta.spark.reader.own_sessions import planned_quickly
from airflow_delta.spark.runtime.locations import RENAMED_AT_ONCE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from airflow_delta.engine import DeltaTable
    from airflow_delta.engine.storage.base import FileInfo, Storage

__all__ = [
    "STATISTICS_SETTING",
    "WRITE_SETTINGS",
    "DataFile",
    "check_num_rows",
    "committer_options",
    "is_data_file",
    "list_data_files",
    "read_footer",
    "write_data_files",
]

WRITE_SETTINGS = {
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.writeLegacyFormat": "false",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.fieldId.write.enabled": "true",
}
"""The session settings with which files have the protocol's form."""

_PART_SIZE = "spark.sql.adaptive.advisoryPartitionSizeInBytes"
_STATISTICS_OPTIONS = {
    # Parquet leaves out all statistics of a column, also its number of nulls, if its bounds have 4096 bytes
    # or more together. Truncated ones are still bounds.
    "parquet.statistics.truncate.length": "1024",
}

STATISTICS_SETTING = "parquet.column.statistics.enabled"
"""Hadoop's setting for whether footers have statistics; with ``#`` and a name, those of one column."""

# Committers of Hadoop and S3A keep the files of unfinished tasks there. The directories stay if a setting
# says so, or if a task outlives its job. A name with "=" is that of a partition.
_OF_COMMITTER = re.compile(r"(?:^|/)(?:_temporary|__magic[^/=]*|\.[^/=]*)/")

_FOOTERS_AT_A_TIME = 8

_REMEDY = (
    "If this session wrote it, remove the settings that begin with parquet.encryption, because the engine "
    "reads the footer of each new file; otherwise rewrite the file without encryption"
)

# The settings are those of the whole session, so only one writer at a time may change them.
_session_lock = threading.Lock()


@dataclass(frozen=True, slots=True)
class DataFile:
    """A parquet file that was written.

    Attributes:
        info: path below the storage's root, size and modification time.
        footer: a ``pyarrow.parquet.FileMetaData``.
    """

    info: FileInfo
    footer: Any

    @property
    def num_rows(self) -> int:
        """The number of rows."""
        return int(self.footer.num_rows)


def write_data_files(
    rows: DataFrame,
    path: str,
    *,
    partition_by: tuple[str, ...] = (),
    compression: str | None = None,
    part_size: int | None = None,
) -> int:
    """Write rows as Parquet into a new directory, and count them.

    If the session's settings aren't those that the protocol needs, they are changed during the write, and
    other calls wait.

    Args:
        rows: the rows.
        path: the directory's Hadoop path; must not exist.
        partition_by: partition columns, which become directories.
        compression: Spark's name of a codec; None for the session's.
        part_size: the bytes at which adaptive execution aims for the parts of a shuffle; None for the
            session's.

    Returns:
        The number of rows, each counted once, also if Spark has repeated its task; see `check_num_rows`.

    Raises:
        PySparkException: Spark's own errors.
    """
    rows, counted = planned_quickly(rows), Observation()
    # Per-file statistics and the marks of identity columns come from the footers.
    options = {**committer_options(path), **_STATISTICS_OPTIONS, STATISTICS_SETTING: "true"}
    # At the end of the plan, so that the tasks that write the files count. Spark adds up the counts of the
    # tasks whose results it takes, one for each part of the rows.
    observed = rows.observe(counted, F.count(F.lit(1)).alias("rows"))
    writer = observed.write.mode("error").options(**options)
    if partition_by:
        writer = writer.partitionBy(*partition_by)
    if compression is not None:
        writer = writer.option("compression", compression)
    settings = (
        WRITE_SETTINGS if part_size is None else {**WRITE_SETTINGS, _PART_SIZE: f"{part_size}b"}
    )
    with _session_settings(rows.sparkSession, settings):
        writer.parquet(path)
    # Spark completes the observation before the write returns, also that of a plan without rows.
    return int(counted.get["rows"])


def committer_options(path: str) -> dict[str, str]:
    """The options of a write to a new directory, in any format, for Hadoop's committer.

    Args:
        path: the directory's Hadoop path.
    """
    # With algorithm 1, a task that is done renames its directory, and the end of the job moves the files of
    # all tasks. So no task leaves files, or deletes any after the job. With algorithm 2, tasks move their
    # files to the directory themselves, at the same time. In object stores, where renames are copies or
    # slow, that saves half of them. But a task whose executor ends meanwhile leaves some files, which
    # `check_num_rows` finds. Where it isn't called, rows come from files that don't change, so that the
    # repeated task replaces all of them.
    algorithm = "1" if path.partition(":")[0] in RENAMED_AT_ONCE else "2"
    return {
        # No `_SUCCESS` file: the log, or a marker, records success.
        "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
        "mapreduce.fileoutputcommitter.algorithm.version": algorithm,
    }


def list_data_files(storage: Storage, directory: str) -> list[DataFile]:
    """List the Parquet files below a directory, sorted by path.

    Some may have no rows: Spark sometimes writes a file for an empty partition.

    Raises:
        DataFileError: a file can't be read as Parquet. Facts: path.
        UnsupportedFeatureError: a file has encrypted columns. Facts: path.
        StorageError: the store failed.
    """
    infos = [info for info in storage.walk(directory) if is_data_file(info.path, directory)]

    def read(info: FileInfo) -> DataFile:
        """Read the footer of one file."""
        return DataFile(info, _read_footer(storage, info.path, info.size))

    with ThreadPoolExecutor(_FOOTERS_AT_A_TIME) as pool:
        files = list(pool.map(read, infos))
    return sorted(files, key=lambda file: file.info.path)


def check_num_rows(files: Sequence[DataFile], num_rows: int, *, table: str) -> None:
    """Check that the files of a write have the rows that Spark has written, and no others.

    An executor that ends while it moves the files of a task may leave some. The task is repeated, and
    replaces files of the same names. If its rows are others this time, or in another order, files of the
    first time stay.

    Args:
        files: the files that were found.
        num_rows: the number of rows that Spark has written.
        table: the table's location, for errors.

    Raises:
        StorageError: the files have more rows, or fewer.
    """
    found = sum(file.num_rows for file in files)
    if found != num_rows:
        raise StorageError(
            f"the new files have {found} rows, and Spark's tasks have written {num_rows}: an executor has "
            "probably ended while it moved its files, and the repeated task has written others; nothing "
            "was committed. Run it again, from a source that has the same rows each time it is read",
            table=table,
            operation="write",
        )


def is_data_file(path: str, directory: str) -> bool:
    """Whether a file below the directory of a write is one of its data files.

    Files that a committer has left in directories of its own aren't.

    Args:
        path: the file's path.
        directory: the directory of the write.
    """
    return path.endswith(".parquet") and not _OF_COMMITTER.search(
        path.removeprefix(f"{directory}/")
    )


def read_footer(table: DeltaTable, path: str, size: int) -> Any:
    """Read the footer of a live file, as a ``pyarrow.parquet.FileMetaData``.

    Args:
        table: the table.
        path: the path in the log.
        size: the file's size in bytes.

    Raises:
        DataFileError: it can't be read as Parquet. Facts: path.
        UnsupportedFeatureError: it has encrypted columns. Facts: path.
        OutsidePathError: the table may not read there.
        StorageError: the store failed.
    """
    storage, name = table.file_access.locate(resolve(table.storage.root, path))
    return _read_footer(storage, name, size)


def _read_footer(storage: Storage, path: str, size: int) -> Any:
    with storage.open(path, size=size) as file:
        end = read_file_end(file)
    try:
        footer = pq.read_metadata(pa.BufferReader(end))
        is_encrypted = has_encrypted_columns(end, footer.serialized_size)
    except (pa.ArrowException, OSError, PyarrowFallback) as error:
        raise DataFileError(
            f"the data file {path!r} can't be read as Parquet: {error}; nothing was committed. {_REMEDY}",
            table=storage.root,
            path=path,
        ) from error
    if is_encrypted:
        raise UnsupportedFeatureError(
            f"the data file {path!r} has encrypted columns, and the engine has no keys; nothing was "
            f"committed. {_REMEDY}",
            table=storage.root,
            path=path,
        )
    return footer


@contextmanager
def _session_settings(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    with ExitStack() as stack:
        stack.enter_context(_session_lock)
        before = _changes(spark, settings)
        if not before:
            # The session has the right settings, and no other write has set them: no need to wait.
            stack.close()
        try:
            for name in before:
                spark.conf.set(name, settings[name])
            yield
        finally:
            for name, value in before.items():
                spark.conf.set(name, value)


def _changes(spark: SparkSession, settings: Mapping[str, str]) -> Mapping[str, str]:
    """The settings that must be changed, with their current values."""
    present = {name: str(spark.conf.get(name)) for name in settings}
    return {
        name: value for name, value in present.items() if value.upper() != settings[name].upper()
    }

"""Write rows as parquet files and learn from their footers what is in them.

Each write has a directory of its own, below the table's root or another one, and its files stay
there. That makes three things simple:

* writers that run at a time don't meet: Spark's committer keeps its unfinished files in a
  directory ``_temporary`` beside the finished ones, and deletes it when it is done, with whatever
  another writer has there;
* nothing has to be moved: to an object store a rename is a copy;
* what was written is what lies in the directory, and a failed write is undone by deleting it.

Files are written the way that the protocol wants, whatever the session is set to: timestamps as
64-bit microseconds, lists and decimals in parquet's present form.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from airflow_delta.engine.storage.base import FileInfo, Storage

__all__ = ["COMMITTER_OPTIONS", "DataFile", "list_data_files", "write_data_files"]

_SESSION = {
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.writeLegacyFormat": "false",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
}
COMMITTER_OPTIONS = {
    # No `_SUCCESS`: it says nothing that the log, or a marker, doesn't say.
    "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
    # Tasks move their files to the place themselves. A job that fails leaves some there, but nobody
    # looks at the directory before the job is done, and on object stores it saves a copy.
    "mapreduce.fileoutputcommitter.algorithm.version": "2",
}
"""Options of all writes into a directory of their own, whatever the format."""

_FOOTERS_AT_A_TIME = 8

# The settings belong to the session, not to the write: one writer at a time may change them.
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
        """How many rows it holds."""
        return int(self.footer.num_rows)


def write_data_files(rows: DataFrame, path: str, *, partition_by: tuple[str, ...] = ()) -> None:
    """Write rows as parquet into a new directory.

    Where the session is set up otherwise than the protocol wants, it is changed while Spark writes,
    and other writes of this function wait.

    Args:
        rows: what to write.
        path: the directory's Hadoop path; must not exist.
        partition_by: columns that become directories.

    Raises:
        PySparkException: Spark's own errors.
    """
    writer = rows.write.mode("error").options(**COMMITTER_OPTIONS)
    if partition_by:
        writer = writer.partitionBy(*partition_by)
    with _protocol_settings(rows.sparkSession):
        writer.parquet(path)


def list_data_files(storage: Storage, directory: str) -> list[DataFile]:
    """The parquet files below a directory, by path.

    Some may hold no rows: Spark writes one for an empty partition at times.
    """
    infos = [info for info in storage.walk(directory) if info.name.endswith(".parquet")]

    def read(info: FileInfo) -> DataFile:
        with storage.open(info.path, size=info.size) as file:
            return DataFile(info, pq.read_metadata(file))

    with ThreadPoolExecutor(_FOOTERS_AT_A_TIME) as pool:
        files = list(pool.map(read, infos))
    return sorted(files, key=lambda file: file.info.path)


@contextmanager
def _protocol_settings(spark: SparkSession) -> Iterator[None]:
    with ExitStack() as stack:
        stack.enter_context(_session_lock)
        before = _changes(spark)
        if not before:
            # The session is as it must be, and not by another write's doing: no need to wait.
            stack.close()
        try:
            for name in before:
                spark.conf.set(name, _SESSION[name])
            yield
        finally:
            for name, value in before.items():
                spark.conf.set(name, value)


def _changes(spark: SparkSession) -> Mapping[str, str]:
    """The settings that are not as they must be, with their present values."""
    present = {name: str(spark.conf.get(name)) for name in _SESSION}
    return {
        name: value for name, value in present.items() if value.upper() != _SESSION[name].upper()
    }

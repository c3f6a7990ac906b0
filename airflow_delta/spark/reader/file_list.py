"""Create a Spark scan over exactly the files of a list, without requests to the store.

``spark.read.parquet(*paths)`` can't read the files that a log names: it treats ``{``, ``[`` and ``*`` in a
path as patterns, requests every file from the store again, and starts a job to do so from some dozens of
files on. But Spark reads a list of files if a directory has a ``_spark_metadata``, the log of a streaming
sink: then it reads the files that this log names, wherever they are, and doesn't list. So the list is
written as such a log to a temporary directory, which Spark reads when the DataFrame is created.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from airflow_delta.engine.errors import InvalidTableError, UnsupportedFeatureError
from airflow_delta.job_files import FOLDER_VARIABLE
from airflow_delta.spark.reader.own_sessions import in_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

__all__ = ["scan_files"]

_Texts: TypeAlias = "Sequence[str] | pa.Array | pa.ChunkedArray"
_Numbers: TypeAlias = "Sequence[int] | pa.Array | pa.ChunkedArray"

_SINK_LOG = "_spark_metadata"
# A log with a single compaction file is valid with any compaction interval of the session.
_SINK_LOG_FILE = "0.compact"
_SINK_LOG_VERSION = "v1"
_SOURCES = "spark.sql.sources.useV1SourceList"
_LINES_AT_A_TIME = 100_000

_OPTIONS = {
    # No partition values from directory names: they come from the log.
    "recursiveFileLookup": "true",
    # Whatever the session's settings: a file of the table that can't be read is an error.
    "ignoreMissingFiles": "false",
    "ignoreCorruptFiles": "false",
}
# Spark skips such files, as it does empty ones. They are refused, because their rows would be lost. As in
# Spark's PartitioningAwareFileIndex, a name with "=" is the directory of a partition.
_SKIPPED_NAME = r"(^|/)(\.[^/]*|_[^/=]*)$"


def scan_files(
    spark: SparkSession,
    uris: _Texts,
    *,
    sizes: _Numbers,
    modified_ms: _Numbers,
    schema: StructType,
    table: str,
    file_format: str = "parquet",
    options: Mapping[str, str] | None = None,
    read_in: SparkSession | None = None,
) -> DataFrame:
    """Read exactly these files, with a given schema.

    Args:
        spark: the session.
        uris: the URIs of the files, encoded; see `locations.hadoop_uris`; may be none.
        sizes: their sizes in bytes, by which Spark splits the work.
        modified_ms: their modification times in epoch ms.
        schema: the columns to read; a column that a file lacks is null there.
        table: the table's location, for messages.
        file_format: Spark's name of the format.
        options: options of Spark's reader for the format.
        read_in: the session whose settings apply to reading; None for ``spark``.

    Raises:
        InvalidTableError: a file is empty according to the log, or is in the list twice in different
            spellings.
        UnsupportedFeatureError: Spark would skip a file because of its name; or the session ignores sink
            logs, or reads the format with a source that has no row index.
    """
    files = pa.table(
        {
            "uri": _column(uris, pa.string()),
            "size": _column(sizes, pa.int64()),
            "modified": _column(modified_ms, pa.int64()),
        }
    )
    _check_not_skipped(files, table)
    _check_source(spark, file_format, table)
    folder = os.environ.get(FOLDER_VARIABLE)  # set for jobs, not for a user's own session
    with tempfile.TemporaryDirectory(prefix="airflow-delta-files-", dir=folder) as directory:
        sink_log = Path(directory, _SINK_LOG)
        sink_log.mkdir()
        _write_sink_log(files, Path(sink_log, _SINK_LOG_FILE))
        reader = (read_in or spark).read.schema(schema).options(**{**(options or {}), **_OPTIONS})
        scan = reader.format(file_format).load(f"file:{directory}")
    _check_complete(scan, files.num_rows, table)
    return in_session(scan, spark)


def _column(values: _Texts | _Numbers, type_: pa.DataType) -> pa.Array | pa.ChunkedArray:
    if isinstance(values, (pa.Array, pa.ChunkedArray)):
        return values.cast(type_)
    return pa.array(values, type_)


def _write_sink_log(files: pa.Table, path: Path) -> None:
    """Write the sink log. URIs are encoded: they need no escapes for JSON."""
    with path.open("wb") as log:
        log.write(_SINK_LOG_VERSION.encode())
        # Joined, because a table put together of others may have chunks without rows.
        for batch in files.combine_chunks().to_batches(max_chunksize=_LINES_AT_A_TIME):
            size, modified = (batch[name].cast(pa.string()) for name in ("size", "modified"))
            lines = pc.binary_join_element_wise(
                '\n{"path":"', batch["uri"], '","size":', size,
                ',"isDir":false,"modificationTime":', modified,
                ',"blockReplication":1,"blockSize":', size, ',"action":"add"}',
                "",
            )  # fmt: skip
            # The array is new, so its texts are contiguous from the start of the buffer.
            log.write(memoryview(lines.buffers()[2])[: pc.sum(pc.binary_length(lines)).as_py()])


def _check_not_skipped(files: pa.Table, table: str) -> None:
    skipped = files["uri"].filter(pc.match_substring_regex(files["uri"], _SKIPPED_NAME))
    if len(skipped):
        uri = skipped[0].as_py()
        raise UnsupportedFeatureError(
            f"the data file {uri} can't be read with Spark, which skips files whose name begins "
            "with '_' or '.'; rewrite the file under another name",
            table=table,
            path=uri,
        )
    empty = files.filter(pc.less_equal(files["size"], 0))
    if empty.num_rows:
        uri, size = empty["uri"][0].as_py(), empty["size"][0].as_py()
        raise InvalidTableError(
            f"the data file {uri} has the size {size} in the log, but no data file is that small; "
            "restore the file, or remove it from the table",
            table=table,
            path=uri,
        )


def _check_source(spark: SparkSession, file_format: str, table: str) -> None:
    """Check that Spark reads the format with a version 1 source; those of version 2 have no row index."""
    sources = str(spark.conf.get(_SOURCES, file_format))
    if file_format not in [name.strip().lower() for name in sources.split(",")]:
        raise UnsupportedFeatureError(
            f"the session's {_SOURCES} is {sources!r}: data files can't be read without "
            f"{file_format} in it",
            table=table,
        )


def _check_complete(scan: DataFrame, expected: int, table: str) -> None:
    """Check the number of files in the scan: if the session ignores sink logs, it is silently empty."""
    # Via the JVM object, so that only the length of the array is transferred.
    found = len(scan._jdf.inputFiles())  # noqa: SLF001
    if found == expected:
        return
    if not found:
        raise UnsupportedFeatureError(
            f"Spark read none of the {expected} files of the table; set "
            "spark.sql.streaming.fileStreamSink.ignoreMetadata to false",
            table=table,
        )
    raise InvalidTableError(
        f"Spark found {found} files, but the log names {expected}: some are named more than once, in "
        "different spellings ('a/./b', 'a//b'). Remove one of each pair with a writer that knows which "
        "rows are right",
        table=table,
    )

"""A parquet scan over exactly the files of a list, without looking at the store.

``spark.read.parquet(*paths)`` is no way to read the files that a log names: it takes ``{``, ``[``
and ``*`` in a path for patterns, asks the store for every file again, and starts a job to do so
from some dozens of files on. But Spark has a file list of its own: where a directory holds
``_spark_metadata``, the log of a streaming sink, Spark reads the files that this log names, wherever
they are, and doesn't list. So the list is written as such a log into a temporary directory, which
Spark reads, whole, while the DataFrame is made; nothing else of the directory is ever looked at.

Two kinds of files can't be read this way, since Spark skips them in every list: files whose name
begins with ``_`` or ``.``, and files of no bytes. They are refused instead of being lost.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_delta.engine.errors import InvalidTableError, UnsupportedFeatureError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

__all__ = ["scan_files"]

_SINK_LOG = "_spark_metadata"
_SINK_LOG_VERSION = "v1"

_OPTIONS = {
    # The directories of the files mean nothing: partition values come from the log.
    "recursiveFileLookup": "true",
    # Whatever the session says: a file of the table that can't be read is an error.
    "ignoreMissingFiles": "false",
    "ignoreCorruptFiles": "false",
}


def scan_files(
    spark: SparkSession,
    uris: Sequence[str],
    *,
    sizes: Sequence[int],
    modified_ms: Sequence[int],
    schema: StructType,
    table: str,
    options: Mapping[str, str] | None = None,
) -> DataFrame:
    """Read parquet files, and only these, with a given schema.

    Args:
        spark: the session.
        uris: where the files are, encoded; see `locations.hadoop_uri`. At least one.
        sizes: their sizes in bytes; Spark splits work by them.
        modified_ms: their modification times in epoch ms.
        schema: the columns to read; one that a file lacks is null there.
        table: the table's location, for messages.
        options: options of Spark's parquet reader.

    Raises:
        InvalidTableError: a file has no bytes, says the log.
        UnsupportedFeatureError: a file's name makes Spark skip it, or the session ignores file
            lists.
    """
    _check_not_skipped(uris, sizes, table)
    # Spark's list is text with a line per file, so this is a loop over files.
    entries = [
        json.dumps(
            {
                "path": uri,
                "size": size,
                "isDir": False,
                "modificationTime": modified,
                "blockReplication": 1,
                "blockSize": size,
                "action": "add",
            }
        )
        for uri, size, modified in zip(uris, sizes, modified_ms, strict=True)
    ]
    with tempfile.TemporaryDirectory(prefix="airflow-delta-files-") as directory:
        sink_log = Path(directory, _SINK_LOG)
        sink_log.mkdir()
        Path(sink_log, "0").write_text("\n".join([_SINK_LOG_VERSION, *entries]), encoding="utf-8")
        reader = spark.read.schema(schema).options(**_OPTIONS, **(options or {}))
        scan = reader.parquet(f"file:{directory}")
    _check_complete(scan, len(uris), table)
    return scan


def _check_not_skipped(uris: Sequence[str], sizes: Sequence[int], table: str) -> None:
    for uri, size in zip(uris, sizes, strict=True):
        name = uri.rpartition("/")[2]
        # As in Spark's PartitioningAwareFileIndex: a "=" makes it the directory of a partition.
        if name.startswith(".") or (name.startswith("_") and "=" not in name):
            raise UnsupportedFeatureError(
                f"the data file {uri} can't be read with Spark, which skips files whose name begins "
                "with '_' or '.'; rewrite the file under another name",
                table=table,
                path=uri,
            )
        if size <= 0:
            raise InvalidTableError(
                f"the data file {uri} has the size {size} in the log: no parquet file is that "
                "small; restore the file, or remove it from the table",
                table=table,
                path=uri,
            )


def _check_complete(scan: DataFrame, expected: int, table: str) -> None:
    """Spark may have been told to ignore sink logs; then the scan is empty, not wrong loudly."""
    # By the JVM's own object: the array stays there, only its length comes over.
    found = len(scan._jdf.inputFiles())  # noqa: SLF001
    if found != expected:
        raise UnsupportedFeatureError(
            f"Spark took {found} of the {expected} files of the table; set "
            "spark.sql.streaming.fileStreamSink.ignoreMetadata to false",
            table=table,
        )

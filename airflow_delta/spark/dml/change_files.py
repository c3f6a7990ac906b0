"""Write change data files: the rows that a commit inserts, deletes or updates, with what happened to them.

If a commit has such files, they must contain all of its changes, because readers of the feed then ignore
its other files.

Spec: PROTOCOL.md, "Add CDC File", "Change Data Files".
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812

from airflow_delta.engine.features.change_columns import CHANGE_TYPE
from airflow_delta.engine.model.actions import AddCdcFile
from airflow_delta.engine.model.paths import encode_path, resolve
from airflow_delta.spark.reader.columns import quoted
from airflow_delta.spark.reader.data_files import (
    check_num_rows,
    list_data_files,
    write_data_files,
)
from airflow_delta.spark.runtime.java_errors import storage_errors
from airflow_delta.spark.runtime.locations import hadoop_path
from airflow_delta.spark.writer.layout import target_layout
from airflow_delta.spark.writer.nested_ids import write_nested_ids
from airflow_delta.spark.writer.partitioning import partition_values

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from airflow_delta.spark.writer.new_files import NewFiles
    from airflow_delta.spark.writer.target import WriteTarget

__all__ = ["changed", "keeps_change_data", "stage_changes", "written"]

_DIRECTORY = "_change_data/"

_ALL_FILES = {
    # The path is literal: it may have characters that Spark takes for a pattern otherwise.
    "__globPaths__": "false",
    # Whatever the session's settings: a file that can't be read is an error.
    "ignoreMissingFiles": "false",
    "ignoreCorruptFiles": "false",
}
"""Options with which Spark reads every file of a directory."""


def keeps_change_data(target: WriteTarget) -> bool:
    """Whether a table keeps a feed of its changes."""
    return "changeDataFeed" in target.supported and target.properties.change_data_feed_enabled


def changed(rows: DataFrame, change_type: str, target: WriteTarget) -> DataFrame:
    """Lay out rows for change data files.

    Args:
        rows: the rows, with the columns of the table.
        change_type: what happened to them: ``insert``, ``delete``, ``update_preimage`` or
            ``update_postimage``.
        target: the table.
    """
    return rows.select(*target_layout(target).columns(), F.lit(change_type).alias(CHANGE_TYPE))


def written(
    spark: SparkSession,
    directory: str,
    change_type: str,
    target: WriteTarget,
    new_files: NewFiles,
) -> DataFrame:
    """Read the rows of new files back, for change data files.

    So the change data has exactly the values that were written, even if an expression has another value
    each time.

    Args:
        spark: the session.
        directory: the directory of the files, below the table's root.
        change_type: see `changed`.
        target: the table.
        new_files: the new files.

    Raises:
        StorageError: Spark can't list the files.
    """
    layout = target_layout(target)
    text = T.StringType()
    schema = T.StructType(
        [*layout.written.fields, *(T.StructField(name, text) for name in layout.directories)]
    )
    path = hadoop_path(resolve(new_files.storage.root, encode_path(directory)))
    reader = spark.read.schema(schema).options(basePath=path, **_ALL_FILES)
    with storage_errors(target.table, "read"):
        rows = reader.parquet(path)
    names = [quoted(name) for name in (*layout.written.names, *layout.directories)]
    return rows.select(*names, F.lit(change_type).alias(CHANGE_TYPE))


def stage_changes(frames: Sequence[DataFrame], target: WriteTarget, new_files: NewFiles) -> int:
    """Write changed rows in one job, and stage the files.

    Args:
        frames: rows of `changed` and `written`; none: nothing is written.
        target: the table.
        new_files: gets the files, to be deleted unless the commit is made.

    Returns:
        The number of files.

    Raises:
        StorageError: Spark can't read or write a file, or the files have other rows than Spark's tasks have
            written.
        PySparkException: Spark's other errors.
    """
    if not frames:
        return 0
    storage, directory = new_files.storage, new_files.new_directory(_DIRECTORY)
    layout = target_layout(target)
    rows = reduce(DataFrame.union, frames)
    with storage_errors(target.table, "write"):
        num_rows = write_data_files(
            rows,
            hadoop_path(resolve(storage.root, encode_path(directory))),
            partition_by=layout.directories,
            compression=target.properties.parquet_compression_codec,
        )
        write_nested_ids(rows.sparkSession, new_files.table, directory, layout.nested_ids)
    written = list_data_files(storage, directory)
    check_num_rows(written, num_rows, table=target.table)
    files = [file for file in written if file.num_rows]
    target.transaction.add_cdc_files(
        [
            AddCdcFile(
                path=encode_path(file.info.path),
                partition_values=partition_values(
                    file.info.path.removeprefix(f"{directory}/").split("/")[:-1],
                    layout.partition_fields,
                    table=target.table,
                ),
                size=file.info.size,
            )
            for file in files
        ]
    )
    return len(files)

"""Write change data files: the rows that a commit inserts, deletes or updates, with what happened to them.

A commit that has such a file needs one for each of its changes (edge case G14): readers of the feed
then take nothing from its other files.

Spec: PROTOCOL.md, "Add CDC File", "Change Data Files".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812

from airflow_delta.engine.model.actions import AddCdcFile
from airflow_delta.engine.model.paths import encode_path, resolve
from airflow_delta.spark.reader.columns import quoted
from airflow_delta.spark.reader.data_files import list_data_files, write_data_files
from airflow_delta.spark.runtime.java_errors import storage_errors
from airflow_delta.spark.runtime.locations import hadoop_path
from airflow_delta.spark.writer.layout import target_layout
from airflow_delta.spark.writer.partitioning import partition_values

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from airflow_delta.spark.writer.new_files import NewFiles
    from airflow_delta.spark.writer.target import WriteTarget

__all__ = ["CHANGE_TYPE", "keeps_change_data", "stage_changes", "stage_inserts"]

CHANGE_TYPE = "_change_type"
"""The column of change data files that says what happened to a row."""

_DIRECTORY = "_change_data/"


def keeps_change_data(target: WriteTarget) -> bool:
    """Whether a table keeps a feed of its changes."""
    return "changeDataFeed" in target.supported and target.properties.change_data_feed_enabled


def stage_changes(rows: DataFrame, target: WriteTarget, new_files: NewFiles) -> int:
    """Write changed rows, and stage the files.

    Args:
        rows: the rows: the columns of the table, and `CHANGE_TYPE`.
        target: the table.
        new_files: gets the files, to be deleted unless the commit is made.

    Returns:
        The number of files.

    Raises:
        StorageError: Spark can't read or write a file.
        PySparkException: Spark's other errors.
    """
    layout = target_layout(target)
    return _stage(
        rows.select(*layout.columns(), F.col(CHANGE_TYPE)), target, new_files, layout.directories
    )


def stage_inserts(spark: SparkSession, target: WriteTarget, new_files: NewFiles) -> int:
    """Write the rows of new files, once more, as inserted ones.

    Reading them back gives the very values that were written, also where an expression gives another one
    each time.

    Args:
        spark: the session.
        target: the table.
        new_files: the new files; gets the change data files.

    Returns:
        The number of files.

    Raises:
        StorageError: Spark can't read or write a file.
        PySparkException: Spark's other errors.
    """
    if not new_files.adds:
        return 0
    layout = target_layout(target)
    text = T.StringType()
    schema = T.StructType(
        [*layout.written.fields, *(T.StructField(name, text) for name in layout.directories)]
    )
    path = hadoop_path(resolve(new_files.storage.root, encode_path(new_files.directory)))
    rows = spark.read.schema(schema).option("basePath", path).parquet(path)
    names = [quoted(name) for name in (*layout.written.names, *layout.directories)]
    return _stage(
        rows.select(*names, F.lit("insert").alias(CHANGE_TYPE)),
        target,
        new_files,
        layout.directories,
    )


def _stage(
    rows: DataFrame, target: WriteTarget, new_files: NewFiles, directories: tuple[str, ...]
) -> int:
    storage, directory = new_files.storage, new_files.new_directory(_DIRECTORY)
    with storage_errors(target.table, "write"):
        write_data_files(
            rows,
            hadoop_path(resolve(storage.root, encode_path(directory))),
            partition_by=directories,
            compression=target.properties.parquet_compression_codec,
        )
    fields = target_layout(target).partition_fields
    written = [file for file in list_data_files(storage, directory) if file.num_rows]
    target.transaction.add_cdc_files(
        [
            AddCdcFile(
                path=encode_path(file.info.path),
                partition_values=partition_values(
                    file.info.path.removeprefix(f"{directory}/").split("/")[:-1],
                    fields,
                    table=target.table,
                ),
                size=file.info.size,
            )
            for file in written
        ]
    )
    return len(written)

"""Build the columns of a table from its files and from the partition values in the log."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.types import to_arrow_type

from airflow_delta.engine.features.column_mapping import physical_name
from airflow_delta.engine.model.partition_values import parse_partition_value
from airflow_delta.engine.model.schema import StructField, StructType
from airflow_delta.spark.reader.char_columns import padded_column
from airflow_delta.spark.reader.columns import logical_column, spark_type
from airflow_delta.spark.reader.file_rows import Facts, stored_column

__all__ = ["partition_facts", "table_columns"]


def partition_facts(
    files: pa.Table, schema: StructType, columns: Sequence[str], mode: str
) -> Facts:
    """Parse the values of the partition columns, one value per file.

    Args:
        files: the files, with the column ``partitionValues`` as in the log.
        schema: the table's.
        columns: its partition columns.
        mode: its column mapping mode.

    Raises:
        InvalidTableError: a value isn't one of its column's type.
    """
    by_name = {field.name: field for field in schema}
    fields = [by_name[name] for name in columns]
    return {
        _alias(index): (spark_type(field.data_type), _typed_values(files, field, mode))
        for index, field in enumerate(fields)
    }


def table_columns(
    spark: SparkSession, schema: StructType, columns: Sequence[str], mode: str
) -> list[Column]:
    """The columns of the table, in the order of its schema, for rows that have `partition_facts`.

    Args:
        spark: the session.
        schema: the table's.
        columns: its partition columns.
        mode: its column mapping mode.
    """
    indexes = {name: index for index, name in enumerate(columns)}
    return [
        padded_column(
            spark,
            F.col(_alias(indexes[field.name]))
            if field.name in indexes
            else logical_column(stored_column(physical_name(field, mode)), field, mode),
            field,
        )
        for field in schema
    ]


def _alias(index: int) -> str:
    return f"partition_{index}"


def _typed_values(files: pa.Table, field: StructField, mode: str) -> pa.Array:
    """One value per file; each distinct text is parsed once."""
    name = physical_name(field, mode)
    texts = pc.map_lookup(files["partitionValues"], pa.scalar(name), "first").combine_chunks()
    encoded = texts.dictionary_encode()
    parsed = [parse_partition_value(t, field.data_type) for t in encoded.dictionary.to_pylist()]
    type_ = to_arrow_type(spark_type(field.data_type), timezone="UTC")
    return pa.array(parsed, type_).take(encoded.indices)

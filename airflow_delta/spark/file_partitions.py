"""The partition values of files, typed: they stand in the log, and not in the files."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_type

from airflow_delta.engine.features.column_mapping import physical_name
from airflow_delta.engine.model.partition_values import parse_partition_value
from airflow_delta.engine.model.schema import StructField
from airflow_delta.spark.columns import spark_type

__all__ = ["typed_partition_values"]


def typed_partition_values(files: pa.Table, field: StructField, mode: str) -> pa.Array:
    """The values of a partition column, one per file; each distinct text is parsed once.

    Args:
        files: have the column ``partitionValues``, as in the log.
        field: the partition column.
        mode: the table's column mapping mode.

    Raises:
        InvalidTableError: a value isn't one of the column's type.
    """
    name = physical_name(field, mode)
    texts = pc.map_lookup(files["partitionValues"], pa.scalar(name), "first").combine_chunks()
    encoded = texts.dictionary_encode()
    parsed = [parse_partition_value(t, field.data_type) for t in encoded.dictionary.to_pylist()]
    type_ = to_arrow_type(spark_type(field.data_type), timezone="UTC")
    return pa.array(parsed, type_).take(encoded.indices)

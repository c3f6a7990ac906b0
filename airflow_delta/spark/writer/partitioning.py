"""Get the partition values of written files from Spark's directory names.

Spark writes partitioned rows into directories ``column=text``. Only these names show the driver the
values of a file. By default Spark's text isn't exact: times are in the session's zone, and bytes
become arbitrary characters. So each partition column is first converted to an exact text
(`directory_text`), which is parsed from the path later (`partition_values`).

In directory names, null and empty texts are ``__HIVE_DEFAULT_PARTITION__``. A string that begins
with this text gets a ``_`` appended. (The engine refuses the text itself as a value, because other
readers would treat it as null.)

Spec: PROTOCOL.md, "Partition Value Serialization".
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812

from airflow_delta.engine.errors import (
    ConstraintViolationError,
    InvalidArgumentError,
    InvalidTableError,
)
from airflow_delta.engine.model.partition_values import (
    PartitionValue,
    parse_partition_value,
    serialize_partition_value,
)
from airflow_delta.engine.model.schema import BINARY, STRING, TIMESTAMP, DataType, StructField

__all__ = ["NULL_DIRECTORY", "directory_text", "partition_values"]

NULL_DIRECTORY = "__HIVE_DEFAULT_PARTITION__"
"""The text that stands for null in the names of directories."""

_ESCAPE = re.compile(r"%([0-9A-Fa-f]{2})")


def directory_text(column: Column, data_type: DataType) -> Column:
    """Convert a partition column to text for directory names; null stays null."""
    if data_type == STRING:
        return F.when(column.startswith(NULL_DIRECTORY), F.concat(column, F.lit("_"))).otherwise(
            column
        )
    if data_type == BINARY:
        return F.hex(column)
    if data_type == TIMESTAMP:
        # UTC by arithmetic, because the session's zone may have ambiguous hours.
        epoch = F.lit("1970-01-01 00:00:00").cast("timestamp_ntz")
        return F.timestamp_add("MICROSECOND", F.unix_micros(column), epoch).cast("string")
    return column.cast("string")


def partition_values(
    directories: Sequence[str], columns: Mapping[str, StructField], *, table: str
) -> dict[str, str | None]:
    """Parse the ``partitionValues`` of a file from its path.

    Args:
        directories: the names of its directories, outermost first: one per column.
        columns: the partition columns, in order, by their names in ``partitionValues``.
        table: the table's location, for errors.

    Raises:
        ConstraintViolationError: the protocol can't represent a value, such as a date after the year 9999,
            or a binary value that isn't UTF-8. Facts: columns.
    """
    values = {}
    for directory, (name, field) in zip(directories, columns.items(), strict=True):
        # Spark escapes "=" in names and values, so the first one is the separator.
        text = directory.partition("=")[2]
        values[name] = (
            None if text == NULL_DIRECTORY else _text_for_log(_unescaped(text), field, table)
        )
    return values


def _text_for_log(text: str, field: StructField, table: str) -> str | None:
    try:
        return serialize_partition_value(_value(text, field.data_type), field.data_type)
    except (InvalidArgumentError, InvalidTableError) as error:
        raise ConstraintViolationError(
            f"the rows can't be partitioned by the column {field.name!r}: {error.message}",
            table=table,
            columns=(field.name,),
        ) from error


def _value(text: str, data_type: DataType) -> PartitionValue | None:
    if data_type == STRING:
        return text[:-1] if text.startswith(NULL_DIRECTORY) else text
    if data_type == BINARY:
        return bytes.fromhex(text)
    return parse_partition_value(text, data_type)


def _unescaped(text: str) -> str:
    """Undo Spark's escapes: ``%`` and the code of one ASCII character, unlike those of URIs."""
    return _ESCAPE.sub(lambda match: chr(int(match[1], 16)), text)

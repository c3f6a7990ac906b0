"""Columns of the types ``CHAR(n)`` and ``VARCHAR(n)``, which the protocol doesn't have and Spark does.

Spark writes such a column into the schema as a ``string`` whose metadata say what it was declared as,
also where the ``CHAR`` is inside of it: ``"__CHAR_VARCHAR_TYPE_STRING": "struct<code:char(5)>"``. Files
hold texts as they were given, shorter ones too, and Spark pads them with spaces when it reads them, unless
the session has ``spark.sql.readSideCharPadding`` off or ``spark.sql.legacy.charVarcharAsString`` on. So do
we. The metadata stay with the column, so that Spark's analyser pads what it is compared with.

``VARCHAR(n)``, like ``CHAR(n)``, bounds what is written (`overlong_texts`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from pyspark.errors import PySparkException
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812

from airflow_delta.engine.errors import InvalidTableError
from airflow_delta.engine.model.schema import ArrayType, DataType, MapType, StructField, StructType

__all__ = ["CHAR_METADATA", "has_char", "overlong_texts", "padded_column"]

CHAR_METADATA = "__CHAR_VARCHAR_TYPE_STRING"
"""The key under which a column's metadata have the type that it was declared as."""


def has_char(metadata: Any) -> bool:
    """Whether a column with these metadata is, or has within, a ``CHAR``."""
    return "char(" in str(metadata.get(CHAR_METADATA, "")).replace("varchar(", "")


def padded_column(spark: SparkSession, column: Column, field: StructField) -> Column:
    """A column of a table as Spark reads it, with its name.

    Args:
        spark: the session, whose settings say whether it pads.
        column: the column's values.
        field: the table's column.
    """
    if not has_char(field.metadata):
        return column.alias(field.name)
    declared = str(field.metadata[CHAR_METADATA])
    if _pads(spark):
        padded = _padded(column, field.data_type, T.DataType.fromDDL(declared))
        column = column if padded is None else padded
    return column.alias(field.name, metadata={CHAR_METADATA: declared})


def overlong_texts(
    column: Column, field: StructField, *, table: str
) -> Iterator[tuple[str, str, Column]]:
    """Where a column holds texts of more characters than it was declared with, in all its parts.

    Args:
        column: the column's values.
        field: the table's column.
        table: the table's location, for errors.

    Yields:
        For each part that has a length its name, what it was declared as, and a condition that is true
        for the rows in which it has a longer text.

    Raises:
        InvalidTableError: what the column was declared as can't be read.
    """
    declared = field.metadata.get(CHAR_METADATA)
    if declared is None:
        return
    try:
        type_ = T.DataType.fromDDL(declared) if isinstance(declared, str) else None
    except PySparkException:
        type_ = None
    if type_ is None:
        raise InvalidTableError(
            f"the column {field.name!r} was declared as {declared!r}, by its metadata "
            f"{CHAR_METADATA}: expected a type such as varchar(5); put the metadata right",
            table=table,
        )
    for name, length, is_longer in _lengths(field.data_type, type_, field.name):
        yield name, length, is_longer(column)


_Condition: TypeAlias = "Callable[[Column], Column]"


def _lengths(
    data_type: DataType, declared: T.DataType, name: str
) -> Iterator[tuple[str, str, _Condition]]:
    """As `overlong_texts`, with conditions of the column that they are about."""
    match data_type, declared:
        case _, T.CharType() | T.VarcharType():
            yield name, declared.simpleString(), _longer_than(declared.length)
        case StructType(fields), T.StructType() if len(fields) == len(declared.fields):
            for field, told in zip(fields, declared.fields, strict=True):
                inner = _lengths(field.data_type, told.dataType, f"{name}.{field.name}")
                for part, length, is_longer in inner:
                    yield part, length, _of_member(field.name, is_longer)
        case ArrayType(element), T.ArrayType():
            inner = _lengths(element, declared.elementType, f"{name}.element")
            for part, length, is_longer in inner:
                yield part, length, _of_any(lambda column: column, is_longer)
        case MapType(key, value), T.MapType():
            for part, length, is_longer in _lengths(key, declared.keyType, f"{name}.key"):
                yield part, length, _of_any(F.map_keys, is_longer)
            for part, length, is_longer in _lengths(value, declared.valueType, f"{name}.value"):
                yield part, length, _of_any(F.map_values, is_longer)


def _longer_than(length: int) -> _Condition:
    return lambda column: F.char_length(column) > length


def _of_member(name: str, condition: _Condition) -> _Condition:
    return lambda column: condition(column.getField(name))


def _of_any(items: _Condition, condition: _Condition) -> _Condition:
    return lambda column: F.exists(items(column), condition)


def _pads(spark: SparkSession) -> bool:
    as_text = str(spark.conf.get("spark.sql.legacy.charVarcharAsString", "false"))
    pads = str(spark.conf.get("spark.sql.readSideCharPadding", "true"))
    return pads.lower() == "true" and as_text.lower() != "true"


def _padded(column: Column, data_type: DataType, declared: T.DataType) -> Column | None:
    """The column, padded to what it was declared as; None where nothing in it is to be padded.

    Members of structs are told by their place: the declaration has the names that they had then.
    """
    match data_type, declared:
        case _, T.CharType():
            length = declared.length
            return F.when(F.char_length(column) < length, F.rpad(column, length, " ")).otherwise(
                column
            )
        case StructType(fields), T.StructType() if len(fields) == len(declared.fields):
            members, any_padded = [], False
            for field, told in zip(fields, declared.fields, strict=True):
                member = column.getField(field.name)
                padded = _padded(member, field.data_type, told.dataType)
                any_padded |= padded is not None
                members.append((member if padded is None else padded).alias(field.name))
            return F.when(column.isNotNull(), F.struct(*members)) if any_padded else None
        case ArrayType(element), T.ArrayType():
            if _padded(column, element, declared.elementType) is None:
                return None
            return F.transform(column, lambda item: _kept(item, element, declared.elementType))
        case MapType(key, value), T.MapType():
            parts = ((key, declared.keyType), (value, declared.valueType))
            if all(_padded(column, *part) is None for part in parts):
                return None
            pairs = F.transform(
                F.map_entries(column),
                lambda pair: F.struct(
                    _kept(pair["key"], *parts[0]), _kept(pair["value"], *parts[1])
                ),
            )
            return F.map_from_entries(pairs)
    return None


def _kept(column: Column, data_type: DataType, declared: T.DataType) -> Column:
    """As `_padded`, and the column itself where nothing is to be padded."""
    padded = _padded(column, data_type, declared)
    return column if padded is None else padded

"""Read and check columns of Spark's types ``CHAR(n)`` and ``VARCHAR(n)``, which the protocol doesn't have.

Spark stores such a column as a ``string``, with its declared type in the metadata, even if the
``CHAR`` is nested: ``"__CHAR_VARCHAR_TYPE_STRING": "struct<code:char(5)>"``. Files contain the
texts as they were given.

* `padded_column` pads short ``CHAR`` texts with spaces when they are read, as Spark does.
* `overlong_texts` finds texts that are longer than their type allows when they are written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812

from airflow_delta.engine.errors import InvalidTableError
from airflow_delta.engine.model.schema import ArrayType, DataType, MapType, StructField, StructType

__all__ = ["CHAR_METADATA", "char_columns", "has_char", "overlong_texts", "padded_column"]

CHAR_METADATA = "__CHAR_VARCHAR_TYPE_STRING"
"""The metadata key of the declared type."""


def has_char(metadata: Any) -> bool:
    """Whether a column with this metadata is a ``CHAR`` or contains one."""
    return "char(" in str(metadata.get(CHAR_METADATA, "")).replace("varchar(", "")


def char_columns(rows: DataFrame) -> frozenset[str]:
    """The names of the columns of rows that Spark takes for ``CHAR``, or for types that contain one.

    Args:
        rows: the rows.
    """
    return frozenset(field.name for field in rows.schema if has_char(field.metadata))


def padded_column(spark: SparkSession, column: Column, field: StructField) -> Column:
    """Pad a column of a table as Spark does, and name it.

    It keeps the metadata, so that Spark also pads the texts with which it is compared. It isn't padded if
    the session has ``spark.sql.readSideCharPadding`` off or ``spark.sql.legacy.charVarcharAsString`` on.

    Args:
        spark: the session, whose settings decide about padding.
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
    """Create conditions for texts that are longer than the declared length, in all parts of a column.

    Args:
        column: the column's values.
        field: the table's column.
        table: the table's location, for errors.

    Yields:
        For each part with a length: its name, its declared type, and a condition that is true for rows with
        a longer text.

    Raises:
        InvalidTableError: the declared type can't be parsed.
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
            f"{CHAR_METADATA}: expected a type such as varchar(5); correct the metadata",
            table=table,
        )
    for name, length, is_longer in _lengths(field.data_type, type_, field.name):
        yield name, length, is_longer(column)


_Condition: TypeAlias = "Callable[[Column], Column]"


def _lengths(
    data_type: DataType, declared: T.DataType, name: str
) -> Iterator[tuple[str, str, _Condition]]:
    """Like `overlong_texts`, but with functions from a column to the condition."""
    match data_type, declared:
        case _, T.CharType() | T.VarcharType():
            yield name, declared.simpleString(), _longer_than(declared.length)
        case StructType(fields), T.StructType():
            for field, member in _members(fields, declared.fields):
                inner = _lengths(field.data_type, member.dataType, f"{name}.{field.name}")
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


def _members(
    fields: Sequence[StructField], declared: Sequence[T.StructField]
) -> Iterator[tuple[StructField, T.StructField]]:
    """The members of a struct with their declarations.

    They are matched by position, because the declaration may have earlier names. If the struct has got or
    lost members since, they are matched by name.
    """
    if len(fields) == len(declared):
        yield from zip(fields, declared, strict=True)
        return
    by_name = {member.name.lower(): member for member in declared}
    for field in fields:
        if (found := by_name.get(field.name.lower())) is not None:
            yield field, found


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
    """The column, padded to its declared length; None if no part of it is padded."""
    match data_type, declared:
        case _, T.CharType():
            length = declared.length
            return F.when(F.char_length(column) < length, F.rpad(column, length, " ")).otherwise(
                column
            )
        case StructType(fields), T.StructType():
            declared_as = {f.name: d.dataType for f, d in _members(fields, declared.fields)}
            members, any_padded = [], False
            for field in fields:
                member = column.getField(field.name)
                wanted = declared_as.get(field.name)
                padded = None if wanted is None else _padded(member, field.data_type, wanted)
                any_padded |= padded is not None
                members.append((member if padded is None else padded).alias(field.name))
            return F.when(column.isNotNull(), F.struct(*members)) if any_padded else None
        case ArrayType(element), T.ArrayType():
            if _padded(column, element, declared.elementType) is None:
                return None
            return F.transform(
                column, lambda item: _padded_or_same(item, element, declared.elementType)
            )
        case MapType(key, value), T.MapType():
            parts = ((key, declared.keyType), (value, declared.valueType))
            if all(_padded(column, *part) is None for part in parts):
                return None
            pairs = F.transform(
                F.map_entries(column),
                lambda pair: F.struct(
                    _padded_or_same(pair["key"], *parts[0]),
                    _padded_or_same(pair["value"], *parts[1]),
                ),
            )
            return F.map_from_entries(pairs)
    return None


def _padded_or_same(column: Column, data_type: DataType, declared: T.DataType) -> Column:
    """Like `_padded`, but returns the column itself if no part of it is padded."""
    padded = _padded(column, data_type, declared)
    return column if padded is None else padded

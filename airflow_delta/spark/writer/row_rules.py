"""What the columns of rows must be like to join a table: those of its schema.

A table's columns are found by name, in any order; types must be those of the table, to the last
nested field. Whether a column may hold null is not a question of types: a DataFrame whose columns
are nullable for Spark may hold none. So NOT NULL is checked row by row while the rows are written
(`row_checks`), except inside arrays and maps, where just the types can promise it.

Spec: PROTOCOL.md, "Column Invariants" (nullability) and "Schema Serialization Format"; edge cases
G17 and G18.
"""

from __future__ import annotations

from pyspark.sql import DataFrame

from airflow_delta.change_feeds.nullable import nullable
from airflow_delta.engine.errors import ConstraintViolationError
from airflow_delta.engine.model.schema import (
    VOID,
    ArrayType,
    DataType,
    MapType,
    StructType,
)
from airflow_delta.engine.model.schema_json import parse_schema

__all__ = [
    "check_rows_fit",
    "new_table_schema",
    "stored_columns",
]

_KEPT_METADATA = frozenset({"comment"})


def new_table_schema(rows: DataFrame) -> StructType:
    """The schema of a table made of a DataFrame: all columns nullable, comments kept.

    What Spark believes about nulls is no promise for later writes, so none is made. Other metadata
    of the columns belongs to where they come from.

    Raises:
        InvalidTableError: a column's type is none of the protocol's.
    """
    return nullable(_schema_of(rows), kept_metadata=_KEPT_METADATA)


def check_rows_fit(rows: DataFrame, schema: StructType, *, table: str) -> None:
    """Check that rows have the columns of a table.

    Raises:
        ConstraintViolationError: columns are missing, unknown, or of another type. Facts: columns.
        InvalidTableError: a column's type is none of the protocol's.
    """
    given = {field.name: field for field in _schema_of(rows)}
    missing = [field.name for field in schema if field.name not in given]
    unknown = [name for name in given if schema.field(name) is None]
    if missing or unknown:
        raise ConstraintViolationError(
            f"the rows don't have the columns of the table: missing {missing}, unknown {unknown}; "
            "select and name them as the table does",
            table=table,
            columns=(*missing, *unknown),
        )
    for field in schema:
        found = given[field.name].data_type
        if not _fits(found, field.data_type, promised=False):
            raise ConstraintViolationError(
                f"the column {field.name!r} of the rows is {_told(found)}, that of the table is "
                f"{_told(field.data_type)}; cast it",
                table=table,
                columns=(field.name,),
            )


def stored_columns(schema: StructType, partition_by: tuple[str, ...], *, table: str) -> StructType:
    """The columns that data files hold: without partition columns and ``void`` (edge case G17).

    Raises:
        ConstraintViolationError: nothing is left, or a void lies inside another column, where it
            can't be left out. Facts: columns.
    """
    stored = tuple(
        field for field in schema if field.name not in partition_by and field.data_type != VOID
    )
    nested = [field.name for field in stored if "void" in _primitive_names(field.data_type)]
    if nested or not stored:
        raise ConstraintViolationError(
            f"parquet files can't hold a void inside a column, as in {nested}; cast it"
            if nested
            else "every column is a partition column or void, so that data files would have none; "
            "add a column or partition by fewer",
            table=table,
            columns=tuple(nested),
        )
    return StructType(stored)


def _schema_of(rows: DataFrame) -> StructType:
    return parse_schema(rows.schema.json(), "the DataFrame")


def _fits(found: DataType, wanted: DataType, *, promised: bool) -> bool:
    """Whether values of one type are values of another.

    Args:
        found: the type of the rows.
        wanted: the type of the table.
        promised: whether only the type can promise that there is no null, see the module.
    """
    match found, wanted:
        case StructType(fields), StructType(others):
            return [f.name for f in fields] == [o.name for o in others] and all(
                (o.nullable or not f.nullable or not promised)
                and _fits(f.data_type, o.data_type, promised=promised)
                for f, o in zip(fields, others, strict=True)
            )
        case ArrayType(element, nulls), ArrayType(other, other_nulls):
            return (other_nulls or not nulls) and _fits(element, other, promised=True)
        case MapType(key, value, nulls), MapType(other_key, other_value, other_nulls):
            return (
                (other_nulls or not nulls)
                and _fits(key, other_key, promised=True)
                and _fits(value, other_value, promised=True)
            )
        case _:
            return found == wanted


def _told(data_type: DataType) -> str:
    """A type for messages; nested ones with the nullability that `_fits` looks at."""
    match data_type:
        case ArrayType(element, nulls):
            return f"array<{_told(element)}{'' if nulls else ' NOT NULL'}>"
        case MapType(key, value, nulls):
            return f"map<{_told(key)},{_told(value)}{'' if nulls else ' NOT NULL'}>"
        case StructType(fields):
            members = (
                f"{f.name}:{_told(f.data_type)}{'' if f.nullable else ' NOT NULL'}" for f in fields
            )
            return f"struct<{','.join(members)}>"
        case _:
            return str(data_type)


def _primitive_names(data_type: DataType) -> set[str]:
    match data_type:
        case StructType(fields):
            return set().union(*(_primitive_names(field.data_type) for field in fields))
        case ArrayType(element):
            return _primitive_names(element)
        case MapType(key, value):
            return _primitive_names(key) | _primitive_names(value)
        case _:
            return {str(data_type)}

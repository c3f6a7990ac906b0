"""Check that the columns of a DataFrame fit the schema of a table.

Columns are matched by name, in any order. Their types must be equal, including nested fields. A
nullable type isn't an error, because the column may have no nulls: `rules.row_rules` checks NOT NULL
row by row. Only in arrays and maps the types must exclude nulls.

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
    """The schema of a table created from a DataFrame: all columns nullable, with their comments.

    Spark's nullability describes the rows of the DataFrame, not later writes. Other column metadata
    belongs to the source of the columns.

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
                f"the column {field.name!r} of the rows is {_type_text(found)}, that of the table is "
                f"{_type_text(field.data_type)}; cast it",
                table=table,
                columns=(field.name,),
            )


def stored_columns(schema: StructType, partition_by: tuple[str, ...], *, table: str) -> StructType:
    """The columns of data files: without partition columns and ``void`` (edge case G17).

    Raises:
        ConstraintViolationError: no column is left, or a void is nested in another column. Facts: columns.
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
        promised: whether the type itself must exclude nulls, as in arrays and maps.
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


def _type_text(data_type: DataType) -> str:
    """Format a type for messages, with the nullability that `_fits` compares."""
    match data_type:
        case ArrayType(element, nulls):
            return f"array<{_type_text(element)}{'' if nulls else ' NOT NULL'}>"
        case MapType(key, value, nulls):
            return f"map<{_type_text(key)},{_type_text(value)}{'' if nulls else ' NOT NULL'}>"
        case StructType(fields):
            members = (
                f"{f.name}:{_type_text(f.data_type)}{'' if f.nullable else ' NOT NULL'}"
                for f in fields
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

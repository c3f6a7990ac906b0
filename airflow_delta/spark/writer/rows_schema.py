"""The schema of rows, and of a table that gets its columns from rows.

Spec: PROTOCOL.md, "Schema Serialization Format".
"""

from __future__ import annotations

from pyspark.sql import DataFrame

from airflow_delta.engine.errors import ConstraintViolationError
from airflow_delta.engine.model.nullable import nullable
from airflow_delta.engine.model.schema import StructType
from airflow_delta.engine.model.schema_json import parse_schema

__all__ = ["check_distinct_names", "new_table_schema", "rows_schema"]

_KEPT_METADATA = frozenset({"comment"})


def rows_schema(rows: DataFrame) -> StructType:
    """The schema of a DataFrame in the engine's types.

    Raises:
        ConstraintViolationError: names of columns differ in case alone. Facts: columns.
        InvalidTableError: a column's type is none of the protocol's.
    """
    check_distinct_names(rows)
    return parse_schema(rows.schema.json(), "the DataFrame")


def check_distinct_names(rows: DataFrame) -> None:
    """Check that the names of a DataFrame's columns differ in more than case.

    Raises:
        ConstraintViolationError: some don't. Facts: columns.
    """
    names = [name.lower() for name in rows.columns]
    twice = [name for name in rows.columns if names.count(name.lower()) > 1]
    if twice:
        raise ConstraintViolationError(
            f"the rows have the columns {twice}, which differ at most in case: rename or drop some",
            columns=tuple(twice),
        )


def new_table_schema(rows: DataFrame) -> StructType:
    """The schema of a table created from a DataFrame: all columns nullable, with their comments.

    Spark's nullability describes the rows of the DataFrame, not later writes. Other column metadata
    belongs to the source of the columns.

    Raises:
        InvalidTableError: a column's type is none of the protocol's.
    """
    return nullable(rows_schema(rows), kept_metadata=_KEPT_METADATA)

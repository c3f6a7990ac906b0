"""Check NOT NULL and text lengths of each row while the rows are written.

==========================  =========================================================================
rule                        checked
==========================  =========================================================================
NOT NULL                    at the top level and in structs; in arrays and maps only the types are
                            checked (`row_rules`)
``CHAR(n)``, ``VARCHAR(n)`` at every level: a text has at most n characters (Unicode code points). As in
                            Delta Spark, trailing spaces count, and nothing is cut off or padded
==========================  =========================================================================

Spec: PROTOCOL.md, "Column Invariants" (nullability). The protocol doesn't have CHAR and VARCHAR,
see `char_columns`. Delta Spark checks all rows that it writes, even rows that an UPDATE only
copies.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from airflow_delta.engine.errors import ConstraintViolationError
from airflow_delta.engine.model.schema import StructField, StructType
from airflow_delta.spark.reader.char_columns import overlong_texts
from airflow_delta.spark.reader.columns import quoted
from airflow_delta.spark.runtime.executor_errors import error_text

__all__ = ["with_row_checks"]


@dataclass(frozen=True, slots=True)
class _Rule:
    """A rule of one column.

    Attributes:
        column: the column's name.
        violated: true for a row that breaks the rule, otherwise false or null.
        message: the error message.
    """

    column: str
    violated: Column
    message: str


def with_row_checks(rows: DataFrame, schema: StructType, *, table: str) -> DataFrame:
    """Add checks to rows: their evaluation fails at the first row that breaks a rule of the schema.

    `executor_errors.errors_of_executors` turns Spark's error into a `ConstraintViolationError`.

    Args:
        rows: the rows, with the columns of the table.
        schema: the table's.
        table: its location, for errors.

    Raises:
        InvalidTableError: the declared type of a CHAR or VARCHAR column can't be parsed.
    """
    rules = [rule for field in schema for rule in _rules(rows[quoted(field.name)], field, table)]
    if not rules:
        return rows
    verdict = F.lit(True)
    for rule in rules:
        violation = ConstraintViolationError(rule.message, table=table, columns=(rule.column,))
        failure = F.raise_error(F.lit(error_text(violation))).cast("boolean")
        verdict = F.when(rule.violated, failure).otherwise(verdict)
    return rows.where(verdict)


def _rules(column: Column, field: StructField, table: str) -> Iterator[_Rule]:
    for name, violated in _nulls(column, field, field.name):
        message = f"the rows have a null in the column {name}, which is NOT NULL"
        yield _Rule(name, violated, message)
    for name, declared, violated in overlong_texts(column, field, table=table):
        message = (
            f"the rows have a text in the column {name} with more characters than its type {declared} "
            "allows; shorten it (spaces at the end count)"
        )
        yield _Rule(name, violated, message)


def _nulls(column: Column, field: StructField, name: str) -> Iterator[tuple[str, Column]]:
    if not field.nullable:
        yield name, column.isNull()
    if isinstance(field.data_type, StructType):
        for member in field.data_type:
            inner = _nulls(column.getField(member.name), member, f"{name}.{member.name}")
            for inner_name, violated in inner:
                # The members of a struct that is null don't count.
                yield inner_name, column.isNotNull() & violated

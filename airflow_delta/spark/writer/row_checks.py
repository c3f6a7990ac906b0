"""Rules that each row must keep to join a table, checked while the rows are written.

==========================  =========================================================================
rule                        checked
==========================  =========================================================================
NOT NULL                    at the top and in structs; inside arrays and maps just the types can
                            promise it (`row_rules`)
``CHAR(n)``, ``VARCHAR(n)`` everywhere: a text has at most n characters. As Delta Spark has it, spaces
                            at its end count, and nothing is cut off or padded. A character is a
                            Unicode code point
==========================  =========================================================================

Spec: PROTOCOL.md, "Column Invariants" (nullability). The protocol doesn't have CHAR and VARCHAR, see
`char_columns`; Delta Spark checks all rows that it writes, those of an UPDATE that copies them as well.
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
        violated: true for a row that breaks the rule; else false or null.
        message: what is wrong with such a row.
    """

    column: str
    violated: Column
    message: str


def with_row_checks(rows: DataFrame, schema: StructType, *, table: str) -> DataFrame:
    """The same rows; evaluating them fails at the first row that breaks a rule of the schema.

    Spark's error is then one that `executor_errors.errors_of_executors` turns into a
    `ConstraintViolationError`.

    Args:
        rows: have the columns of the table.
        schema: the table's.
        table: its location, for errors.

    Raises:
        InvalidTableError: what a column was declared as can't be read.
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
            f"the rows have a text of more characters in the column {name} than it may hold, which is "
            f"{declared}; shorten it (spaces at the end count)"
        )
        yield _Rule(name, violated, message)


def _nulls(column: Column, field: StructField, name: str) -> Iterator[tuple[str, Column]]:
    if not field.nullable:
        yield name, column.isNull()
    if isinstance(field.data_type, StructType):
        for member in field.data_type:
            inner = _nulls(column.getField(member.name), member, f"{name}.{member.name}")
            for inner_name, violated in inner:
                # A struct that is null has no members to be null.
                yield inner_name, column.isNotNull() & violated

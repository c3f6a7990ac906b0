"""The rules of a table for its rows, and DataFrames that keep them.

====================  ===============================================================================
rule                  is broken by a row with
====================  ===============================================================================
NOT NULL              a null in the column, at any depth (`not_null`)
column invariant      a condition that is false or null
CHECK constraint      a condition that is false or null
generated column      a value that isn't that of the column's generation expression; null equals null
``CHAR(n)``,          a text of more than n characters (Unicode code points), at any depth. As in Delta
``VARCHAR(n)``        Spark, trailing spaces count, and nothing is cut off or padded
====================  ===============================================================================

Conditions name the table's columns. They are resolved by the DataFrame to which they are applied.

Spec: PROTOCOL.md, "Column Invariants", "CHECK Constraints", "Generated Columns". The protocol doesn't have
CHAR and VARCHAR, see `char_columns`. Delta Spark checks all rows that it writes, even rows that an UPDATE
only copies; this engine doesn't check those.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from airflow_delta.engine.errors import (
    ConstraintViolationError,
    DeltaError,
    InvalidArgumentError,
    InvalidTableError,
)
from airflow_delta.engine.features.column_changes.sql_columns import columns_in_sql
from airflow_delta.engine.features.schema_walk import all_fields, all_types
from airflow_delta.engine.model.properties import TableProperties
from airflow_delta.engine.model.schema import (
    BINARY,
    STRING,
    ArrayType,
    MapType,
    StructField,
    StructType,
)
from airflow_delta.spark.reader.char_columns import CHAR_METADATA, overlong_texts
from airflow_delta.spark.reader.columns import quoted, spark_type
from airflow_delta.spark.reader.snapshot_reader import OWN_PREFIX
from airflow_delta.spark.rules.not_null import unwanted_nulls
from airflow_delta.spark.runtime.executor_errors import error_text, errors_of_executors

__all__ = [
    "GENERATION_EXPRESSION",
    "RowRule",
    "checked",
    "row_rules",
    "table_expression",
    "unresolved_rule",
    "violation",
    "without_empty",
]

GENERATION_EXPRESSION = "delta.generationExpression"
"""The metadata key of a generated column's expression."""

_INVARIANTS = "delta.invariants"

_CASE_SENSITIVE = "spark.sql.caseSensitive"
_NAMES_IN_QUOTES = ("spark.sql.ansi.doubleQuotedIdentifiers", "spark.sql.ansi.enabled")
"""The settings by which, together, ``"x"`` is a name for Spark, and not a text."""

_NUM_SHOWN = 5
"""The number of columns of a row that a message shows, unless the rule has more."""

_MAX_SHOWN = 1000
"""The number of characters of a row that a message shows."""


@dataclass(frozen=True, slots=True)
class RowRule:
    """One rule.

    Attributes:
        name: what kind of rule it is, and of what, such as ``CHECK positive`` or ``NOT NULL a.b``.
        columns: the columns that it is about, each from the top down with dots, such as ``a.b``.
        violated: true for a row that breaks the rule, otherwise false or null.
        message: what is wrong if a row breaks it.
    """

    name: str
    columns: tuple[str, ...]
    violated: Column
    message: str


def row_rules(
    schema: StructType,
    properties: TableProperties,
    *,
    table: str,
    generated_given: Collection[str] = (),
    partition_by: Collection[str] = (),
) -> tuple[RowRule, ...]:
    """Get the rules of a table.

    Args:
        schema: the table's.
        properties: the table's.
        table: its location, for errors.
        generated_given: the generated columns whose values were given by a user. Others were computed, and
            needn't be checked.
        partition_by: the partition columns.

    Raises:
        InvalidArgumentError: the session takes a text of a rule for a name.
        ConstraintViolationError: a generated column is given whose values Spark can't compare.
        InvalidTableError: an invariant isn't JSON as the protocol has it; or the declared type of a CHAR or
            VARCHAR column can't be parsed. Whether Spark can evaluate the expressions is found when the
            rules are applied to rows.
    """
    return (
        *_not_null(schema),
        *_invariants(schema, table),
        *(
            _constraint(name, expression, schema, table)
            for name, expression in sorted(properties.constraints.items())
        ),
        *(
            _generated(field, schema, partition_by, table)
            for field in schema
            if field.name in generated_given and GENERATION_EXPRESSION in field.metadata
        ),
        *(
            rule
            for field in schema
            if CHAR_METADATA in field.metadata
            for rule in _lengths(field, table)
        ),
    )


def _not_null(schema: StructType) -> Iterator[RowRule]:
    for field in schema:
        if field.nullable and not isinstance(field.data_type, (StructType, ArrayType, MapType)):
            # Without the calls into the JVM for the column, which add up if there are hundreds.
            continue
        for name, has_null in unwanted_nulls(F.col(quoted(field.name)), field):
            message = f"the rows have a null in the column {name}, which is NOT NULL"
            yield RowRule(f"NOT NULL {name}", (name,), has_null, message)


def _constraint(name: str, expression: str, schema: StructType, table: str) -> RowRule:
    return RowRule(
        f"CHECK {name}",
        _columns(expression, schema),
        _is_not_true(table_expression(expression, f"CHECK {name}", table=table)),
        f"the rows break the constraint {name}, CHECK ({expression})",
    )


def checked(rows: DataFrame, rules: Sequence[RowRule], *, table: str) -> DataFrame:
    """Add checks to rows: their evaluation fails at the first row that breaks a rule.

    The check is a filter, because Spark leaves out columns that nobody uses.
    `executor_errors.errors_of_executors` turns Spark's error into a `ConstraintViolationError`.

    Args:
        rows: the rows, with the columns of the table.
        rules: its rules.
        table: its location, for errors.

    Raises:
        InvalidArgumentError: a rule can't be resolved in a case-sensitive session.
        InvalidTableError: a rule can't be resolved with these columns.
    """
    if not rules:
        return rows
    failure = _first_broken(rules, [_failure(rule, table) for rule in rules])
    try:
        return rows.where(_after_joins(failure.otherwise(F.lit(True))))
    except AnalysisException:
        _raise_unresolved(rows, rules, table)
        raise


def violation(
    rows: DataFrame, rules: Sequence[RowRule], *, table: str
) -> ConstraintViolationError | None:
    """Count the rows that break rules, in one pass, and get one of them.

    A row is counted for the first rule that it breaks. As in `checked`, later rules aren't evaluated for
    it, because they may fail.

    Args:
        rows: the rows, with the columns of the table.
        rules: its rules.
        table: its location, for errors.

    Returns:
        The error for the first rule that is broken, with the number of the rows and one of them; None if
        all rows keep all rules. Facts: columns, rule, num_rows, row (JSON).

    Raises:
        InvalidTableError: a rule can't be resolved with these columns.
        PySparkException: Spark's own errors.
    """
    if not rules:
        return None
    number = _first_broken(rules, [F.lit(number) for number in range(len(rules))])
    try:
        # Not `groupBy(…).count()`, which leaves out the rule if the session says so.
        counts = [F.count_if(F.col("rule") == n).alias(str(n)) for n in range(len(rules))]
        totals = rows.select(number.alias("rule")).agg(*counts)
    except AnalysisException:
        _raise_unresolved(rows, rules, table)
        raise
    with errors_of_executors():
        (found,) = totals.collect()
        broken = [(rule, count) for rule, count in zip(rules, found, strict=True) if count]
        if not broken:
            return None
        (rule, count), *others = broken
        # Not in the same pass, which reads no other columns than those of the rules.
        example = rows.where(_after_joins(rule.violated)).select(_shown(rows, rule)).first()
    # If the rows are others each time that they are evaluated, there may be none now.
    sample = "a row that is gone" if example is None else example[0]
    also = "".join(f"; of the other rows, {_num_rows(num)} {other.name}" for other, num in others)
    return ConstraintViolationError(
        f"{rule.message}: {_num_rows(count)} this rule, for example {sample}{also}",
        table=table,
        columns=rule.columns,
        rule=rule.name,
        num_rows=count,
        row=sample,
    )


def _first_broken(rules: Sequence[RowRule], values: Sequence[Column]) -> Column:
    """A ``CASE`` with the value for the first rule that a row breaks, and no value for other rows."""
    first, *others = zip(rules, values, strict=True)
    found = F.when(first[0].violated, first[1])
    for rule, value in others:
        found = found.when(rule.violated, value)
    return found


def _after_joins(condition: Column) -> Column:
    """A condition that Spark evaluates only for rows of the result.

    It isn't deterministic for Spark, which would otherwise evaluate it before rows are joined and filtered.
    """
    # The alternative never applies. `WHEN … >= 0 THEN condition END` means the same, but an optimizer may
    # split it as an AND, and evaluate the condition alone.
    return F.when(F.monotonically_increasing_id() < 0, F.lit(True)).otherwise(condition)


def _failure(rule: RowRule, table: str) -> Column:
    error = ConstraintViolationError(
        rule.message, table=table, columns=rule.columns, rule=rule.name
    )
    return F.raise_error(F.lit(error_text(error))).cast("boolean")


def _num_rows(count: int) -> str:
    return "1 row breaks" if count == 1 else f"{count} rows break"


def _shown(rows: DataFrame, rule: RowRule) -> Column:
    """A row as JSON: the columns of the rule, and the first other ones, by which people can find it."""
    own = [
        name
        for name in rows.columns
        if any(path == name or path.startswith(f"{name}.") for path in rule.columns)
    ]
    others = [name for name in rows.columns if name not in own and not name.startswith(OWN_PREFIX)]
    shown = own + others[: max(0, _NUM_SHOWN - len(own))]
    columns = F.struct(*(F.col(quoted(name)) for name in shown))
    return F.substring(F.to_json(columns, {"ignoreNullFields": "false"}), 1, _MAX_SHOWN)


def _invariants(schema: StructType, table: str) -> Iterator[RowRule]:
    for path, field in all_fields(schema):
        if _INVARIANTS not in field.metadata:
            continue
        column = ".".join(path)
        expression = _invariant(field.metadata[_INVARIANTS], column, table)
        yield RowRule(
            f"invariant of {column}",
            tuple(dict.fromkeys((column, *_columns(expression, schema)))),
            _is_not_true(table_expression(expression, f"invariant of {column}", table=table)),
            f"the rows break the invariant of the column {column}, {expression}",
        )


def _invariant(text: Any, column: str, table: str) -> str:
    try:
        expression = json.loads(text)["expression"]["expression"]
    except (ValueError, TypeError, LookupError, RecursionError):
        expression = None
    if not isinstance(expression, str):
        raise InvalidTableError(
            f"the column {column} has {_INVARIANTS}: {text!r} in its metadata; expected JSON such as "
            '{"expression": {"expression": "x > 3"}}',
            table=table,
        )
    return expression


def without_empty(column: Column, field: StructField, partition_by: Collection[str]) -> Column:
    """The values of a column, with null for empty ones if it partitions the table.

    Args:
        column: the values.
        field: the column in the table's schema.
        partition_by: the partition columns.
    """
    if field.name not in partition_by or field.data_type not in (STRING, BINARY):
        return column
    return F.when(F.length(column) > 0, column)


def _generated(
    field: StructField, schema: StructType, partition_by: Collection[str], table: str
) -> RowRule:
    expression = str(field.metadata[GENERATION_EXPRESSION])
    if any(isinstance(type_, MapType) for _, type_ in all_types(field.data_type)):
        raise ConstraintViolationError(
            f"the rows have the generated column {field.name}, of the type {field.data_type}: Spark can't "
            "compare maps, so that the values can't be checked; leave it out to have it computed",
            table=table,
            columns=(field.name,),
        )
    computed = table_expression(expression, f"generated column {field.name}", table=table).cast(
        spark_type(field.data_type)
    )
    wanted = without_empty(computed, field, partition_by)
    return RowRule(
        f"generated column {field.name}",
        tuple(dict.fromkeys((field.name, *_columns(expression, schema)))),
        ~F.col(quoted(field.name)).eqNullSafe(wanted),
        f"the rows have another value in the column {field.name} than its generation expression, "
        f"{expression}; leave the column out to have it computed",
    )


def _lengths(field: StructField, table: str) -> Iterator[RowRule]:
    for name, declared, is_longer in overlong_texts(F.col(quoted(field.name)), field, table=table):
        message = (
            f"the rows have a text in the column {name} with more characters than its type {declared} "
            "allows; shorten it (spaces at the end count)"
        )
        yield RowRule(f"{declared} {name}", (name,), is_longer, message)


def table_expression(text: str, rule: str, *, table: str) -> Column:
    """An expression that is part of a table, in which quoted ``"x"`` is a text.

    Args:
        text: the expression, in SQL.
        rule: what it is in the table, for errors.
        table: the table's location, for errors.

    Raises:
        InvalidArgumentError: the session takes ``"x"`` for the name of a column. Facts: rule.
        InvalidTableError: Spark can't parse the expression. Facts: rule.
    """
    if '"' in text and all(_is_on(name) for name in _NAMES_IN_QUOTES):
        raise InvalidArgumentError(
            f"the table's rule {rule}, {text}, has a text in double quotes, which the Spark session takes "
            f"for the name of a column: set {_NAMES_IN_QUOTES[0]} to false in it",
            table=table,
            rule=rule,
        )
    try:
        return F.expr(text)
    except AnalysisException as error:
        raise unresolved_rule(rule, error, table=table) from error


def _is_on(setting: str) -> bool:
    spark = SparkSession.getActiveSession()
    return spark is not None and str(spark.conf.get(setting)).lower() == "true"


def _is_not_true(condition: Column) -> Column:
    return ~F.coalesce(condition, F.lit(False))


def _columns(expression: str, schema: StructType) -> tuple[str, ...]:
    """The top-level columns that an expression may refer to, in the table's order."""
    named = {path[0].lower() for path in columns_in_sql(expression)}
    return tuple(name for name in schema.names if name.lower() in named)


def _raise_unresolved(rows: DataFrame, rules: Sequence[RowRule], table: str) -> None:
    """Find the rule that Spark can't resolve, and raise its error."""
    for rule in rules:
        try:
            rows.select(rule.violated)
        except AnalysisException as error:
            raise unresolved_rule(rule.name, error, table=table) from error


def unresolved_rule(rule: str, error: AnalysisException, *, table: str) -> DeltaError:
    """The error about a rule that Spark can't parse or resolve.

    Args:
        rule: what the expression is in the table.
        error: Spark's error.
        table: the table's location.
    """
    if _is_on(_CASE_SENSITIVE) and not isinstance(error, ParseException):
        return InvalidArgumentError(
            f"Spark can't evaluate the table's rule {rule}, perhaps because it has names in another case: "
            f"set {_CASE_SENSITIVE} to false in the session; {error}",
            table=table,
            rule=rule,
        )
    return InvalidTableError(
        f"Spark can't evaluate the table's rule {rule}: {error}; drop the rule, or correct it",
        table=table,
        rule=rule,
    )

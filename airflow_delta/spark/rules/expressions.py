"""Check the condition of a new CHECK constraint.

The condition becomes part of the table, for all engines. So it must depend on nothing but the values of a
row, and the time at which it is written: no other tables, functions of users, or random values. Delta
Spark has a list of allowed functions, but only logs what isn't in it; here a violation is an error.

Spec: PROTOCOL.md, "CHECK Constraints".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from airflow_delta.engine.errors import InvalidArgumentError
from airflow_delta.engine.model.schema import StructType
from airflow_delta.spark.reader.columns import frame_schema

__all__ = ["check_condition"]

_REFUSED: Mapping[str, str] = {
    "UserDefinedExpression": "the user-defined function {}",
    "SQLFunctionExpression": "the user-defined function {}",
    "SQLScalarFunction": "the user-defined function {}",
    "SubqueryExpression": "a subquery, {}",
    "WindowExpression": "the window function {}",
    "Generator": "the generator {}, which makes several rows",
    "VariableReference": "the session variable {}",
    "AggregateExpression": "the aggregate function {}",
}
"""Spark's classes of expressions that depend on more than a row, by their simple names."""

_NO_CONDITIONS: Mapping[str, str] = {
    "Alias": "has an alias",
    "MultiAlias": "has an alias",
    "Star": "is a list of columns",
}
"""Spark's classes of what the parser takes, but not in a condition."""


def check_condition(spark: SparkSession, condition: str, schema: StructType, *, table: str) -> None:
    """Make sure that a text can be the condition of a CHECK constraint.

    Args:
        spark: the session.
        condition: the condition, in SQL.
        schema: the table's.
        table: its location, for errors.

    Raises:
        InvalidArgumentError: Spark can't parse it, or can't resolve it with the table's columns; it isn't
            a boolean; or it depends on more than the values of a row.
    """
    rows = spark.createDataFrame([], frame_schema(schema))
    try:
        # PySpark has no other access to Spark's parser.
        parser = spark._jsparkSession.sessionState().sqlParser()  # noqa: SLF001
        parsed = parser.parseExpression(condition)
        resolved = rows.select(F.expr(condition))
    except AnalysisException as error:
        # The first line is the reason, the others are the query plan.
        reason = str(error).strip().partition("\n")[0]
        raise _refused(condition, f"Spark can't resolve it: {reason}", table) from error
    for name in _classes(parsed.getClass()):
        if name in _NO_CONDITIONS:
            raise _refused(condition, f"it {_NO_CONDITIONS[name]}", table)
    if (found := resolved.schema.fields[0].dataType.simpleString()) != "boolean":
        raise _refused(condition, f"it is of the type {found}, and not boolean", table)
    # PySpark has no other access to plans.
    plan = resolved._jdf.queryExecution().analyzed()  # noqa: SLF001
    for expression in _expressions(plan):
        for name in _classes(expression.getClass()):
            if name in _REFUSED:
                reason = f"it has {_REFUSED[name].format(expression.sql())}"
                raise _refused(condition, reason, table)
        if not expression.deterministic():
            reason = f"the value of {expression.sql()} differs from one evaluation to the next"
            raise _refused(condition, reason, table)


def _refused(condition: str, reason: str, table: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"the condition {condition!r}: expected a boolean expression over the columns of one row; {reason}",
        table=table,
    )


def _expressions(plan: Any) -> Iterator[Any]:
    """All expressions of a plan, each after those inside it."""
    for child in _each(plan.children()):
        yield from _expressions(child)
    for expression in _each(plan.expressions()):
        yield from _inside(expression)


def _inside(expression: Any) -> Iterator[Any]:
    for child in _each(expression.children()):
        yield from _inside(child)
    yield expression


def _classes(kind: Any) -> Iterator[str]:
    """The names of a class of Java, and of all that it extends and implements, without packages."""
    if kind is None:
        return
    yield kind.getName().rpartition(".")[2]
    yield from _classes(kind.getSuperclass())
    for interface in kind.getInterfaces():
        yield from _classes(interface)


def _each(found: Any) -> Iterator[Any]:
    """The items of a sequence of Scala."""
    for index in range(found.length()):
        yield found.apply(index)

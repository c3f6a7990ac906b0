"""Check the expressions of a user with the columns that they may use, before anything is done.

A condition must have the same result each time that it is evaluated for the same row or pair of rows. A new
value may differ each time, because it is evaluated once.

Expressions are evaluated for rows that also have columns of our own, such as the locations of rows. So a
``*`` in one would stand for these, too; Delta Spark refuses it as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from airflow_delta.engine.errors import InvalidArgumentError
from airflow_delta.engine.model.arguments import check_type
from airflow_delta.spark.reader.catalyst import (
    Tree,
    condition_text,
    has_star,
    is_repeatable,
    kind,
)

__all__ = [
    "check_condition_type",
    "check_repeatable",
    "check_values",
    "condition_column",
    "condition_sql",
]


def check_condition_type(argument: str, condition: object, *, table: str) -> None:
    """Check that a user's condition is one for Spark; None is one, too.

    Args:
        argument: the name of the user's argument, for errors.
        condition: the condition.
        table: the table's location, for errors.

    Raises:
        InvalidArgumentError: it is something else, such as a boolean.
    """
    kind = str | Column | None
    check_type(argument, condition, kind, "a condition as a text or Column", table=table)


def condition_column(condition: Column | str) -> Column:
    """A condition as a column.

    Raises:
        ParseException: it is no SQL.
    """
    return F.expr(condition) if isinstance(condition, str) else condition


def condition_sql(rows: DataFrame, condition: Column | str) -> str:
    """A condition as SQL, for ``operationParameters``.

    A text stays as the user wrote it. A `Column` that Spark can't resolve is returned as Spark shows it,
    because `check_repeatable` reports it later.

    Args:
        rows: rows with the columns that it may name; they aren't evaluated.
        condition: the condition.
    """
    if isinstance(condition, str):
        return condition
    try:
        plan = rows.where(condition)._jdf.queryExecution().analyzed()  # noqa: SLF001
    except AnalysisException:
        return condition_text(condition)
    return str(plan.condition().sql())


def check_repeatable(
    rows: DataFrame, condition: Column | str, what: str, of: str, *, table: str
) -> Tree:
    """Check a condition.

    Args:
        rows: rows with the columns that it may name; they aren't evaluated.
        condition: the condition.
        what: what it is, for errors.
        of: whose columns it may name, for errors.
        table: the table's location, for errors.

    Returns:
        Spark's plan, a ``Filter`` of these rows with the resolved condition.

    Raises:
        InvalidArgumentError: Spark can't resolve it, it isn't the same for a row each time, or it has a
            subquery or a ``*``.
    """
    try:
        execution = rows.where(condition_column(condition))._jdf.queryExecution()  # noqa: SLF001
    except AnalysisException as error:
        raise _unresolved(what, of, error, table) from error
    if has_star(execution.logical().condition(), condition_text(condition)):
        raise _with_star(what, table)
    plan = execution.analyzed()
    if not is_repeatable(plan.condition(), rows.sparkSession):
        raise InvalidArgumentError(
            f"{what} has a subquery, or isn't the same for a row each time it is evaluated: use columns "
            "and constants",
            table=table,
        )
    return plan


def check_values(rows: DataFrame, values: Mapping[str, Column], of: str, *, table: str) -> None:
    """Check new values.

    Args:
        rows: rows with the columns that they may name; they aren't evaluated.
        values: the values, by what they are, for errors.
        of: whose columns they may name, for errors.
        table: the table's location, for errors.

    Raises:
        InvalidArgumentError: Spark can't resolve one, it isn't one value for each row by itself, or it has
            a ``*``.
    """
    for what, value in values.items():
        if _names_all(rows, value):
            raise _with_star(what, table)
    try:
        if _are_values(rows, list(values.values())):
            return
    except AnalysisException:
        pass
    for what, value in values.items():
        try:
            is_value = _are_values(rows, [value])
        except AnalysisException as error:
            raise _unresolved(what, of, error, table) from error
        if not is_value:
            raise InvalidArgumentError(
                f"{what} isn't one value for each row by itself: leave out aggregates, windows and "
                "functions such as explode, or compute it beforehand, as a column of the source of a merge",
                table=table,
            )


def _are_values(rows: DataFrame, columns: Sequence[Column]) -> bool:
    """Whether columns have one value for each row by itself."""
    named = [column.alias(f"value_{i}") for i, column in enumerate(columns)]
    plan = rows.select(named)._jdf.queryExecution().analyzed()  # noqa: SLF001
    given = rows._jdf.queryExecution().analyzed()  # noqa: SLF001
    # An aggregate, a window or a generator becomes a node of the plan.
    return kind(plan) == "Project" and kind(plan.child()) == kind(given)


def _names_all(rows: DataFrame, value: Column) -> bool:
    """Whether a value names columns by ``*``."""
    text = condition_text(value)
    if "*" not in text:
        return False
    try:
        plan = rows.select(value.alias("value"))._jdf.queryExecution().logical()  # noqa: SLF001
    except AnalysisException:
        return False  # The error of Spark says more.
    return has_star(plan.projectList().apply(0), text)


def _with_star(what: str, table: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"{what} has a *, which would also stand for the columns by which changed rows are found: name the "
        "columns that are meant",
        table=table,
    )


def _unresolved(what: str, of: str, error: AnalysisException, table: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"Spark can't resolve {what} with the columns of {of}: "
        f"{str(error).strip().partition(chr(10))[0]}",
        table=table,
    )

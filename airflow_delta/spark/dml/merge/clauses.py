"""Check the expressions in the clauses of a merge, and resolve the values that they give to columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812

from airflow_delta.engine.errors import InvalidArgumentError
from airflow_delta.engine.features.identity import identity_columns
from airflow_delta.row_changes.clauses import (
    MATCHED,
    NOT_MATCHED,
    NOT_MATCHED_BY_SOURCE,
    MergeClause,
)
from airflow_delta.spark.dml.assignments import Assignments, MissingMembers, parse_assignments
from airflow_delta.spark.dml.expressions import check_repeatable
from airflow_delta.spark.reader.catalyst import condition_text
from airflow_delta.spark.reader.columns import quoted
from airflow_delta.spark.rules.row_rules import GENERATION_EXPRESSION

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from airflow_delta.spark.writer.target import WriteTarget

__all__ = ["argument_of", "check_expressions", "clause_rows", "resolved_assignments"]

_OWNERS = {
    MATCHED: "the table and the source",
    NOT_MATCHED: "the source",
    NOT_MATCHED_BY_SOURCE: "the table",
}


def argument_of(clause: MergeClause) -> str:
    """What the values of a clause are, for errors."""
    return f"the values of a clause for {clause.when}"


def clause_rows(own: DataFrame, other: DataFrame) -> dict[str, DataFrame]:
    """The rows whose columns the expressions of a clause may name, by the kind of clause.

    Args:
        own: rows with the columns of the table, under its name in expressions.
        other: rows with the columns of the source, under its name.
    """
    return {MATCHED: own.join(other), NOT_MATCHED: other, NOT_MATCHED_BY_SOURCE: own}


def check_expressions(
    clauses: Mapping[int, MergeClause],
    assignments: Mapping[int, Assignments],
    own: DataFrame,
    other: DataFrame,
    *,
    table: str,
) -> None:
    """Check the conditions and values of clauses with the columns that they may name.

    Args:
        clauses: the clauses, by number.
        assignments: the values of those that have some.
        own: rows with the columns of the table, under its name in expressions; they aren't evaluated.
        other: rows with the columns of the source, under its name.
        table: the table's location, for errors.

    Raises:
        InvalidArgumentError: Spark can't resolve an expression; a condition isn't the same for a row each
            time, or has a subquery; or a value isn't one for each row by itself.
    """
    scopes = clause_rows(own, other)
    for number, clause in clauses.items():
        rows, of = scopes[clause.when], _OWNERS[clause.when]
        if clause.condition is not None:
            what = f"the condition {condition_text(clause.condition)} of a clause for {clause.when}"
            check_repeatable(rows, clause.condition, what, of, table=table)
        if number in assignments:
            assignments[number].check(rows, of, table=table)


def resolved_assignments(
    spark: SparkSession,
    clause: MergeClause,
    target: WriteTarget,
    source: Sequence[str],
    *,
    aliases: tuple[str, str],
    evolves: bool,
) -> Assignments:
    """Resolve the values of a clause that updates or inserts.

    Args:
        spark: the session.
        clause: the clause.
        target: the table, with the columns that the merge adds.
        source: the names of the columns of the source.
        aliases: the names of the table and of the source in conditions and values.
        evolves: whether the table gets the columns that only the source has; then the source may also
            lack columns.

    Raises:
        InvalidArgumentError: see `parse_assignments`; or all columns are to be taken, and the source lacks
            one.
        ConstraintViolationError: see `parse_assignments`.
    """
    inserts = clause.then == "insert"
    values = clause.values
    if values is None:
        values = _all_values(target, source, aliases[1], inserts=inserts, evolves=evolves)
    found = parse_assignments(
        spark, values, target, argument=argument_of(clause), alias=aliases[0], inserts=inserts
    )
    if not evolves:
        return found
    keeps = clause.takes_all and not inserts
    return replace(found, missing_members=MissingMembers.KEPT if keeps else MissingMembers.NULL)


def _all_values(
    target: WriteTarget, source: Sequence[str], alias: str, *, inserts: bool, evolves: bool
) -> Mapping[Any, Any]:
    """A value from the source for each column of the table that it has."""
    given = {name.lower(): name for name in source}
    made = {column.name for column in identity_columns(target.schema)}
    made |= {f.name for f in target.schema if GENERATION_EXPRESSION in f.metadata}
    if inserts:
        made |= {f.name for f in target.schema if "CURRENT_DEFAULT" in f.metadata}
    missing = [
        field.name
        for field in target.schema
        if field.name.lower() not in given and field.name not in made
    ]
    if missing and not evolves:
        raise InvalidArgumentError(
            f"the source lacks the columns {missing} of the table, from which all columns are to be taken: "
            "add them to the source, give the clause values, or let the source have fewer columns by "
            "merge_schema=True",
            table=target.table,
        )
    return {
        (field.name,): _column(alias, given[field.name.lower()])
        for field in target.schema
        if field.name.lower() in given
    }


def _column(alias: str, name: str) -> Column:
    return F.col(f"{quoted(alias)}.{quoted(name)}")

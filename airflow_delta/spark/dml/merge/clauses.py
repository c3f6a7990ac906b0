"""Resolve the values that the clauses of a merge give to the columns of the table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812

from airflow_delta.engine.errors import InvalidArgumentError
from airflow_delta.engine.features.identity import identity_columns
from airflow_delta.engine.model.schema import StructType
from airflow_delta.spark.dml.assignments import Assignments, MissingMembers, parse_assignments
from airflow_delta.spark.reader.columns import quoted
from airflow_delta.spark.rules.row_rules import GENERATION_EXPRESSION

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

    from airflow_delta.row_changes.clauses import MergeClause
    from airflow_delta.spark.writer.target import WriteTarget

__all__ = ["resolved_assignments"]


def resolved_assignments(
    spark: SparkSession,
    clause: MergeClause,
    target: WriteTarget,
    source: StructType,
    *,
    aliases: tuple[str, str],
    evolves: bool,
) -> Assignments:
    """Resolve the values of a clause that updates or inserts.

    Args:
        spark: the session.
        clause: the clause.
        target: the table, with the columns that the merge adds.
        source: the columns of the source.
        aliases: the names of the table and of the source in conditions and values.
        evolves: whether the table gets the columns that only the source has; then the source may also
            lack columns.

    Raises:
        InvalidArgumentError: see `parse_assignments`; or all columns are to be taken, and the source lacks
            one.
        ConstraintViolationError: see `parse_assignments`.
    """
    inserts = clause.then == "insert"
    argument = f"the values of a clause for {clause.when}"
    values = clause.values
    if values is None:
        values = _all_values(target, source, aliases[1], inserts=inserts, evolves=evolves)
    found = parse_assignments(
        spark, values, target, argument=argument, alias=aliases[0], inserts=inserts
    )
    if not evolves:
        return found
    keeps = clause.takes_all and not inserts
    return replace(found, missing_members=MissingMembers.KEPT if keeps else MissingMembers.NULL)


def _all_values(
    target: WriteTarget, source: StructType, alias: str, *, inserts: bool, evolves: bool
) -> Mapping[Any, Any]:
    """A value from the source for each column of the table that it has."""
    given = {field.name.lower(): field.name for field in source}
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

"""The clauses of a merge, as users give them: checked, and resolved to the columns of the table.

There is a list of clauses for pairs of rows that match, one for rows of the source that match none, and one
for rows of the table that match none. The first clause whose condition is true is carried out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812

from airflow_delta.engine.errors import InvalidArgumentError
from airflow_delta.engine.features.identity import identity_columns
from airflow_delta.engine.model.schema import StructType
from airflow_delta.spark.dml.assignments import Assignments, MissingMembers, parse_assignments
from airflow_delta.spark.reader.catalyst import condition_text
from airflow_delta.spark.reader.columns import quoted
from airflow_delta.spark.rules.row_rules import GENERATION_EXPRESSION

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

    from airflow_delta.spark.writer.target import WriteTarget

__all__ = [
    "MATCHED",
    "NOT_MATCHED",
    "NOT_MATCHED_BY_SOURCE",
    "MergeClause",
    "check_clauses",
    "resolved_assignments",
]

MATCHED = "matched"
NOT_MATCHED = "not_matched"
NOT_MATCHED_BY_SOURCE = "not_matched_by_source"

_ACTIONS: Mapping[str, tuple[str, ...]] = {
    MATCHED: ("update", "delete"),
    NOT_MATCHED: ("insert",),
    NOT_MATCHED_BY_SOURCE: ("update", "delete"),
}


@dataclass(frozen=True, slots=True)
class MergeClause:
    """One clause of a merge.

    Attributes:
        when: the rows that it is for: ``matched``, ``not_matched`` (rows of the source without a match) or
            ``not_matched_by_source`` (rows of the table without a match).
        then: what is done: ``update``, ``delete`` or ``insert``.
        condition: a condition: for ``matched`` on both rows, otherwise on the one that there is.
        values: the new values by column; see `airflow_delta.spark.update`. None: each column gets the value
            of the source's column of its name.
    """

    when: str
    then: str
    condition: Column | str | None = None
    values: Mapping[Any, Any] | None = None

    @property
    def takes_all(self) -> bool:
        """Whether all columns are taken from the source."""
        return self.then != "delete" and self.values is None

    def to_json(self) -> dict[str, str]:
        """The clause in ``operationParameters``, as Delta Spark writes it."""
        predicate = {} if self.condition is None else {"predicate": condition_text(self.condition)}
        return {**predicate, "actionType": self.then}


def check_clauses(clauses: Sequence[MergeClause], *, table: str) -> None:
    """Check that clauses are complete, and that each can come to its turn.

    Raises:
        InvalidArgumentError: there is no clause; or one has an unknown name, or values that it can't have,
            or follows one without a condition.
    """
    if not clauses:
        raise InvalidArgumentError(
            "the merge has no clause: say what is to be done with rows that match, or that don't, such as "
            "by when_matched_update_all() and when_not_matched_insert_all()",
            table=table,
        )
    closed: set[str] = set()
    for clause in clauses:
        allowed = _ACTIONS.get(clause.when)
        if allowed is None or clause.then not in allowed:
            raise InvalidArgumentError(
                f"a clause has when={clause.when!r} and then={clause.then!r}: expected one of "
                + ", ".join(
                    f"{when}: {' or '.join(actions)}" for when, actions in _ACTIONS.items()
                ),
                table=table,
            )
        if clause.then == "delete" and clause.values is not None:
            raise InvalidArgumentError("a clause that deletes has no values", table=table)
        if clause.when == NOT_MATCHED_BY_SOURCE and clause.takes_all:
            raise InvalidArgumentError(
                "rows that are not matched by the source have no row of it to take values from: give the "
                "clause values",
                table=table,
            )
        if clause.when in closed:
            raise InvalidArgumentError(
                f"a clause for {clause.when} follows one without a condition, so that it is never reached: "
                "give the earlier one a condition, or drop the later one",
                table=table,
            )
        if clause.condition is None:
            closed.add(clause.when)


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

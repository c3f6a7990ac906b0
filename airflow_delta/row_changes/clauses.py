"""The clauses of a merge, as users give them, and the check that they are complete.

There are three kinds of clauses: for pairs of rows that match, for rows of the source that match none, and
for rows of the table that match none. Of the clauses of a kind, the first one whose condition is true
applies.

A task sends its clauses to its Spark job as JSON (`parse_clauses`), and checks them before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from airflow_delta.engine.errors import InvalidArgumentError
from airflow_delta.row_changes.new_values import check_values

__all__ = [
    "MATCHED",
    "NOT_MATCHED",
    "NOT_MATCHED_BY_SOURCE",
    "MergeClause",
    "check_clauses",
    "parse_clauses",
]

MATCHED = "matched"
NOT_MATCHED = "not_matched"
NOT_MATCHED_BY_SOURCE = "not_matched_by_source"

_OPTIONAL = {"condition", "values"}

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
        condition: SQL or a Column: for ``matched`` over both rows, otherwise over the only one. None:
            always true.
        values: the new values by column; see `airflow_delta.spark.update`. None: each column gets the value
            of the source's column of its name.
    """

    when: str
    then: str
    condition: Any = None
    values: Mapping[Any, Any] | None = None

    @property
    def takes_all(self) -> bool:
        """Whether all columns are taken from the source."""
        return self.then != "delete" and self.values is None


def parse_clauses(given: Any, *, name: str) -> tuple[MergeClause, ...]:
    """Parse clauses of JSON values, and check them.

    Args:
        given: a list of dictionaries with the keys ``when``, ``then``, and perhaps ``condition`` and
            ``values``.
        name: the name of the argument, for errors.

    Raises:
        InvalidArgumentError: it isn't of this form; or see `check_clauses`.
    """
    if not isinstance(given, list | tuple):
        raise InvalidArgumentError(f"{name}: expected a list of dictionaries, found {given!r}")
    clauses = tuple(_parsed(clause, f"{name}[{number}]") for number, clause in enumerate(given))
    check_clauses(clauses)
    return clauses


def _parsed(given: Any, name: str) -> MergeClause:
    match given:
        case {"when": str(when), "then": str(then), **others} if others.keys() <= _OPTIONAL:
            condition = others.get("condition")
            values: Any = others.get("values")
        case _:
            raise InvalidArgumentError(
                f"{name}: expected a dictionary with when, then, and perhaps condition and values, found "
                f"{given!r}"
            )
    if not isinstance(condition, str | None):
        raise InvalidArgumentError(f"{name}['condition']: expected SQL, found {condition!r}")
    if values is not None:
        check_values(values, name=f"{name}['values']")
    return MergeClause(when, then, condition, values)


def check_clauses(clauses: Sequence[MergeClause], *, table: str | None = None) -> None:
    """Check that clauses are complete, and that each can be reached.

    Args:
        clauses: the clauses, in their order.
        table: the table's location, for errors.

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

"""Find the columns that the columns of a changed table come from, by the text of its new values.

An origin is reported only if it is certain. The text is SQL, in which `columns_in_sql` finds every name
that may be a column. It may also find a name that is none, such as a unit of time. So a column has no
origins at all if its new value has a name that is both a column and a word of SQL, or a form in which names
aren't columns.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from airflow_delta.engine.errors import InvalidTableError
from airflow_delta.engine.features.column_changes.sql_columns import columns_in_sql
from airflow_delta.engine.model.sql_names import split_names
from airflow_delta.hooks.lineage.datasets import (
    Column,
    ColumnOrigin,
    LineageDataset,
    NewValues,
    RowChanges,
)

__all__ = ["column_origins"]

_UNCERTAIN = re.compile(
    r"->|(?<!<)=>|::|[(,.]\s*\*|\bas\s+\w+\s*<|\b(?:collate|from|over|select|sort|lateral)\b",
    re.IGNORECASE,
)
"""Lambda functions, named arguments, types with members, and clauses, in which names may be no columns; and
a star, which means all columns."""

_SQL_WORDS = frozenset(
    """
    all and any asc between both by case cast collate cross current_catalog current_database
    current_date current_schema current_time current_timestamp current_user day dayofweek dayofyear days
    desc distinct div else end escape exists false filter first for hour hours ignore ilike in interval
    is json last leading like local localtimestamp microsecond microseconds millisecond milliseconds minute
    minutes month months nan nanosecond nanoseconds not null nulls on or order partition quarter
    quarters regexp respect rlike rows second seconds session_user some then time timestamp to trailing
    true unknown user week weeks when where with within without year years zone
    """.split()  # noqa: SIM905 - a list of so many would fill a screen
)
"""Words that stand in expressions without being columns."""


_TOKEN = re.compile(r"'(?:[^'\\]|\\.)*'|`[^`]*`|--[^\n]*|\w+|[^\s\w]")


class _UncertainError(Exception):
    """The columns of an expression aren't certain."""


def column_origins(table: LineageDataset) -> tuple[ColumnOrigin, ...]:
    """Find the origins of a table's columns in the changes of its rows.

    :param table: the table after the changes, with its columns; so is the source of the changes.
    :returns: the certain ones, in the order of the columns.
    """
    changes = table.row_changes
    if changes is None:
        return ()
    found: dict[str, set[ColumnOrigin]] = {column.name: set() for column in table.columns}
    is_changed = bool(changes.clauses)
    uncertain = {column.name for column in table.columns if is_changed and column.is_generated}
    replaced: set[str] = set()
    for clause in changes.clauses:
        try:
            assigned = list(_assigned(clause, table, changes))
        except _UncertainError:
            return ()
        for path, value in assigned:
            try:
                found[path[0]] |= _origins(path, value, clause, table, changes)
            except _UncertainError:
                uncertain.add(path[0])
            if changes.is_of_all_rows and len(path) == 1:
                replaced.add(path[0])
    if changes.keeps_rows:
        for name in found.keys() - replaced:
            found[name].add(ColumnOrigin(name, table.uri, name))
    return tuple(
        origin
        for name, origins in found.items()
        if name not in uncertain
        for origin in sorted(origins, key=lambda one: (one.uri, one.origin, one.is_unchanged))
    )


def _assigned(
    clause: NewValues, table: LineageDataset, changes: RowChanges
) -> Iterator[tuple[tuple[str, ...], Any]]:
    """The columns, or members of structs, that get new values, and the values."""
    if clause.values is None:
        if changes.source is None:
            raise _UncertainError
        given = {column.name.lower(): column for column in changes.source.columns}
        for column in table.columns:
            if column.name.lower() in given:
                yield (column.name,), given[column.name.lower()]
        return
    for name, value in clause.values.items():
        yield _column_path(name, table, changes.table_alias), value


def _column_path(name: str, table: LineageDataset, alias: str | None) -> tuple[str, ...]:
    """The path of the column that a user has named."""
    names: list[tuple[str, ...]] = [(name,)]
    try:
        (dotted,) = split_names(name)
        names.append(dotted)
        if alias is not None and dotted[0].lower() == alias.lower():
            names.append(dotted[1:])
    except (InvalidTableError, ValueError):
        pass
    for path in names:
        if (found := _find(table.columns, path)) is not None:
            return found
    raise _UncertainError


def _find(columns: Sequence[Column], path: Sequence[str]) -> tuple[str, ...] | None:
    """A column, or a member of a struct, in the spelling of the table; None if there is none."""
    spelled: list[str] = []
    for part in path:
        found = next((one for one in columns if one.name.lower() == part.lower()), None)
        if found is None:
            return None
        spelled.append(found.name)
        columns = found.fields
    return tuple(spelled) or None


def _origins(
    path: tuple[str, ...],
    value: Any,
    clause: NewValues,
    table: LineageDataset,
    changes: RowChanges,
) -> set[ColumnOrigin]:
    """The origins of a new value; none for a constant.

    :raises _UncertainError: they aren't certain.
    """
    if isinstance(value, Column):
        assert changes.source is not None
        is_unchanged = value.type == _type(table.columns, path[0])
        return {ColumnOrigin(path[0], changes.source.uri, value.name, is_unchanged)}
    if not isinstance(value, str) or value.strip().upper() == "DEFAULT":
        return set()
    if _UNCERTAIN.search(value) or _has_alias(value):
        raise _UncertainError
    named = _Named(clause, table, changes)
    found = {found for name in columns_in_sql(value) if (found := named.column(name)) is not None}
    is_unchanged = len(path) == 1 and any(
        one.type == _type(table.columns, path[0]) and _is_name(value, one.name) for one in found
    )
    return {ColumnOrigin(path[0], one.uri, one.origin, is_unchanged) for one in found}


def _has_alias(expression: str) -> bool:
    """Whether a name may follow another one, as in ``struct(id number)``, where it is no column."""
    tokens = [token.lower() for token in _TOKEN.findall(expression)]
    return any(_is_any_name(first) and _is_any_name(second) for first, second in pairwise(tokens))


def _is_any_name(token: str) -> bool:
    return token not in _SQL_WORDS | {"as"} and (token[0] in "`_" or token[0].isalnum())


@dataclass(frozen=True, slots=True)
class _NamedColumn:
    """A column that a name in an expression means.

    Attributes:
        uri: the dataset.
        origin: the column at the top of its schema.
        name: the name in the expression.
        type: the type of the column; None if the name means a member of it.
    """

    uri: str
    origin: str
    name: tuple[str, ...]
    type: str | None


class _Named:
    """Finds the columns that names in an expression mean.

    :param clause: the clause of the expression.
    :param table: the table.
    :param changes: the changes of its rows.
    """

    def __init__(self, clause: NewValues, table: LineageDataset, changes: RowChanges) -> None:
        both = ((changes.source, changes.source_alias), (table, changes.table_alias))
        visible = (clause.sees_source, clause.sees_table)
        self._datasets = [one for one, is_visible in zip(both, visible, strict=True) if is_visible]

    def column(self, name: tuple[str, ...]) -> _NamedColumn | None:
        """The column that a name means; None if it means none.

        :raises _UncertainError: it isn't certain.
        """
        found = list(self._meanings(name))
        if len(found) > 1 or (found and name[0].lower() in _SQL_WORDS):
            raise _UncertainError
        return found[0] if found else None

    def _meanings(self, name: tuple[str, ...]) -> Iterator[_NamedColumn]:
        for dataset, alias in self._datasets:
            is_of_alias = alias is not None and name[0].lower() == alias.lower()
            if dataset is None:
                # Nobody knows which columns it has.
                raise _UncertainError
            for path in (name, name[1:] if is_of_alias else ()):
                if path and (found := _find(dataset.columns, path[:1])) is not None:
                    kind = _type(dataset.columns, found[0]) if len(path) == 1 else None
                    yield _NamedColumn(dataset.uri, found[0], name, kind)
            if is_of_alias and len(name) == 1:
                # The whole row.
                raise _UncertainError


def _type(columns: Sequence[Column], name: str) -> str:
    return next(column.type for column in columns if column.name == name)


def _is_name(expression: str, name: tuple[str, ...]) -> bool:
    """Whether an expression is nothing but a name."""
    try:
        return split_names(expression) == [name]
    except (InvalidTableError, ValueError):
        return False

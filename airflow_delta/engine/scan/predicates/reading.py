"""`as_expression`: convert a predicate in any form that users write to a pyarrow expression."""

from __future__ import annotations

from typing import Any, TypeAlias

import pyarrow.compute as pc

from airflow_delta.engine.errors import InvalidArgumentError
from airflow_delta.engine.model.schema import StructType
from airflow_delta.engine.scan.predicates.text import parse_text
from airflow_delta.engine.scan.predicates.tuples import parse_tuples
from airflow_delta.engine.scan.predicates.typing import to_expression

__all__ = ["PredicateLike", "as_expression"]

PredicateLike: TypeAlias = "pc.Expression | str | list[Any]"
"""A `pyarrow.compute.Expression`, SQL-like text, or a list of tuples."""


def as_expression(predicate: PredicateLike, schema: StructType, *, table: str) -> pc.Expression:
    """Convert a predicate to an expression over the logical columns of a table.

    Args:
        predicate: see ``text`` and ``tuples`` for the forms; an expression is returned as it is.
        schema: the schema of the table, with logical names.
        table: the table's location, for messages.

    Raises:
        InvalidArgumentError: the predicate has another form, can't be parsed, names a column that the table
            doesn't have, or compares a column with an incomparable value.
    """
    if isinstance(predicate, pc.Expression):
        return predicate
    if isinstance(predicate, str):
        return to_expression(parse_text(predicate, table=table), schema, table=table)
    if isinstance(predicate, list):
        return to_expression(parse_tuples(predicate, table=table), schema, table=table)
    raise InvalidArgumentError(
        f'predicate {predicate!r} is a {type(predicate).__name__}: expected a text such as "a > 5", a '
        "list of tuples such as [('a', '>', 5)], or a pyarrow.compute.Expression over the columns of the "
        'table, such as pyarrow.compute.field("a") > 5',
        table=table,
    )

"""The columns of inserted rows whose values are made while the rows are written.

Identity values are numbered by the tasks that write; generated columns that depend on them are computed
after that.

Spec: PROTOCOL.md, "Identity Columns", "Generated Columns".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_delta.engine.features.identity import identity_columns
from airflow_delta.spark.rules.row_rules import GENERATION_EXPRESSION
from airflow_delta.spark.writer.alignment import depending_on

if TYPE_CHECKING:
    from airflow_delta.engine.features.identity import IdentityColumn
    from airflow_delta.engine.model.schema import StructField, StructType
    from airflow_delta.spark.dml.assignments import Assignments

__all__ = ["MadeInInserts", "made_in_inserts"]


@dataclass(frozen=True, slots=True)
class MadeInInserts:
    """The columns, and the clauses that leave them out.

    Attributes:
        identities: the identity columns.
        computed_later: the generated columns that depend on them.
        clauses: the numbers of the clauses that don't assign such a column, by its name.
    """

    identities: tuple[IdentityColumn, ...]
    computed_later: tuple[StructField, ...]
    clauses: Mapping[str, Sequence[int]]


def made_in_inserts(
    inserts: Mapping[int, Assignments], schema: StructType, *, table: str
) -> MadeInInserts:
    """Find the columns.

    Args:
        inserts: the values of the clauses that insert, by the number of the clause.
        schema: the table's schema.
        table: its location, for errors.

    Raises:
        InvalidTableError: see `depending_on`.
    """

    def lacking(name: str) -> list[int]:
        """The numbers of the clauses that don't assign a column."""
        return [n for n, values in inserts.items() if not values.assigns(name)]

    identities = tuple(c for c in identity_columns(schema) if lacking(c.name))
    generated = [f for f in schema if GENERATION_EXPRESSION in f.metadata and lacking(f.name)]
    later = depending_on(generated, [column.name for column in identities], table=table)
    names = [*(column.name for column in identities), *(column.name for column in later)]
    return MadeInInserts(identities, later, {name: lacking(name) for name in names})

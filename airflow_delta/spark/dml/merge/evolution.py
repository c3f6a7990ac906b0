"""Find the columns and types that a merge with ``merge_schema`` adds to the table.

A clause that takes all columns adds all columns of the source, also inside structs. Any other clause adds
the columns that it assigns, if the source has a column of the same name, such as ``new`` or
``address.city``. Clauses for rows that the source doesn't match add none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from airflow_delta.engine.features.schema_walk import SchemaPath
from airflow_delta.engine.model.schema import StructField, StructType
from airflow_delta.engine.transaction.alter.evolution import evolve_metadata
from airflow_delta.row_changes.clauses import NOT_MATCHED_BY_SOURCE, MergeClause
from airflow_delta.spark.dml.assignments import find_column, spellings
from airflow_delta.spark.dml.merge.clauses import argument_of

if TYPE_CHECKING:
    from airflow_delta.engine import Snapshot
    from airflow_delta.engine.model.actions import Metadata
    from airflow_delta.spark.dml.merge.source import MergeSource

__all__ = ["evolved_metadata"]


def evolved_metadata(
    base: Snapshot, source: MergeSource, clauses: Sequence[MergeClause], alias: str
) -> Metadata:
    """The metadata of a table with the columns and types that a merge adds.

    Args:
        base: the table.
        source: the source.
        clauses: the clauses of the merge.
        alias: the name of the table in them.

    Returns:
        The metadata; those of the table if nothing is added.

    Raises:
        InvalidArgumentError: what is assigned is no column's name; or see `evolve_metadata`.
        InvalidTableError: see `evolve_metadata`.
    """
    giving = [clause for clause in clauses if clause.when != NOT_MATCHED_BY_SOURCE]
    if any(clause.takes_all for clause in giving):
        return evolve_metadata(base, source.schema)
    paths = [
        path
        for clause in giving
        for name in clause.values or ()
        if (path := _path_in_source(base, source, clause, name, alias)) is not None
    ]
    return evolve_metadata(base, _selected(source.schema, paths))


def _path_in_source(
    base: Snapshot, source: MergeSource, clause: MergeClause, name: object, alias: str
) -> SchemaPath | None:
    """The column of the source with the name of an assigned column, which the table may lack."""
    for parts in spellings(source.spark, name, argument_of(clause), alias):
        found = find_column(source.schema, parts)
        if found is not None or find_column(base.schema, parts) is not None:
            return found and found[0]
    return None


def _selected(schema: StructType, paths: Sequence[SchemaPath]) -> StructType:
    """The columns at some paths, and the structs around them."""
    fields: list[StructField] = []
    for field in schema:
        inside = [path[1:] for path in paths if path[0] == field.name]
        if () in inside:
            fields.append(field)
        elif inside:
            assert isinstance(field.data_type, StructType)
            fields.append(replace(field, data_type=_selected(field.data_type, inside)))
    return StructType(tuple(fields))

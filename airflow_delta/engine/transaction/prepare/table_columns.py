"""The columns of the table after the commit, by logical and by physical names."""

from __future__ import annotations

from collections.abc import Mapping

from airflow_delta.engine.features.column_mapping import (
    mapping_mode,
    partition_fields,
    physical_schema,
)
from airflow_delta.engine.model.schema import StructField, StructType
from airflow_delta.engine.snapshot.table_schema import table_schema
from airflow_delta.engine.transaction.context import CommitContext

__all__ = ["mode_after", "partition_fields_after", "physical_schema_after", "schema_after"]


def schema_after(context: CommitContext) -> StructType:
    """The schema after the commit, with logical names.

    Raises:
        InvalidTableError: it can't be parsed, or partition columns aren't in it.
    """
    base = context.base
    if base is not None and context.metadata is base.metadata:
        return base.schema  # parsed once, for all stages
    return table_schema(context.metadata, table=context.table)


def mode_after(context: CommitContext) -> str:
    """The column mapping mode after the commit: ``none``, ``name`` or ``id``.

    Raises:
        InvalidTableError: the property has another value.
    """
    return mapping_mode(context.protocol, context.metadata, table=context.table)


def partition_fields_after(context: CommitContext) -> Mapping[str, StructField]:
    """The partition columns after the commit, by their physical names.

    Raises:
        InvalidTableError: see `schema_after`; or one lacks its physical name.
    """
    columns = context.metadata.partition_columns
    return partition_fields(schema_after(context), columns, mode_after(context))


def physical_schema_after(context: CommitContext) -> StructType:
    """The schema after the commit, with physical names.

    Raises:
        InvalidTableError: see `schema_after`; or a column lacks its physical name.
    """
    return physical_schema(schema_after(context), mode_after(context))

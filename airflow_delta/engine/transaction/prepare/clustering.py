"""Require statistics of the clustering columns for each file of a clustered table.

A commit that changes the clustering columns also needs statistics of the new columns for the existing
files. Bounds may be missing if all values are null, or for types that may have none. A file without records
needs no statistics.

PROTOCOL.md, "Clustered Table".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from airflow_delta.engine.arrow.action_schema import FILE_KEY_COLUMNS
from airflow_delta.engine.arrow.python_arrays import scalar_of
from airflow_delta.engine.arrow.statistics.parse import parse_stats
from airflow_delta.engine.features.clustering import (
    DOMAIN,
    FEATURE,
    check_clustering_columns,
    parse_clustering_columns,
)
from airflow_delta.engine.features.schema_walk import SchemaPath, all_fields
from airflow_delta.engine.model.actions import DomainMetadata
from airflow_delta.engine.model.schema import (
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    DataType,
)
from airflow_delta.engine.replay.file_key import file_keys, keys_of_files
from airflow_delta.engine.transaction.context import CommitContext
from airflow_delta.engine.transaction.prepare.statistics import count_of, statistic, statistics_of
from airflow_delta.engine.transaction.prepare.table_columns import physical_schema_after
from airflow_delta.engine.transaction.staged import Actions

__all__ = ["check_clustering"]

_UNBOUNDED: frozenset[DataType] = frozenset(
    {FLOAT, DOUBLE, STRING, DATE, TIMESTAMP, TIMESTAMP_NTZ, BINARY, BOOLEAN}
)
"""Types for which a bound may be missing: JSON has no NaN, a long text may have no short upper bound, dates
and times after the year 9999 have no form in statistics, and no writer records bounds for the last two."""


def check_clustering(actions: Actions, context: CommitContext) -> Actions:
    """Check that the clustering columns exist, and that each file has statistics of them.

    Raises:
        ConstraintViolationError: a file lacks a statistic.
        InvalidTableError: the table can't be clustered by these columns, or the domain can't be read.
        CorruptLogError: the table's live files can't be read.
        StorageError: the store failed.
    """
    if FEATURE not in context.supported:
        return actions
    before = _columns(context.domains.get(DOMAIN), context)
    columns = _columns(actions.domains[DOMAIN], context) if DOMAIN in actions.domains else before
    if not columns:
        return actions
    schema = physical_schema_after(context)
    if actions.metadata or DOMAIN in actions.domains:
        partitioning = context.metadata.partition_columns
        check_clustering_columns(
            columns, schema, partition_columns=partitioning, table=context.table
        )
    types = {path: field.data_type for path, field in all_fields(schema)}
    # A loop over the files of one commit: they came as objects, from one writer.
    for file in actions.adds:
        statistics = statistics_of(file, context)
        for path in columns:
            lacking = _lacking(statistics, path, bounded=types.get(path) not in _UNBOUNDED)
            if lacking:
                raise _missing_statistic(lacking, file.path, path, context)
    if added := [path for path in columns if path not in before]:
        _check_existing_files(added, actions, context)
    return actions


def _columns(domain: DomainMetadata | None, context: CommitContext) -> Sequence[SchemaPath]:
    if domain is None or domain.removed:
        return ()
    return parse_clustering_columns(domain.configuration, table=context.table)


def _check_existing_files(
    added: Sequence[SchemaPath], actions: Actions, context: CommitContext
) -> None:
    """Check that the files that the commit keeps have statistics of new clustering columns."""
    if context.base is None:
        return
    live = context.base.files(columns=(*FILE_KEY_COLUMNS, "stats"))
    touched = keys_of_files([*actions.adds, *actions.removes], table=context.table)
    keys = file_keys(live, table=context.table)
    kept = live.filter(pc.invert(pc.is_in(keys, value_set=touched)))
    for path in added:
        fields = pa.struct([("numRecords", pa.int64()), ("nullCount", _nested(path))])
        parsed = parse_stats(kept["stats"], fields)
        counts = pc.struct_field(pc.struct_field(parsed, "nullCount"), list(path))
        has_records = pc.not_equal(pc.struct_field(parsed, "numRecords"), scalar_of(0, pa.int64()))
        needed = pc.coalesce(has_records, scalar_of(True, pa.bool_()))
        lacking = kept["path"].filter(pc.and_(needed, pc.is_null(counts)))
        if len(lacking):
            raise _missing_statistic("nullCount", lacking[0].as_py(), path, context)


def _nested(path: SchemaPath) -> pa.DataType:
    inner = _nested(path[1:]) if path[1:] else pa.int64()
    return pa.struct([(path[0], inner)])


def _lacking(statistics: Mapping[str, Any], path: SchemaPath, *, bounded: bool) -> str | None:
    """The first missing statistic of a column; None if none is missing."""
    records = count_of(statistics.get("numRecords"))
    nulls = count_of(statistic(statistics, "nullCount", path))
    if records == 0:
        return None
    if records is None or nulls is None:
        return "numRecords" if records is None else "nullCount"
    if nulls == records or not bounded:
        return None
    bounds = ("minValues", "maxValues")
    return next((name for name in bounds if statistic(statistics, name, path) is None), None)


def _missing_statistic(
    lacking: str, file: str, column: SchemaPath, context: CommitContext
) -> Exception:
    return context.violation(
        f"the statistics of the file {file!r} lack {lacking} of the clustering column "
        f"{'.'.join(column)}; a clustered table needs them"
    )

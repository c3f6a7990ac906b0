"""Check that the files a commit adds are such as the table's features allow and ask for.

Files come as objects, from one writer, so each check is a loop over them. Whether what they say of
their data is true can't be seen here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from airflow_delta.engine.errors import InvalidTableError
from airflow_delta.engine.features.clustering import DOMAIN, parse_clustering_columns
from airflow_delta.engine.features.column_mapping import (
    mapping_mode,
    physical_name,
    physical_schema,
)
from airflow_delta.engine.features.protocol import supported_features
from airflow_delta.engine.features.schema_walk import SchemaPath, all_fields
from airflow_delta.engine.model.file_actions import AddFile
from airflow_delta.engine.model.partition_values import parse_partition_value
from airflow_delta.engine.model.properties import TableProperties
from airflow_delta.engine.model.schema import (
    BINARY,
    BOOLEAN,
    DOUBLE,
    FLOAT,
    STRING,
    DataType,
    StructField,
)
from airflow_delta.engine.snapshot.table_schema import table_schema
from airflow_delta.engine.transaction.context import CommitContext
from airflow_delta.engine.transaction.staged import StagedActions

__all__ = [
    "check_clustering_statistics",
    "check_deletion_vectors",
    "check_partition_values",
    "check_row_ids",
]

_HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"

_UNBOUNDED: frozenset[DataType] = frozenset({FLOAT, DOUBLE, STRING, BINARY, BOOLEAN})
"""Types of which a bound may rightly be missing: JSON has no NaN, a long text may have no short
upper bound, and of the last two no writer keeps bounds."""


def check_partition_values(staged: StagedActions, context: CommitContext) -> None:
    """Each file has a value for each partition column, by physical name, that fits its type.

    PROTOCOL.md, "Partition Value Serialization"; edge case G6: what stands for null in the names of
    directories is no value.

    Raises:
        ConstraintViolationError: a file lacks a value, has one too many or one that is none.
        InvalidTableError: the table's schema, mapping and partition columns don't fit together.
    """
    schema = table_schema(context.metadata, table=context.table)
    mode = mapping_mode(context.protocol, context.metadata, table=context.table)
    partitioning = set(context.metadata.partition_columns)
    columns = {physical_name(field, mode): field for field in schema if field.name in partitioning}
    for file in staged.adds:
        if set(file.partition_values) != set(columns):
            raise context.violation(
                f"the file {file.path!r} has partition values for {sorted(file.partition_values)}; "
                f"the table is partitioned by {sorted(columns)}"
            )
    for name, field in columns.items():
        # Many files share few values.
        files = {file.partition_values[name]: file for file in staged.adds}
        for text, file in files.items():
            _check_partition_value(text, field, file, context)


def _check_partition_value(
    text: str | None, field: StructField, file: AddFile, context: CommitContext
) -> None:
    problem = None
    if text == _HIVE_NULL:
        problem = f"{text} means null in directory names only; expected null"
    try:
        parse_partition_value(text, field.data_type)
    except InvalidTableError as error:
        problem = problem or error.message
    if problem:
        raise context.violation(
            f"the file {file.path!r}, partition column {field.name!r}: {problem}"
        )


def check_deletion_vectors(staged: StagedActions, context: CommitContext) -> None:
    """A file comes with a deletion vector only where the table has them, and with ``numRecords``.

    PROTOCOL.md, "Deletion Vectors" and "Writer Requirement for Deletion Vectors".

    Raises:
        ConstraintViolationError: the table has no deletion vectors, or a file's statistics don't
            tell how many records it has.
    """
    masked = [file for file in staged.adds if file.deletion_vector]
    if not masked:
        return
    properties = TableProperties(context.metadata.configuration, context.table)
    supported = "deletionVectors" in supported_features(context.protocol)
    if not (supported and properties.deletion_vectors_enabled):
        lacking = "delta.enableDeletionVectors=true" if supported else "the feature deletionVectors"
        raise context.violation(
            f"the file {masked[0].path!r} has a deletion vector, and the table lacks {lacking}"
        )
    for file in masked:
        if _count(_statistics(file, context).get("numRecords")) is None:
            raise context.violation(
                f"the file {file.path!r} has a deletion vector, and its statistics don't tell "
                "numRecords, the number of records in the data file"
            )


def check_row_ids(staged: StagedActions, context: CommitContext) -> None:
    """Row ids and row commit versions belong to tables with row tracking.

    PROTOCOL.md, "Row Tracking".

    Raises:
        ConstraintViolationError: a file has one of them, and the table lacks the feature.
    """
    if "rowTracking" in supported_features(context.protocol):
        return
    for file in staged.adds:
        if file.base_row_id is not None or file.default_row_commit_version is not None:
            raise context.violation(
                f"the file {file.path!r} has a baseRowId or a defaultRowCommitVersion, and the table "
                "lacks the feature rowTracking; leave both out"
            )


def check_clustering_statistics(staged: StagedActions, context: CommitContext) -> None:
    """Each file of a clustered table has statistics of the clustering columns.

    PROTOCOL.md, "Clustered Table". Bounds may be missing where all values are null, and for types
    of which they can't always be told.

    Raises:
        ConstraintViolationError: a file lacks a statistic.
        InvalidTableError: the clustering columns can't be read.
    """
    domain = context.domains.get(DOMAIN)
    if domain is None or "clustering" not in supported_features(context.protocol):
        return
    schema = table_schema(context.metadata, table=context.table)
    mode = mapping_mode(context.protocol, context.metadata, table=context.table)
    types = {path: field.data_type for path, field in all_fields(physical_schema(schema, mode))}
    columns = parse_clustering_columns(domain.configuration, table=context.table)
    for file in staged.adds:
        statistics = _statistics(file, context)
        for path in columns:
            lacking = _lacking(statistics, path, bounded=types.get(path) not in _UNBOUNDED)
            if lacking:
                raise context.violation(
                    f"the statistics of the file {file.path!r} lack {lacking} of the clustering "
                    f"column {'.'.join(path)}; a clustered table needs them"
                )


def _lacking(statistics: Mapping[str, Any], path: SchemaPath, *, bounded: bool) -> str | None:
    """The statistic of a column that is missing; None where all are there."""
    records = _count(statistics.get("numRecords"))
    nulls = _count(_value(statistics, "nullCount", path))
    if records is None or nulls is None:
        return "numRecords" if records is None else "nullCount"
    if nulls == records or not bounded:
        return None
    bounds = ("minValues", "maxValues")
    return next((name for name in bounds if _value(statistics, name, path) is None), None)


def _value(statistics: Mapping[str, Any], name: str, path: SchemaPath) -> Any:
    found: Any = statistics.get(name)
    for part in path:
        found = found.get(part) if isinstance(found, Mapping) else None
    return found


def _count(value: Any) -> int | None:
    return value if type(value) is int and value >= 0 else None


def _statistics(file: AddFile, context: CommitContext) -> Mapping[str, Any]:
    if file.stats is None:
        return {}
    try:
        statistics = json.loads(file.stats)
    except (ValueError, RecursionError) as error:
        raise context.violation(
            f"the statistics of the file {file.path!r} are no JSON: {error}"
        ) from error
    return statistics if isinstance(statistics, dict) else {}

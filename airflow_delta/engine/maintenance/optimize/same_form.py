"""Check that files that were written for one version may be committed to a later one.

Most changes of a table leave the form of its files alone: properties, constraints, high water marks of
identity columns. If columns, partitioning, clustering, column mapping or row tracking change, files would
have to be written otherwise.
"""

from __future__ import annotations

import json
from typing import Any

from airflow_delta.engine.errors import MetadataChangedError, ProtocolChangedError
from airflow_delta.engine.features.identity import HIGH_WATER_MARK
from airflow_delta.engine.features.row_tracking import (
    ENABLED,
    MATERIALIZED_ROW_COMMIT_VERSION_COLUMN,
    MATERIALIZED_ROW_ID_COLUMN,
)
from airflow_delta.engine.maintenance.optimize.sorting.order import clustering_paths_of
from airflow_delta.engine.model.actions import Metadata
from airflow_delta.engine.snapshot.snapshot import Snapshot

__all__ = ["check_same_form"]

_PROPERTIES = (
    "delta.columnMapping.mode",
    "delta.writePartitionColumnsToParquet",
    ENABLED,
    MATERIALIZED_ROW_ID_COLUMN,
    MATERIALIZED_ROW_COMMIT_VERSION_COLUMN,
)


def check_same_form(planned: Snapshot, base: Snapshot) -> None:
    """Check that new files fit a later version.

    Args:
        planned: the version for which the files were written.
        base: the version to which they are to be committed.

    Raises:
        ProtocolChangedError: the protocol has changed.
        MetadataChangedError: the form of files has changed, or the table was replaced by another one.
    """
    remedy = (
        f"between the versions {planned.version} and {base.version}, so the files that were rewritten for "
        "the former can't be committed; run the operation again"
    )
    if planned.protocol != base.protocol:
        raise ProtocolChangedError(
            f"the protocol has changed {remedy}", table=base.table, version=base.version
        )
    is_clustered_alike = clustering_paths_of(planned) == clustering_paths_of(base)
    if _form(planned.metadata) != _form(base.metadata) or not is_clustered_alike:
        raise MetadataChangedError(
            f"the columns, the clustering or the form of data files have changed {remedy}",
            table=base.table,
            version=base.version,
        )


def _form(metadata: Metadata) -> Any:
    return (
        metadata.id,
        metadata.format,
        metadata.partition_columns,
        [metadata.configuration.get(name) for name in _PROPERTIES],
        _without_marks(json.loads(metadata.schema_string or "null")),
    )


def _without_marks(node: Any) -> Any:
    """A schema as JSON values, without the high water marks of identity columns."""
    if isinstance(node, list):
        return [_without_marks(item) for item in node]
    if not isinstance(node, dict):
        return node
    return {key: _without_marks(value) for key, value in node.items() if key != HIGH_WATER_MARK}

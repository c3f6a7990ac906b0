"""Make a scan of a snapshot: find the files that may have matching rows, and what is needed to read them.

``data_files/`` reads them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from airflow_delta.engine.data_files.file_rows import ADD_COLUMNS, TRACKING_ADD_COLUMNS
from airflow_delta.engine.data_files.request import (
    ROW_COMMIT_VERSION,
    ROW_ID,
    ScanPredicate,
    ScanRequest,
    TableLayout,
    TrackingColumns,
    checked_columns,
)
from airflow_delta.engine.data_files.scan import Scan
from airflow_delta.engine.errors import InvalidArgumentError, UnsupportedFeatureError
from airflow_delta.engine.features.column_mapping import mapping_mode
from airflow_delta.engine.scan.predicates.reading import PredicateLike, as_expression

if TYPE_CHECKING:
    from airflow_delta.engine.snapshot.snapshot import Snapshot
    from airflow_delta.engine.storage.file_access import FileAccess

__all__ = ["scan_snapshot", "table_layout"]


def table_layout(snapshot: Snapshot) -> TableLayout:
    """The layout of the rows of a version in its data files.

    Raises:
        UnsupportedFeatureError: the data files aren't Parquet files.
        InvalidTableError: the schema or the high water mark of row ids can't be read.
    """
    provider = snapshot.metadata.format.provider
    if provider.lower() != "parquet":
        raise UnsupportedFeatureError(
            f"the data files are in the format {provider!r}, and the engine reads rows of Parquet files "
            "only: read the table with Spark (airflow_delta.spark.read_snapshot)",
            table=snapshot.table,
        )
    tracked = snapshot.row_tracking
    tracking = None
    if tracked is not None and tracked.enabled:
        tracking = TrackingColumns(tracked.row_id_column, tracked.row_commit_version_column)
    return TableLayout(
        snapshot.table,
        snapshot.version,
        snapshot.schema,
        mapping_mode(snapshot.protocol, snapshot.metadata, table=snapshot.table),
        tuple(snapshot.metadata.partition_columns),
        tracking,
    )


def scan_snapshot(
    snapshot: Snapshot,
    access: FileAccess,
    *,
    columns: Sequence[str] | None,
    predicate: PredicateLike | None,
    with_row_tracking: bool,
    batch_size: int,
) -> Scan:
    """Make a scan; see `Snapshot.scan`."""
    if type(batch_size) is not int or batch_size < 1:
        raise InvalidArgumentError(
            f"batch_size={batch_size!r}: expected a number of rows, at least 1",
            table=snapshot.table,
        )
    layout = table_layout(snapshot)
    names = checked_columns(columns, layout)
    expression = None
    if predicate is not None:
        expression = as_expression(predicate, snapshot.schema, table=snapshot.table)
    parsed = None if expression is None else ScanPredicate.of(expression)
    tracking = (ROW_ID, ROW_COMMIT_VERSION) if with_row_tracking else None
    request = ScanRequest(names, parsed, tracking, batch_size)
    wanted = ADD_COLUMNS + (TRACKING_ADD_COLUMNS if with_row_tracking else ())
    return Scan(layout, request, snapshot.files(columns=wanted, predicate=expression), access)

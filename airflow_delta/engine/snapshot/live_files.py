"""List the live files of a snapshot, only those that may have rows that match a predicate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from airflow_delta.engine.arrow.action_schema import ADD_FIELDS
from airflow_delta.engine.errors import InvalidArgumentError
from airflow_delta.engine.features.column_mapping import mapping_mode

if TYPE_CHECKING:
    import pyarrow as pa

    from airflow_delta.engine.scan.predicates.reading import PredicateLike
    from airflow_delta.engine.snapshot.snapshot import Snapshot

__all__ = ["list_live_files"]


def list_live_files(
    snapshot: Snapshot, columns: Sequence[str] | None, predicate: PredicateLike | None
) -> pa.Table:
    """The live files of a snapshot; see `Snapshot.files`.

    Args:
        snapshot: the snapshot.
        columns: columns of ``add``; None for all.
        predicate: over the columns of the table; None for all files.

    Raises:
        InvalidArgumentError: a column or the predicate is invalid.
    """
    wanted = _checked_columns(columns, snapshot.table)
    if predicate is None:
        return snapshot.state.live_adds(wanted)
    # Imported only for a predicate, to list all files sooner.
    from airflow_delta.engine.scan.file_pruner import FilePruner
    from airflow_delta.engine.scan.predicates.reading import as_expression

    pruner = FilePruner(
        as_expression(predicate, snapshot.schema, table=snapshot.table),
        schema=snapshot.schema,
        partition_columns=snapshot.metadata.partition_columns,
        mapping_mode=mapping_mode(snapshot.protocol, snapshot.metadata, table=snapshot.table),
        table=snapshot.table,
    )
    if not pruner.columns:  # The answer is the same for all files.
        return pruner.prune(snapshot.state.live_adds(wanted))
    return snapshot.state.live_adds(wanted, row_filter=pruner)


def _checked_columns(columns: Sequence[str] | None, table: str) -> tuple[str, ...] | None:
    if columns is None:
        return None
    # A text is a sequence too: of its characters.
    unknown = columns if isinstance(columns, str) else [c for c in columns if c not in ADD_FIELDS]
    if unknown or isinstance(columns, str):
        raise InvalidArgumentError(
            f"unknown columns {unknown!r}: expected a list of {', '.join(ADD_FIELDS)}",
            table=table,
        )
    if not columns:
        # A table without columns has no rows, so even the number of files would be lost.
        raise InvalidArgumentError(
            "no columns are requested: name one, or None for all", table=table
        )
    return tuple(columns)

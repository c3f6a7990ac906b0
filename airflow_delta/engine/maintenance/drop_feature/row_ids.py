"""Remove the row ids from the files of a table whose row tracking is suspended.

Files are added again without ``baseRowId`` and ``defaultRowCommitVersion``, a batch in each commit. Files
that others add concurrently have no row ids either. Delta Spark has the same name for these commits, and
allows concurrent writers.

PROTOCOL.md, "Row Tracking", describes no way back. That files may lack row ids once the feature is dropped
follows from "Supported Features".
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from airflow_delta.engine.commit.registry import CommitOwners
from airflow_delta.engine.snapshot.snapshot import Snapshot
from airflow_delta.engine.storage.base import Storage
from airflow_delta.engine.transaction.file_rows import add_actions
from airflow_delta.engine.transaction.transaction import OptimisticTransaction

__all__ = ["BATCH", "OPERATION", "remove_row_ids"]

OPERATION = "ROW TRACKING UNBACKFILL"
"""Delta Spark's name for the commits."""

BATCH = 100_000
"""How many files are in a commit, as in Delta Spark."""


def remove_row_ids(
    storage: Storage, owners: CommitOwners, base: Snapshot, *, batch: int = BATCH
) -> int:
    """Commit the next batch of files without their row ids.

    Args:
        storage: where the table is.
        owners: the known commit owners.
        base: the newest version, whose row tracking is suspended.
        batch: the most files in the commit.

    Returns:
        The version.

    Raises:
        DeltaError: see `OptimisticTransaction.commit`.
    """
    files = base.files()
    numbered = pc.or_(
        pc.is_valid(files["baseRowId"]), pc.is_valid(files["defaultRowCommitVersion"])
    )
    batched = files.filter(numbered).slice(0, batch)
    transaction = OptimisticTransaction(
        storage, base, OPERATION, operation_parameters={"batchId": 0}, owners=owners
    )
    transaction.note_read(batched)
    transaction.add_files([*add_actions(_without_ids(batched), data_change=False)])
    return transaction.commit().version


def _without_ids(files: pa.Table) -> pa.Table:
    for name in ("baseRowId", "defaultRowCommitVersion"):
        index = files.schema.get_field_index(name)
        files = files.set_column(index, name, pa.nulls(files.num_rows, pa.int64()))
    return files

"""Take the row ids from the files of a table whose row tracking is suspended.

Files are added once more as they are, without ``baseRowId`` and ``defaultRowCommitVersion``, in as many
commits as there are batches of them. What others add meanwhile has none either. Delta Spark calls these
commits the same, and lets its own writers go on beside them.

PROTOCOL.md, "Row Tracking", knows no way back; that files may be without ids when the feature is gone
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
"""What Delta Spark calls the commits."""

BATCH = 100_000
"""Files in a commit: as many as Delta Spark takes."""


def remove_row_ids(
    storage: Storage, owners: CommitOwners, base: Snapshot, *, batch: int = BATCH
) -> None:
    """Commit the next batch of files without their row ids.

    Args:
        storage: where the table is.
        owners: the commit owners that there are.
        base: the newest version, whose row tracking is suspended.
        batch: how many files at most.

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
    transaction.add_files([*add_actions(_without_ids(batched), data_change=False)])
    transaction.commit()


def _without_ids(files: pa.Table) -> pa.Table:
    for name in ("baseRowId", "defaultRowCommitVersion"):
        place = files.schema.get_field_index(name)
        files = files.set_column(place, name, pa.nulls(files.num_rows, pa.int64()))
    return files

"""Count the rows of files from their statistics (PROTOCOL.md, "Per-file Statistics")."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from airflow_delta.engine.arrow.statistics.parse import num_records

__all__ = ["num_rows"]


def num_rows(files: pa.Table) -> int | None:
    """Live rows: records minus those that deletion vectors delete; None if a file has no count.

    Args:
        files: adds with ``stats`` and ``deletionVector``.
    """
    if files.num_rows == 0:
        return 0
    records = num_records(files["stats"])
    if records.null_count:
        return None
    deleted = pc.sum(pc.struct_field(files["deletionVector"], "cardinality")).as_py() or 0
    return int(pc.sum(records).as_py()) - int(deleted)

"""Repair rounded statistics of files (``rounded_statistics.py``) by one commit that changes no rows.

PROTOCOL.md, "Add File and Remove File": the commit adds the files again with exact bounds and
``dataChange=false``, since "statistics and other information from the latest version should replace that
from any previous version".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa

from airflow_delta.engine.arrow.python_arrays import array_of
from airflow_delta.engine.commit.registry import CommitOwners
from airflow_delta.engine.maintenance.rounded_statistics import find_rounded_statistics
from airflow_delta.engine.snapshot.opening import open_newest
from airflow_delta.engine.storage.base import Storage
from airflow_delta.engine.transaction.file_rows import add_actions
from airflow_delta.engine.transaction.transaction import OptimisticTransaction

__all__ = ["StatisticsRepair", "repair_statistics"]

_OPERATION = "COMPUTE STATS"
"""Delta Spark's name for such a commit."""


@dataclass(frozen=True, slots=True)
class StatisticsRepair:
    """The result of a repair of statistics.

    Attributes:
        version: the version with the right statistics; if nothing was wrong, the newest one.
        num_files: how many files were repaired.
    """

    version: int
    num_files: int

    def to_dict(self) -> dict[str, Any]:
        """``version`` and ``num_files``, as JSON values."""
        return asdict(self)


def repair_statistics(storage: Storage, owners: CommitOwners) -> StatisticsRepair:
    """Repair the bounds of decimals that were rounded.

    Raises:
        UnsupportedFeatureError: the engine can't write the table.
        CommitConflictError: a repaired file was removed, or added again, concurrently. Commits that append
            files are no conflict.
        CommitOwnerError: the commit owner can't report the newest version.
        CommitOutcomeUnknownError: the store failed; the commit may have been made.
        DeltaError: the table can't be read, or the store failed.
    """
    base = open_newest(storage, owners=owners, for_writing=True)
    transaction = OptimisticTransaction(
        storage, base, _OPERATION, operation_parameters=_PARAMETERS, owners=owners
    )
    files = transaction.read_files()
    wrong = find_rounded_statistics(base, files)
    if not wrong:
        return StatisticsRepair(base.version, 0)
    rows = files.take(pa.array([found.row for found in wrong], pa.int64()))
    stats = array_of([found.stats for found in wrong], pa.string())
    repaired = rows.set_column(rows.column_names.index("stats"), "stats", stats)
    transaction.add_files(list(add_actions(repaired, data_change=False)))
    return StatisticsRepair(transaction.commit().version, len(wrong))


_PARAMETERS: Mapping[str, Any] = {"predicate": []}

"""Delete what a vacuum's plan says.

Each file is of no more use to anybody, with or without the others: so they go in any order, a thousand at a
time, and several thousands at once where each call is a round trip. What a commit has brought back since
the plan was made stays (`vacuum_meanwhile`). A vacuum that is broken off leaves the
table as whole as before; the next one finds what is left. Directories that become empty stay: a writer
may be about to put a file into one.

The last vacuum is noted at the very end, so that a lite one never begins after files that weren't deleted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow.compute as pc

from airflow_delta.engine.arrow.parallel import map_ordered
from airflow_delta.engine.commit.registry import CommitOwners
from airflow_delta.engine.maintenance.vacuum.concurrent_commits import Deletions
from airflow_delta.engine.maintenance.vacuum.last_vacuum import write_last_vacuum
from airflow_delta.engine.maintenance.vacuum.plan import VacuumPlan
from airflow_delta.engine.storage.base import Storage

__all__ = ["VacuumResult", "execute_vacuum"]

_BATCH = 1000
"""As many as one request to S3 deletes."""

_WORKERS = 8


@dataclass(frozen=True, slots=True)
class VacuumResult:
    """What was done.

    Attributes:
        plan: what was planned.
        num_deleted: how many files were deleted now; 0 for a dry run. Those of the plan that a commit has
            brought back meanwhile are left.
        bytes_deleted: their sizes added up, as far as they are known.
    """

    plan: VacuumPlan
    num_deleted: int
    bytes_deleted: int

    def to_dict(self) -> dict[str, Any]:
        """What was done as plain JSON values.

        Returns:
            What `VacuumPlan.to_dict` has, ``num_deleted`` and ``bytes_deleted``.
        """
        return {
            **self.plan.to_dict(),
            "num_deleted": self.num_deleted,
            "bytes_deleted": self.bytes_deleted,
        }


def execute_vacuum(
    storage: Storage, plan: VacuumPlan, owners: CommitOwners | None = None
) -> VacuumResult:
    """Do what a plan says. May be repeated, and broken off.

    Args:
        storage: where the table is.
        plan: what is to be deleted.
        owners: the commit owners to be asked for newer versions; none unless given.

    Raises:
        ObjectNotFoundError: a commit has brought back files in the moment in which they were deleted.
            Facts: path, paths (100 at most), version. All else that was planned is deleted.
        CommitConflictError: the table was replaced by another one; what was deleted by then is gone.
        UnsupportedFeatureError: a commit has brought a feature for which the engine can't write.
        CommitOwnerError: the commit owner can't tell the newest version.
        StorageError: the store failed, or doesn't let files be deleted. Some of them may be gone.
    """
    files = plan.files
    if files.num_rows:
        deletions = Deletions(storage, owners or CommitOwners(), plan)

        def _delete(paths: list[str]) -> None:
            storage.delete(deletions.without_needed(paths))

        workers = _WORKERS if storage.capabilities.remote else 1
        for _ in map_ordered(_delete, _batches(plan), workers=workers):
            pass
        files = deletions.deleted()
    if plan.vacuumed is not None:
        write_last_vacuum(storage, plan.vacuumed)
    return VacuumResult(plan, files.num_rows, pc.sum(files["size"]).as_py() or 0)


def _batches(plan: VacuumPlan) -> Iterator[list[str]]:
    paths = plan.files["path"]
    for start in range(0, len(paths), _BATCH):
        yield paths.slice(start, _BATCH).to_pylist()

"""Execute the plan of a vacuum: delete its files.

Files are deleted in any order, a thousand by one request, and several requests at once for remote stores:
none of them is needed, so a vacuum that is interrupted does no harm, and the next one finds what is left.

Before each batch `Deletions` looks for commits that have brought files back; those files stay. The last
vacuum is recorded at the very end, so that a lite one never starts after files that weren't deleted. Empty
directories stay, because a writer may be about to put a file into one.
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
from airflow_delta.engine.progress import report_progress
from airflow_delta.engine.storage.base import Storage

__all__ = ["VacuumResult", "execute_vacuum"]

_BATCH = 1000
"""As many as one request to S3 deletes."""

_WORKERS = 8


@dataclass(frozen=True, slots=True)
class VacuumResult:
    """The result of a vacuum.

    Attributes:
        plan: what was planned.
        num_deleted: how many files were deleted; 0 for a dry run. Planned files that a commit has brought
            back concurrently aren't deleted.
        bytes_deleted: the sum of their sizes, as far as they are known.
    """

    plan: VacuumPlan
    num_deleted: int
    bytes_deleted: int

    def to_dict(self) -> dict[str, Any]:
        """The report, as plain JSON values.

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
    """Delete the files of a plan. May be interrupted and repeated.

    Args:
        storage: where the table is.
        plan: what is to be deleted.
        owners: the commit owners to ask for newer versions; none unless given.

    Raises:
        ObjectNotFoundError: a commit has brought back files just while they were deleted. Facts: path,
            paths (at most 100), version. Everything else in the plan is deleted.
        CommitConflictError: another table has replaced this one; what was deleted before that is gone.
        UnsupportedFeatureError: a commit has added a feature with which the engine can't write.
        CommitOwnerError: the commit owner can't report the newest version.
        StorageError: the store failed, or forbids deleting. Some files may be gone.
    """
    files = plan.files
    if files.num_rows:
        deletions = Deletions(storage, owners or CommitOwners(), plan)

        def _delete(paths: list[str]) -> int:
            storage.delete(deletions.drop_needed(paths))
            return len(paths)

        workers = _WORKERS if storage.capabilities.remote else 1
        with report_progress("delete", "files", files.num_rows) as reporter:
            for done in map_ordered(_delete, _split_into_batches(plan), workers=workers):
                reporter.advance(done)
        files = deletions.finish()
    if plan.vacuumed is not None:
        write_last_vacuum(storage, plan.vacuumed)
    return VacuumResult(plan, files.num_rows, pc.sum(files["size"]).as_py() or 0)


def _split_into_batches(plan: VacuumPlan) -> Iterator[list[str]]:
    paths = plan.files["path"]
    for start in range(0, len(paths), _BATCH):
        yield paths.slice(start, _BATCH).to_pylist()

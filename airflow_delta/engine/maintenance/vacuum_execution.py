"""Delete what a vacuum's plan says.

Each file is of no more use to anybody, with or without the others: so they go in any order, a thousand at a
time, and several thousands at once where each call is a round trip. A vacuum that is broken off leaves the
table as whole as before; the next one finds what is left. Directories that become empty stay: a writer
may be about to put a file into one.

The last vacuum is noted at the very end, so that a lite one never begins after files that weren't deleted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from airflow_delta.engine.arrow.parallel import map_ordered
from airflow_delta.engine.maintenance.last_vacuum import write_last_vacuum
from airflow_delta.engine.maintenance.vacuum import VacuumPlan
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
        num_deleted: how many files were deleted now; 0 for a dry run.
        bytes_deleted: their sizes added up, as far as they are known.
    """

    plan: VacuumPlan
    num_deleted: int
    bytes_deleted: int


def execute_vacuum(storage: Storage, plan: VacuumPlan) -> VacuumResult:
    """Do what a plan says. May be repeated, and broken off.

    Raises:
        StorageError: the store failed, or doesn't let files be deleted. Some of them may be gone.
    """
    workers = _WORKERS if storage.capabilities.remote else 1
    for _ in map_ordered(storage.delete, _batches(plan), workers=workers):
        pass
    if plan.vacuumed is not None:
        write_last_vacuum(storage, plan.vacuumed)
    total = plan.total
    return VacuumResult(plan, total.num_files, total.size_in_bytes)


def _batches(plan: VacuumPlan) -> Iterator[list[str]]:
    paths = plan.files["path"]
    for start in range(0, len(paths), _BATCH):
        yield paths.slice(start, _BATCH).to_pylist()

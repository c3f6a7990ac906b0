"""All jobs, in the order of the results; the modules have them by topic."""

from __future__ import annotations

from benchmarks.job import Job
from benchmarks.jobs import (
    checkpoints,
    cleanup,
    commits,
    compacting,
    converting,
    loading,
    managed_commits,
    reading,
    scanning,
    sorting,
    spark_checkpoints,
    spark_optimizing,
    spark_reading,
    spark_row_changes,
    spark_writing,
    time_travel,
    vacuum,
    watching,
)

__all__ = ["JOBS"]

JOBS: tuple[Job, ...] = (
    *reading.JOBS,
    *checkpoints.JOBS,
    *time_travel.JOBS,
    *spark_checkpoints.JOBS,
    *spark_reading.JOBS,
    *spark_row_changes.JOBS,
    *spark_writing.JOBS,
    *commits.JOBS,
    *managed_commits.JOBS,
    *vacuum.JOBS,
    *cleanup.JOBS,
    *scanning.JOBS,
    *compacting.JOBS,
    *sorting.JOBS,
    *converting.JOBS,
    *spark_optimizing.JOBS,
    *loading.JOBS,
    *watching.JOBS,
)

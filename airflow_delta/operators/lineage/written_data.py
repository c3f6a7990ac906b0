"""Find what a task has written in the metrics of its commit, for the statistics of lineage."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from airflow_delta.hooks.lineage.datasets import WrittenData

__all__ = ["Result", "written_data"]

Result: TypeAlias = "Mapping[str, Any] | None"
"""The result of a task; None if it has none (yet)."""

_ROWS = ("numOutputRows", "numUpdatedRows", "numCopiedRows")
_SIZES = ("numOutputBytes", "numTargetBytesAdded", "numAddedBytes")
_FILES = ("numFiles", "numTargetFilesAdded", "numAddedFiles")
"""The metrics of operations, by the names of Delta Spark."""


def written_data(result: Result) -> WrittenData | None:
    """What a commit has written, by its metrics; None if they aren't in the log any more.

    :param result: the result of the task.
    """
    metrics = None if result is None else result["metrics"]
    if not metrics:
        return None
    return WrittenData(_rows(metrics), _first(metrics, _SIZES), _first(metrics, _FILES))


def _rows(metrics: Mapping[str, int]) -> int | None:
    """The rows in new files: those of the output, or those that were updated and copied."""
    if _ROWS[0] in metrics:
        return metrics[_ROWS[0]]
    found = [metrics[name] for name in _ROWS[1:] if name in metrics]
    return sum(found) if found else None


def _first(metrics: Mapping[str, int], names: tuple[str, ...]) -> int | None:
    return next((metrics[name] for name in names if name in metrics), None)

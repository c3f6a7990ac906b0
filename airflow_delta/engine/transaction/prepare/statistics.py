"""Read the statistics of the files of a commit: the ``stats`` of its adds.

PROTOCOL.md, "Per-file Statistics".
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from airflow_delta.engine.arrow.python_arrays import array_of
from airflow_delta.engine.arrow.statistics import parse as stats
from airflow_delta.engine.features.schema_walk import SchemaPath
from airflow_delta.engine.model.file_actions import AddFile
from airflow_delta.engine.transaction.context import CommitContext

__all__ = ["count_of", "record_counts", "statistic", "statistics_of"]


def record_counts(files: Sequence[AddFile], context: CommitContext, *, why: str) -> list[int]:
    """The number of records in each data file, including deleted ones, for files that must have it.

    Args:
        files: the files.
        context: the table.
        why: what needs the numbers, as a clause for the error message.

    Raises:
        ConstraintViolationError: the statistics of a file lack ``numRecords``.
    """
    texts = pa.chunked_array([array_of([file.stats for file in files], pa.string())])
    found: list[int | None] = stats.num_records(texts).to_pylist()
    counts = [count for count in found if count is not None and count >= 0]
    if len(counts) < len(files):
        lacking = next(f for f, n in zip(files, found, strict=True) if n is None or n < 0)
        raise context.violation(
            f"the statistics of the file {lacking.path!r} lack numRecords, the number of records in the "
            f"data file, but {why}"
        )
    return counts


def statistics_of(file: AddFile, context: CommitContext) -> Mapping[str, Any]:
    """The statistics of a file; empty if it has none.

    Raises:
        ConstraintViolationError: they aren't JSON.
    """
    if file.stats is None:
        return {}
    try:
        statistics = json.loads(file.stats)
    except (ValueError, RecursionError) as error:
        raise context.violation(
            f"the statistics of the file {file.path!r} aren't JSON: {error}"
        ) from error
    return statistics if isinstance(statistics, dict) else {}


def statistic(statistics: Mapping[str, Any], name: str, path: SchemaPath) -> Any:
    """One statistic of one column, such as its ``nullCount``; None if there is none.

    Args:
        statistics: a file's statistics.
        name: the statistic.
        path: the physical path of the column.
    """
    found: Any = statistics.get(name)
    for part in path:
        found = found.get(part) if isinstance(found, Mapping) else None
    return found


def count_of(value: Any) -> int | None:
    """The value, if it is a count, else None."""
    return value if type(value) is int and value >= 0 else None

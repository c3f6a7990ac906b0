"""What the files of a commit say of their data: the ``stats`` of an ``add``.

Spec: PROTOCOL.md, "Per-file Statistics". Whether it is true can't be seen here.
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
    """How many records each data file has, deleted ones included, where that must be known.

    Args:
        files: the files.
        context: the table.
        why: what needs the numbers: the end of a sentence that begins with "and".

    Raises:
        ConstraintViolationError: the statistics of a file don't tell.
    """
    texts = pa.chunked_array([array_of([file.stats for file in files], pa.string())])
    counts: list[int | None] = stats.num_records(texts).to_pylist()
    told = [count for count in counts if count is not None and count >= 0]
    if len(told) < len(files):
        lacking = next(f for f, n in zip(files, counts, strict=True) if n is None or n < 0)
        raise context.violation(
            f"the statistics of the file {lacking.path!r} don't tell numRecords, the number of "
            f"records in the data file, and {why}"
        )
    return told


def statistics_of(file: AddFile, context: CommitContext) -> Mapping[str, Any]:
    """The statistics of a file; empty where it has none.

    Raises:
        ConstraintViolationError: they are no JSON.
    """
    if file.stats is None:
        return {}
    try:
        statistics = json.loads(file.stats)
    except (ValueError, RecursionError) as error:
        raise context.violation(
            f"the statistics of the file {file.path!r} are no JSON: {error}"
        ) from error
    return statistics if isinstance(statistics, dict) else {}


def statistic(statistics: Mapping[str, Any], name: str, path: SchemaPath) -> Any:
    """One statistic of one column, such as its ``nullCount``; None where there is none.

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
    """A value as a count; None where it is none."""
    return value if type(value) is int and value >= 0 else None

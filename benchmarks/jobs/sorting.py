"""Jobs that sort the rows of a table by two columns in Z-order, without Spark.

Both sides rewrite all files, as files of 16 MB, so that there are enough of them to compare the layouts.
The figures are the files that a query reads for a hundredth of the values of each column, by statistics.
"""

from __future__ import annotations

import json
import time
from typing import Any

from benchmarks.data_tables import large
from benchmarks.handles import our_table, peer_table
from benchmarks.job import ENGINE, Job, Outcome, deltalake, ours

__all__ = ["COLUMNS", "FILE_SIZE", "JOBS", "layout_figures"]

FILE_SIZE = 16 << 20
"""The size of new files."""

COLUMNS = {"number": 1_000_000.0, "ratio": 1.0}
"""The columns, whose values are evenly spread from 0 to a number."""

_LOADS = (*ENGINE, "airflow_delta.engine.maintenance.optimize.execution")


def _our_z_order(uri: str) -> Outcome:
    began = time.perf_counter()
    done = our_table(uri).optimize(z_order_by=[*COLUMNS], max_file_size=FILE_SIZE)
    return _outcome(uri, done.num_removed, time.perf_counter() - began)


def _peer_z_order(uri: str) -> Outcome:
    began = time.perf_counter()
    done: dict[str, Any] = peer_table(uri).optimize.z_order([*COLUMNS], target_size=FILE_SIZE)
    return _outcome(uri, done["numFilesRemoved"], time.perf_counter() - began)


def _outcome(uri: str, rewritten: int, seconds: float) -> Outcome:
    return Outcome(rewritten, layout_figures(uri), seconds)


def layout_figures(uri: str) -> dict[str, float]:
    """The number of files, and how many of them a query reads."""
    texts = our_table(uri).snapshot().files(columns=["stats"])["stats"].to_pylist()
    files = [json.loads(text) for text in texts]
    figures = {"files": float(len(files))}
    for name, greatest in COLUMNS.items():
        bounds = [(file["minValues"][name], file["maxValues"][name]) for file in files]
        ranges = [(n * greatest / 100, (n + 1) * greatest / 100) for n in range(100)]
        read = sum(low <= end and high >= start for start, end in ranges for low, high in bounds)
        figures[f"files for 1 % of {name}"] = read / len(ranges)
    return figures


JOBS = (
    Job(
        "z-order",
        "sort all rows by two columns in Z-order",
        large,
        ours(_our_z_order, loads=_LOADS),
        deltalake(_peer_z_order),
        fresh=True,
        only_by_name=True,
        actions=5_000_000,
    ),
)

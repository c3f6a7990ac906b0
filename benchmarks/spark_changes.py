"""Changes of a table with Spark, and with Delta Spark in a session of equal settings.

Each run changes a copy of the table, whose data files are hard links; making it isn't measured. A process
warms up with one run, and then makes `_RUNS`; the median counts. The answer is a hash of all rows of the
last copy after its change.

Our side opens the table anew. Delta Spark has opened it before the clock starts: all it does then is look
for newer commits.
"""

from __future__ import annotations

import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from benchmarks.data_tables import merge_source
from benchmarks.job import Job, Outcome, Side
from benchmarks.spark_sessions import hash_of_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["ROWS", "Change", "change_job"]

ROWS = 20_000_000
"""The number of rows of most tables."""

_WARM_UPS = 1
_RUNS = 3
_LOADS = (
    "pyspark.sql",
    "airflow_delta.spark.dml.merge.merge",
    "airflow_delta.spark.optimizer.optimize",
)

_Given: TypeAlias = "tuple[SparkSession, str]"


@dataclass(frozen=True, slots=True)
class Change:
    """A change, by each side.

    Attributes:
        ours: makes it, given the session and a table.
        peers: the statement that makes it, with ``{table}``, and ``{source}`` for the rows to be merged.
        settings: those of Delta Spark's session, by name.
        figures: other measures of a table after the change.
    """

    ours: Callable[[SparkSession, str], object]
    peers: str
    settings: Mapping[str, str] = field(default_factory=dict)
    figures: Callable[[str], Mapping[str, float]] = lambda _: {}


def _by_us(spark: SparkSession, uri: str, change: Change) -> float:
    begin = time.perf_counter()
    change.ours(spark, uri)
    return time.perf_counter() - begin


def _by_peer(spark: SparkSession, uri: str, change: Change) -> float:
    # It answers this from the statistics of all files, which it keeps.
    spark.read.format("delta").load(uri).count()
    statement = change.peers.format(table=f"delta.`{uri}`", source=merge_source(uri))
    for name, value in change.settings.items():
        spark.conf.set(name, value)
    begin = time.perf_counter()
    spark.sql(statement).collect()
    return time.perf_counter() - begin


def _rows_by_us(spark: SparkSession, uri: str) -> int:
    from airflow_delta.spark import read_snapshot

    return hash_of_rows(read_snapshot(spark, uri))


def _rows_by_peer(spark: SparkSession, uri: str) -> int:
    return hash_of_rows(spark.read.format("delta").load(uri))


def _timed(
    given: _Given,
    change: Change,
    make: Callable[[SparkSession, str, Change], float],
    answer: Callable[[SparkSession, str], int],
) -> Outcome:
    spark, uri = given
    seconds, found = [], 0
    figures: Mapping[str, float] = {}
    for number in range(_WARM_UPS + _RUNS):
        # In the same file system, because of the links.
        with tempfile.TemporaryDirectory(dir=Path(uri).parent) as folder:
            copy = _copied(Path(uri), Path(folder, "table"))
            seconds.append(make(spark, copy, change))
            if number == _WARM_UPS + _RUNS - 1:
                found, figures = answer(spark, copy), change.figures(copy)
    return Outcome(found, figures, statistics.median(seconds[_WARM_UPS:]))


def _copied(table: Path, target: Path) -> str:
    """Copy a table: its log, and links to its data files."""
    for path in table.rglob("*"):
        copy = target / path.relative_to(table)
        if path.is_dir():
            copy.mkdir(parents=True, exist_ok=True)
        elif "_delta_log" in path.parts:
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, copy)
        else:
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.hardlink_to(path)
    return str(target.resolve())


def _plain(uri: str) -> _Given:
    from benchmarks.spark_sessions import plain_session

    return plain_session(), uri


def _delta(uri: str) -> _Given:
    from benchmarks.spark_sessions import delta_session

    return delta_session(), uri


def change_job(
    name: str, title: str, table: Callable[[Path, int], Path], change: Change, *, rows: int = ROWS
) -> Job:
    """Make a job that changes a table.

    Args:
        name: see `Job`.
        title: see there.
        table: see there.
        change: the change.
        rows: the number of rows, unless the command line has another.
    """
    ours = partial(_timed, change=change, make=_by_us, answer=_rows_by_us)
    peers = partial(_timed, change=change, make=_by_peer, answer=_rows_by_peer)
    return Job(
        name,
        title,
        table,
        Side("ours", ours, _plain, _LOADS),
        (Side("Delta Spark", peers, _delta, ("pyspark.sql",)),),
        only_by_name=True,
        actions=rows,
    )

"""Jobs that delete, update and merge rows with Spark, and with Delta Spark in a session of equal settings.

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
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from benchmarks import data_tables
from benchmarks.data_tables import merge_source
from benchmarks.job import Job, Outcome, Side
from benchmarks.spark_sessions import hash_of_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["JOBS"]

_ROWS = 20_000_000
_WARM_UPS = 1
_RUNS = 3
_VECTORS = "delta.enableDeletionVectors"
_FEED = ("delta.enableChangeDataFeed", "delta.enableRowTracking")

_Given: TypeAlias = "tuple[SparkSession, str]"


@dataclass(frozen=True, slots=True)
class _Change:
    """A change, by each side.

    Attributes:
        ours: makes it, given the session and a table.
        peers: the statement that makes it, with ``{table}``, and ``{source}`` for the rows to be merged.
    """

    ours: Callable[[SparkSession, str], object]
    peers: str


def _deletion(condition: str) -> _Change:
    def change(spark: SparkSession, uri: str) -> object:
        from airflow_delta.spark import delete

        return delete(spark, uri, condition)

    return _Change(change, f"DELETE FROM {{table}} WHERE {condition}")


def _update(column: str, value: str, condition: str) -> _Change:
    def change(spark: SparkSession, uri: str) -> object:
        from airflow_delta.spark import update

        return update(spark, uri, {column: value}, condition)

    return _Change(change, f"UPDATE {{table}} SET {column} = {value} WHERE {condition}")


def _merge(*, updates: bool) -> _Change:
    def change(spark: SparkSession, uri: str) -> object:
        from airflow_delta.spark import merge

        rows = spark.read.parquet(merge_source(uri))
        found = merge(spark, uri, rows, "target.id = source.id")
        if updates:
            found = found.when_matched_update_all()
        return found.when_not_matched_insert_all().execute()

    return _Change(
        change,
        "MERGE INTO {table} AS target USING parquet.`{source}` AS source ON target.id = source.id "
        + ("WHEN MATCHED THEN UPDATE SET * " if updates else "")
        + "WHEN NOT MATCHED THEN INSERT *",
    )


def _by_us(spark: SparkSession, uri: str, change: _Change) -> float:
    begin = time.perf_counter()
    change.ours(spark, uri)
    return time.perf_counter() - begin


def _by_peer(spark: SparkSession, uri: str, change: _Change) -> float:
    # It answers this from the statistics of all files, which it keeps.
    spark.read.format("delta").load(uri).count()
    statement = change.peers.format(table=f"delta.`{uri}`", source=merge_source(uri))
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
    change: _Change,
    make: Callable[[SparkSession, str, _Change], float],
    answer: Callable[[SparkSession, str], int],
) -> Outcome:
    spark, uri = given
    seconds, found = [], 0
    for number in range(_WARM_UPS + _RUNS):
        # In the same file system, because of the links.
        with tempfile.TemporaryDirectory(dir=Path(uri).parent) as folder:
            copy = _copied(Path(uri), Path(folder, "table"))
            seconds.append(make(spark, copy, change))
            if number == _WARM_UPS + _RUNS - 1:
                found = answer(spark, copy)
    return Outcome(found, seconds=statistics.median(seconds[_WARM_UPS:]))


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


def _job(name: str, title: str, table: Callable[[Path, int], Path], change: _Change) -> Job:
    ours = partial(_timed, change=change, make=_by_us, answer=_rows_by_us)
    peers = partial(_timed, change=change, make=_by_peer, answer=_rows_by_peer)
    return Job(
        name,
        title,
        table,
        Side("ours", ours, _plain, ("pyspark.sql", "airflow_delta.spark.dml.merge.merge")),
        (Side("Delta Spark", peers, _delta, ("pyspark.sql",)),),
        only_by_name=True,
        actions=_ROWS,
    )


def _table(*properties: str) -> Callable[[Path, int], Path]:
    return lambda work, rows: (
        data_tables.with_properties(work, rows, *properties)
        if properties
        else data_tables.large(work, rows)
    )


def _mergeable(*properties: str, updates: float, inserts: float) -> Callable[[Path, int], Path]:
    return lambda work, rows: data_tables.mergeable(
        work, rows, *properties, updates=updates, inserts=inserts
    )


_ANYWHERE = _deletion("pmod(hash(id), 1000) = 0")
_ONE_PERCENT = _update("price", "price + 1", "pmod(hash(id), 100) = 0")
_UPSERT, _INSERTS = _merge(updates=True), _merge(updates=False)
_FEW = {"updates": 0.01, "inserts": 0.01}

JOBS = (
    _job("delete-vectors", "delete 0.1 % of the rows by vectors", _table(_VECTORS), _ANYWHERE),
    _job("delete", "delete 0.1 % of the rows by rewriting files", _table(), _ANYWHERE),
    _job(
        "delete-partition",
        "delete one partition of 20",
        partial(data_tables.large, partitioned=True),
        _deletion(f"region = '{data_tables.REGIONS[7]}'"),
    ),
    _job(
        "delete-range",
        "delete whole files, which statistics show: of 20M rows a quarter",
        _table(),
        _deletion(f"id < {_ROWS // 4}"),
    ),
    _job(
        "delete-half",
        "delete half of the rows by vectors, in files of a thousand rows",
        data_tables.deletable_small_files,
        _deletion("pmod(hash(id), 2) = 0"),
    ),
    _job("update-vectors", "update 1 % of the rows by vectors", _table(_VECTORS), _ONE_PERCENT),
    _job("update", "update 1 % of the rows by rewriting files", _table(), _ONE_PERCENT),
    _job(
        "update-feed",
        "update 1 % of the rows by vectors, with change data feed and row tracking",
        _table(_VECTORS, *_FEED),
        _ONE_PERCENT,
    ),
    _job(
        "merge-vectors",
        "update 1 % and insert 1 % by key, by vectors",
        _mergeable(_VECTORS, **_FEW),
        _UPSERT,
    ),
    _job(
        "merge", "update 1 % and insert 1 % by key, by rewriting files", _mergeable(**_FEW), _UPSERT
    ),
    _job(
        "merge-feed",
        "update 1 % and insert 1 % by key, by vectors, with change data feed and row tracking",
        _mergeable(_VECTORS, *_FEED, **_FEW),
        _UPSERT,
    ),
    _job(
        "merge-most",
        "update 80 % and insert 1 % by key, by vectors",
        _mergeable(_VECTORS, updates=0.8, inserts=0.01),
        _UPSERT,
    ),
    _job(
        "merge-large",
        "update 10 % and insert 10 % by key, by vectors: a source too large to be broadcast",
        _mergeable(_VECTORS, updates=0.1, inserts=0.1),
        _UPSERT,
    ),
    _job(
        "merge-inserts",
        "insert 1 % by key, where another 1 % has matches",
        _mergeable(**_FEW),
        _INSERTS,
    ),
)

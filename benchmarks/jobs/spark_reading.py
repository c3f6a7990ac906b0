"""Jobs that read rows with Spark, and with Delta Spark in a session with the same settings.

A process reads one table in several ways. Each is warmed up and run several times; the median counts. Each
run reads all columns of all rows as Spark's own rows and counts them. (Delta Spark can't read deletion
vectors into the ``noop`` sink.) The answer is a hash of all rows; the clock doesn't run while it is
computed.

Our side opens the table anew in each run. Delta Spark keeps the opened table, and only looks for newer
commits. If a job measures opening, Delta Spark's cache is cleared first.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from benchmarks import data_tables
from benchmarks.job import Job, Outcome, Side
from benchmarks.spark_sessions import hash_of_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["JOBS"]

_WARM_UPS = 2
_RUNS = 3
_MEMORY = "4g"

_Frame: TypeAlias = "Callable[[SparkSession, str], DataFrame]"


@dataclass(frozen=True, slots=True)
class _Reading:
    """A way to read a table.

    Attributes:
        ours: gives the rows.
        peers: the same rows.
        run: what is timed of them.
        cold: whether Delta Spark has to open the table anew.
        warm_ups: how often it runs before the clock does.
        runs: how often the clock runs.
    """

    ours: _Frame
    peers: _Frame
    run: Callable[[DataFrame], object]
    cold: bool = False
    warm_ups: int = _WARM_UPS
    runs: int = _RUNS


def _ours(spark: SparkSession, uri: str, where: str | None = None) -> DataFrame:
    from airflow_delta.spark import read_snapshot

    return read_snapshot(spark, uri, predicate=where)


def _peers(spark: SparkSession, uri: str, where: str | None = None) -> DataFrame:
    rows = spark.read.format("delta").load(uri)
    return rows if where is None else rows.where(where)


def _our_changes(spark: SparkSession, uri: str, versions: range) -> DataFrame:
    from airflow_delta.spark import read_changes

    return read_changes(spark, uri, versions.start, versions.stop - 1)


def _peers_changes(spark: SparkSession, uri: str, versions: range) -> DataFrame:
    reader = spark.read.format("delta").option("readChangeFeed", "true")
    reader = reader.option("startingVersion", versions.start)
    return reader.option("endingVersion", versions.stop - 1).load(uri)


def _python_source(spark: SparkSession, uri: str) -> DataFrame:
    from benchmarks.python_source import python_source_rows

    return python_source_rows(spark, uri)


def _changes(
    versions: range, then: Callable[[DataFrame], DataFrame] = lambda rows: rows, **how: Any
) -> _Reading:
    return _Reading(
        lambda spark, uri: then(_our_changes(spark, uri, versions)),
        lambda spark, uri: then(_peers_changes(spark, uri, versions)),
        _drain,
        **how,
    )


def _aggregated(rows: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F  # noqa: N812

    return rows.groupBy("name").agg(F.sum("price"), F.max("at"), F.avg("number"), F.count("*"))


def _counted(rows: DataFrame) -> DataFrame:
    return rows.groupBy().count()


def _drain(rows: DataFrame) -> int:
    """Have all columns of all rows made, as Spark hands them to whatever comes next."""
    return int(rows._jdf.queryExecution().toRdd().count())  # noqa: SLF001


def _plan(rows: DataFrame) -> int:
    """All that comes before the first task: the physical plan, the list of files, and their split."""
    return int(rows._jdf.queryExecution().toRdd().getNumPartitions())  # noqa: SLF001


def _reading(
    where: str | None = None,
    then: Callable[[DataFrame], DataFrame] = lambda rows: rows,
    **how: Any,
) -> _Reading:
    return _Reading(
        lambda spark, uri: then(_ours(spark, uri, where)),
        lambda spark, uri: then(_peers(spark, uri, where)),
        how.pop("run", _drain),
        **how,
    )


_QUERIES: Mapping[str, _Reading] = {
    "scan": _reading(),
    # One row of a hundred, in every file.
    "filter": _reading("number < 10000"),
    # The rows of two files, which statistics show.
    "range": _reading("id BETWEEN 150000 AND 250000"),
    "lookup": _reading("id = 123456"),
    "aggregate": _reading(then=_aggregated),
    "count": _reading(then=_counted),
}
_PARTITIONS = {"partition": _reading("region = 'region-07'")}
# Before them are all the rows, and the commit that begins the feed.
_CHANGED = range(2, 7)
_CHANGES = {
    "changes": _changes(_CHANGED),
    "kinds": _changes(_CHANGED, lambda rows: rows.groupBy("_change_type").count()),
}
_SMALL = {
    "open and plan": _reading(run=_plan, cold=True, warm_ups=3, runs=5),
    "open and plan a filter": _reading("id = 777", run=_plan, cold=True, warm_ups=3, runs=5),
}
# Long queries, of which a warm-up would be a small part; besides, the hash over all rows comes before.
_LONG: Mapping[str, Any] = {"cold": True, "warm_ups": 0, "runs": 1}
_SMALL_READ = {
    "scan": _reading(**_LONG),
    "filter": _reading("number < 10000", **_LONG),
    "lookup": _reading("id = 777", **_LONG),
    "aggregate": _reading(then=_aggregated, **_LONG),
    "count": _reading(then=_counted, **_LONG),
}
_SMALL_CHANGES = {
    "inserts": _changes(range(10), **_LONG),
    # The two between set properties.
    "deletes by vectors": _changes(range(12, 13), **_LONG),
}
_IN_PYTHON = {
    "scan": _Reading(_ours, _python_source, _drain),
    "filter": _Reading(
        lambda spark, uri: _ours(spark, uri, "number < 10000"),
        lambda spark, uri: _python_source(spark, uri).where("number < 10000"),
        _drain,
    ),
    "aggregate": _Reading(
        lambda spark, uri: _aggregated(_ours(spark, uri)),
        lambda spark, uri: _aggregated(_python_source(spark, uri)),
        _drain,
    ),
}


_Given: TypeAlias = "tuple[SparkSession, str]"


def _timed(given: _Given, readings: Mapping[str, _Reading], *, peers: bool) -> Outcome:
    spark, uri = given
    answer, figures = 0, {}
    for name, reading in readings.items():
        rows = partial(reading.peers if peers else reading.ours, spark, uri)
        answer = hash((answer, hash_of_rows(rows())))
        seconds = []
        for _ in range(reading.warm_ups + reading.runs):
            if peers and reading.cold:
                _forget(spark)
            begin = time.perf_counter()
            reading.run(rows())
            seconds.append(time.perf_counter() - begin)
        figures[f"{name} s"] = statistics.median(seconds[reading.warm_ups :])
    return Outcome(answer, figures, seconds=sum(figures.values()))


def _forget(spark: SparkSession) -> None:
    jvm: Any = spark.sparkContext._jvm  # noqa: SLF001
    jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()


def _plain(uri: str) -> _Given:
    from benchmarks.spark_sessions import plain_session

    return plain_session(memory=_MEMORY), uri


def _delta(uri: str) -> _Given:
    from benchmarks.spark_sessions import delta_session

    return delta_session(memory=_MEMORY), uri


_OUR_MODULES = (
    "pyspark.sql",
    "airflow_delta.spark.reader.read",
    "airflow_delta.spark.changes.read",
)


def _job(
    name: str,
    title: str,
    table: Callable[[Path, int], Path],
    readings: Mapping[str, _Reading],
    *,
    peer: str = "Delta Spark",
    session: Callable[[str], _Given] = _delta,
) -> Job:
    return Job(
        name,
        title,
        table,
        Side("ours", partial(_timed, readings=readings, peers=False), _plain, _OUR_MODULES),
        (
            Side(
                peer,
                partial(_timed, readings=readings, peers=True),
                session,
                ("pyspark.sql",),
            ),
        ),
        only_by_name=True,
    )


JOBS = (
    _job("read", "rows of a table", data_tables.large, _QUERIES),
    _job("read-vectors", "the same, with deletion vectors", data_tables.with_vectors, _QUERIES),
    _job(
        "read-partitioned",
        "rows of a partitioned table",
        partial(data_tables.large, partitioned=True),
        {**_QUERIES, **_PARTITIONS},
    ),
    _job(
        "read-partitioned-vectors",
        "the same, with deletion vectors",
        partial(data_tables.with_vectors, partitioned=True),
        {**_QUERIES, **_PARTITIONS},
    ),
    _job(
        "changes",
        "the change data feed",
        partial(data_tables.changed, vectors=False),
        _CHANGES,
    ),
    _job(
        "changes-vectors",
        "the same, with deletion vectors",
        partial(data_tables.changed, vectors=True),
        _CHANGES,
    ),
    _job("open-small", "small files, from nothing to tasks", data_tables.small_files, _SMALL),
    _job(
        "open-small-partitioned",
        "the same of a partitioned table",
        partial(data_tables.small_files, partitioned=True),
        _SMALL,
    ),
    _job("read-small", "rows of small files", data_tables.small_files, _SMALL_READ),
    _job(
        "read-small-vectors",
        "the same, with deletion vectors",
        data_tables.changed_small_files,
        {**_SMALL, **_SMALL_READ},
    ),
    _job(
        "changes-small",
        "the change data feed of small files",
        data_tables.changed_small_files,
        _SMALL_CHANGES,
    ),
    _job(
        "read-python",
        "rows of a table, and by a data source in Python",
        data_tables.large,
        _IN_PYTHON,
        peer="a format in Python",
        session=_plain,
    ),
)

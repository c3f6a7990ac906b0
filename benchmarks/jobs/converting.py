"""Jobs that make a directory of Parquet files a Delta table, and CONVERT TO DELTA of Delta Spark.

The files have ten rows each. They are links to a hundred different files; each path counts as a file, whose
footer both sides read. Both make statistics for the log.

Delta Spark converts a small directory to warm up, and ours nothing, since it has no JVM. The clock doesn't
run while the session starts. The answer is the number of files and of rows.
"""

from __future__ import annotations

import os
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from benchmarks.data_tables import parquet_files
from benchmarks.handles import our_table
from benchmarks.job import LIGHT, Job, Outcome, Side
from benchmarks.measure import peak_mb

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["JOBS"]

_FILES = 100_000
_WARM_UP_FILES = 200

_Given: TypeAlias = "tuple[SparkSession, str]"


def _our_convert(uri: str, partition_schema: dict[str, str] | None = None) -> Outcome:
    from airflow_delta.engine import DeltaTable

    began = time.perf_counter()
    done = DeltaTable.convert(uri, partition_schema=partition_schema)
    seconds = time.perf_counter() - began
    assert done.plan is not None
    return Outcome(hash((len(done.plan.files), done.plan.num_rows)), {}, seconds)


def _peer_convert(given: _Given, partitioning: str = "") -> Outcome:
    spark, uri = given
    began = time.perf_counter()
    spark.sql(_statement(uri, partitioning)).collect()
    seconds, peak = time.perf_counter() - began, peak_mb()
    snapshot = our_table(uri).snapshot()
    return Outcome(hash((snapshot.num_files, snapshot.num_rows)), {}, seconds, peak)


def _statement(uri: str, partitioning: str) -> str:
    return f"CONVERT TO DELTA parquet.`{uri}` {partitioning}"


def _warm(uri: str, partitioning: str = "") -> _Given:
    from benchmarks.spark_sessions import delta_session

    spark = delta_session()
    root = Path(uri).resolve()
    target = root.with_name("warm-up")
    for path in sorted(root.rglob("*.parquet"))[:_WARM_UP_FILES]:
        copy = target / path.relative_to(root)
        copy.parent.mkdir(parents=True, exist_ok=True)
        os.link(path, copy)
    spark.sql(_statement(str(target), partitioning)).collect()
    return spark, str(root)


def _job(name: str, title: str, *, partitioned: bool) -> Job:
    ours: dict[str, Any] = {"partition_schema": {"day": "date"}} if partitioned else {}
    peers: dict[str, Any] = {"partitioning": "PARTITIONED BY (day DATE)"} if partitioned else {}
    loads = (*LIGHT, "airflow_delta.engine.maintenance.convert.execution")
    return Job(
        name,
        title,
        partial(parquet_files, partitioned=partitioned),
        Side("ours", partial(_our_convert, **ours), loads=loads),
        (
            Side(
                "Delta Spark",
                partial(_peer_convert, **peers),
                partial(_warm, **peers),
                ("pyspark.sql", "airflow_delta.engine.replay.reconcile"),
            ),
        ),
        fresh=True,
        only_by_name=True,
        actions=_FILES,
    )


JOBS = (
    _job("convert", "make 100,000 Parquet files a table", partitioned=False),
    _job(
        "convert-partitioned", "the same, in a directory for each day of a year", partitioned=True
    ),
)

"""Jobs that write V2 checkpoints, by our local engine, our Spark engine and Delta Spark.

All sides do the same work: open the table and write a checkpoint of its newest version, in a process that
has loaded its modules. The sides with Spark have a session that has already written checkpoints of other
tables. The answer is the number of files in `_last_checkpoint`.
"""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import tables
from benchmarks.handles import our_table
from benchmarks.job import Job, Side, ours
from benchmarks.tables import COMMITS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["JOBS"]

_WARM_UPS = 3


def _live_files(uri: str) -> int:
    hint = json.loads(Path(uri, "_delta_log", "_last_checkpoint").read_bytes())
    files: int = hint["numOfAddFiles"]
    return files


def _v2(uri: str) -> int:
    our_table(uri).checkpoint(policy="v2")
    return _live_files(uri)


def _classic(uri: str) -> int:
    our_table(uri).checkpoint(policy="classic")
    return _live_files(uri)


def _full_v2(uri: str) -> int:
    """Write a full checkpoint, although the public method would reuse the previous one."""
    from airflow_delta.engine.maintenance.checkpoint.execution import (
        execute_checkpoint,
        plan_checkpoint,
    )
    from airflow_delta.engine.snapshot.opening import open_snapshot

    storage = our_table(uri).storage
    snapshot = open_snapshot(storage)
    plan = replace(plan_checkpoint(snapshot, policy="v2"), incremental=False)
    execute_checkpoint(storage, snapshot, plan)
    return _live_files(uri)


def _spark_engine(given: tuple[SparkSession, str]) -> int:
    from airflow_delta.spark.checkpoint.execution import write_checkpoint

    spark, uri = given
    write_checkpoint(spark, uri, policy="v2")
    return _live_files(uri)


def _delta_spark(given: tuple[SparkSession, str]) -> int:
    spark, uri = given
    # Python's API has no checkpoints.
    jvm: Any = spark.sparkContext._jvm  # noqa: SLF001
    delta_log = jvm.org.apache.spark.sql.delta.DeltaLog
    delta_log.clearCache()
    delta_log.forTable(spark._jsparkSession, uri).checkpoint()  # noqa: SLF001
    return _live_files(uri)


def _with_our_engine(uri: str) -> tuple[SparkSession, str]:
    from benchmarks.spark_sessions import plain_session

    return _warm(plain_session(), uri, _spark_engine)


def _with_delta_spark(uri: str) -> tuple[SparkSession, str]:
    from benchmarks.spark_sessions import delta_session

    return _warm(delta_session(), uri, _delta_spark)


def _warm(spark: SparkSession, uri: str, work: Any) -> tuple[SparkSession, str]:
    """Warm up a session with checkpoints of logs, and for Delta Spark with checkpoints of its own ones."""
    for number in range(_WARM_UPS):
        folder = Path(uri).with_name(f"warm-{number}")
        warm_up = str(tables.v2_log(folder, 10_000, 10))
        work((spark, warm_up))
        work((spark, warm_up))
    return spark, uri


_json = partial(tables.v2_log, commits=COMMITS)


def _after_v2(work: Path, actions: int) -> Path:
    return tables.appended(tables.with_v2(work, actions, COMMITS, "v2"))


def _after_classic(work: Path, actions: int) -> Path:
    return tables.appended(tables.with_v2(work, actions, COMMITS, "classic"))


_SPARK = ("pyspark.sql",)
_DELTA_SPARK = Side("Delta Spark's V2", _delta_spark, _with_delta_spark, _SPARK)

JOBS = (
    Job(
        "checkpoint-v2-incremental",
        "previous V2 checkpoint of ours + 10 commits of 1,000 adds, a new V2 checkpoint",
        _after_v2,
        ours(_v2),
        (
            Side("our full V2", _full_v2),
            Side("our classic one after a classic one", _classic, table=_after_classic),
            _DELTA_SPARK,
        ),
        fresh=True,
        only_by_name=True,
    ),
    Job(
        "checkpoint-spark",
        "a V2 checkpoint from JSON commits by our Spark engine",
        _json,
        Side(
            "ours",
            _spark_engine,
            _with_our_engine,
            (*_SPARK, "airflow_delta.spark.checkpoint.execution"),
        ),
        (_DELTA_SPARK, Side("our local engine", _v2)),
        fresh=True,
        only_by_name=True,
    ),
)

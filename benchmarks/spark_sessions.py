"""Spark sessions of the same settings: a plain one for our engine, and one with Delta Spark.

Delta Spark's own settings are its defaults.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["delta_session", "hash_of_rows", "plain_session"]

_CORES = 2
_MEMORY = "8g"
_SETTINGS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": str(_CORES),
}
_DELTA_SETTINGS = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}


def plain_session(*, memory: str = _MEMORY) -> SparkSession:
    """A session without Delta Spark: our engine needs none."""
    return _session({}, memory)


def delta_session(*, memory: str = _MEMORY) -> SparkSession:
    """A session with the jars that ``make delta-spark`` fetches.

    Raises:
        RuntimeError: they aren't there.
    """
    from tests.delta_spark.peer import delta_spark_jars

    jars = ",".join(map(str, delta_spark_jars()))
    if not jars:
        raise RuntimeError("Delta Spark isn't there: run `make delta-spark`")
    return _session({**_DELTA_SETTINGS, "spark.jars": jars}, memory)


def hash_of_rows(rows: DataFrame) -> int:
    """The same number for the same rows in any order: the answer of jobs that read or change rows."""
    from pyspark.sql import functions as F  # noqa: N812

    hashed = F.xxhash64(*[rows[f"`{name}`"] for name in sorted(rows.columns)])
    (row,) = rows.agg(F.sum(hashed.cast("decimal(20,0)"))).collect()
    return int(row[0] or 0)


def _session(more: Mapping[str, str], memory: str) -> SparkSession:
    from pyspark.sql import SparkSession

    # Executors would take whatever `python3` is first in the path.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(f"local[{_CORES}]").appName("benchmarks")
    session = builder.config(map={**_SETTINGS, "spark.driver.memory": memory, **more}).getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session

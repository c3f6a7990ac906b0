"""One Spark session for all tests of the data plane, and comparisons of rows."""

from __future__ import annotations

import datetime as dt
import decimal
import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import reduce
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

INTERPRETED = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
"""Most queries run once, each another one, on a few rows: compiling them would take longer."""
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    # One session serves all tests. In 512 MB it comes to do little but collect garbage.
    "spark.driver.memory": "2g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # Else each call that makes a column asks the JVM several times, to say in errors where it was.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    # A zone with daylight saving time, unlike UTC: what depends on the session's zone shall show.
    "spark.sql.session.timeZone": "America/New_York",
}


# py4j tells of each connection that it closes, the last time after pytest has closed the log.
logging.getLogger("py4j").setLevel(logging.WARNING)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A local session; its own time zone is not UTC."""
    builder = SparkSession.builder.master("local[2]").appName("tests")
    session = builder.config(map=SETTINGS | INTERPRETED).getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.fixture
def compiled(spark: SparkSession) -> Iterator[None]:
    """Queries are compiled, as by default: where that is what is tested, or where rows are many."""
    for name in INTERPRETED:
        spark.conf.unset(name)
    yield
    for name, value in INTERPRETED.items():
        spark.conf.set(name, value)


def rows_of(frame: DataFrame) -> list[dict[str, Any]]:
    """The rows of a DataFrame as Python values, through Arrow: exact for every type."""
    rows: list[dict[str, Any]] = frame.toArrow().to_pylist()
    return rows


def rows_of_each(frames: Sequence[DataFrame]) -> list[list[dict[str, Any]]]:
    """`rows_of` DataFrames of one schema, in one query: most of a read of so few rows is its start."""
    marked = [frame.withColumn("frame_", F.lit(n)) for n, frame in enumerate(frames)]
    found: list[list[dict[str, Any]]] = [[] for _ in frames]
    for row in rows_of(reduce(DataFrame.unionByName, marked)):
        found[row.pop("frame_")].append(row)
    return found


def bag(rows: list[dict[str, Any]]) -> Counter[str]:
    """Rows as a multiset; equal values have equal texts."""
    return Counter(
        "|".join(f"{name}={text(value)}" for name, value in sorted(row.items())) for row in rows
    )


def text(value: Any) -> str:
    """A value as text: times by instant, maps and lists by content, decimals by number."""
    match value:
        case dict():
            return "{" + ",".join(f"{name}:{text(item)}" for name, item in value.items()) + "}"
        case [(_, _), *_]:
            return "M{" + ",".join(sorted(f"{text(k)}={text(v)}" for k, v in value)) + "}"
        case list():
            return "[" + ",".join(map(text, value)) + "]"
        case dt.datetime():
            utc = value.astimezone(dt.timezone.utc).replace(tzinfo=None) if value.tzinfo else value
            return utc.isoformat()
        case decimal.Decimal():
            return f"{value.normalize():f}" if value else "0"
        case _:
            return repr(value)

"""The typed partition values of checkpoints: those that Spark's cast of the same text has."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from airflow_delta.engine.checkpoint.cast_texts import cast_text
from airflow_delta.engine.model.schema import DataType, DecimalType, PrimitiveType
from tests.spark.conftest import text

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MOMENTS = [
    "2024",
    "2024-01",
    "2024-1-2",
    "2024-01-01 ",
    "2024-01-01 10",
    "2024-01-01 10:",
    "2024-01-01T10:3",
    "2024-01-01 10:30Z",
    "2024-01-01 1:2:3",
    "2024-01-01 24:00:00",
    "2024-01-01 10:30:15.",
    "2024-01-01T10:30:15.1234567",
    "2024-01-01 10:30:15.5 +01:00",
    "2024-01-01 10:30:15 UTC-03:30",
    "2024-01-01 10:30:15 GMT+1",
    "2024-01-01 10:30:15+2",
    "2024-01-01 10:30:15+2:5",
    "2024-01-01 10:30:15+0200",
    "2024-01-01 10:30:15+02:00:30",
    "2024-01-01 10:30:15+19:00",
    "2024-01-01 10:30:15x",
    "2024-01-01x",
    " 2024-01-01 10:30:15 ",
]
WHOLE = ["1.9", "-1.9", " 7 ", "+5", "300", ".5", "5.", ".", "-.5", "1e2", "1_0", "- 5", "1.x"]
NUMBERS = ["1d", "1.5F", "2.", " .5 ", "1e400", "-Inf", "nan", "NaN", "+nan", "1_0", "1e", "x"]
DECIMALS = ["1.15", "1.25", "-1.15", "99999999.96", "999999999.96", "1e3", "1e-400", "1_0", "x"]
DAYS = ["2024", "2024-1", "2024-01-02T", "2024-01-02 10:30", "2024-01-02x", "2024-13-01"]

TEXTS: dict[DataType, tuple[str, list[str]]] = {
    PrimitiveType("byte"): ("tinyint", WHOLE),
    PrimitiveType("long"): ("bigint", [*WHOLE, f"{1 << 63}.9", f"{(1 << 63) - 1}.9"]),
    PrimitiveType("double"): ("double", NUMBERS),
    PrimitiveType("float"): ("float", [*NUMBERS, "1e39", "-1e39f", "0.1"]),
    DecimalType(10, 1): ("decimal(10,1)", DECIMALS),
    PrimitiveType("boolean"): (
        "boolean",
        ["t", "T", "yes", "Y", "1", "f", "no", "n", "0", " true ", "tru", "on"],
    ),
    PrimitiveType("date"): ("date", [*DAYS, " 2024-01-02\t", "2024-01-", "24-01-01"]),
    PrimitiveType("timestamp"): ("timestamp", MOMENTS),
    PrimitiveType("timestamp_ntz"): ("timestamp_ntz", MOMENTS),
}


@pytest.fixture
def in_utc(spark: SparkSession) -> Iterator[SparkSession]:
    """A session that casts as the one of a writer of checkpoints does."""
    settings = {"spark.sql.session.timeZone": "UTC", "spark.sql.ansi.enabled": "false"}
    before = {name: spark.conf.get(name) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    yield spark
    for name, old in before.items():
        spark.conf.set(name, old)


def test_texts_have_the_values_that_spark_casts_them_to(in_utc: SparkSession) -> None:
    casts = {
        (data_type, value): f"cast('{value}' as {name})"
        for data_type, (name, values) in TEXTS.items()
        for value in values
    }
    frame = in_utc.range(1).selectExpr(*(f"{c} as c{n}" for n, c in enumerate(casts.values())))
    (row,) = frame.toArrow().to_pylist()
    theirs = {case: text(value) for case, value in zip(casts, row.values(), strict=True)}
    ours = {case: text(cast_text(case[1], case[0])) for case in casts}
    assert {case: (ours[case], theirs[case]) for case in casts if ours[case] != theirs[case]} == {}
    assert list(theirs.values()).count("None") < len(theirs) / 2

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pyspark.sql
import pytest
from pyspark.errors import AnalysisException

from airflow_delta.engine.errors import InvalidArgumentError
from airflow_delta.profiles.profile import ColumnProfile, TableProfile
from airflow_delta.spark.jobs.table_profile import table_profile
from airflow_delta.spark.profile import profiling

GIVEN = {"table_uri": "/t", "version": 7}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": "7"}, "'version': expected int, found '7'"),
        ({"columns": "id"}, "'columns': expected list, found 'id'"),
        ({"predicate": 1}, "'predicate': expected str, found 1"),
        ({"colour": "red"}, r"unknown \['colour'\]"),
    ],
)
def test_wrong_parameters_are_refused_before_spark_starts(
    change: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        table_profile({**GIVEN, **change}, {})


def test_missing_parameters_are_named() -> None:
    with pytest.raises(InvalidArgumentError, match=r"missing \['table_uri', 'version'\]"):
        table_profile({}, {})


class FakeSpark:
    """A session that is got instead of a real one, with a record of what happens to it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, answer: TableProfile | Exception) -> None:
        self.taken: list[Any] = []
        self._answer: TableProfile | Exception = answer
        self.version = "4.1"
        self.sparkContext = SimpleNamespace(
            getConf=lambda: None,
            _jsc=SimpleNamespace(hadoopConfiguration=lambda: None),
            uiWebUrl=None,
            applicationId="local-1",
            master="local[1]",
        )
        builder = SimpleNamespace(getOrCreate=lambda: self)
        monkeypatch.setattr(pyspark.sql, "SparkSession", SimpleNamespace(builder=builder))
        monkeypatch.setattr(profiling, "profile_snapshot", self.profile)

    def profile(self, spark: object, *arguments: Any, **named: Any) -> TableProfile:
        assert spark is self
        self.taken.extend([arguments, named])
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer

    def stop(self) -> None:
        self.taken.append("stopped")


def test_the_result_is_a_report(monkeypatch: pytest.MonkeyPatch) -> None:
    told = TableProfile(7, 2, "scan", 1, None, (ColumnProfile("id", "long", 0, min=1),))
    spark = FakeSpark(monkeypatch, told)
    asked = {"columns": ["id"], "predicate": "id > 0"}
    assert table_profile({**GIVEN, **asked}, {"region": "x"}) == {
        "table_uri": "/t",
        "version": 7,
        "num_rows": 2,
        "counted_by": "scan",
        "num_files": 1,
        "num_partitions": None,
        "columns": {"id": {"type": "long", "nulls": 0, "min": 1}},
    }
    named = {"version": 7, **asked, "storage_options": {"region": "x"}}
    assert spark.taken == [("/t",), named, "stopped"]


def test_a_condition_that_makes_no_sense_is_a_wrong_argument(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spark = FakeSpark(monkeypatch, AnalysisException("there is no such column\n+- Plan"))
    with pytest.raises(InvalidArgumentError, match=r"predicate 'x > 0': there is no such column$"):
        table_profile({**GIVEN, "predicate": "x > 0"}, {})
    with pytest.raises(AnalysisException):
        table_profile(GIVEN, {})
    assert spark.taken.count("stopped") == 2

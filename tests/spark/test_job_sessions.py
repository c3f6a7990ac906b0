"""Sessions of jobs. The real one is the spark-submit of the jobs' own tests: it ends with its process."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pyspark.sql
import pytest

from airflow_delta.engine.errors import InvalidArgumentError
from airflow_delta.spark.job_sessions import job_session


class FakeSession:
    """What a job session needs of Spark, with a record of it."""

    def __init__(self, *, configured: tuple[str, ...] = ()) -> None:
        self.hadoop: dict[str, str] = {}
        self.stopped = 0
        self.builder = SimpleNamespace(getOrCreate=lambda: self)
        given = SimpleNamespace(contains=lambda name: name in configured)
        properties = SimpleNamespace(set=self.hadoop.__setitem__)
        self.sparkContext = SimpleNamespace(
            getConf=lambda: given,
            _jsc=SimpleNamespace(hadoopConfiguration=lambda: properties),
        )

    def stop(self) -> None:
        self.stopped += 1


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> FakeSession:
    """The session that is got, instead of a real one."""
    fake = FakeSession()
    monkeypatch.setattr(pyspark.sql, "SparkSession", fake)
    return fake


def test_all_stores_are_configured_while_the_session_runs(session: FakeSession) -> None:
    options = {"region": "eu-west-1", "google_service_account": "/key.json"}
    with (
        pytest.raises(InvalidArgumentError, match="google_service_account"),
        job_session(options, "s3://a/t"),
    ):
        pytest.fail("an unknown option was let through")
    assert session.stopped == 0
    with job_session({"region": "eu-west-1"}, "s3://a/t", "/data/copy") as spark:
        got: Any = spark
        assert got is session
        assert session.hadoop == {"fs.s3a.endpoint.region": "eu-west-1"}
        assert session.stopped == 0
    assert session.stopped == 1


def test_without_locations_nothing_is_configured(session: FakeSession) -> None:
    with job_session({"region": "eu-west-1"}):
        assert session.hadoop == {}


def test_a_failed_job_stops_its_session(session: FakeSession) -> None:
    with pytest.raises(OSError, match="the store is gone"), job_session({}, "/t"):
        raise OSError("the store is gone")
    assert session.stopped == 1


def test_a_session_that_cannot_be_configured_is_stopped(
    session: FakeSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(session.sparkContext, "_jsc")
    with (
        pytest.raises(AttributeError, match="_jsc"),
        job_session({"region": "eu-west-1"}, "s3://a/t"),
    ):
        pytest.fail("a session that reaches no store was handed out")
    assert session.stopped == 1

"""The jobs that write and delete: their parameters, and what they call."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_delta.engine.errors import InvalidArgumentError
from airflow_delta.row_sources.source import FileSource
from airflow_delta.spark import sources
from airflow_delta.spark.dml import delete as deletion
from airflow_delta.spark.dml import dry_run
from airflow_delta.spark.dml.delete import DeleteResult
from airflow_delta.spark.jobs import delete as delete_job
from airflow_delta.spark.jobs import write as write_job
from airflow_delta.spark.writer import write as writer
from airflow_delta.spark.writer.write import WriteResult

SOURCE = {"uri": "s3://landing/x", "format": "csv"}
WRITE = {"table_uri": "s3://lake/t", "source": SOURCE}
DELETE = {"table_uri": "s3://lake/t", "condition": "id > 1"}
TXN = {"app_id": "airflow:dag.task", "app_version": 7}


@pytest.fixture
def sessions(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    taken: list[Any] = []

    @contextmanager
    def _session(storage_options: Any, *locations: str) -> Iterator[str]:
        taken.append((storage_options, locations))
        yield "spark"

    monkeypatch.setattr(write_job, "job_session", _session)
    monkeypatch.setattr(delete_job, "job_session", _session)
    return taken


@pytest.mark.parametrize(
    ("job", "parameters", "message"),
    [
        (write_job.write, {"table_uri": "/t"}, r"missing \['source'\]"),
        (write_job.write, {**WRITE, "source": "/t"}, "'source': expected dict"),
        (write_job.write, {**WRITE, "source": {}}, "expected one of uri, query, function"),
        (
            write_job.write,
            {**WRITE, "source": {**SOURCE, "query": "SELECT 1"}},
            "expected one of uri, query, function",
        ),
        (write_job.write, {**WRITE, "source": {**SOURCE, "arguments": {}}}, "with its options"),
        (write_job.write, {**WRITE, "source": {"query": 7}}, "query has the wrong type"),
        (
            write_job.write,
            {**WRITE, "source": {"query": "SELECT 1", "tables": {"t": {"version": 1}}}},
            "table_uri, version and allowed_outside",
        ),
        (write_job.write, {**WRITE, "app_id": "a"}, "app_id and app_version belong together"),
        (delete_job.delete, {**DELETE, "condition": 7}, "'condition': expected str"),
    ],
)
def test_wrong_parameters_are_refused_before_spark_starts(
    sessions: list[Any], job: Any, parameters: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        job(parameters, {})
    assert sessions == []


def test_the_write_gets_the_rows_of_the_source(
    sessions: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[Any] = []
    monkeypatch.setattr(sources, "load_rows", lambda *given, **named: (given, named))
    results = [WriteResult(3), WriteResult(3, written=False, repeated=True)]
    results += [WriteResult(3, written=False)]

    def _write(*given: Any, **named: Any) -> WriteResult:
        taken.append((given, named))
        return results.pop(0)

    monkeypatch.setattr(writer, "write", _write)
    options = {"region": "x"}
    parameters = {**WRITE, **TXN, "mode": "overwrite", "allowed_outside": ["/u"]}
    found = [write_job.write(parameters, options) for _ in range(3)]
    facts = [(each["version"], each["committed"], each["repeated"]) for each in found]
    assert facts == [(3, True, False), (3, True, True), (3, False, False)]
    rows = (("spark", FileSource("s3://landing/x", "csv")), {"storage_options": options})
    named = {
        "mode": "overwrite",
        "allowed_outside": ["/u"],
        "txn": ("airflow:dag.task", 7),
        "storage_options": options,
    }
    assert taken[0] == ((rows, "s3://lake/t"), named)
    assert sessions[0] == (options, ("s3://lake/t", "s3://landing/x"))


def test_the_deletion_gets_the_condition(
    sessions: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[Any] = []
    results = [DeleteResult(3), DeleteResult(3, written=False)]

    def _delete(*given: Any, **named: Any) -> DeleteResult:
        taken.append((given, named))
        return results.pop(0)

    monkeypatch.setattr(deletion, "delete", _delete)
    found = [delete_job.delete({**DELETE, **TXN}, {}) for _ in range(2)]
    assert [(each["committed"], each["repeated"]) for each in found] == [
        (True, False),
        (True, True),
    ]
    assert taken[0] == (
        ("spark", "s3://lake/t"),
        {"condition": "id > 1", "txn": ("airflow:dag.task", 7), "storage_options": {}},
    )


def test_a_dry_run_plans(sessions: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    plan = SimpleNamespace(to_dict=lambda: {"version": 3})
    monkeypatch.setattr(dry_run, "plan_deletion", lambda *_, **__: plan)
    parameters = {**DELETE, "dry_run": True, "user_metadata": "unused"}
    assert delete_job.delete(parameters, {}) == {"table_uri": "s3://lake/t", "version": 3}

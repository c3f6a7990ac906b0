"""The jobs that write, delete, update and merge: their parameters, and what they call."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_delta.engine.errors import InvalidArgumentError
from airflow_delta.row_changes.clauses import MergeClause
from airflow_delta.row_sources.source import FileSource
from airflow_delta.spark import sources
from airflow_delta.spark.dml import delete as deletion
from airflow_delta.spark.dml import dry_run
from airflow_delta.spark.dml import update as updating
from airflow_delta.spark.dml.delete import DeleteResult
from airflow_delta.spark.dml.merge import merge as merging
from airflow_delta.spark.dml.merge.result import MergeResult
from airflow_delta.spark.dml.update import UpdateResult
from airflow_delta.spark.ingest import write as writer
from airflow_delta.spark.ingest.auto_compaction import AutoCompaction
from airflow_delta.spark.ingest.write import WriteResult
from airflow_delta.spark.jobs import delete as delete_job
from airflow_delta.spark.jobs import merge as merge_job
from airflow_delta.spark.jobs import update as update_job
from airflow_delta.spark.jobs import write as write_job

SOURCE = {"uri": "s3://landing/x", "format": "csv"}
WRITE = {"table_uri": "s3://lake/t", "source": SOURCE}
DELETE = {"table_uri": "s3://lake/t", "condition": "id > 1"}
UPDATE = {"table_uri": "s3://lake/t", "set": {"n": "n + 1", "note": None}}
CLAUSES = [
    {"when": "matched", "then": "update", "condition": "source.n > 1"},
    {"when": "not_matched", "then": "insert", "values": {"n": 7}},
]
MERGE = {**WRITE, "on": "target.n = source.n", "clauses": CLAUSES}
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
    monkeypatch.setattr(update_job, "job_session", _session)
    monkeypatch.setattr(merge_job, "job_session", _session)
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
        (update_job.update, {**UPDATE, "set": {}}, "parameter 'set': expected a dictionary"),
        (update_job.update, {**UPDATE, "app_version": 1}, "app_id and app_version belong"),
        (merge_job.merge, WRITE, r"missing \['clauses', 'on'\]"),
        (merge_job.merge, {**MERGE, "clauses": []}, "the merge has no clause"),
        (merge_job.merge, {**MERGE, "clauses": [7]}, r"parameter 'clauses'\[0\]: expected"),
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
    compaction = AutoCompaction(4, 50, 1)
    results = [WriteResult(3, compaction=compaction)]
    results += [WriteResult(3, written=False, repeated=True), WriteResult(3, written=False)]

    def _write(*given: Any, **named: Any) -> WriteResult:
        taken.append((given, named))
        return results.pop(0)

    monkeypatch.setattr(writer, "write", _write)
    options = {"region": "x"}
    parameters = {**WRITE, **TXN, "mode": "overwrite", "allowed_outside": ["/u"]}
    found = [write_job.write(parameters, options) for _ in range(3)]
    facts = [(each["version"], each["committed"], each["repeated"]) for each in found]
    assert facts == [(3, True, False), (3, True, True), (3, False, False)]
    compacted = {"version": 4, "num_removed_files": 50, "num_added_files": 1, "error": None}
    assert [each["compaction"] for each in found] == [compacted, None, None]
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
    results = [DeleteResult(3), DeleteResult(3, written=False, repeated=True)]

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


def test_the_update_gets_the_new_values(
    sessions: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[Any] = []
    results = [
        UpdateResult(3),
        UpdateResult(3, written=False, repeated=True),
        UpdateResult(3, written=False),
    ]

    def _update(*given: Any, **named: Any) -> UpdateResult:
        taken.append((given, named))
        return results.pop(0)

    monkeypatch.setattr(updating, "update", _update)
    found = [update_job.update({**UPDATE, **txn}, {}) for txn in (TXN, TXN, {})]
    facts = [(each["committed"], each["repeated"]) for each in found]
    assert facts == [(True, False), (True, True), (False, False)]
    assert taken[0] == (
        ("spark", "s3://lake/t"),
        {"set": UPDATE["set"], "txn": ("airflow:dag.task", 7), "storage_options": {}},
    )


def test_the_merge_gets_source_and_clauses(
    sessions: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[Any] = []

    class _Builder:
        def with_clause(self, clause: MergeClause) -> _Builder:
            taken.append(clause)
            return self

        def execute(self) -> MergeResult:
            return MergeResult(3)

    def _merge(*given: Any, **named: Any) -> _Builder:
        taken.append((given, named))
        return _Builder()

    monkeypatch.setattr(sources, "load_rows", lambda *given, **named: (given, named))
    monkeypatch.setattr(merging, "merge", _merge)
    options = {"region": "x"}
    found = merge_job.merge({**MERGE, **TXN, "merge_schema": True}, options)
    assert found == {
        "table_uri": "s3://lake/t",
        "version": 3,
        "committed": True,
        "repeated": False,
    }
    rows = (("spark", FileSource("s3://landing/x", "csv")), {"storage_options": options})
    named = {
        "on": "target.n = source.n",
        "merge_schema": True,
        "txn": ("airflow:dag.task", 7),
        "storage_options": options,
    }
    assert taken == [
        (("spark", "s3://lake/t", rows), named),
        MergeClause("matched", "update", "source.n > 1"),
        MergeClause("not_matched", "insert", None, {"n": 7}),
    ]
    assert sessions == [(options, ("s3://lake/t", "s3://landing/x"))]


def test_a_dry_run_plans(sessions: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    plan = SimpleNamespace(to_dict=lambda: {"version": 3})
    monkeypatch.setattr(dry_run, "plan_deletion", lambda *_, **__: plan)
    parameters = {**DELETE, "dry_run": True, "user_metadata": "unused"}
    assert delete_job.delete(parameters, {}) == {"table_uri": "s3://lake/t", "version": 3}

"""Names and facets, compared with the OpenLineage client's own, and reports of hooks."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.model.schema import LONG, STRING, ArrayType, StructField, StructType
from airflow_delta.hooks.delta import DeltaHook
from airflow_delta.hooks.lineage.asset_uris import PREFIX, SCHEMES
from airflow_delta.hooks.lineage.columns import TableColumns
from airflow_delta.hooks.lineage.datasets import Lineage, LineageDataset, WrittenData, dataset_name
from airflow_delta.hooks.spark.parent_job import with_parent_job
from airflow_delta.operators.checkpoint import CheckpointOperator
from airflow_delta.operators.restore import RestoreOperator
from airflow_delta.provider import get_provider_info
from airflow_delta.version_compat import AirflowSkipException
from tests.airflow.lineage.captured_events import plain
from tests.airflow.run_context import context_of
from tests.airflow.test_docs import DOCS, example


@pytest.mark.parametrize(
    ("uri", "kind", "parts"),
    [
        ("s3a://lake/sales/", "S3", ("lake", "sales")),
        ("s3://conn_id@lake/a/sales", "S3", ("lake", "a/sales")),
        ("gcs://lake/sales", "GCS", ("lake", "sales")),
        ("abfs://box@shop.dfs.core.windows.net/sales", "ABFSS", ("box", "shop", "sales")),
        ("/data/odd name", "LocalFileSystem", ("/data/odd name",)),
        ("file:///data/odd%20name/", "LocalFileSystem", ("/data/odd name",)),
        ("hdfs://name:8020/data/sales", "HDFS", ("name", "8020", "/data/sales")),
    ],
)
def test_names_are_those_of_the_client(uri: str, kind: str, parts: tuple[str, ...]) -> None:
    from openlineage.client.naming import dataset

    expected = getattr(dataset, kind)(*parts)
    assert dataset_name(uri) == (expected.get_namespace(), expected.get_name())


@pytest.mark.parametrize(
    ("uri", "name"),
    [
        ("https://user@host/sales?token=secret#part", ("https://host", "/sales")),
        ("s3://lake", ("s3://lake", "/")),
        ("s3://lake/what?/x", ("s3://lake", "what?/x")),
        ("gs://lake/sales?X-Goog-Signature=secret", ("gs://lake", "sales")),
        (
            "abfss://box:secret@shop.dfs.core.windows.net/sales",
            ("abfss://box@shop.dfs.core.windows.net", "sales"),
        ),
        (
            "wasbs://box@shop.blob.core.windows.net/sales",
            ("wasbs://box@shop.blob.core.windows.net", "sales"),
        ),
        ("sftp://user@host:22/data", ("sftp://host:22", "/data")),
    ],
)
def test_names_have_no_credentials(uri: str, name: tuple[str, str]) -> None:
    assert dataset_name(uri) == name


ADDRESS = StructType((StructField("city", STRING, metadata={"comment": "as on the letter"}),))
SCHEMA = StructType(
    (
        StructField("id", LONG, metadata={"comment": "the key"}),
        StructField("address", ADDRESS),
        StructField("tags", ArrayType(STRING)),
    )
)


def test_a_copy_has_the_columns_of_its_source(tmp_path: Path) -> None:
    from openlineage.client.serde import Serde

    from airflow_delta.hooks.lineage.facets import operator_lineage

    table, copy = str(tmp_path / "table"), str(tmp_path / "copy")
    DeltaTable.create(table, SCHEMA)
    DeltaTable.create(copy, StructType((*SCHEMA.fields[:2], StructField("more", LONG))))
    read = LineageDataset(table, 0)
    clone = LineageDataset(
        copy, 0, change="CREATE", written=WrittenData(3, 90, 1), copied_from=read
    )
    text_files = LineageDataset(
        f"{tmp_path}/csv", is_table=False, copied_from=read, file_format="csv"
    )
    found = TableColumns(DeltaHook()).add(Lineage((read,), (clone, text_files)))
    event = operator_lineage(found)
    (source,) = (plain(json.loads(Serde.to_json(one))) for one in event.inputs)
    fields = [
        {"name": "id", "type": "long", "description": "the key"},
        {
            "name": "address",
            "type": "struct",
            "fields": [{"name": "city", "type": "string", "description": "as on the letter"}],
        },
    ]
    tags = {"name": "tags", "type": "array<string>"}
    facets = {
        "storage": {"storageLayer": "delta", "fileFormat": "parquet"},
        "version": {"datasetVersion": "0"},
    }
    assert source == {
        "namespace": "file",
        "name": table,
        "facets": {**facets, "schema": {"fields": [*fields, tags]}},
    }
    target, csv = (plain(json.loads(Serde.to_json(one))) for one in event.outputs)

    def copied(*names: str) -> dict[str, Any]:
        identity = [{"type": "DIRECT", "subtype": "IDENTITY"}]
        origin = {"namespace": "file", "name": table, "transformations": identity}
        return {"fields": {name: {"inputFields": [{**origin, "field": name}]} for name in names}}

    assert target == {
        "namespace": "file",
        "name": copy,
        "facets": {
            **facets,
            "schema": {"fields": [*fields, {"name": "more", "type": "long"}]},
            "lifecycleStateChange": {"lifecycleStateChange": "CREATE"},
            "columnLineage": copied("id", "address"),
        },
        "outputFacets": {"outputStatistics": {"rowCount": 3, "size": 90, "fileCount": 1}},
    }
    assert csv["facets"] == {
        "storage": {"storageLayer": "default", "fileFormat": "csv"},
        "schema": {"fields": [*fields, tags]},
        "columnLineage": copied("id", "address", "tags"),
    }


@pytest.mark.parametrize("file_format", [None, "binaryfile"])
def test_files_of_a_format_that_openlineage_lacks_have_no_storage(file_format: str | None) -> None:
    from airflow_delta.hooks.lineage.facets import operator_lineage

    files = LineageDataset("s3://landing/scans", is_table=False, file_format=file_format)
    (found,) = operator_lineage(Lineage((files,))).inputs
    assert found.facets == {}


def test_without_openlineage_no_table_is_opened(
    sales_copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> Any:
        raise AssertionError("opened")

    monkeypatch.setattr(TableColumns, "__init__", fail)
    task = RestoreOperator(task_id="restore", table_uri=str(sales_copy), version=1)
    assert task.execute(context_of())["version"] == 4


def test_an_error_in_lineage_does_not_fail_the_task(
    sales_copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> Any:
        raise MemoryError("no lineage today")

    monkeypatch.setattr("airflow_delta.operators.lineage.task.is_openlineage_enabled", lambda: True)
    monkeypatch.setattr(TableColumns, "add", fail)
    task = RestoreOperator(task_id="restore", table_uri=str(sales_copy), version=1)
    warnings: list[str] = []
    monkeypatch.setattr(task.log, "warning", lambda text, *_, **__: warnings.append(text))
    assert task.execute(context_of())["version"] == 4
    assert ["the lineage of the task" in text for text in warnings].count(True) == 1
    # What is known without the table is there.
    (output,) = task.get_openlineage_facets_on_complete(None).outputs
    assert output.facets.keys() == {"storage", "version", "lifecycleStateChange"}
    monkeypatch.setattr(RestoreOperator, "datasets", fail)
    assert task.execute(context_of())["version"] == 4
    assert ["the lineage of the task" in text for text in warnings].count(True) == 2


def test_a_store_that_does_not_answer_does_not_hold_the_end_of_a_task(
    sales_copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer, waited = threading.Event(), []

    def wait(_: Any, lineage: Lineage) -> Lineage:
        waited.append(answer.wait(60))
        return lineage

    monkeypatch.setattr("airflow_delta.operators.lineage.task.is_openlineage_enabled", lambda: True)
    monkeypatch.setattr("airflow_delta.operators.lineage.task.openlineage_timeout", lambda: 0.1)
    monkeypatch.setattr(TableColumns, "add", wait)
    task = RestoreOperator(task_id="restore", table_uri=str(sales_copy), version=1)
    assert task.execute(context_of())["version"] == 4
    assert waited == []
    (output,) = task.get_openlineage_facets_on_complete(None).outputs
    assert output.facets.keys() == {"storage", "version", "lifecycleStateChange"}
    answer.set()


def test_a_skipped_task_has_no_output(sales: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("airflow_delta.operators.lineage.task.is_openlineage_enabled", lambda: True)
    task = CheckpointOperator(task_id="checkpoint", table_uri=str(sales), if_needed=True)
    with pytest.raises(AirflowSkipException):
        task.execute(context_of())
    found = task.get_openlineage_facets_on_complete(None)
    assert [dataset.name for dataset in found.inputs] == [str(sales)]
    assert found.outputs == []


def test_the_schemes_of_assets_are_registered() -> None:
    (declared,) = get_provider_info()["asset-uris"]
    assert tuple(declared["schemes"]) == SCHEMES
    assert all(scheme.startswith(PREFIX) for scheme in SCHEMES)


class Collector:
    """Keeps what hooks report."""

    def __init__(self) -> None:
        self.taken: list[tuple[str, str, int | None]] = []

    def add_input_asset(self, context: Any, uri: str, asset_extra: Any) -> None:
        self.taken.append(("input", uri, asset_extra["version"]))

    def add_output_asset(self, context: Any, uri: str, asset_extra: Any) -> None:
        self.taken.append(("output", uri, asset_extra["version"]))


def test_hooks_report_what_they_read_and_write(
    sales_copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    collector = Collector()
    monkeypatch.setattr(
        "airflow_delta.hooks.lineage.collector.hook_lineage_collector", lambda: collector
    )
    table, hook = str(sales_copy), DeltaHook()
    hook.table(table)
    hook.pin(table, version=1)
    hook.table(table)
    hook.vacuum(table, dry_run=True)
    hook.optimize(table, dry_run=True)
    hook.restore(table, version=1)
    hook.report_output(table)
    uri = f"delta+file://{table}"
    assert collector.taken == [
        ("input", uri, None),
        ("input", uri, 1),
        ("input", uri, 3),
        ("input", uri, 3),
        ("output", uri, 4),
        ("output", uri, None),
    ]
    collector.taken.clear()
    task = RestoreOperator(task_id="restore", table_uri=table, version=0)
    task.execute(context_of())
    assert collector.taken == []


def test_a_hook_works_if_the_collector_does_not(
    sales: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> Any:
        raise ValueError("no collector today")

    monkeypatch.setattr("airflow_delta.hooks.lineage.collector.hook_lineage_collector", fail)
    assert DeltaHook().pin(str(sales))["version"] == 3


def test_the_task_of_the_guide_reports_what_it_copies(
    sales: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    collector = Collector()
    monkeypatch.setattr(
        "airflow_delta.hooks.lineage.collector.hook_lineage_collector", lambda: collector
    )
    copy = example(DOCS / "how-to" / "lineage.md")["copy"].function
    assert copy(str(sales), str(tmp_path / "copy")) == 0
    assert collector.taken == [
        ("input", f"delta+file://{sales}", 3),
        ("output", f"delta+file://{tmp_path}/copy", 0),
    ]
    assert DeltaTable(tmp_path / "copy").snapshot().num_rows == 25


# The parent job of Spark jobs


@pytest.fixture
def running_task() -> Any:
    from datetime import datetime, timezone

    from airflow.sdk.definitions._internal.contextmanager import _CURRENT_CONTEXT

    date = datetime(2026, 3, 1, tzinfo=timezone.utc)
    run = SimpleNamespace(logical_date=date, run_after=date, conf={}, clear_number=0)
    task = SimpleNamespace(
        dag_id="lake",
        task_id="write",
        try_number=2,
        map_index=-1,
        dag_run=run,
        get_template_context=lambda: {"dag_run": run},
    )
    _CURRENT_CONTEXT.append({"ti": task})  # type: ignore[typeddict-item]
    yield task
    _CURRENT_CONTEXT.pop()


def test_the_task_is_the_parent_of_its_spark_job(
    running_task: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow.providers.openlineage.plugins.macros import lineage_run_id

    given = {"spark.executor.cores": "2"}
    assert with_parent_job(given) == given
    monkeypatch.setenv("AIRFLOW__OPENLINEAGE__SPARK_INJECT_PARENT_JOB_INFO", "True")
    monkeypatch.setenv("AIRFLOW__OPENLINEAGE__NAMESPACE", "prod")
    found = with_parent_job(given)
    assert found["spark.openlineage.parentJobNamespace"] == "prod"
    assert found["spark.openlineage.parentJobName"] == "lake.write"
    assert found["spark.openlineage.parentRunId"] == lineage_run_id(running_task)
    assert found["spark.openlineage.rootParentJobName"] == "lake"
    assert found.items() >= given.items()
    own = {"spark.openlineage.parentRunId": "mine"}
    assert with_parent_job(own) == own


def test_credentials_of_the_transport_are_no_properties(
    running_task: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = {
        "spark.openlineage.transport.type": "http",
        "spark.openlineage.transport.url": "https://lineage.example",
        "spark.openlineage.transport.auth.apiKey": "SECRET",
        "spark.openlineage.transport.headers.X-Key": "SECRET",
        "spark.openlineage.transport.transports.a.auth.apiKey": "SECRET",
    }
    monkeypatch.setattr(
        "airflow_delta.hooks.spark.parent_job.properties_of_parent_job",
        lambda given: {**found, **given},
    )
    assert with_parent_job({}) == dict(list(found.items())[:2])
    own = {"spark.openlineage.transport.auth.apiKey": "of the user"}
    assert with_parent_job(own).items() >= own.items()


def test_a_job_runs_if_its_parent_cannot_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__OPENLINEAGE__SPARK_INJECT_PARENT_JOB_INFO", "True")
    # No task is running.
    assert with_parent_job({"a": "b"}) == {"a": "b"}

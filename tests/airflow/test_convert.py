"""Converting a directory as a task, once for each run."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.errors import InvalidArgumentError, InvalidTableError
from airflow_delta.hooks.failures import ArgumentError
from airflow_delta.operators.convert import ConvertToDeltaOperator
from airflow_delta.templates import optional
from tests.airflow.failures import fails_for_good
from tests.airflow.maintenance import rows_by_peer
from tests.airflow.run_context import context_of
from tests.engine.maintenance.convert.parquet_folders import write_parquet


def convert(table: Path | str, *, run: int = 1, **arguments: Any) -> dict[str, Any]:
    operator = ConvertToDeltaOperator(task_id="convert", table_uri=str(table), **arguments)
    return operator.execute(context_of("convert", run=run))


@pytest.fixture
def days(tmp_path: Path) -> Path:
    """A directory with two files, a partition each."""
    for number in (1, 2):
        write_parquet(tmp_path / "t" / f"day=2026-01-0{number}" / "0.parquet", {"id": [number]})
    return tmp_path / "t"


def test_arguments_are_rendered() -> None:
    operator = ConvertToDeltaOperator(
        task_id="convert",
        table_uri="{{ params.uri }}",
        partition_schema={"day": "{{ params.type }}"},
        files="{{ params.files | tojson }}",
        properties={"owner": optional("{{ params.nothing }}"), "team": "{{ params.uri }}"},
        dry_run="{{ params.dry }}",
    )
    params: dict[str, Any] = {"uri": "s3://lake/t", "type": "date", "dry": True, "nothing": None}
    params |= {"files": ["day=1/0.parquet"]}
    operator.render_template_fields({"params": params})  # type: ignore[arg-type]
    names = ("table_uri", "partition_schema", "files", "properties", "dry_run")
    assert [operator.argument(name) for name in names] == [
        "s3://lake/t",
        {"day": "date"},
        ["day=1/0.parquet"],
        {"team": "s3://lake/t"},
        True,
    ]


def test_a_directory_becomes_a_table(days: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dry = convert(days, partition_schema={"day": "date"}, dry_run=True)
    assert not (days / "_delta_log").exists()
    report = convert(days, partition_schema={"day": "date"}, properties={"owner": "me"})
    assert json.loads(json.dumps(report)) == report, "XCom carries JSON"
    changing = ("version", "converted", "dry_run", "duration_ms")
    assert {**dry, **{key: report[key] for key in changing}} == report, "what was told is done"
    keys = ("table_uri", "version", "converted", "files", "rows", "partition_columns", "reason")
    assert [report[key] for key in keys] == [str(days), 0, True, 2, 2, ["day"], None]
    assert sorted(row["id"] for row in rows_by_peer(days)) == [1, 2]
    assert DeltaTable(days).snapshot().metadata.configuration == {"owner": "me"}
    assert re.search(r"^partition columns +day$", capsys.readouterr().out, re.M)


def test_a_retry_finds_what_the_first_try_has_done(days: Path) -> None:
    arguments: dict[str, Any] = {"partition_schema": {"day": "date"}}
    convert(days, **arguments)
    DeltaTable(days).alter.set_properties({"since": "then"})
    again = convert(days, **arguments)
    assert (again["version"], again["converted"], again["repeated"]) == (0, False, True)
    other = convert(days, run=2, **arguments)
    assert (other["version"], other["converted"], other["repeated"]) == (1, False, False)
    assert other["reason"] == "the directory is a Delta table already"
    assert DeltaTable(days).latest_version() == 1


def test_a_list_of_files_chooses(days: Path) -> None:
    files = '["day=2026-01-02/0.parquet"]'
    report = convert(days, partition_schema={"day": "date"}, files=files, collect_statistics=False)
    assert (report["files"], report["rows"]) == (1, 1)
    assert [row["id"] for row in rows_by_peer(days)] == [2]


def test_what_cannot_be_a_table_fails_for_good(days: Path, tmp_path: Path) -> None:
    with fails_for_good(InvalidArgumentError, match="columns day, and partition_schema has none"):
        convert(days)
    with fails_for_good(InvalidArgumentError, match="there is no Parquet file"):
        convert(tmp_path / "nothing")
    write_parquet(days / "day=2026-01-03" / "0.parquet", {"id": ["x"]})
    with fails_for_good(InvalidTableError, match="'id' is of the type long"):
        convert(days, partition_schema={"day": "date"})
    assert not (days / "_delta_log").exists()


def test_the_example_dag_gives_its_params() -> None:
    from airflow_delta.example_dags.delta_convert import convert as task

    params: dict[str, Any] = {"table_uri": "/data/t", "partition_schema": ["b:date", "a:1:long"]}
    params |= {"properties": {"z": 1}, "delta_conn_id": None}
    task.render_template_fields({"params": params})  # type: ignore[arg-type]
    # The order is that of the partition columns.
    assert [*task.argument("partition_schema").items()] == [("b", "date"), ("a:1", "long")]
    assert (task.argument("properties"), task.argument("files")) == ({"z": "1"}, None)


@pytest.mark.parametrize(
    "schema", ["day date", ["day"], [":date"], ["a:date", "a:long"], '{"a": "b"}']
)
def test_partition_columns_have_names_and_types(schema: Any) -> None:
    with pytest.raises(ArgumentError, match=r"partition_schema: expected types of columns"):
        convert("/t", partition_schema=schema)
    with pytest.raises(ArgumentError, match="properties: expected a dictionary of texts, or"):
        convert("/t", properties="a")


def test_airflows_own_dry_run_still_works() -> None:
    ConvertToDeltaOperator(task_id="convert", table_uri="/t", dry_run=True).dry_run()


@pytest.mark.deep
def test_the_example_dag_converts_and_writes_a_checkpoint(
    days: Path, airflow_database: Path
) -> None:
    from airflow.dag_processing.dagbag import DagBag

    dag = DagBag().dags["delta_convert"]
    run = dag.test(run_conf={"table_uri": str(days), "partition_schema": ["day:date"]})
    assert str(run.state) == "success"
    assert (days / "_delta_log" / f"{0:020}.checkpoint.parquet").exists()
    assert sorted(row["id"] for row in rows_by_peer(days)) == [1, 2]

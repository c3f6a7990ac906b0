"""Optimizing a table as a task."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from airflow_delta.engine.errors import InvalidArgumentError, TableNotFoundError
from airflow_delta.hooks.failures import ArgumentError
from airflow_delta.operators.optimize import OptimizeOperator
from airflow_delta.templates import optional
from tests.airflow.failures import fails_for_good
from tests.airflow.maintenance import rows_by_peer
from tests.airflow.run_context import context_of

# Stands for the job: writes down its parameters.
SPARK_JOB = """
import json, sys
parameters = json.load(open(sys.argv[-1]))
answer = {{"version": 3, "commits": 1, "first_version": 3, "last_version": 3,
    "files_removed": 6, "bytes_removed": 1, "files_added": 2,
    "bytes_added": 1, "files_copied": 0, "files_lost": 0, "plan": {{"version": 2, "bytes": 1}}}}
json.dump(answer, open(parameters.pop("result_path"), "w"))
json.dump(parameters, open({requested!r}, "w"))
"""


def optimize(table: Path | str, **arguments: Any) -> dict[str, Any]:
    operator = OptimizeOperator(task_id="optimize", table_uri=str(table), **arguments)
    return operator.execute(context_of("optimize"))


def files_by_day(table: Path) -> dict[str, int]:
    adds = DeltaTable(str(table)).get_add_actions(flatten=True)
    found = pa.table(adds)["partition.day"].to_pylist()
    return {day: found.count(day) for day in sorted(set(found))}


def test_arguments_are_rendered() -> None:
    operator = OptimizeOperator(
        task_id="optimize",
        table_uri="{{ params.uri }}",
        where="day >= '{{ params.day }}'",
        min_file_size="{{ params.size }}",
        max_file_size="{{ params.size * 2 }}",
        max_deleted_ratio="{{ params.ratio }}",
        purge="{{ params.purge }}",
        z_order_by='["{{ params.column }}"]',
        full="{{ params.purge }}",
        max_bytes=optional("{{ params.limit }}"),
        min_cube_size="{{ params.size }}",
        dry_run="{{ params.purge }}",
        engine="{{ params.engine }}",
        spark_conn_id="{{ params.engine }}_default",
        spark_conf={"spark.executor.memory": "{{ params.size }}g"},
    )
    params: dict[str, Any] = {"uri": "s3://lake/t", "day": "2026-01-31", "size": 5, "ratio": 0.5}
    params |= {"purge": True, "limit": None, "column": "address.city", "engine": "spark"}
    operator.render_template_fields({"params": params})  # type: ignore[arg-type]
    names = ("where", "min_file_size", "max_file_size", "max_deleted_ratio", "purge", "max_bytes")
    sorting = ("z_order_by", "full", "min_cube_size")
    engine = ("engine", "spark_conn_id", "spark_conf")
    others = (*sorting, *engine, "table_uri", "dry_run")
    found = {name: operator.argument(name) for name in (*names, *others)}
    assert found == {
        "table_uri": "s3://lake/t",
        "where": "day >= '2026-01-31'",
        "min_file_size": 5,
        "max_file_size": 10,
        "max_deleted_ratio": 0.5,
        "purge": True,
        "max_bytes": None,
        "z_order_by": ["address.city"],
        "full": True,
        "min_cube_size": 5,
        "dry_run": True,
        "engine": "spark",
        "spark_conn_id": "spark_default",
        "spark_conf": {"spark.executor.memory": "5g"},
    }


def test_small_files_become_one_of_each_partition(
    days: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(map(str, rows_by_peer(days)))
    dry = optimize(days, dry_run=True)
    assert (dry["dry_run"], dry["commits"], dry["version"]) == (True, 0, 2)
    assert (dry["plan"]["files"], dry["plan"]["new_files"], dry["plan"]["partitions"]) == (6, 2, 2)
    assert files_by_day(days) == {"mon": 3, "tue": 3}
    report = optimize(days)
    assert json.loads(json.dumps(report)) == report, "XCom carries JSON"
    assert (report["first_version"], report["last_version"]) == (3, 3)
    keys = ("table_uri", "version", "commits", "files_removed", "files_added", "files_lost")
    assert {key: report[key] for key in keys} == {
        "table_uri": str(days),
        "version": 3,
        "commits": 1,
        "files_removed": 6,
        "files_added": 2,
        "files_lost": 0,
    }
    assert report["plan"] == dry["plan"], "what was told is done"
    assert files_by_day(days) == {"mon": 1, "tue": 1}
    assert sorted(map(str, rows_by_peer(days))) == before
    assert re.search(r"^files removed +6$", capsys.readouterr().out, re.M)
    (commit,) = DeltaTable(str(days)).history(1)
    assert commit["operation"] == "OPTIMIZE"


def test_a_retry_finds_nothing_to_do(days: Path) -> None:
    assert optimize(days)["version"] == 3
    again = optimize(days)
    assert (again["version"], again["commits"], again["files_removed"]) == (3, 0, 0)
    assert "no two files of less than" in again["plan"]["reason"]


def test_a_condition_chooses_partitions(days: Path) -> None:
    report = optimize(days, where="day = 'tue'")
    assert (report["files_removed"], files_by_day(days)) == (3, {"mon": 3, "tue": 1})
    with fails_for_good(InvalidArgumentError, match="don't partition the table"):
        optimize(days, where="id = 1")


def test_a_limit_postpones_files(days: Path) -> None:
    size = sum(file.stat().st_size for file in days.rglob("*.parquet"))
    report = optimize(days, max_bytes=size // 2 + 1)
    assert (report["files_removed"], report["plan"]["postponed_files"]) == (3, 3)


def test_deleted_rows_are_purged(sales_copy: Path) -> None:
    report = optimize(sales_copy, purge=True)
    assert report["plan"]["deleted_rows"] == 0
    assert report["plan"]["reason"] == "no file has deleted rows"


def test_rows_are_sorted(days: Path) -> None:
    before = sorted(map(str, rows_by_peer(days)))
    report = optimize(days, z_order_by=["id"])
    assert (report["plan"]["z_order_by"], report["files_removed"]) == (["id"], 6)
    assert files_by_day(days) == {"mon": 1, "tue": 1}
    assert sorted(map(str, rows_by_peer(days))) == before
    assert optimize(days, z_order_by=["id"])["commits"] == 0
    assert optimize(days, z_order_by=["id"], full=True)["commits"] == 1
    with fails_for_good(InvalidArgumentError, match="z_order_by: 'a b' is no list of column names"):
        optimize(days, z_order_by=["a b"])


@pytest.mark.parametrize(
    ("arguments", "takes_spark"),
    [
        ({"engine": "spark"}, True),
        ({"spark_conn_id": "spark_default", "spark_threshold_bytes": 1}, True),
        ({"spark_conn_id": "spark_default", "spark_threshold_bytes": 10**6}, False),
        ({"spark_conn_id": "spark_default"}, False),
        ({"spark_threshold_bytes": 1}, False),
        ({"engine": "local", "spark_conn_id": "spark_default", "spark_threshold_bytes": 1}, False),
    ],
)
def test_the_engine_is_chosen_by_the_bytes_to_rewrite(
    days: Path,
    tmp_path: Path,
    fake_spark_submit: Path,
    arguments: dict[str, Any],
    *,
    takes_spark: bool,
) -> None:
    requested = tmp_path / "requested.json"
    fake_spark_submit.write_text(SPARK_JOB.format(requested=str(requested)))
    engine = "spark" if takes_spark else "local"
    assert optimize(days, dry_run=True, **arguments)["engine"] == engine
    assert not requested.exists()
    assert optimize(days, **arguments)["engine"] == engine
    assert requested.exists() == takes_spark


def test_the_job_gets_the_arguments_of_the_task(
    days: Path, tmp_path: Path, fake_spark_submit: Path
) -> None:
    requested = tmp_path / "requested.json"
    fake_spark_submit.write_text(SPARK_JOB.format(requested=str(requested)))
    result = optimize(
        days,
        engine="spark",
        where="day = 'tue'",
        max_deleted_ratio=1,
        z_order_by=["a.b"],
        full=True,
    )
    assert (result["commits"], result["dry_run"], result["engine"]) == (1, False, "spark")
    assert json.loads(requested.read_text()) == {
        "table_uri": str(days),
        "where": "day = 'tue'",
        "max_deleted_ratio": 1.0,
        "purge": False,
        "z_order_by": ["a.b"],
        "full": True,
    }


@pytest.mark.deep
def test_an_optimization_by_spark_from_the_task_to_the_files(days: Path) -> None:
    before = sorted(map(str, rows_by_peer(days)))
    report = optimize(days, engine="spark", z_order_by=["id"])
    assert json.loads(json.dumps(report)) == report, "XCom carries JSON"
    assert report.keys() == optimize(days, z_order_by=["id"]).keys()
    assert (report["engine"], report["files_removed"], report["files_added"]) == ("spark", 6, 2)
    assert files_by_day(days) == {"mon": 1, "tue": 1}
    assert sorted(map(str, rows_by_peer(days))) == before
    assert optimize(days, engine="spark", z_order_by=["id"])["commits"] == 0


def test_wrong_arguments_and_no_table_fail(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="min_file_size: expected a number of bytes"):
        optimize("/t", min_file_size="128 MB")
    with pytest.raises(ArgumentError, match="max_deleted_ratio: expected a number from 0 to 1"):
        optimize("/t", max_deleted_ratio=True)
    with fails_for_good(TableNotFoundError, match="nothing"):
        optimize(tmp_path / "nothing")
    with fails_for_good(InvalidArgumentError, match="min_file_size=9 is more than"):
        optimize(table_of_one_row(tmp_path), min_file_size=9, max_file_size=3)


def table_of_one_row(folder: Path) -> Path:
    write_deltalake(str(folder / "one"), pa.table({"id": [1]}))
    return folder / "one"


def test_airflows_own_dry_run_still_works() -> None:
    OptimizeOperator(task_id="optimize", table_uri="/t", dry_run=True).dry_run()

"""Cleaning up a log as a task."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.errors import RetentionError, TableNotFoundError
from airflow_delta.operators.metadata_cleanup import MetadataCleanupOperator
from tests.airflow.failures import fails_for_good
from tests.airflow.maintenance import rows_by_peer
from tests.airflow.managed_tables import commit, hand_over, in_log, use_owner


def clean_up(table: Path | str, **arguments: Any) -> dict[str, Any]:
    operator = MetadataCleanupOperator(task_id="clean_up", table_uri=str(table), **arguments)
    context: Any = {}
    return operator.execute(context)


def commits(table: Path) -> list[int]:
    return sorted(int(file.stem) for file in (table / "_delta_log").glob("*[0-9].json"))


def test_arguments_are_rendered() -> None:
    operator = MetadataCleanupOperator(
        task_id="clean_up",
        table_uri="{{ params.uri }}",
        older_than_hours="{{ params.hours }}",
        delta_conn_id="{{ params.conn }}",
    )
    params = {"uri": "s3://lake/t", "hours": 72.5, "conn": "lake"}
    operator.render_template_fields({"params": params})  # type: ignore[arg-type]
    found = (operator.table_uri, operator.older_than_hours, operator.delta_conn_id)
    assert found == ("s3://lake/t", "72.5", "lake")


def test_without_a_checkpoint_all_stays_and_the_task_says_which_one_is_wanted(
    sales_copy: Path,
) -> None:
    report = clean_up(sales_copy)
    assert (report["num_deleted"], report["files"], report["checkpoint"]) == (0, 0, None)
    assert report["wanted_checkpoint"] == 3
    assert "no complete checkpoint of version 3" in report["reason"]
    assert commits(sales_copy) == [0, 1, 2, 3]


def test_what_is_old_goes(sales_copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    DeltaTable(sales_copy).checkpoint(2)
    dry = clean_up(sales_copy, dry_run=True)
    assert (dry["num_deleted"], dry["dry_run"], commits(sales_copy)) == (0, True, [0, 1, 2, 3])
    report = clean_up(sales_copy)
    assert commits(sales_copy) == [2, 3]
    assert report["duration_ms"] >= 0
    assert json.loads(json.dumps(report)) == report, "XCom carries JSON"
    keys = ("table_uri", "version", "checkpoint", "earliest_version", "num_deleted", "dry_run")
    assert {key: report[key] for key in keys} == {
        "table_uri": str(sales_copy),
        "version": 3,
        "checkpoint": 2,
        "earliest_version": 2,
        "num_deleted": 2,
        "dry_run": False,
    }
    changing = ("num_deleted", "dry_run", "duration_ms")
    assert {**dry, **{key: report[key] for key in changing}} == report, "what was told is done"
    assert "kind commits, files 2" in capsys.readouterr().out
    assert sorted(row["id"] for row in rows_by_peer(sales_copy)) == list(range(5, 30))
    again = clean_up(sales_copy)
    assert (again["num_deleted"], again["earliest_version"]) == (0, 2)


@pytest.mark.parametrize("hours", [1, "1.5", "720"])
def test_a_shorter_time_than_the_table_keeps_must_be_meant(sales_copy: Path, hours: Any) -> None:
    DeltaTable(sales_copy).alter.set_properties({"delta.logRetentionDuration": "interval 31 days"})
    DeltaTable(sales_copy).checkpoint(2)
    with fails_for_good(RetentionError, match="force=True"):
        clean_up(sales_copy, older_than_hours=hours)
    assert clean_up(sales_copy, older_than_hours=hours, force=True)["num_deleted"] == 2


def test_no_hours_are_those_of_the_table(sales_copy: Path) -> None:
    assert clean_up(sales_copy, older_than_hours=None)["cutoff_version"] == 3


def test_what_is_no_time_fails(sales_copy: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="older_than_hours: expected a number of hours"):
        clean_up(sales_copy, older_than_hours="a week")
    with fails_for_good(TableNotFoundError, match="nothing"):
        clean_up(tmp_path / "nothing")


def test_the_checkpoint_that_is_wanted_can_be_written_before(sales_copy: Path) -> None:
    dry = clean_up(sales_copy, write_checkpoint=True, dry_run=True)
    assert (dry["checkpoint"], dry["wanted_checkpoint"]) == (None, 3)
    report = clean_up(sales_copy, write_checkpoint=True)
    assert (report["checkpoint"], report["num_deleted"]) == (3, 3)
    assert (report["wanted_checkpoint"], commits(sales_copy)) == (None, [3])
    assert len(rows_by_peer(sales_copy)) == 25


def test_a_managed_table_may_be_backfilled_before(
    sales_copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_owner(monkeypatch, tmp_path / "owner.db")
    commit(sales_copy, hand_over(sales_copy, tmp_path / "owner.db"), 2)
    assert clean_up(sales_copy)["version"] == in_log(sales_copy) == 4
    assert clean_up(sales_copy, backfill_first=True, dry_run=True)["version"] == 4
    assert clean_up(sales_copy, backfill_first=True)["version"] == in_log(sales_copy) == 6


def test_airflows_own_dry_run_still_works() -> None:
    MetadataCleanupOperator(task_id="clean_up", table_uri="/t", dry_run=True).dry_run()

"""Restoring a table as a task: once for each run, and with a checkpoint."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.errors import ObjectNotFoundError, StorageError
from airflow_delta.hooks.delta import DeltaHook
from airflow_delta.operators.restore import RestoreOperator
from airflow_delta.templates import optional
from tests.airflow.failures import fails_for_good
from tests.airflow.maintenance import checkpoint_only, rows_by_peer
from tests.airflow.managed_tables import commit, hand_over, in_log, use_owner
from tests.airflow.run_context import context_of


def restore(table: Path | str, *, run: int = 1, **arguments: Any) -> dict[str, Any]:
    operator = RestoreOperator(task_id="restore", table_uri=str(table), **arguments)
    return operator.execute(context_of("restore", run=run))


def ids(table: Path) -> list[int]:
    return sorted(row["id"] for row in rows_by_peer(table))


def test_arguments_are_rendered() -> None:
    operator = RestoreOperator(
        task_id="restore",
        table_uri="{{ params.uri }}",
        version=optional("{{ params.version }}"),
        timestamp=optional("{{ params.timestamp }}"),
    )
    params: Any = {"uri": "s3://lake/t", "version": 4, "timestamp": None}
    operator.render_template_fields({"params": params})  # type: ignore[arg-type]
    assert (operator.table_uri, operator.version, operator.timestamp) == ("s3://lake/t", "4", None)


@pytest.mark.parametrize(
    "asked",
    [
        {"version": 1},
        {"version": "1", "timestamp": None},
        {"version": None, "timestamp": "1750000060500"},
        {"timestamp": "2025-06-15T15:07:45Z"},
    ],
    ids=str,
)
def test_an_earlier_version_comes_back(
    sales_copy: Path, asked: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    report = restore(sales_copy, **asked)
    assert ids(sales_copy) == list(range(20))
    assert json.loads(json.dumps(report)) == report, "XCom carries JSON"
    keys = ("version", "restored_version", "committed", "repeated", "files", "files_removed")
    assert [report[key] for key in keys] == [4, 1, True, False, 2, 2]
    assert report["table_uri"] == str(sales_copy)
    assert report["checkpoint"]["version"] == 4
    assert report["checkpoint"]["written"] is True
    assert "restored version  1" in capsys.readouterr().out
    checkpoint_only(sales_copy, 4)
    assert ids(sales_copy) == list(range(20))


def test_a_dry_run_only_tells(sales_copy: Path) -> None:
    report = restore(sales_copy, version=1, dry_run=True)
    assert (report["version"], report["committed"], report["checkpoint"]) == (3, False, None)
    assert (report["restored_version"], report["files_removed"]) == (1, 2)
    assert DeltaTable(sales_copy).latest_version() == 3


def test_a_retry_finds_what_the_first_try_has_done(sales_copy: Path) -> None:
    first = restore(sales_copy, version=1)
    DeltaTable(sales_copy).alter.set_properties({"since": "then"})
    again = restore(sales_copy, version=1)
    assert (again["version"], again["repeated"], again["restored_version"]) == (4, True, 1)
    changing = ("repeated", "duration_ms", "checkpoint", "files_missing")
    # A retry looks for the files that have come back alone.
    assert (first["files_missing"], again["files_missing"]) == ([], None)
    assert {key: first[key] for key in first if key not in changing} == {
        key: again[key] for key in again if key not in changing
    }
    assert again["checkpoint"]["written"] is False
    table = DeltaTable(sales_copy)
    assert (table.latest_version(), table.snapshot().properties.raw.get("since")) == (5, "then")
    later = restore(sales_copy, version=1, run=2)
    assert (later["version"], later["repeated"]) == (6, False)


def test_a_retry_writes_the_checkpoint_that_the_first_try_could_not(
    sales_copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise StorageError("the store is away")

    with monkeypatch.context() as patched:
        patched.setattr(DeltaHook, "_checkpoint", fail)
        with pytest.raises(StorageError, match="away"):
            restore(sales_copy, version=1)
    again = restore(sales_copy, version=1)
    assert (again["version"], again["repeated"], again["checkpoint"]["written"]) == (4, True, True)
    assert DeltaTable(sales_copy).latest_version() == 4


def test_the_checkpoint_may_be_left_to_another_task(sales_copy: Path) -> None:
    assert restore(sales_copy, version=1, write_checkpoint=False)["checkpoint"] is None
    assert not list((sales_copy / "_delta_log").glob("*.checkpoint*"))


def test_a_task_that_is_cleared_after_a_cleanup_needs_no_checkpoint(sales_copy: Path) -> None:
    restore(sales_copy, version=1, write_checkpoint=False)
    DeltaTable(sales_copy).alter.set_properties({"since": "then"})
    DeltaTable(sales_copy).checkpoint(5)
    for version in range(5):
        (sales_copy / "_delta_log" / f"{version:020}.json").unlink()
    again = restore(sales_copy, version=1)
    assert (again["repeated"], again["checkpoint"]["written"]) == (True, False)
    assert "version" in again["checkpoint"]["reason"]


@pytest.mark.parametrize("backfill_first", [False, True])
def test_the_checkpoint_of_a_managed_table_needs_its_backfill(
    sales_copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backfill_first: bool
) -> None:
    use_owner(monkeypatch, tmp_path / "owner.db")
    commit(sales_copy, hand_over(sales_copy, tmp_path / "owner.db"))
    report = restore(sales_copy, version=1, backfill_first=backfill_first)
    assert (report["version"], report["committed"]) == (6, True)
    assert report["checkpoint"]["written"] is backfill_first
    assert in_log(sales_copy) == (6 if backfill_first else 4)
    if not backfill_first:
        assert "backfilled" in report["checkpoint"]["reason"]


def test_what_cannot_be_restored_fails(sales_copy: Path) -> None:
    with pytest.raises(ValueError, match="give a version or a timestamp to restore"):
        restore(sales_copy)
    with pytest.raises(ValueError, match="version: expected a version"):
        restore(sales_copy, version="first")
    newest = set(DeltaTable(sales_copy).snapshot().files(columns=["path"])["path"].to_pylist())
    for file in sales_copy.glob("*.parquet"):
        if file.name not in newest:
            file.unlink()
    with fails_for_good(ObjectNotFoundError, match="version 2 can't be restored"):
        restore(sales_copy, version=2)
    with fails_for_good(ObjectNotFoundError):
        restore(sales_copy, version=2, dry_run=True)
    assert restore(sales_copy, version=2, ignore_missing_files=True)["version"] == 4


def test_airflows_own_dry_run_still_works() -> None:
    RestoreOperator(task_id="restore", table_uri="/t", version=1, dry_run=True).dry_run()

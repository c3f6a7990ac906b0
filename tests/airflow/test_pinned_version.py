"""Pinning an earlier version: its files are looked for, and what may still happen to them is told."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from airflow_delta.engine import DeltaTable
from airflow_delta.operators.time_travel_snapshot import TimeTravelSnapshotOperator
from airflow_delta.version_compat import AirflowFailException
from tests.airflow.run_context import context_of
from tests.airflow.task_state import TaskState
from tests.log_builder import add, remove, write_table


def pin(table: Path, *, state: TaskState | None = None, **arguments: Any) -> dict[str, Any]:
    context = context_of("pin")
    if state is not None:
        context["task_state_store"] = state
    operator = TimeTravelSnapshotOperator(task_id="pin", table_uri=str(table), **arguments)
    return operator.execute(context)


@pytest.fixture
def vacuumed(sales_copy: Path) -> Path:
    """Version 3 deletes rows of a file, which is gone."""
    DeltaTable(str(sales_copy)).vacuum(retention_hours=0, enforce_retention=False)
    return sales_copy


def test_a_version_that_vacuum_broke_fails_the_task_for_good(vacuumed: Path) -> None:
    with pytest.raises(AirflowFailException, match="version 2 can't be read any more") as failed:
        pin(vacuumed, version="2")
    (path,) = failed.value.__cause__.paths  # type: ignore[union-attr]
    assert path in str(failed.value)
    assert str(vacuumed) in str(failed.value)
    assert pin(vacuumed, version=2, check_files=False)["version"] == 2
    assert pin(vacuumed)["version"] == pin(vacuumed, version=3)["version"] == 3


def test_a_time_whose_version_vacuum_broke_is_refused_as_well(vacuumed: Path) -> None:
    commit = vacuumed / "_delta_log" / f"{2:020}.json"
    with pytest.raises(AirflowFailException, match="version 2 can't be read any more"):
        pin(vacuumed, timestamp=commit.stat().st_mtime_ns // 1_000_000)


def test_a_retry_finds_out_what_has_happened_since_the_first_try(
    sales_copy: Path,
) -> None:
    state = TaskState()
    newest = sales_copy / "_delta_log" / f"{3:020}.json"
    hidden = newest.rename(sales_copy / "version-3")
    assert pin(sales_copy, state=state)["version"] == 2
    hidden.rename(newest)
    DeltaTable(str(sales_copy)).vacuum(retention_hours=0, enforce_retention=False)
    with pytest.raises(AirflowFailException, match="version 2 can't be read any more"):
        pin(sales_copy, state=state)


@pytest.mark.parametrize(("days", "warned"), [(6, False), (8, True)])
def test_a_version_that_may_break_at_any_time_is_warned_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], days: int, *, warned: bool
) -> None:
    removed = int((time.time() - days * 24 * 60 * 60) * 1000)
    write_table(tmp_path, [add("a"), add("b")], [remove("a", deletionTimestamp=removed)])
    (tmp_path / "a").touch()
    assert pin(tmp_path, version=0)["num_files"] == 2
    told = f"version 0 of {tmp_path} may become unreadable at any time: 1 of its files"
    assert (told in capsys.readouterr().out) == warned


def test_a_version_with_files_outside_is_not_pinned_unless_that_is_allowed(tmp_path: Path) -> None:
    """The files of an earlier version are looked for, and a log may name any place."""
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "x.parquet").write_bytes(b"1")
    outside = f"file://{tmp_path}/other/x.parquet"
    table = write_table(tmp_path / "t", [add(outside)], [remove(outside)])
    with pytest.raises(AirflowFailException, match="lies outside of the table"):
        pin(table, version=0)
    assert pin(table, version=0, allowed_outside=f"{tmp_path}/other/")["version"] == 0

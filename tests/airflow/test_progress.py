"""A long task logs how far its work is, and a short one doesn't."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from airflow_delta.engine import progress as engine_progress
from airflow_delta.engine.maintenance.vacuum import execution
from airflow_delta.hooks import progress
from airflow_delta.hooks.delta import DeltaHook
from airflow_delta.hooks.progress import log_progress
from airflow_delta.operators.optimize import OptimizeOperator
from airflow_delta.operators.vacuum import VacuumOperator
from tests.airflow.run_context import context_of


class Clock:
    """A clock that goes on by so many seconds whenever it is read."""

    def __init__(self, step_s: float) -> None:
        self.now_s, self.step_s = 0.0, step_s

    def __call__(self) -> float:
        self.now_s += self.step_s
        return self.now_s


@pytest.fixture
def littered(sales_copy: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A table with seven files that no commit names, which are deleted one by one."""
    for n in range(7):
        (sales_copy / f"orphan-{n}.parquet").write_bytes(b"12345")
    for file in sales_copy.glob("*.parquet"):
        os.utime(file, (0, 0))
    monkeypatch.setattr(execution, "_BATCH", 1)
    monkeypatch.setattr(engine_progress, "_INTERVAL_S", 0)
    return sales_copy


@pytest.fixture
def get_lines(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> Callable[[], list[str]]:
    """Return what was logged about the progress, as level and text.

    Airflow's loggers print, or are those of Python, by its version.
    """

    def get() -> list[str]:
        printed = capsys.readouterr().out
        logged = "".join(f"[{each.levelname}] {each.getMessage()}\n" for each in caplog.records)
        found = re.findall(
            r"\[(\w+) *\] ((?:deleted|listed|rewrote) .*?)(?:  |$)", printed + logged, re.M
        )
        return [f"{level.lower()} {text}" for level, text in found]

    caplog.set_level(logging.INFO)
    return get


def vacuum(table: Path) -> dict[str, Any]:
    operator = VacuumOperator(task_id="vacuum", table_uri=str(table))
    return operator.execute(context_of("vacuum"))


def test_a_long_task_logs_a_line_every_half_minute(
    littered: Path, get_lines: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "monotonic", Clock(15))
    assert vacuum(littered)["num_deleted"] == 7
    # Every second report, as 30 seconds have passed then.
    lines = [line for line in get_lines() if "deleted" in line]
    assert lines in (
        [f"info deleted {n} of 7 files" for n in range(1, 8, 2)],
        [f"info deleted {n} of 7 files" for n in range(2, 8, 2)],
    )


def test_a_short_task_logs_none(
    littered: Path, get_lines: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "monotonic", Clock(0.01))
    assert vacuum(littered)["num_deleted"] == 7
    assert get_lines() == []


def test_an_optimization_logs_bytes(
    sales_copy: Path, get_lines: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "monotonic", Clock(31))
    operator = OptimizeOperator(task_id="optimize", table_uri=str(sales_copy))
    operator.execute(context_of("optimize"))
    assert [line for line in get_lines() if line.startswith("info rewrote ")]


def test_a_hook_logs_for_tasks_of_the_users_own(
    littered: Path, get_lines: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "monotonic", Clock(31))
    DeltaHook().vacuum(str(littered))
    assert "info deleted 7 of 7 files" in get_lines()
    with log_progress(logging.getLogger("mine")):
        DeltaHook().table(str(littered)).check()
    assert any(line.startswith("info listed ") for line in get_lines())


@pytest.mark.parametrize(
    "method",
    [
        *("backfill", "backfill_missing", "checkpoint", "clean_up", "compact_log", "convert"),
        *("convert_to_file_system", "convert_to_managed", "drop_feature", "enable_row_tracking"),
        *("optimize", "pin", "restore", "vacuum"),
    ],
)
def test_methods_of_the_hook_that_may_take_long_log_their_progress(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(logger: logging.Logger) -> None:
        raise LookupError(logger.name)

    monkeypatch.setattr(progress, "log_progress", refuse)
    with pytest.raises(LookupError, match="DeltaHook"):
        getattr(DeltaHook(), method)("/nowhere")

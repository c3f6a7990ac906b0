"""Commits of another process start runs in a whole Airflow, and a killed triggerer loses none."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

import airflow_delta
from tests.airflow.lineage.captured_events import CapturedEvents
from tests.airflow.live_stack import LiveStack, append_by_deltalake, live_stack
from tests.postgres_server import new_database

pytestmark = pytest.mark.deep

EXAMPLE = Path(airflow_delta.__file__).parent / "example_dags" / "delta_events.py"


def covered(ranges: Iterable[dict[str, Any]]) -> set[int]:
    """The versions of all ranges."""
    return {
        version
        for found in ranges
        for version in range(found["after_version"] + 1, found["version"] + 1)
    }


def begun(stack: LiveStack) -> bool:
    """Whether the watcher has stored where it begins."""
    return bool(stack.rows("SELECT 1 FROM asset_state_store"))


@pytest.mark.parametrize(("kind", "kills"), [("sqlite", 1), ("postgresql", 5)])
def test_the_versions_that_others_commit_start_runs_that_read_them(
    tmp_path: Path, kind: str, kills: int
) -> None:
    table = tmp_path / "sales"
    append_by_deltalake(table, 1)
    transport = {"type": "file", "log_file_path": str(tmp_path / "lineage"), "append": True}
    settings = {
        "DELTA_EVENTS_TABLE": str(table),
        "DELTA_EVENTS_POLL_INTERVAL": "2",
        "AIRFLOW__OPENLINEAGE__TRANSPORT": json.dumps(transport),
    }
    database = new_database() if kind == "postgresql" else None
    with live_stack(tmp_path / "airflow", EXAMPLE, database=database, **settings) as stack:
        stack.wait("the watch", lambda: begun(stack))
        append_by_deltalake(table, 1)
        stack.wait("the first run", lambda: bool(stack.results("report")))
        assert stack.results("report") == [{"after_version": 0, "version": 1}]
        (event,) = stack.events
        assert event["table_uri"] == f"file://{table}"
        assert (event["operation"], event["table_change"]) == ("WRITE", None)
        check_lineage(stack, CapturedEvents(tmp_path / "lineage"), table)

        newest = 1
        for _ in range(kills):
            append_by_deltalake(table, 20)
            stack.kill("triggerer")
            append_by_deltalake(table, 20)
            stack.start("triggerer")
            newest += 40
            # Killed again as soon as it has reported something, before it stores its mark.
            stack.wait("an event", lambda least=newest - 20: stack.events[-1]["version"] >= least)
        every = set(range(1, newest + 1))
        stack.wait("the events", lambda: covered(stack.events) >= every)
        # Airflow may hold the events of a burst back until the next one.
        for version in range(newest + 1, newest + 3):
            append_by_deltalake(table, 1)
            stack.wait("the next event", lambda v=version: v in covered(stack.events))  # type: ignore[misc]
        stack.wait("the runs", lambda: covered(stack.results("report")) >= every)
        # A killed triggerer may have reported versions and not stored that it has: they are reported again.
        reported = 0
        for event in stack.events:
            assert event["after_version"] <= reported
            reported = max(reported, event["version"])
        states = {state for (state,) in stack.rows("SELECT state FROM dag_run")}
        assert states <= {"success", "running", "queued"}


def check_lineage(stack: LiveStack, lineage: CapturedEvents, table: Path) -> None:
    """Check what the task that pins has reported. Its last event comes from a process after its end."""
    stack.wait("the lineage", lambda: bool(lineage.inputs("pin", "COMPLETE")))
    # On a busy machine Airflow may need another try.
    pinned = lineage.inputs("pin", "COMPLETE")[0]
    assert pinned["name"] == str(table)
    assert pinned["facets"]["version"] == {"datasetVersion": "1"}
    assert pinned["facets"]["schema"] == {"fields": [{"name": "id", "type": "long"}]}

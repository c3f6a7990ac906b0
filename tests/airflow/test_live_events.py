"""Commits of another process start runs in a whole Airflow.

Neither a killed triggerer nor a watcher or an asset that is removed for a while loses one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

import airflow_delta
from tests.airflow.lineage.captured_events import CapturedEvents, event_server
from tests.airflow.live_stack import LiveStack, append_by_deltalake, live_stack
from tests.postgres_server import new_database

pytestmark = pytest.mark.deep

KILLS = 5
"""How often the triggerer is killed, between bursts of forty commits."""

EXAMPLE = Path(airflow_delta.__file__).parent / "example_dags" / "delta_events.py"


def covered(ranges: Iterable[dict[str, Any]]) -> set[int]:
    """The versions of all ranges; a run without a range has read only its version."""
    return {
        version
        for found in ranges
        if found["after_version"] is not None
        for version in range(found["after_version"] + 1, found["version"] + 1)
    }


def repeats(ranges: Iterable[dict[str, Any]]) -> int:
    """Check that the ranges leave out no version, and count those with versions of earlier ones."""
    repeated, newest = 0, 0
    for found in ranges:
        if found["after_version"] is None:
            continue
        assert found["after_version"] <= newest
        repeated += found["after_version"] < newest
        newest = max(newest, found["version"])
    return repeated


def begun(stack: LiveStack) -> bool:
    """Whether the watcher has stored where it begins."""
    return bool(stack.rows("SELECT 1 FROM asset_state_store"))


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_the_versions_that_others_commit_start_runs_that_read_them(
    tmp_path: Path, kind: str
) -> None:
    table = tmp_path / "sales"
    append_by_deltalake(table, 1)
    settings = {
        "DELTA_EVENTS_TABLE": str(table),
        "DELTA_EVENTS_POLL_INTERVAL": "2",
        # So often the scheduler deletes the states of assets that no DAG uses.
        "AIRFLOW__SCHEDULER__PARSING_CLEANUP_INTERVAL": "5",
    }
    database = new_database() if kind == "postgresql" else None
    with (
        event_server() as lineage,
        live_stack(
            tmp_path / "airflow",
            EXAMPLE,
            database=database,
            AIRFLOW__OPENLINEAGE__TRANSPORT=json.dumps(lineage.transport),
            **settings,
        ) as stack,
    ):
        stack.wait("the watch", lambda: begun(stack))
        append_by_deltalake(table, 1)
        stack.wait("the first run", lambda: bool(stack.results("report")))
        assert stack.results("report") == [{"after_version": 0, "version": 1}]
        (event,) = stack.events
        assert event["table_uri"] == f"file://{table}"
        assert (event["operation"], event["table_change"]) == ("WRITE", None)
        check_lineage(stack, lineage, table)
        # The table has a newer version than the event.
        check_event_of_a_user(stack, version=0)

        newest = 1
        for _ in range(KILLS):
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
        assert repeats(stack.events) <= KILLS
        # Several runs may be active, so that a later one may end first.
        results = [found for found in stack.results("report") if found["after_version"] is not None]
        assert repeats(sorted(results, key=lambda found: found["version"])) <= KILLS
        newest += 2
        if kind == "sqlite":
            newest = check_watcher_that_is_removed_for_a_while(stack, table, newest)
            newest = check_asset_that_is_removed_for_a_while(stack, table, newest)
            check_event_of_a_user(stack, version=newest)
        states = {state for (state,) in stack.rows("SELECT state FROM dag_run")}
        assert states <= {"success", "running", "queued"}
        # Otherwise the scheduler would run the tasks, too.
        stack.kill("scheduler")
        stack.run("dags", "test", "delta_events", AIRFLOW__OPENLINEAGE__DISABLED="True")
        (tested,) = stack.results("report", runs="manual%")
        assert tested == {"after_version": None, "version": newest}


def check_lineage(stack: LiveStack, lineage: CapturedEvents, table: Path) -> None:
    """Check what the task that pins has reported. Its last event comes from a process after its end."""
    stack.wait("the lineage", lambda: bool(lineage.inputs("pin", "COMPLETE")))
    # On a busy machine Airflow may need another try.
    pinned = lineage.inputs("pin", "COMPLETE")[0]
    assert pinned["name"] == str(table)
    assert pinned["facets"]["version"] == {"datasetVersion": "1"}
    assert pinned["facets"]["schema"] == {"fields": [{"name": "id", "type": "long"}]}


def check_event_of_a_user(stack: LiveStack, *, version: int) -> None:
    """Create an asset event as the user interface does, and check that a run pins its version.

    No event of the watcher may wait for its run, because one run might take both.
    """

    def pinned() -> list[int]:
        # Only events of users don't say after which version the new ones begin.
        return [run["version"] for run in stack.results("report") if run["after_version"] is None]

    ((asset_id,),) = stack.rows("SELECT id FROM asset WHERE name = 'delta_events_sales'")
    before = pinned()
    event = {"asset_id": asset_id, "extra": {"version": version}}
    stack.call("POST", "/api/v2/assets/events", event)
    stack.wait("the run", lambda: len(pinned()) > len(before))
    assert sorted(pinned()) == sorted([*before, version])


def check_watcher_that_is_removed_for_a_while(stack: LiveStack, table: Path, newest: int) -> int:
    """Remove the watcher from the DAG file and add it again: what was committed in between is reported."""
    source = stack.dag.read_text()
    stack.dag.write_text(without_watcher(source))
    stack.wait("the end of the watcher", lambda: not stack.rows('SELECT 1 FROM "trigger"'))
    return check_commits_before_the_return(stack, source, table, newest)


def check_asset_that_is_removed_for_a_while(stack: LiveStack, table: Path, newest: int) -> int:
    """The same with the asset, in whose place the DAG uses another one meanwhile."""
    source = stack.dag.read_text()
    assert '"delta_events_sales"' in source
    stack.dag.write_text(without_watcher(source).replace("_sales", "_other"))
    stack.wait("the end of the asset's state", lambda: not begun(stack))
    stack.wait("the end of the watcher", lambda: not stack.rows('SELECT 1 FROM "trigger"'))
    return check_commits_before_the_return(stack, source, table, newest)


def without_watcher(source: str) -> str:
    """The source of the DAG file, with an asset that nobody watches."""
    assert "watchers=[" in source
    return source.replace("watchers=[", "watchers=[] and [")


def check_commits_before_the_return(stack: LiveStack, source: str, table: Path, newest: int) -> int:
    """Commit, and put the DAG file back: the versions are reported. A new watcher would report none."""
    number, between = len(stack.events), {newest + 1, newest + 2, newest + 3}
    append_by_deltalake(table, len(between))
    stack.dag.write_text(source)
    stack.wait("the events", lambda: covered(stack.events[number:]) >= between)
    stack.wait("the runs", lambda: covered(stack.results("report")) >= between)
    return max(between)

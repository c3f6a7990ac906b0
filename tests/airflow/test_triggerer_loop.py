"""Triggers don't hold the event loop of the triggerer, which all triggers of an Airflow share."""

from __future__ import annotations

import compileall
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import airflow_delta
from airflow_delta.engine import DeltaTable
from airflow_delta.engine.storage.location import open_storage
from tests.airflow.loop_load import Report
from tests.airflow.watched_tables import WatchedTable
from tests.log_builder import add
from tests.object_stores import new_place

pytestmark = pytest.mark.deep

TRIGGERS = "airflow_delta.triggers"
WATCHER = f"{TRIGGERS}.new_versions.DeltaTableVersionTrigger"
NEWEST = 20
STARTS, MORE_STARTS = 3, 6


def written_table(root: Path) -> Path:
    """A table with a checkpoint and many files in the commits after it."""
    table = WatchedTable(root)
    table.commit("CREATE TABLE")
    for version in range(1, NEWEST + 1):
        table.commit("WRITE", *(add(f"file {version} {number}") for number in range(500)))
    assert DeltaTable(str(root)).checkpoint(NEWEST // 2).written
    return root


def place(kind: str, root: Path) -> tuple[str, dict[str, str]]:
    """The location of the table in a kind of store, and the options of the store."""
    if kind == "local":
        return str(root), {}
    uri, options = new_place(kind, root)
    storage = open_storage(f"{uri}/sales", options)
    for file in sorted((root / "_delta_log").iterdir()):
        storage.replace(f"_delta_log/{file.name}", file.read_bytes())
    return f"{uri}/sales", options


def load_of(given: dict[str, Any], connections: dict[str, Any]) -> Report:
    """Run triggers in a process of their own."""
    package = Path(airflow_delta.__file__).parent
    # A process that had to compile the modules would need longer than an installed one.
    assert compileall.compile_dir(package, quiet=1)
    variables = {f"AIRFLOW_CONN_{name}": json.dumps(value) for name, value in connections.items()}
    done = subprocess.run(
        [sys.executable, "-m", "tests.airflow.loop_load"],
        input=json.dumps(given),
        cwd=Path(__file__).parents[2],
        env={**os.environ, "_AIRFLOW_PROCESS_CONTEXT": "client", **variables},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return Report(**json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.parametrize("kind", ["local", "s3"])
def test_no_trigger_holds_the_loop(tmp_path: Path, kind: str) -> None:
    uri, options = place(kind, written_table(tmp_path / "sales"))
    connections = {
        "LAKE": {"conn_type": "delta", "extra": options},
        "OWNER": {"conn_type": "delta_commit_owner", "extra": {"path": f"{tmp_path}/owner.db"}},
    }
    table = {"table_uri": uri, "delta_conn_id": "lake"}
    watcher = {**table, "poll_interval": 1}
    filters = {"operations": ["WRITE"], "data_change_only": True, "min_new_versions": 3}
    given = {
        "succeeding": [
            (WATCHER, watcher),
            (WATCHER, {**watcher, **filters, "commit_owner_conn_id": "owner"}),
            (f"{TRIGGERS}.table_version.TableVersionTrigger", {**table, "min_version": NEWEST}),
            (f"{TRIGGERS}.backfill.BackfillTrigger", {**table, "trigger_backfill": True}),
            (
                f"{TRIGGERS}.truncation.TruncationTrigger",
                {**table, "feature": "deletionVectors"},
            ),
        ],
        "failing": [
            (WATCHER, {**watcher, "delta_conn_id": "missing"}),
            (WATCHER, {**watcher, "table_uri": "nothing://lake/sales"}),
        ],
    }
    reports = [load_of(given, connections) for _ in range(STARTS)]
    if any(report.slow for report in reports) or always_waiting(reports):
        # On a busy machine processor time varies, too. So one may be slow by chance, but hardly again. A
        # callback may wait by chance for a thread that has lost its processor and holds Python's lock.
        reports += [load_of(given, connections) for _ in range(MORE_STARTS)]
    expected = [(0, NEWEST), (0, NEWEST), (None, NEWEST), (None, NEWEST), (None, None)]
    for report in reports:
        ranges = [(event.get("after_version"), event.get("version")) for event in report.events]
        assert ranges == expected * 2, report.events
        # The last one has read the table, and found that nobody drops the feature.
        assert "deletionVectors" in report.events[-1]["message"]
        assert report.store_calls == []
        assert report.late_imports == []
    starts = Counter(kind for report in reports for kind in {kind for kind, _ in report.slow})
    again = [kind for kind, number in starts.items() if number > 1]
    assert again == [], [(report.slow, report.debug_log) for report in reports]
    waits = [(report.waiting, report.debug_log) for report in reports]
    assert always_waiting(reports) == set(), waits


def always_waiting(reports: list[Report]) -> set[str]:
    """The kinds of callbacks that waited too long in each start."""
    return set.intersection(*({kind for kind, _ in report.waiting} for report in reports))


def test_a_trigger_that_waits_in_the_loop_is_noticed() -> None:
    trigger = "tests.airflow.blocking_trigger.BlockingTrigger"
    reports = [load_of({"succeeding": [(trigger, {})], "failing": []}, {}) for _ in range(2)]
    assert always_waiting(reports)
    for report in reports:
        # In a cold start and in a second one; asyncio says so, too.
        assert len(report.waiting) >= 2
        assert len(report.debug_log) >= 2

"""The events of OpenLineage that tasks emit in a DAG run, caught in a file."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

__all__ = ["CapturedEvents", "capture_events", "plain"]


class CapturedEvents:
    """What the file transport has written."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def of(self, task_id: str) -> list[dict[str, Any]]:
        """The events of a task, in their order, with the datasets and without what every event has."""
        lines = self._file.read_text().splitlines() if self._file.exists() else []
        events = [json.loads(line) for line in lines]
        return [
            {
                "type": event["eventType"],
                "inputs": [plain(dataset) for dataset in event.get("inputs", [])],
                "outputs": [plain(dataset) for dataset in event.get("outputs", [])],
            }
            for event in events
            if event["job"]["name"].rpartition(".")[2] == task_id
        ]

    def inputs(self, task_id: str, kind: str) -> list[dict[str, Any]]:
        """The inputs in all events of one type of a task."""
        return [
            read for event in self.of(task_id) if event["type"] == kind for read in event["inputs"]
        ]

    @property
    def text(self) -> str:
        """All of it."""
        return self._file.read_text()


def plain(value: Any) -> Any:
    """A part of an event, without empty entries and those that name the producer and the schema."""
    if isinstance(value, dict):
        return {
            name: plain(item)
            for name, item in value.items()
            if name not in ("_producer", "_schemaURL") and item not in (None, [], {})
        }
    return [plain(item) for item in value] if isinstance(value, list) else value


@contextmanager
def capture_events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[CapturedEvents]:
    """Have the listener of Airflow's provider write the events of tasks to a file.

    The plugin of the provider registers one only if a transport is configured when it is imported, and then
    for the whole process. So it is imported before. Only tasks have events here, and no DAG runs.
    """
    importlib.import_module("airflow.providers.openlineage.plugins.openlineage")
    from airflow.providers.openlineage.plugins.listener import OpenLineageListener
    from airflow.sdk import lineage, plugins_manager
    from airflow.sdk.lineage import HookLineageReader
    from airflow.sdk.listener import get_listener_manager

    file = tmp_path / "events.json"
    transport = {"type": "file", "log_file_path": str(file), "append": True}
    monkeypatch.setenv("AIRFLOW__OPENLINEAGE__TRANSPORT", json.dumps(transport))
    monkeypatch.setenv("AIRFLOW__OPENLINEAGE__NAMESPACE", "lake")
    # A process forked from this one, which has the threads of an API server, would wait for their locks.
    monkeypatch.setenv("AIRFLOW__OPENLINEAGE__EXECUTE_IN_THREAD", "True")
    monkeypatch.setenv("AIRFLOW__OPENLINEAGE__EXECUTION_TIMEOUT", "120")
    monkeypatch.setattr(
        plugins_manager, "get_hook_lineage_readers_plugins", lambda: [HookLineageReader]
    )
    lineage.get_hook_lineage_collector.cache_clear()
    listener, manager = OpenLineageListener(), get_listener_manager()
    manager.add_listener(listener)
    try:
        yield CapturedEvents(file)
    finally:
        manager.pm.unregister(listener)
        lineage.get_hook_lineage_collector.cache_clear()

"""The events of OpenLineage that tasks emit in a DAG run, caught in a file or by a server."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.serving import serving

__all__ = ["CapturedEvents", "EventFile", "EventServer", "capture_events", "event_server", "plain"]


class CapturedEvents:
    """What a transport has got."""

    transport: dict[str, Any]
    """The setting of the transport, for Airflow's provider."""

    @property
    def text(self) -> str:
        """All of it: lines of JSON."""
        raise NotImplementedError

    def all_of(self, task_id: str) -> list[dict[str, Any]]:
        """The events of a task, in their order, as they were sent."""
        events = [json.loads(line) for line in self.text.splitlines()]
        return [event for event in events if event["job"]["name"].rpartition(".")[2] == task_id]

    def of(self, task_id: str) -> list[dict[str, Any]]:
        """The events of a task, in their order, with the datasets and without what every event has."""
        return [
            {
                "type": event["eventType"],
                "inputs": [plain(dataset) for dataset in event.get("inputs", [])],
                "outputs": [plain(dataset) for dataset in event.get("outputs", [])],
            }
            for event in self.all_of(task_id)
        ]

    def inputs(self, task_id: str, kind: str) -> list[dict[str, Any]]:
        """The inputs in all events of one type of a task."""
        return [
            read for event in self.of(task_id) if event["type"] == kind for read in event["inputs"]
        ]


class EventFile(CapturedEvents):
    """What the file transport has written."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.transport = {"type": "file", "log_file_path": str(file), "append": True}

    @property
    def text(self) -> str:
        """All of it: lines of JSON."""
        return self._file.read_text() if self._file.exists() else ""


class EventServer(CapturedEvents):
    """What the HTTP transport has sent to a server.

    Attributes:
        keys: the credentials of the requests.
    """

    def __init__(self, url: str) -> None:
        self.transport = {
            "type": "http",
            "url": url,
            "endpoint": "api/v1/lineage",
            "auth": {"type": "api_key", "apiKey": "of a test"},
        }
        self.keys: set[str | None] = set()
        self._lines: list[str] = []

    @property
    def text(self) -> str:
        """All of it: lines of JSON."""
        return "\n".join(self._lines)

    def take(self, path: str, key: str | None, body: bytes) -> None:
        """Keep an event."""
        assert path == f"/{self.transport['endpoint']}"
        self.keys.add(key)
        self._lines.append(json.dumps(json.loads(body)))


@contextmanager
def event_server() -> Iterator[EventServer]:
    """A server that takes events as long as the block."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            events.take(self.path, self.headers["Authorization"], body)
            self.send_response(201)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *arguments: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    events = EventServer(f"http://127.0.0.1:{server.server_port}")
    with serving(server):
        yield events


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
def capture_events(events: CapturedEvents, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have the listener of Airflow's provider send the events of tasks to a file or a server.

    The plugin of the provider registers one only if a transport is configured when it is imported, and then
    for the whole process. So it is imported before. Only tasks have events here, and no DAG runs.
    """
    importlib.import_module("airflow.providers.openlineage.plugins.openlineage")
    from airflow.providers.openlineage.plugins.listener import get_openlineage_listener
    from airflow.sdk import lineage, plugins_manager
    from airflow.sdk.lineage import HookLineageReader
    from airflow.sdk.listener import get_listener_manager

    monkeypatch.setenv("AIRFLOW__OPENLINEAGE__TRANSPORT", json.dumps(events.transport))
    monkeypatch.setenv("AIRFLOW__OPENLINEAGE__NAMESPACE", "lake")
    # A process forked from this one, which has the threads of an API server, would wait for their locks.
    monkeypatch.setenv("AIRFLOW__OPENLINEAGE__EXECUTE_IN_THREAD", "True")
    monkeypatch.setenv("AIRFLOW__OPENLINEAGE__EXECUTION_TIMEOUT", "120")
    monkeypatch.setattr(
        plugins_manager, "get_hook_lineage_readers_plugins", lambda: [HookLineageReader]
    )
    lineage.get_hook_lineage_collector.cache_clear()
    # It keeps its transport, of which Spark jobs get the address.
    get_openlineage_listener.cache_clear()
    listener, manager = get_openlineage_listener(), get_listener_manager()
    manager.add_listener(listener)
    try:
        yield
    finally:
        manager.pm.unregister(listener)
        get_openlineage_listener.cache_clear()
        lineage.get_hook_lineage_collector.cache_clear()

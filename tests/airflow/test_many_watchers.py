"""Many watched tables: what the checks of one triggerer request of a store.

`benchmarks` measures how much time and how many requests a minute of a triggerer takes.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections import Counter, defaultdict
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import pytest
from airflow.triggers.shared_stream import SharedStreamManager

from airflow_delta.engine.storage.location import open_storage
from airflow_delta.triggers import new_versions, shared_pace
from airflow_delta.triggers.new_versions import DeltaTableVersionTrigger
from tests.airflow.watched_tables import States, Variables, WatchedTable
from tests.object_stores import new_place
from tests.tampering_proxy import tampering_proxy

pytestmark = pytest.mark.deep

TABLES = 12
CHECKS = 6
NEXT_COMMIT = f"{3:020}.json"


@pytest.fixture
def lake(tmp_path: Path) -> tuple[str, dict[str, str]]:
    """A bucket with equal tables, each of three versions."""
    table = WatchedTable(tmp_path / "table")
    for operation in ("CREATE TABLE", "WRITE", "WRITE"):
        table.commit(operation)
    uri, options = new_place("s3", tmp_path)
    for number in range(TABLES):
        storage = open_storage(f"{uri}/table-{number}", options)
        for file in (table.root / "_delta_log").iterdir():
            storage.replace(f"_delta_log/{file.name}", file.read_bytes())
    return uri, options


def test_a_check_is_one_request_however_many_tables_and_watchers_there_are(
    lake: tuple[str, dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    uri, options = lake
    checks: Counter[Hashable] = Counter()
    all_done = asyncio.Event()

    async def pause(key: Hashable, _: float) -> None:
        """Let each poll do so many checks, and no more."""
        checks[key] += 1
        if checks[key] == CHECKS:
            if set(checks.values()) == {CHECKS} and len(checks) == TABLES:
                all_done.set()
            await asyncio.Event().wait()
        # So the watchers can go on, which store where they begin.
        await asyncio.sleep(0.05)

    Variables().install(monkeypatch)
    monkeypatch.setattr(shared_pace, "sleep_until_due", pause)
    monkeypatch.setattr(new_versions.random, "uniform", lambda least, most: 0.0)
    requests: dict[str, list[tuple[str, str]]] = defaultdict(list)

    def note(method: str, path: str) -> None:
        table = re.search(r"table-\d+", path)
        requests["" if table is None else table[0]].append((method, path.rpartition("/")[2]))

    async def watch() -> None:
        manager = SharedStreamManager()
        states = [States() for _ in range(2 * TABLES)]
        for number, state in enumerate(states):
            trigger = DeltaTableVersionTrigger(
                table_uri=f"{uri}/table-{number % TABLES}",
                delta_conn_id="lake",
                # The second watcher of each table has another filter.
                min_new_versions=1 + number // TABLES,
            )
            trigger.asset_state_store = state  # type: ignore[assignment]
            stream = trigger.filter_shared_stream(
                manager.subscribe(
                    trigger_id=number, trigger=trigger, key=trigger.shared_stream_key()
                )
            )
            tasks.append(asyncio.ensure_future(anext(stream)))
        await asyncio.wait_for(all_done.wait(), 120)
        deadline = time.monotonic() + 60
        while not all(state._by_name["sales"].sets for state in states):
            assert time.monotonic() < deadline, "a watcher hasn't stored where it begins"
            await asyncio.sleep(0.05)
        for task in tasks:
            task.cancel()
        await manager.stop_all()

    tasks: list[asyncio.Future[Any]] = []
    with tampering_proxy(options["aws_endpoint_url"]) as proxy:
        proxy.watch = note
        connection = {**options, "aws_endpoint_url": proxy.url}
        lake_connection = {"conn_type": "delta", "extra": connection}
        monkeypatch.setenv("AIRFLOW_CONN_LAKE", json.dumps(lake_connection))
        asyncio.run(watch())
    looks = [request for request in requests["table-0"] if request == ("HEAD", NEXT_COMMIT)]
    assert len(looks) == CHECKS - 1
    # Listings name the table in their query, so they have no table here.
    listings = requests.pop("", [])
    assert len(requests) == TABLES
    first = Counter(requests["table-0"])
    assert all(Counter(found) == first for found in requests.values())
    assert len(listings) % TABLES == 0
    # Whatever else was requested opened the table, or read where the two watchers begin.
    assert sum(first.values()) - len(looks) + len(listings) // TABLES <= 8

"""Appends to one table by eight processes at once: each is there once, and time never goes back.

Two processes per core and more make for every kind of overlap; what each of them may meet on its way is
stepped through, without luck, by the tests of the committer and of transactions.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.log.files import commit_path
from airflow_delta.engine.model.schema import PrimitiveType, StructField, StructType
from airflow_delta.engine.transaction.creation import create_table
from tests.deep import deep_but_for
from tests.memory_server import MEMORY_SERVER, memory_server
from tests.object_stores import new_place
from tests.races.worker import Worker, open_table

WRITERS, APPENDS = 8, 50
SLOW_CLOCK_MS = 5 * 60_000
SCHEMA = StructType((StructField("id", PrimitiveType("long"), nullable=True),))

Location = tuple[str, Mapping[str, str]]


@pytest.fixture(scope="module")
def writers() -> Iterator[list[Worker]]:
    with ExitStack() as stack:
        started = [Worker() for _ in range(WRITERS)]
        for writer in started:
            stack.callback(writer.close)
        yield started


@pytest.fixture(params=deep_but_for(["local", "s3", "memory server"], "local"))
def location(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Location]:
    """A location for a table, and its options."""
    if request.param == "memory server":
        with memory_server() as address:
            yield f"{MEMORY_SERVER}{address}/table", {}
        return
    uri, options = new_place(request.param, tmp_path)
    yield f"{uri}/table", options


def test_every_append_is_there_once(writers: list[Worker], location: Location) -> None:
    root, options = location
    table = open_table(root, options)
    create_table(table.storage, SCHEMA, properties={"delta.enableInCommitTimestamps": "true"})
    for number, writer in enumerate(writers):
        # The clock of one of them is five minutes slow.
        behind_ms = SLOW_CLOCK_MS if number == 0 else 0
        task = {"task": "append", "writer": f"w{number}", "count": APPENDS, "behind_ms": behind_ms}
        writer.send(root, [task], options=options)
    answers = [answer for writer in writers for answer in writer.answers()]
    assert not [answer for answer in answers if isinstance(answer, dict)]

    appended = {
        version: f"w{number}-{append}"
        for number, answer in enumerate(answers)
        for append, (version, _) in enumerate(answer)
    }
    assert sorted(appended) == [*range(1, WRITERS * APPENDS + 1)]
    # They did race.
    assert any(attempts > 1 for answer in answers for _, attempts in answer)
    check_log(table, appended)


def check_log(table: DeltaTable, appended: Mapping[int, str]) -> None:
    """Each version is the commit of the writer that got it as its result, and later than the one before."""
    history = table.history()[::-1]
    assert [info.version for info in history] == [0, *sorted(appended)]
    times = [info.in_commit_timestamp_ms or 0 for info in history]
    assert all(before < after for before, after in itertools.pairwise(times))
    assert len({info.txn_id for info in history}) == len(history)
    commits = table.storage.read_many([commit_path(version) for version in sorted(appended)])
    added = [_added(commit or b"") for commit in commits]
    assert added == [[appended[version]] for version in sorted(appended)]
    live = table.snapshot().files(columns=["path"])["path"].to_pylist()
    assert sorted(live) == sorted(appended.values())


def _added(commit: bytes) -> list[str]:
    actions = [json.loads(line) for line in commit.splitlines()]
    return [action["add"]["path"] for action in actions if "add" in action]

"""Appends to one managed table by eight processes at once, while others backfill and observe it.

Each append is there once, in one linear log. No reader, with the owner's help or as an engine that only
knows the log, sees the table go back or a version change.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.model.schema import LONG, StructField, StructType
from airflow_delta.engine.transaction.creation import create_table
from tests.postgres_server import new_database
from tests.races.managed_worker import OWNER, digest, open_table
from tests.races.test_commits import check_log
from tests.races.worker import Worker

WRITERS, OTHERS = 8, 4
SCHEMA = StructType((StructField("id", LONG),))
PROPERTIES = {
    "delta.managedCommit.commitOwner": OWNER,
    # Checkpoints are for readers who begin anew each time, and aren't what this is about.
    "delta.checkpointInterval": "100",
}

DATABASES: dict[str, Callable[[Path], str]] = {
    "sqlite": lambda folder: f"sqlite:///{folder / 'commits.db'}",
    "postgresql": lambda _: new_database(),
}


@pytest.fixture(scope="module")
def workers() -> Iterator[list[Worker]]:
    with ExitStack() as stack:
        started = [Worker("tests.races.managed_worker") for _ in range(WRITERS + OTHERS)]
        for worker in started:
            stack.callback(worker.close)
        yield started


@pytest.mark.deep
@pytest.mark.parametrize(
    ("database", "policy", "appends"),
    [("sqlite", "7", 25), ("postgresql", "1", 50), ("postgresql", "on-request", 50)],
)
def test_every_append_is_there_once(
    database: str, policy: str, appends: int, workers: list[Worker], tmp_path: Path
) -> None:
    root, options = str(tmp_path / "table"), {OWNER: DATABASES[database](tmp_path)}
    table = open_table(root, options)
    conf = {"delta.managedCommit.commitOwnerConf": json.dumps({"backfill": policy})}
    create_table(table.storage, SCHEMA, properties={**PROPERTIES, **conf}, owners=table._owners)

    others, writers = workers[:OTHERS], workers[OTHERS:]
    tasks = ["backfill", "backfill", "read", "read_log"]
    for worker, task in zip(others, tasks, strict=True):
        worker.send(root, [{"task": task}], options=options)
    for number, writer in enumerate(writers):
        task = {"task": "append", "writer": f"w{number}", "count": appends}
        writer.send(root, [task], options=options)
    answers = [answer for writer in writers for answer in writer.answers()]
    newest = table.backfill().backfilled_version
    for worker in others:
        worker.send(root, [])
    status = [answer for worker in others for answer in worker.answers()]
    assert [worker.answers() for worker in others] == [[]] * OTHERS
    assert not [answer for answer in (*answers, *status) if isinstance(answer, dict)]

    appended = {
        version: f"w{number}-{append}"
        for number, answer in enumerate(answers)
        for append, (version, _) in enumerate(answer)
    }
    assert sorted(appended) == [*range(1, WRITERS * appends + 1)]
    assert newest == WRITERS * appends
    # They did race.
    assert any(attempts > 1 for answer in answers for _, attempts in answer)
    check_log(table, appended)
    check_commit_store(table, newest)
    *backfilled, read, read_log = status
    for versions in backfilled:
        assert sorted(versions) == versions
        assert len({*versions}) > 1
    for seen in (read, read_log):
        check_seen(seen, appended)


def check_commit_store(table: DeltaTable, newest: int) -> None:
    """All is backfilled, and the owner knows it."""
    status = table.commit_status()
    assert (status.ratified_version, status.lag) == (newest, 0)
    snapshot = table.snapshot()
    owned = table._owners.find_owned_table(table.storage, snapshot.protocol, snapshot.metadata)
    assert owned is not None
    status = owned.owner.status(owned.table)
    assert (status.backfilled_version, status.unbackfilled) == (newest, 0)


def check_seen(seen: list[list[Any]], appended: dict[int, str]) -> None:
    """Somebody has seen the table grow to its end, and each version as it was made."""
    versions = [version for version, *_ in seen]
    assert sorted(versions) == versions
    assert versions[-1] == len(appended)
    assert len({*versions}) > 1
    names = [appended[version] for version in sorted(appended)]
    for each in seen:
        for version, files in zip(each[::2], each[1::2], strict=True):
            assert files == digest(names[:version]), f"version {version} is another one"

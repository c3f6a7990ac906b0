"""Jobs on a log of many commits: history, versions by time, and polls for a new one."""

from __future__ import annotations

import os
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from benchmarks import tables
from benchmarks.handles import our_table, peer_table
from benchmarks.job import LIGHT, Job, deltalake, ours

__all__ = ["JOBS"]


def _long_log(work: Path, actions: int) -> Path:
    return tables.long_log(work, actions // 10)


def _our_history(uri: str) -> int:
    return len(our_table(uri).history(1000))


def _peer_history(uri: str) -> int:
    return len(peer_table(uri, without_files=True).history(1000))


def _newest_time(uri: str) -> tuple[str, datetime]:
    return uri, _time(_commits(uri) - 1)


def _middle_time(uri: str) -> tuple[str, datetime]:
    return uri, _time(_commits(uri) * 5 // 9)


def _commits(uri: str) -> int:
    # Not by Path.glob: what a hundred thousand paths take would count as the engine's memory.
    with os.scandir(Path(uri, "_delta_log")) as entries:
        return sum(entry.name.endswith(".json") for entry in entries)


def _time(version: int) -> datetime:
    return datetime.fromtimestamp(tables.commit_ms(version) / 1000, timezone.utc)


def _our_version_at(given: tuple[str, datetime]) -> int:
    uri, time = given
    return our_table(uri).version_at(time)


def _peer_version_at(given: tuple[str, datetime]) -> int:
    # There is no lookup alone; without files, and near a checkpoint, its snapshot is a cheap one.
    uri, time = given
    table = peer_table(uri, without_files=True)
    table.load_as_version(time)
    return int(table.version())


def _our_snapshot_at(given: tuple[str, datetime]) -> int:
    uri, time = given
    snapshot = our_table(uri).snapshot(timestamp=time)
    return int(snapshot.version + snapshot.files(columns=["path", "size"]).num_rows)


def _peer_snapshot_at(given: tuple[str, datetime]) -> int:
    uri, time = given
    table = peer_table(uri)
    table.load_as_version(time)
    return int(table.version() + len(table.file_uris()))


_POLLS = 20


def _our_poller(uri: str) -> tuple[Any, int]:
    table = our_table(uri)
    return table, table.latest_version()


def _our_poll(given: tuple[Any, int]) -> int:
    table, known = given
    return sum(table.latest_version(known) for _ in range(_POLLS))


def _peer_poll(table: Any) -> int:
    versions = 0
    for _ in range(_POLLS):
        table.update_incremental()
        versions += table.version()
    return versions


JOBS = (
    Job(
        "history",
        "history of 1,000 commits (a tenth of the actions in commits, ten checkpoints)",
        _long_log,
        ours(_our_history, loads=LIGHT),
        deltalake(_peer_history),
    ),
    Job(
        "version-at",
        "version at a timestamp, lookup alone (the same log; the peer also opens that version)",
        _long_log,
        ours(_our_version_at, prepare=_newest_time, loads=LIGHT),
        deltalake(_peer_version_at, prepare=_newest_time),
    ),
    Job(
        "snapshot-at",
        "version at a timestamp with its live paths and sizes (the same log)",
        _long_log,
        ours(_our_snapshot_at, prepare=_middle_time),
        deltalake(_peer_snapshot_at, prepare=_middle_time),
    ),
    Job(
        "poll",
        f"{_POLLS} polls for a new version, nothing new (the same log)",
        _long_log,
        ours(_our_poll, prepare=_our_poller, loads=LIGHT),
        deltalake(_peer_poll, prepare=peer_table),
    ),
)

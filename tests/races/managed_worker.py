"""Processes that work on one managed table at the same time, and others that observe it; see `worker`.

Processes that backfill or observe go on until they receive another line. So they run as long as the others
work, and nothing waits for them. If there are few processors they leave them to the others.
"""

from __future__ import annotations

import hashlib
import os
import select
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from deltalake import DeltaTable as Peer
from deltalake.exceptions import DeltaError

from airflow_delta.engine import AddFile, DeltaTable
from airflow_delta.engine.commit.sql.owner import SqlCommitOwner
from tests.races.worker import serve

__all__ = ["OWNER", "digest", "open_table"]

OWNER = "central"
"""The owner's name, and the option with the URL of its database."""

_OWNERS: dict[str, SqlCommitOwner] = {}


def digest(paths: Iterable[str]) -> str:
    """A digest that distinguishes a set of files from others."""
    return hashlib.sha256("\n".join(sorted(paths)).encode()).hexdigest()


def open_table(root: str, options: Mapping[str, str]) -> DeltaTable:
    """A table by its location, with the commit owner of its database."""
    url = options[OWNER]
    return DeltaTable(root, commit_owners={OWNER: _OWNERS.setdefault(url, SqlCommitOwner(url))})


def append(delta: DeltaTable, *, writer: str, count: int) -> list[list[int]]:
    """Commit one file after the other, ``<writer>-<n>``; the versions and attempts that it took."""
    made = []
    for number in range(count):
        transaction = delta.transaction("WRITE")
        name, stats = f"{writer}-{number}", '{"numRecords":1}'
        transaction.add_file(AddFile(name, {}, 1, 1, data_change=True, stats=stats))
        result = transaction.commit()
        made.append([result.version, result.attempts])
        if result.checkpoint_due:
            delta.checkpoint(result.version, backfill_first=True)
    return made


def backfill(delta: DeltaTable) -> list[int]:
    """Backfill again and again: how far the log has come each time."""
    done = []
    while not _has_input():
        done.append(delta.backfill().backfilled_version)
    return done


def read(delta: DeltaTable) -> list[list[Any]]:
    """Read again and again with the owner's help: the versions, and what each held.

    Each time the version that was seen before is read once more.
    """

    def look() -> list[Any]:
        snapshot = delta.snapshot()
        found = [snapshot.version, digest(snapshot.files(columns=["path"])["path"].to_pylist())]
        if seen:
            again = delta.snapshot(seen[-1][0]).files(columns=["path"])["path"].to_pylist()
            found += [seen[-1][0], digest(again)]
        return found

    seen: list[list[Any]] = []
    while not _has_input():
        seen.append(look())
    return [*seen, look()]


def read_log(delta: DeltaTable) -> list[list[Any]]:
    """Read again and again as another engine does that knows of no owners; see `read`.

    A directory isn't listed in one moment, and that engine doesn't look again where it so misses a commit
    but not the next one, which it takes for damage, also in a managed table.
    """

    def look() -> list[Any]:
        peer = Peer(delta.uri)
        return [peer.version(), digest(os.path.basename(uri) for uri in peer.file_uris())]

    seen: list[list[Any]] = []
    while not _has_input():
        try:
            seen.append(look())
        except DeltaError as error:
            if "found gap" not in str(error):
                raise
    return [*seen, look()]


def _has_input() -> bool:
    """Whether there is another line of input."""
    os.setpriority(os.PRIO_PROCESS, 0, 10)
    return bool(select.select([sys.stdin], [], [], 0)[0])


_TASKS: dict[str, Callable[..., Any]] = {
    "append": append,
    "backfill": backfill,
    "read": read,
    "read_log": read_log,
}

if __name__ == "__main__":
    serve(_TASKS, open_table)

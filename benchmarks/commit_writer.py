"""A writer of small commits: each adds one file, whose data isn't written.

Both sides write a checkpoint every hundred commits, as part of the commit after which it is due:
`deltalake` by itself, the engine by a call in this module. Both look for the newest version before each
commit.

Usage: ``python -m benchmarks.commit_writer SIDE TABLE WRITER COMMITS``. It prints that it is ready, commits
when it reads a line, and prints the time of each commit. It ends when its input ends, so that its memory
can be measured before.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

from benchmarks import tables
from benchmarks.handles import our_table, peer_table

__all__ = ["APPENDS", "Append", "commit"]

Append = Callable[[str, int], Any]
"""Commits a file by its path, which was modified at a time in epoch milliseconds."""

_MOST_RETRIES = 1000
_SIZE = 10_000
_STATS = '{"numRecords":1000,"minValues":{"id":0},"maxValues":{"id":999},"nullCount":{"id":0}}'
_PARTITION = {"day": "001"}


def _our_append(uri: str) -> Append:
    from airflow_delta.engine import AddFile

    table = our_table(uri)

    def append(path: str, now_ms: int) -> None:
        transaction = table.transaction("WRITE", operation_parameters={"mode": "Append"})
        transaction.add_file(
            AddFile(path, _PARTITION, _SIZE, now_ms, data_change=True, stats=_STATS)
        )
        # The peer's rule: the first checkpoint is that of version 99.
        if (transaction.commit().version + 1) % tables.CHECKPOINT_INTERVAL == 0:
            table.checkpoint()

    return append


def _peer_append(uri: str) -> Append:
    from deltalake import CommitProperties
    from deltalake.transaction import AddAction

    schema = peer_table(uri).schema()
    properties = CommitProperties(max_commit_retries=_MOST_RETRIES)

    def append(path: str, now_ms: int) -> None:
        # A handle that is kept gets slower with each commit, as if there were no checkpoints.
        peer_table(uri).create_write_transaction(
            [AddAction(path, _SIZE, _PARTITION, now_ms, data_change=True, stats=_STATS)],
            "append",
            schema,
            ["day"],
            commit_properties=properties,
        )

    return append


APPENDS: dict[str, Callable[[str], Append]] = {"ours": _our_append, "deltalake": _peer_append}
"""For each side, what makes the function that commits to a table."""


def commit(append: Append, writer: int, commits: int) -> list[float]:
    """Commit so many files, one after the other; the seconds that each took."""
    took = []
    for number in range(commits):
        begin = time.perf_counter()
        append(f"day=001/part-{writer}-{number:05}.parquet", time.time_ns() // 1_000_000)
        took.append(time.perf_counter() - begin)
    return took


def main(side: str, uri: str, writer: str, commits: str) -> None:
    """Be one of several writers."""
    append = APPENDS[side](uri)
    print("ready", flush=True)
    sys.stdin.readline()
    print(json.dumps(commit(append, int(writer), int(commits))), flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main(*sys.argv[1:])

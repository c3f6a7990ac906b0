"""The jobs: each a pair of functions that do the same work, one with the engine, one with the peer.

The clock runs for the work only, not for the imports, nor for what is prepared: a handle that is open
already, or the predicate of a question. Each function returns a number that both sides
must agree on, so that no side wins by doing less.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from benchmarks import tables

Side = Callable[[Any], int]
Prepare = Callable[[str], Any]


@dataclass(frozen=True, slots=True)
class Job:
    """One line of the results.

    Attributes:
        name: what it is called on the command line.
        title: what it does.
        table: makes the table, from the working folder and the number of actions.
        ours: the work with the engine.
        peer: the work with `deltalake`; None where it has no counterpart.
        fresh: whether each run needs a copy of the table, because it writes.
        whole: whether the clock runs for the whole process, from its start to its end.
        light: whether the engine does it without Arrow, so that there's nothing to load before.
        peer_table: the table for the peer, where each side has one of its own making.
        given_ours: prepares, outside the clock, what the engine's function is given; by default it
            is the location of the table.
        given_peer: likewise for the peer.
    """

    name: str
    title: str
    table: Callable[[Path, int], Path]
    ours: Side
    peer: Side | None
    fresh: bool = False
    whole: bool = False
    light: bool = False
    peer_table: Callable[[Path, int], Path] | None = None
    given_ours: Prepare = str
    given_peer: Prepare = str


def _our_table(uri: str):
    from airflow_delta.engine import DeltaTable

    return DeltaTable(uri)


def _peer_table(uri: str, **options: object):
    from deltalake import DeltaTable

    return DeltaTable(uri, **options)


def _our_open(uri: str) -> int:
    snapshot = _our_table(uri).snapshot()
    return snapshot.version + snapshot.protocol.min_writer_version + len(snapshot.schema.fields)


def _peer_open(uri: str) -> int:
    # `without_files` is the lightest way the peer has.
    table = _peer_table(uri, without_files=True)
    return table.version() + table.protocol().min_writer_version + len(table.schema().fields)


def _our_list(uri: str) -> int:
    files = _our_table(uri).snapshot().files(columns=["path", "size"])
    return files.num_rows


def _peer_list(uri: str) -> int:
    return len(_peer_table(uri).file_uris())


def _our_checkpoint(uri: str) -> int:
    result = _our_table(uri).checkpoint()
    return result.version


def _peer_checkpoint(uri: str) -> int:
    table = _peer_table(uri)
    table.create_checkpoint()
    return table.version()


def _our_v2_checkpoint(uri: str) -> int:
    return _our_table(uri).checkpoint(policy="v2").version


def _our_history(uri: str) -> int:
    return len(_our_table(uri).history(1000))


def _peer_history(uri: str) -> int:
    return len(_peer_table(uri, without_files=True).history(1000))


_FIRST_ID, _END_ID = 5_000_000, 15_000_000
"""The range of a predicate that ten thousand files of the log can hold."""


def _our_predicate(uri: str):
    import pyarrow.compute as pc

    id_ = pc.field("id")
    return uri, (id_ >= _FIRST_ID) & (id_ < _END_ID)


def _our_prune(given: Any) -> int:
    uri, predicate = given
    return _our_table(uri).snapshot().files(columns=["path"], predicate=predicate).num_rows


def _peer_prune(uri: str) -> int:
    predicate = f"id >= {_FIRST_ID} AND id < {_END_ID}"
    return len(_peer_table(uri).file_uris(file_pruning_predicate=predicate))


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


def _our_version_at(given: Any) -> int:
    uri, time = given
    return _our_table(uri).version_at(time)


def _peer_version_at(given: Any) -> int:
    # There is no lookup alone; without files, and near a checkpoint, its snapshot is a cheap one.
    uri, time = given
    table = _peer_table(uri, without_files=True)
    table.load_as_version(time)
    return table.version()


def _our_snapshot_at(given: Any) -> int:
    uri, time = given
    snapshot = _our_table(uri).snapshot(timestamp=time)
    return snapshot.version + snapshot.files(columns=["path", "size"]).num_rows


def _peer_snapshot_at(given: Any) -> int:
    uri, time = given
    table = _peer_table(uri)
    table.load_as_version(time)
    return table.version() + len(table.file_uris())


_POLLS = 20


def _our_poller(uri: str):
    table = _our_table(uri)
    return table, table.latest_version()


def _our_poll(given: Any) -> int:
    table, known = given
    return sum(table.latest_version(known) for _ in range(_POLLS))


def _peer_poll(table: Any) -> int:
    versions = 0
    for _ in range(_POLLS):
        table.update_incremental()
        versions += table.version()
    return versions


COMMITS = 100


def _long_log(work: Path, actions: int) -> Path:
    return tables.long_log(work, actions // 10)


JOBS = (
    Job(
        "open-foreign",
        "open (version, protocol, metadata), checkpoint written by the peer",
        lambda work, n: tables.foreign_checkpoint(work, n, COMMITS),
        _our_open,
        _peer_open,
        light=True,
    ),
    Job(
        "open-own",
        "open, checkpoint written by us",
        lambda work, n: tables.own_checkpoint(work, n, COMMITS),
        _our_open,
        _peer_open,
        light=True,
    ),
    Job(
        "list-json",
        "open + all live paths and sizes, from JSON commits",
        lambda work, n: tables.json_log(work, n, COMMITS),
        _our_list,
        _peer_list,
    ),
    Job(
        "list-foreign",
        "open + all live paths and sizes, checkpoint written by the peer",
        lambda work, n: tables.foreign_checkpoint(work, n, COMMITS),
        _our_list,
        _peer_list,
    ),
    Job(
        "list-own",
        "open + all live paths and sizes, checkpoint written by us",
        lambda work, n: tables.own_checkpoint(work, n, COMMITS),
        _our_list,
        _peer_list,
    ),
    Job(
        "checkpoint",
        "open from JSON commits + write a classic checkpoint",
        lambda work, n: tables.json_log(work, n, COMMITS),
        _our_checkpoint,
        _peer_checkpoint,
        fresh=True,
        whole=True,
    ),
    Job(
        "checkpoint-appends",
        "previous checkpoint (each side's own) + 10 commits of 1,000 adds, a new classic checkpoint",
        lambda work, n: tables.appended(tables.own_checkpoint(work, n, COMMITS)),
        _our_checkpoint,
        _peer_checkpoint,
        fresh=True,
        whole=True,
        peer_table=lambda work, n: tables.appended(tables.foreign_checkpoint(work, n, COMMITS)),
    ),
    Job(
        "checkpoint-removes",
        "the same, with one of a hundred files removed at random",
        lambda work, n: tables.thinned(tables.own_checkpoint(work, n, COMMITS)),
        _our_checkpoint,
        _peer_checkpoint,
        fresh=True,
        whole=True,
        peer_table=lambda work, n: tables.thinned(tables.foreign_checkpoint(work, n, COMMITS)),
    ),
    Job(
        "checkpoint-v2",
        "10 commits of 1,000 adds after a V2 checkpoint, a new one; the peer is our own full one",
        lambda work, n: tables.appended(tables.with_v2(work, n, COMMITS, "v2")),
        _our_v2_checkpoint,
        _our_v2_checkpoint,
        fresh=True,
        peer_table=lambda work, n: tables.appended(tables.with_v2(work, n, COMMITS, "classic")),
    ),
    Job(
        "tiny-commits",
        "open + all live paths and sizes, one action a commit (a tenth of the actions)",
        lambda work, n: tables.json_log(work, n // 10, n // 10),
        _our_list,
        _peer_list,
    ),
    Job(
        "prune-foreign",
        "open + files that match a predicate, JSON statistics, checkpoint written by the peer",
        lambda work, n: tables.foreign_checkpoint(work, n, COMMITS),
        _our_prune,
        _peer_prune,
        given_ours=_our_predicate,
    ),
    Job(
        "prune-own",
        "open + files that match a predicate, JSON statistics, checkpoint written by us",
        lambda work, n: tables.own_checkpoint(work, n, COMMITS),
        _our_prune,
        _peer_prune,
        given_ours=_our_predicate,
    ),
    Job(
        "prune-parsed",
        "open + files that match a predicate, parsed statistics, checkpoint written by us",
        lambda work, n: tables.parsed_checkpoint(work, n, COMMITS),
        _our_prune,
        _peer_prune,
        given_ours=_our_predicate,
    ),
    Job(
        "history",
        "history of 1,000 commits (a tenth of the actions in commits, ten checkpoints)",
        _long_log,
        _our_history,
        _peer_history,
        light=True,
    ),
    Job(
        "version-at",
        "version at a timestamp, lookup alone (the same log; the peer also opens that version)",
        _long_log,
        _our_version_at,
        _peer_version_at,
        given_ours=_newest_time,
        given_peer=_newest_time,
        light=True,
    ),
    Job(
        "snapshot-at",
        "version at a timestamp with its live paths and sizes (the same log)",
        _long_log,
        _our_snapshot_at,
        _peer_snapshot_at,
        given_ours=_middle_time,
        given_peer=_middle_time,
    ),
    Job(
        "poll",
        f"{_POLLS} polls for a new version, nothing new (the same log)",
        _long_log,
        _our_poll,
        _peer_poll,
        given_ours=_our_poller,
        given_peer=_peer_table,
        light=True,
    ),
)
"""All jobs, in the order of the results."""

"""The jobs: each a pair of functions that do the same work, one with the engine, one with the peer.

The clock runs for the work only, not for the imports. Each function returns a number that both sides
must agree on, so that no side wins by doing less.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks import tables

Side = Callable[[str], int]


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
    """

    name: str
    title: str
    table: Callable[[Path, int], Path]
    ours: Side
    peer: Side | None
    fresh: bool = False


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


def _our_history(uri: str) -> int:
    return len(_our_table(uri).history(1000))


def _peer_history(uri: str) -> int:
    return len(_peer_table(uri, without_files=True).history(1000))


COMMITS = 100

JOBS = (
    Job(
        "open-foreign",
        "open (version, protocol, metadata), checkpoint written by the peer",
        lambda work, n: tables.foreign_checkpoint(work, n, COMMITS),
        _our_open,
        _peer_open,
    ),
    Job(
        "open-own",
        "open, checkpoint written by us",
        lambda work, n: tables.own_checkpoint(work, n, COMMITS),
        _our_open,
        _peer_open,
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
    ),
    Job(
        "tiny-commits",
        "open + all live paths and sizes, one action a commit (a tenth of the actions)",
        lambda work, n: tables.json_log(work, n // 10, n // 10),
        _our_list,
        _peer_list,
    ),
    Job(
        "history",
        "history of 1,000 commits (log of a tenth of the actions in commits)",
        lambda work, n: tables.json_log(work, n // 10, n // 10),
        _our_history,
        _peer_history,
    ),
)
"""All jobs, in the order of the results."""

"""Jobs that open a table, list its files, and find those that match a predicate."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import tables
from benchmarks.handles import our_table, peer_table
from benchmarks.job import LIGHT, Job, deltalake, ours
from benchmarks.tables import COMMITS

__all__ = ["JOBS"]


def _our_open(uri: str) -> int:
    snapshot = our_table(uri).snapshot()
    return snapshot.version + snapshot.protocol.min_writer_version + len(snapshot.schema.fields)


def _peer_open(uri: str) -> int:
    # `without_files` is the lightest way the peer has.
    table = peer_table(uri, without_files=True)
    return int(table.version() + table.protocol().min_writer_version + len(table.schema().fields))


def _our_list(uri: str) -> int:
    return int(our_table(uri).snapshot().files(columns=["path", "size"]).num_rows)


def _peer_list(uri: str) -> int:
    return len(peer_table(uri).file_uris())


_FIRST_ID, _END_ID = 5_000_000, 15_000_000
"""The range of a predicate that ten thousand files of the log can hold."""


def _our_predicate(uri: str) -> tuple[str, Any]:
    import pyarrow.compute as pc

    id_ = pc.field("id")
    return uri, (id_ >= _FIRST_ID) & (id_ < _END_ID)


def _our_prune(given: tuple[str, Any]) -> int:
    uri, predicate = given
    return int(our_table(uri).snapshot().files(columns=["path"], predicate=predicate).num_rows)


def _peer_prune(uri: str) -> int:
    predicate = f"id >= {_FIRST_ID} AND id < {_END_ID}"
    return len(peer_table(uri).file_uris(file_pruning_predicate=predicate))


_json = partial(tables.json_log, commits=COMMITS)
_own = partial(tables.own_checkpoint, commits=COMMITS)
_foreign = partial(tables.foreign_checkpoint, commits=COMMITS)
_parsed = partial(tables.parsed_checkpoint, commits=COMMITS)


def _tiny(work: Path, actions: int) -> Path:
    return tables.json_log(work, actions // 10, actions // 10)


_OPEN = (ours(_our_open, loads=LIGHT), deltalake(_peer_open))
_LIST = (ours(_our_list), deltalake(_peer_list))
_PRUNE = (ours(_our_prune, prepare=_our_predicate), deltalake(_peer_prune))

JOBS = (
    Job(
        "open-foreign",
        "open (version, protocol, metadata), checkpoint written by the peer",
        _foreign,
        *_OPEN,
    ),
    Job("open-own", "open, checkpoint written by us", _own, *_OPEN),
    Job("list-json", "open + all live paths and sizes, from JSON commits", _json, *_LIST),
    Job(
        "list-foreign",
        "open + all live paths and sizes, checkpoint written by the peer",
        _foreign,
        *_LIST,
    ),
    Job("list-own", "open + all live paths and sizes, checkpoint written by us", _own, *_LIST),
    Job(
        "tiny-commits",
        "open + all live paths and sizes, one action a commit (a tenth of the actions)",
        _tiny,
        *_LIST,
    ),
    Job(
        "prune-foreign",
        "open + files that match a predicate, JSON statistics, checkpoint written by the peer",
        _foreign,
        *_PRUNE,
    ),
    Job(
        "prune-own",
        "open + files that match a predicate, JSON statistics, checkpoint written by us",
        _own,
        *_PRUNE,
    ),
    Job(
        "prune-parsed",
        "open + files that match a predicate, parsed statistics, checkpoint written by us",
        _parsed,
        *_PRUNE,
    ),
)

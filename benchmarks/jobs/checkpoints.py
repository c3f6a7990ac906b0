"""Jobs that write classic checkpoints, by the local engine and by `deltalake`."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from benchmarks import tables
from benchmarks.handles import our_table, peer_table
from benchmarks.job import LIGHT, Job, deltalake, ours
from benchmarks.tables import COMMITS

__all__ = ["JOBS"]


def _our_checkpoint(uri: str) -> int:
    return our_table(uri).checkpoint().version


def _peer_checkpoint(uri: str) -> int:
    table = peer_table(uri)
    table.create_checkpoint()
    return int(table.version())


_json = partial(tables.json_log, commits=COMMITS)


def _tenfold(work: Path, actions: int) -> Path:
    return _json(work, 10 * actions)


def _own_appended(work: Path, actions: int) -> Path:
    return tables.appended(tables.own_checkpoint(work, actions, COMMITS))


def _foreign_appended(work: Path, actions: int) -> Path:
    return tables.appended(tables.foreign_checkpoint(work, actions, COMMITS))


def _own_thinned(work: Path, actions: int) -> Path:
    return tables.thinned(tables.own_checkpoint(work, actions, COMMITS))


def _foreign_thinned(work: Path, actions: int) -> Path:
    return tables.thinned(tables.foreign_checkpoint(work, actions, COMMITS))


_OURS = ours(_our_checkpoint, loads=LIGHT)

JOBS = (
    Job(
        "checkpoint",
        "open from JSON commits + write a classic checkpoint",
        _json,
        _OURS,
        deltalake(_peer_checkpoint),
        fresh=True,
        whole=True,
    ),
    Job(
        "checkpoint-10m",
        "the same with ten times the actions, without a peer",
        _tenfold,
        _OURS,
        fresh=True,
        whole=True,
        only_by_name=True,
    ),
    Job(
        "checkpoint-appends",
        "previous checkpoint (each side's own) + 10 commits of 1,000 adds, a new classic checkpoint",
        _own_appended,
        _OURS,
        deltalake(_peer_checkpoint, table=_foreign_appended),
        fresh=True,
        whole=True,
    ),
    Job(
        "checkpoint-removes",
        "the same, with one of a hundred files removed at random",
        _own_thinned,
        _OURS,
        deltalake(_peer_checkpoint, table=_foreign_thinned),
        fresh=True,
        whole=True,
    ),
)

"""Find the commit that set a transaction identifier: how a retry recognises its own work."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from airflow_delta.engine.arrow.json_actions import SmallAction
from airflow_delta.engine.log.files import Commit
from airflow_delta.engine.snapshot.snapshot import Snapshot
from airflow_delta.engine.snapshot.tail import read_tail

__all__ = ["version_of_transaction"]

_COMMITS_AT_A_TIME = 64


def version_of_transaction(snapshot: Snapshot, app_id: str, version: int) -> int | None:
    """The table version whose commit set a transaction identifier.

    PROTOCOL.md, "Transaction Identifiers". The commits are searched from the newest back.

    Args:
        snapshot: the newest one.
        app_id: the application.
        version: the application's version, as it was set.

    Returns:
        The version; where cleanup has taken the commit but the state still holds the identifier, the
        oldest version that can be told to hold it; None where the identifier was never set.
    """
    commits = snapshot.timeline.commits
    for run in _newest_first(commits):
        for action in reversed(_small_actions(snapshot, run)):
            identifier = (action.value.get("appId"), action.value.get("version"))
            if action.kind == "txn" and identifier == (app_id, version):
                return int(action.version)
    held = snapshot.state.small.transactions.get(app_id)
    if held is not None and held.version == version:
        return commits[0].version if commits else snapshot.version
    return None


def _newest_first(commits: Sequence[Commit]) -> Iterator[Sequence[Commit]]:
    for end in range(len(commits), 0, -_COMMITS_AT_A_TIME):
        yield commits[max(0, end - _COMMITS_AT_A_TIME) : end]


def _small_actions(snapshot: Snapshot, commits: Sequence[Commit]) -> tuple[SmallAction, ...]:
    storage = snapshot.state.storage
    return read_tail(storage, commits, columns=("path",), table=snapshot.table).small

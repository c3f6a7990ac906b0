"""Find the commit that set a transaction identifier: how a retry recognises its own work.

The state knows the newest identifier of each application, so one that it doesn't know costs no
reading of commits. Which commit set an identifier, and whether one that was set before the newest
was set at all, only the commits tell. The ones below the checkpoint are no longer needed for
anything else: they may be gone or damaged, and that must not keep anyone from writing.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence

from airflow_delta.engine.arrow.json_small import find_small_actions
from airflow_delta.engine.errors import CorruptLogError, DeltaWarning
from airflow_delta.engine.log.files import Commit
from airflow_delta.engine.snapshot.snapshot import Snapshot

__all__ = ["version_of_transaction"]

_RUN_COMMITS = 64
_RUN_BYTES = 16 << 20
"""Commits are read in runs, which end at whichever comes first."""


def version_of_transaction(snapshot: Snapshot, app_id: str, version: int) -> int | None:
    """The table version whose commit set a transaction identifier.

    PROTOCOL.md, "Transaction Identifiers". The commits are searched from the newest back. A damaged
    one is passed over with a `DeltaWarning`.

    Args:
        snapshot: the newest one.
        app_id: the application.
        version: the application's version, as it was set.

    Returns:
        The version. Where the state holds the identifier, but its commit is gone or damaged: the
        oldest version that can be told to hold it. None where the state doesn't know the
        application, and where no commit that is there and whole set the identifier.
    """
    newest = snapshot.state.small.transactions.get(app_id)
    if newest is None:
        return None
    held = newest.version == version
    oldest = snapshot.version
    for commit, content in _newest_first(snapshot):
        if content is None:
            break
        oldest = commit.version
        try:
            if _sets(commit, content, app_id, version, table=snapshot.table):
                return oldest
        except CorruptLogError as error:
            if held:
                # No later commit set it, so this version holds it; whether the one before does is
                # what can't be told.
                return oldest
            warnings.warn(
                f"{snapshot.table}: {commit.path} is passed over in the search for the transaction "
                f"{version} of {app_id!r} ({error.message})",
                DeltaWarning,
                stacklevel=2,
            )
    return oldest if held else None


def _sets(commit: Commit, content: bytes, app_id: str, version: int, *, table: str) -> bool:
    actions = find_small_actions([(commit.version, content)], kinds=("txn",), table=table)
    identifiers = [(action.value.get("appId"), action.value.get("version")) for action in actions]
    return (app_id, version) in identifiers


def _newest_first(snapshot: Snapshot) -> Iterator[tuple[Commit, bytes | None]]:
    """The commits with their contents; None for one that vanished."""
    for run in _runs(snapshot.timeline.commits):
        contents = snapshot.state.storage.read_many([commit.path for commit in run])
        yield from zip(run, contents, strict=True)


def _runs(commits: Sequence[Commit]) -> Iterator[list[Commit]]:
    run: list[Commit] = []
    size = 0
    for commit in reversed(commits):
        run.append(commit)
        size += commit.size
        if size >= _RUN_BYTES or len(run) >= _RUN_COMMITS:
            yield run
            run, size = [], 0
    if run:
        yield run

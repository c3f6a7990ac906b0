"""The part of a managed table's log that checkpoints and compactions may be about: what is backfilled.

managed-commits.md, "Maintenance operations on managed-commit tables": to checkpoint version ``v``, or to
compact a range up to it, ``_delta_log/<v>.json`` must exist. Otherwise readers that only know the
directory find files of a version that isn't there, and take the table for damaged.

So whoever is about to write one opens the table by its directory alone (`open_backfilled`). The commit
owner isn't asked, not even for the newest version: that is the newest backfilled one. Of a version that
only a file in ``_commits`` proposes, nobody but the owner knows whether it was ratified; until it is
backfilled it is refused with an error that says so, and not as one that was never there.
"""

from __future__ import annotations

from airflow_delta.engine.errors import NotBackfilledError, VersionNotFoundError
from airflow_delta.engine.features.managed_commits import commit_owner
from airflow_delta.engine.features.protocol import supported_features
from airflow_delta.engine.log.files import UnbackfilledCommit
from airflow_delta.engine.log.proposed import proposed_commits
from airflow_delta.engine.snapshot.opening import open_newest, open_snapshot
from airflow_delta.engine.snapshot.snapshot import Snapshot
from airflow_delta.engine.storage.base import Storage

__all__ = ["check_backfilled", "open_backfilled"]


def open_backfilled(storage: Storage, version: int | None = None) -> Snapshot:
    """A version of a table, to write a checkpoint or a compaction up to it.

    Args:
        storage: where the table is.
        version: the version; None for the newest that is backfilled.

    Raises:
        NotBackfilledError: the table is managed, and the version is at best one that its commit owner
            has ratified.
        DeltaError: see `open_snapshot`.
    """
    try:
        return open_snapshot(storage, version, verified=True)
    except VersionNotFoundError:
        proposed = None if version is None else _proposed(storage, version)
        if proposed is not None:
            newest = open_newest(storage)
            # Of a table that the file system manages, or does so again, they are remains.
            if proposed.version > newest.version and _owner(newest) is not None:
                raise _not_backfilled(newest, proposed, newest.version) from None
        raise


def check_backfilled(snapshot: Snapshot) -> None:
    """Make sure that all commits of a snapshot are backfilled, however it was opened.

    Raises:
        NotBackfilledError: the commit owner has told of one that isn't.
    """
    commits = snapshot.segment.commits
    found = [commit for commit in commits if isinstance(commit, UnbackfilledCommit)]
    if found:
        raise _not_backfilled(snapshot, found[-1], found[0].version - 1)


def _proposed(storage: Storage, version: int) -> UnbackfilledCommit | None:
    """A commit that was proposed as a version; None where there is none."""
    found = next(proposed_commits(storage, version), None)
    return found if found is not None and found.version == version else None


def _owner(snapshot: Snapshot) -> str | None:
    return commit_owner(supported_features(snapshot.protocol), snapshot.properties)


def _not_backfilled(
    snapshot: Snapshot, commit: UnbackfilledCommit, latest: int
) -> NotBackfilledError:
    owner = _owner(snapshot)
    return NotBackfilledError(
        f"there can't be a checkpoint or a compaction up to version {commit.version} yet, which at best "
        f"is {commit.path} and must be backfilled to the log by the commit owner {owner!r} before; the "
        f"newest backfilled version is {latest}. Ask for backfill_first=True, or run DeltaTable.backfill, "
        "or take a version up to that one",
        table=snapshot.table,
        owner=owner,
        version=commit.version,
        latest_backfilled=latest,
        path=commit.path,
    )

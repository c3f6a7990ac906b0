"""Open the backfilled part of a managed table, for checkpoints and log compactions.

RFC managed-commits, "Maintenance operations on managed-commit tables": a checkpoint of version ``v``, or a
compaction up to it, requires ``_delta_log/<v>.json``. Otherwise readers that know only the directory would
find files of a version that doesn't exist, and take the table for damaged.

`open_backfilled` opens the table by its directory alone and doesn't ask the commit owner. If a version
exists only as a file in ``_commits``, only the owner knows whether it is ratified; it is refused with
`NotBackfilledError`. `check_backfilled` does the same for a snapshot that was opened otherwise.
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
    """Open a version of a table to write a checkpoint of it, or a compaction up to it.

    Args:
        storage: where the table is.
        version: the version; None for the newest backfilled one.

    Raises:
        NotBackfilledError: the table is managed, and at best the commit owner has ratified the version.
        DeltaError: see `open_snapshot`.
    """
    try:
        return open_snapshot(storage, version, verified=True)
    except VersionNotFoundError:
        proposed = None if version is None else _find_proposed(storage, version)
        if proposed is not None:
            newest = open_newest(storage)
            # Without a commit owner, files in `_commits` are left over from an earlier one.
            if proposed.version > newest.version and _find_owner(newest) is not None:
                raise _not_backfilled(newest, proposed, newest.version) from None
        raise


def check_backfilled(snapshot: Snapshot) -> None:
    """Check that all commits of a snapshot are backfilled, however it was opened.

    Raises:
        NotBackfilledError: the commit owner has reported one that isn't.
    """
    commits = snapshot.segment.commits
    found = [commit for commit in commits if isinstance(commit, UnbackfilledCommit)]
    if found:
        raise _not_backfilled(snapshot, found[-1], found[0].version - 1)


def _find_proposed(storage: Storage, version: int) -> UnbackfilledCommit | None:
    """Find a commit that was proposed as a version; None if there is none."""
    found = next(proposed_commits(storage, version), None)
    return found if found is not None and found.version == version else None


def _find_owner(snapshot: Snapshot) -> str | None:
    return commit_owner(supported_features(snapshot.protocol), snapshot.properties)


def _not_backfilled(
    snapshot: Snapshot, commit: UnbackfilledCommit, latest: int
) -> NotBackfilledError:
    owner = _find_owner(snapshot)
    return NotBackfilledError(
        f"there can't be a checkpoint or a compaction up to version {commit.version} yet: the commit owner "
        f"{owner!r} must first backfill that version, which is {commit.path} until then; the newest "
        f"backfilled version is {latest}. Set backfill_first=True, run DeltaTable.backfill, or choose a "
        "version up to that one",
        table=snapshot.table,
        owner=owner,
        version=commit.version,
        latest_backfilled=latest,
        path=commit.path,
    )

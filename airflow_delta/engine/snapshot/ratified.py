"""The newest commits of a managed table, which its commit owner knows and the log doesn't have yet.

* `with_ratified_commits` advances a snapshot of the newest version in the log to the newest ratified one.
* `ratified_after` lists the commits after a known one.

The log is listed first, then the owner is queried. If both have a version, the one in the log counts. The
files in ``_commits`` prove nothing and aren't listed.

docs/explanation/managed-commits.md has the reasons. Spec: RFC managed-commits, "Reading managed-commit
tables" and "Getting Un-backfilled Commits from Commit Owner".
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence

from airflow_delta.engine.commit.registry import CommitOwners, OwnedTable
from airflow_delta.engine.errors import (
    CommitOwnerError,
    CorruptLogError,
    DeltaWarning,
    InvalidTableError,
    ObjectNotFoundError,
)
from airflow_delta.engine.features.managed_commits import unseen_commits
from airflow_delta.engine.features.protocol import supported_features
from airflow_delta.engine.log.commit_file import is_as_ratified
from airflow_delta.engine.log.files import LogCommit, UnbackfilledCommit, commit_path
from airflow_delta.engine.log.listing import list_log
from airflow_delta.engine.snapshot.segment_commits import parse_common_columns
from airflow_delta.engine.snapshot.snapshot import Snapshot
from airflow_delta.engine.storage.base import Storage

__all__ = ["lacking_commits", "ratified_after", "with_ratified_commits"]


def with_ratified_commits(
    snapshot: Snapshot, owners: CommitOwners, *, for_writing: bool = False
) -> Snapshot | None:
    """Advance a snapshot from the newest version in the log to the newest ratified one.

    If the owner isn't known here, can't be reached or doesn't have the table, the snapshot stays as
    it is, with a `DeltaWarning` that it may be stale. The same happens if the table breaks the
    rules for naming its owner, because they bind only writers. A snapshot of a table without commit
    owner always stays as it is.

    Args:
        snapshot: the newest version in the log.
        owners: the commit owners to query.
        for_writing: raise the error instead of returning a snapshot that may be stale.

    Returns:
        The snapshot; None if the log has changed in the meantime so that it must be read again.

    Raises:
        CommitOwnerError, InvalidTableError: see ``for_writing``.
        CorruptLogError: a commit breaks the protocol.
        UnsupportedFeatureError: reading the newest version needs a feature that the engine doesn't
            support.
    """
    storage = snapshot.storage
    try:
        owned = owners.find_owned_table(storage, snapshot.protocol, snapshot.metadata)
        commits = () if owned is None else _tracked_from(snapshot, owned)
    except (CommitOwnerError, InvalidTableError) as error:
        if for_writing:
            raise
        _warn_stale(snapshot, error.message)
        return snapshot
    if owned is None:
        reason = unseen_commits(supported_features(snapshot.protocol), snapshot.properties)
        if reason is not None:
            _warn_stale(snapshot, reason)
        return snapshot
    if commits is None:
        return None
    if not commits:
        return snapshot
    try:
        parsed = parse_common_columns(storage, commits, table=snapshot.table)
    except ObjectNotFoundError:
        return None
    return snapshot.advance(commits, parsed)


def ratified_after(
    storage: Storage, known: LogCommit, owned: OwnedTable
) -> tuple[LogCommit, ...] | None:
    """The commits after one of a managed table, up to the newest that its owner has ratified.

    If the known commit isn't backfilled, the owner must confirm it again: a ratified commit is lost if the
    owner's commit store was put back to an older state, for example from a backup.

    Args:
        storage: where the log is.
        known: a commit that was ratified when it was found, and whose file exists.
        owned: the table and its owner.

    Returns:
        The commits, ascending without a gap; un-backfilled ones at the end. None if the log lacks
        commits that are backfilled according to the owner, because it was cleaned up or is damaged.
        Also None if the known commit is no longer ratified.

    Raises:
        CommitOwnerError: the owner can't be reached, or doesn't have the table.
        StorageError: the store failed.
    """
    answer = owned.owner.get_commits(owned.table, known.version)
    own = next((commit for commit in answer.commits if commit.version == known.version), None)
    if isinstance(known, UnbackfilledCommit):
        stands = _is_copied(storage, known) if own is None else own.path == known.path
        if not stands:
            return None
    later = [commit for commit in answer.commits if commit.version > known.version]
    return _join_commits(storage, known.version, later, answer.latest_table_version)


def _is_copied(storage: Storage, commit: UnbackfilledCommit) -> bool:
    """Whether the log has a commit as it was ratified; its own file may be gone by now."""
    copy, own = storage.read_many([commit_path(commit.version), commit.path])
    if copy is None:
        return False
    return own == copy or (own is None and is_as_ratified(commit, copy))


def _tracked_from(snapshot: Snapshot, owned: OwnedTable) -> tuple[LogCommit, ...] | None:
    """As `ratified_after`, and check the commits that the snapshot has from the log."""
    storage = snapshot.storage
    listed = {commit.version: commit for commit in snapshot.segment.commits}
    answer = owned.owner.get_commits(owned.table, min(listed, default=snapshot.version + 1))
    for tracked in answer.commits:
        logged = listed.get(tracked.version)
        if logged is not None and not _is_copied(storage, tracked):
            warnings.warn(
                f"{snapshot.table}: {logged.path} isn't the commit {tracked.path} that the commit owner "
                f"{owned.table.owner!r} has ratified as version {tracked.version}; the one in the log is "
                "read. Somebody has written to the table without its owner: find out who, and put "
                "back what is lost",
                DeltaWarning,
                stacklevel=4,
            )
    commits = tuple(commit for commit in answer.commits if commit.version > snapshot.version)
    return _join_commits(storage, snapshot.version, commits, answer.latest_table_version)


def _join_commits(
    storage: Storage, version: int, tracked: Sequence[UnbackfilledCommit], latest: int
) -> tuple[LogCommit, ...] | None:
    first = tracked[0].version if tracked else latest + 1
    logged: Sequence[LogCommit] = ()
    if first > version + 1:
        # Commits were backfilled after the log was listed.
        logged = list_log(storage, start=version + 1, end=first - 1).commits
    commits = (*logged, *tracked)
    # The owner's newest version may be any number: compare lengths, without a list of that length.
    follow = all(commit.version == version + 1 + at for at, commit in enumerate(commits))
    if (
        len(commits) != max(version, latest) - version
        or not follow
        or not all(c.size for c in commits)
    ):
        return None
    return commits


def lacking_commits(snapshot: Snapshot) -> CorruptLogError:
    """Create the error about versions that neither the log nor the owner has."""
    return CorruptLogError(
        f"the commit owner {snapshot.properties.commit_owner!r} has ratified versions after "
        f"{snapshot.version}, the newest version in the log, but some of them are neither in the log nor "
        "among the commits that the owner tracks: they were lost. Put them back from a backup; until "
        "then, readers may load a version up to that one. Without a backup, have the owner give them up "
        "(accept_log)",
        table=snapshot.table,
        version=snapshot.version + 1,
    )


def _warn_stale(snapshot: Snapshot, reason: str) -> None:
    warnings.warn(
        f"{snapshot.table}: the snapshot of version {snapshot.version} may be stale: {reason}",
        DeltaWarning,
        stacklevel=5,
    )

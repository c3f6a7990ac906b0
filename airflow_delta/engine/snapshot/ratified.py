"""The newest commits of a managed table, which its commit owner knows and the log doesn't have yet.

managed-commits.md, "Reading managed-commit tables" and "Getting Un-backfilled Commits from Commit Owner".
The log is listed first, then the owner is asked. What was backfilled in between is in neither answer; the
newest ratified version, which the owner tells as well, gives that away, and one more listing finds it: an
owner forgets a commit only when its copy is in the log (edge cases F4, L14).

Which files there are in ``_commits`` says nothing, and isn't looked at. Where the owner and the log both
have a version, that of the log counts, because its being there proves it; should the two differ, somebody
wrote past the owner, and a `DeltaWarning` says so.

What is ratified stays so, unless the owner's books were taken back to an older state, as by a backup that
was restored. So whoever goes on from a commit that wasn't backfilled has the owner say once more that it
counts (`ratified_after`).
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
    """The newest version of a table, from the newest one that the log has.

    Where the owner isn't known here, can't be reached or doesn't have the table, the snapshot stays as it
    is, with a `DeltaWarning` that it may be stale; and so it does where the table doesn't tell its owner as
    it should, for that binds writers alone. One of a table that the file system manages stays as it is in
    any case.

    Args:
        snapshot: of the newest version that the log has.
        owners: the commit owners to be asked.
        for_writing: raise the error, and give no snapshot that may be stale.

    Returns:
        The snapshot; None where the log has changed meanwhile so that it must be looked at afresh.

    Raises:
        CommitOwnerError, InvalidTableError: see ``for_writing``.
        CorruptLogError: a commit breaks the protocol.
        UnsupportedFeatureError: reading the newest version needs a feature that the engine lacks.
    """
    storage = snapshot.state.storage
    try:
        owned = owners.owner_of(storage, snapshot.protocol, snapshot.metadata)
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

    Args:
        storage: where the log is.
        known: a commit that was ratified when it was found, and whose file is there.
        owned: the table and its owner.

    Returns:
        The commits, ascending without a gap; un-backfilled ones at the end. None where the log doesn't
        have what the owner says is backfilled, because it was cleaned up or is damaged; and where the
        known commit is ratified no more.

    Raises:
        CommitOwnerError: the owner can't be reached, or doesn't have the table.
        StorageError: the store failed.
    """
    told = owned.owner.get_commits(owned.table, known.version)
    own = next((commit for commit in told.commits if commit.version == known.version), None)
    if isinstance(known, UnbackfilledCommit):
        stands = _is_copied(storage, known) if own is None else own.path == known.path
        if not stands:
            return None
    later = [commit for commit in told.commits if commit.version > known.version]
    return _joined(storage, known.version, later, told.latest_table_version)


def _is_copied(storage: Storage, commit: UnbackfilledCommit) -> bool:
    """Whether the log has a commit as it was ratified; its own file may be gone by now."""
    copy, own = storage.read_many([commit_path(commit.version), commit.path])
    if copy is None:
        return False
    return own == copy or (own is None and is_as_ratified(commit, copy))


def _tracked_from(snapshot: Snapshot, owned: OwnedTable) -> tuple[LogCommit, ...] | None:
    """As `ratified_after`, with a look at commits that the snapshot has from the log."""
    storage = snapshot.state.storage
    listed = {commit.version: commit for commit in snapshot.segment.commits}
    told = owned.owner.get_commits(owned.table, min(listed, default=snapshot.version + 1))
    for tracked in told.commits:
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
    commits = tuple(commit for commit in told.commits if commit.version > snapshot.version)
    return _joined(storage, snapshot.version, commits, told.latest_table_version)


def _joined(
    storage: Storage, version: int, tracked: Sequence[UnbackfilledCommit], latest: int
) -> tuple[LogCommit, ...] | None:
    first = tracked[0].version if tracked else latest + 1
    logged: Sequence[LogCommit] = ()
    if first > version + 1:
        logged = list_log(storage, start=version + 1, end=first - 1).commits
    commits = (*logged, *tracked)
    # What the owner says is the newest version may be any number: compare lengths, not a list of it.
    follow = all(commit.version == version + 1 + at for at, commit in enumerate(commits))
    if (
        len(commits) != max(version, latest) - version
        or not follow
        or not all(c.size for c in commits)
    ):
        return None
    return commits


def lacking_commits(snapshot: Snapshot) -> CorruptLogError:
    """The error over versions that neither the log nor the owner has."""
    return CorruptLogError(
        f"the commit owner {snapshot.properties.commit_owner!r} has ratified versions after "
        f"{snapshot.version}, the newest that the log leads to, but not all of them are in the log or "
        "among the commits that it tracks: some were lost. Put them back from a backup; readers may "
        "ask for a version up to that one. If there is none, have the owner give them up (accept_log)",
        table=snapshot.table,
        version=snapshot.version + 1,
    )


def _warn_stale(snapshot: Snapshot, reason: str) -> None:
    warnings.warn(
        f"{snapshot.table}: the snapshot of version {snapshot.version} may be stale: {reason}",
        DeltaWarning,
        stacklevel=5,
    )

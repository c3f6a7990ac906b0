"""Open a table while others commit to it and clean it up.

Between the listing of a log and the reading of its files, a cleanup may delete them. The state then
looks for other files that give the same version, because a snapshot never changes its version. If a
cleanup leaves none, the requested version is gone. But a caller that wants the newest version gets
the one that is the newest by then.

The commit owner of a managed table decides which version is the newest; see `ratified`. Without the
owners, the newest version is the one in the log directory, which is what maintenance needs.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from airflow_delta.engine.commit.registry import CommitOwners
from airflow_delta.engine.errors import VersionNotFoundError
from airflow_delta.engine.log.completeness import version_not_found
from airflow_delta.engine.log.segment import LogSegment, load_segment
from airflow_delta.engine.snapshot.ratified import lacking_commits, with_ratified_commits
from airflow_delta.engine.snapshot.snapshot import Snapshot
from airflow_delta.engine.storage.base import Storage

__all__ = ["open_earlier", "open_newest", "open_snapshot"]

_ATTEMPTS = 10
"""How often the newest version may vanish while it is opened; each time the log has advanced."""


def open_snapshot(
    storage: Storage,
    version: int | None = None,
    *,
    owners: CommitOwners | None = None,
    verified: bool = False,
) -> Snapshot:
    """Open a version of a table, without its file actions, which are read when they are needed.

    Args:
        storage: where the table is.
        version: the version; None for the newest.
        owners: the commit owners that may know newer versions than the log; None to use the log
            alone.
        verified: see `load_segment`.

    Raises:
        TableNotFoundError: there is no table.
        VersionNotFoundError: the log can't rebuild the version.
        CorruptLogError: a file of the log breaks the protocol.
        UnsupportedFeatureError: reading the table needs a feature that the engine doesn't support.
        InvalidTableError: protocol and metadata contradict each other.
        StorageError: the store failed.
    """
    if version is None:
        return open_newest(storage, owners=owners, verified=verified)
    try:
        return Snapshot(storage, load_segment(storage, version=version, verified=verified))
    except VersionNotFoundError as error:
        if owners is None or version <= error.latest:
            raise
        newest = open_newest(storage, owners=owners, verified=verified)
        if newest.version <= error.latest:
            raise
        if newest.version < version:
            raise version_not_found(
                version, error.earliest, newest.version, storage.root
            ) from error
        return open_earlier(newest, version)


def open_earlier(newest: Snapshot, version: int) -> Snapshot:
    """Open a version of a table whose newest version is open, without searching the log again.

    Args:
        newest: the newest version.
        version: the version; the newest one itself is returned as it is.

    Raises:
        VersionNotFoundError: the log can't rebuild the version.
        CorruptLogError: the log has a gap, or a file of it breaks the protocol.
        UnsupportedFeatureError: reading the version needs a feature that the engine doesn't support.
    """
    if version == newest.version:
        return newest
    return Snapshot(newest.storage, newest.timeline.segment_at(version))


def open_newest(
    storage: Storage,
    *,
    owners: CommitOwners | None = None,
    for_writing: bool = False,
    verified: bool = False,
    find: Callable[[Storage], LogSegment] | None = None,
    parsed: bool = False,
) -> Snapshot:
    """Open the newest version of a table.

    Args:
        storage: where the table is.
        owners: see `open_snapshot`.
        for_writing: fail if the owner can't be reached, instead of warning that the version may not
            be the newest. Also ``verified``.
        verified: see `load_segment`.
        find: finds the files that rebuild the newest version in the log; None: `load_segment`.
        parsed: also parse the commits after the checkpoint, so that a broken one is found now.

    Raises:
        CommitOwnerError: see ``for_writing``.
        VersionNotFoundError: the newest version vanished repeatedly while it was opened.
        DeltaError: see `open_snapshot`.
    """
    find = find or partial(load_segment, verified=verified or for_writing)
    attempts = 0
    while True:
        attempts += 1
        try:
            snapshot = _with_owner_commits(
                Snapshot(storage, find(storage)), owners, for_writing=for_writing
            )
        except (VersionNotFoundError, _LogHasChangedError) as error:
            if attempts < _ATTEMPTS:
                continue
            if isinstance(error, _LogHasChangedError):
                raise lacking_commits(error.snapshot) from None
            raise
        if parsed:
            snapshot.state.parse_commits()
        return snapshot


class _LogHasChangedError(Exception):
    """The log has changed since the snapshot was made, or doesn't match what its owner says."""

    def __init__(self, snapshot: Snapshot) -> None:
        super().__init__()
        self.snapshot = snapshot


def _with_owner_commits(
    logged: Snapshot, owners: CommitOwners | None, *, for_writing: bool
) -> Snapshot:
    if owners is None:
        return logged
    newest = with_ratified_commits(logged, owners, for_writing=for_writing)
    if newest is None:
        raise _LogHasChangedError(logged)
    return newest

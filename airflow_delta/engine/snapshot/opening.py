"""Opening a table, while others commit to it and clean it up.

Between the listing of a log and the reading of its files a cleanup may take them. The state then looks
for other files that give the same version, for a snapshot never changes the version that it has told.
Where a cleanup is so eager that there are none left, a version that was asked for is gone. But whoever
asked for the newest gets the one that is the newest by then.

The newest version of a managed table is what its commit owner says; see `ratified`. Whoever leaves the
owners out opens what the log directory has, as maintenance must.
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

__all__ = ["open_newest", "open_snapshot"]

_ATTEMPTS = 10
"""So many newest versions may vanish while they are opened; each time the log has moved on."""


def open_snapshot(
    storage: Storage,
    version: int | None = None,
    *,
    owners: CommitOwners | None = None,
    verified: bool = False,
) -> Snapshot:
    """A version of a table, without its file actions, which are read when asked for.

    Args:
        storage: where the table is.
        version: the version; None for the newest.
        owners: the commit owners that may know newer versions than the log; None not to ask any.
        verified: see `load_segment`.

    Raises:
        TableNotFoundError: there is no table.
        VersionNotFoundError: the log can't rebuild the version.
        CorruptLogError: a file of the log breaks the protocol.
        UnsupportedFeatureError: reading the table needs a feature that the engine lacks.
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
        return Snapshot(storage, newest.timeline.segment_at(version))


def open_newest(
    storage: Storage,
    *,
    owners: CommitOwners | None = None,
    for_writing: bool = False,
    verified: bool = False,
    find: Callable[[Storage], LogSegment] | None = None,
    parsed: bool = False,
) -> Snapshot:
    """The newest version of a table.

    Args:
        storage: where the table is.
        owners: see `open_snapshot`.
        for_writing: fail where the owner can't be asked, instead of warning that the version may not be
            the newest; and ``verified``.
        verified: see `load_segment`.
        find: finds the files that rebuild the newest version that the log has; None: `load_segment`.
        parsed: also parse the commits after the checkpoint, so that a broken one is found out.

    Raises:
        CommitOwnerError: see ``for_writing``.
        VersionNotFoundError: again and again the newest version vanished while it was opened.
        DeltaError: see `open_snapshot`.
    """
    find = find or partial(load_segment, verified=verified or for_writing)
    attempts = 0
    while True:
        attempts += 1
        try:
            snapshot = _opened(Snapshot(storage, find(storage)), owners, for_writing=for_writing)
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
    """The log isn't any more what the snapshot was made from, or never was what its owner says."""

    def __init__(self, snapshot: Snapshot) -> None:
        super().__init__()
        self.snapshot = snapshot


def _opened(logged: Snapshot, owners: CommitOwners | None, *, for_writing: bool) -> Snapshot:
    if owners is None:
        return logged
    newest = with_ratified_commits(logged, owners, for_writing=for_writing)
    if newest is None:
        raise _LogHasChangedError(logged)
    return newest

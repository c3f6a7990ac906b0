"""Opening a table, while others commit to it and clean it up.

Between the listing of a log and the reading of its files a cleanup may take them. The state then looks
for other files that give the same version, for a snapshot never changes the version that it has told.
Where a cleanup is so eager that there are none left, a version that was asked for is gone. But whoever
asked for the newest gets the one that is the newest by then.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from airflow_delta.engine.errors import VersionNotFoundError
from airflow_delta.engine.log.segment import LogSegment, load_segment
from airflow_delta.engine.snapshot.snapshot import Snapshot
from airflow_delta.engine.storage.base import Storage

__all__ = ["open_newest", "open_snapshot"]

_ATTEMPTS = 10
"""So many newest versions may vanish while they are opened; each time the log has moved on."""


def open_snapshot(storage: Storage, version: int | None = None) -> Snapshot:
    """A version of a table, without its file actions, which are read when asked for.

    Args:
        storage: where the table is.
        version: the version; None for the newest.

    Raises:
        TableNotFoundError: there is no table.
        VersionNotFoundError: the log can't rebuild the version.
        CorruptLogError: a file of the log breaks the protocol.
        UnsupportedFeatureError: reading the table needs a feature that the engine lacks.
        InvalidTableError: protocol and metadata contradict each other.
        StorageError: the store failed.
    """
    if version is None:
        return open_newest(storage)
    return Snapshot(storage, load_segment(storage, version=version))


def open_newest(
    storage: Storage,
    *,
    find: Callable[[Storage], LogSegment] = load_segment,
    parsed: bool = False,
) -> Snapshot:
    """The newest version of a table.

    Args:
        storage: where the table is.
        find: finds the files that rebuild the newest version.
        parsed: also parse the commits after the checkpoint, so that a broken one is found out.

    Raises:
        VersionNotFoundError: again and again the newest version vanished while it was opened.
        DeltaError: see `open_snapshot`.
    """
    for _ in range(_ATTEMPTS - 1):
        with suppress(VersionNotFoundError):
            return _opened(storage, find(storage), parsed=parsed)
    return _opened(storage, find(storage), parsed=parsed)


def _opened(storage: Storage, segment: LogSegment, *, parsed: bool) -> Snapshot:
    snapshot = Snapshot(storage, segment)
    if parsed:
        snapshot.state.parse_commits()
    return snapshot

"""The version at which a log is to begin when it has been cleaned up.

PROTOCOL.md, "Metadata Cleanup", step 2: that of the newest complete checkpoint that isn't newer than the
cut-off commit. An older one will do, and has to

* where a newer one isn't what its name promises. Before the commits go that could replace it, it is read to
  its end, and its files are compared with the version checksum, if there is one;
* where commits after the cut-off would change their times (`keeps_times`);
* where ``checkpointProtection`` forbids more; see ``checkpoint_protection``.

Where there is none, all commits are needed (managed-commits.md, "Metadata Cleanup").
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from airflow_delta.engine.checkpoint.read import open_checkpoint
from airflow_delta.engine.errors import (
    CorruptLogError,
    ObjectNotFoundError,
    TableStateError,
    UnsupportedFeatureError,
)
from airflow_delta.engine.features.protocol import check_readable
from airflow_delta.engine.log.completeness import without_action
from airflow_delta.engine.log.files import Checkpoint, checksum_path
from airflow_delta.engine.log.version_checksum import VersionChecksum, read_checksum
from airflow_delta.engine.maintenance.checkpoint_protection import (
    UnknownProtocol,
    first_unknown,
    protected_before,
)
from airflow_delta.engine.maintenance.cleanup_cutoff import CleanupCutoff, keeps_times
from airflow_delta.engine.maintenance.cleanup_files import OldLog
from airflow_delta.engine.replay.small_actions import reconcile_small_actions
from airflow_delta.engine.snapshot.snapshot import Snapshot
from airflow_delta.engine.storage.base import Storage

__all__ = ["LogStart", "find_log_start"]


@dataclass(frozen=True, slots=True)
class LogStart:
    """Where a log is to begin.

    Attributes:
        version: the version of the checkpoint; None where there is none to begin with.
        protected_before: the version below which checkpoints stay; 0 where none has to.
        wanted: the version of which a checkpoint would let more be cleaned up; None where it wouldn't.
        reasons: why the log isn't to begin later, as sentences.
    """

    version: int | None
    protected_before: int = 0
    wanted: int | None = None
    reasons: tuple[str, ...] = ()


def find_log_start(
    storage: Storage, snapshot: Snapshot, log: OldLog, *, cutoff: CleanupCutoff
) -> LogStart:
    """Find the version at which the log is to begin.

    Args:
        storage: where the table is.
        snapshot: the newest version that the log has.
        log: the log up to the cut-off commit.
        cutoff: a cut-off that has a commit.

    Raises:
        InvalidTableError: a property can't be read.
        StorageError: the store failed.
    """
    assert cutoff.commit is not None
    reasons: list[str] = []

    def newest(limit: int) -> int | None:
        """The newest checkpoint up to a version that the log may begin at."""
        for checkpoint in _candidates(log, limit):
            reason = _why_not(storage, snapshot, log, checkpoint, cutoff)
            if reason is None:
                return checkpoint.version
            reasons.append(reason)
        return None

    version, boundary = newest(cutoff.commit), protected_before(snapshot)
    more: int | None = cutoff.commit
    protected = 0
    if version is not None and version < boundary:
        protected = boundary
        unknown = first_unknown(storage, log, before=version)
        if unknown is not None:
            reasons.append(_goes_with_all(unknown, boundary))
            version = newest(unknown.version)
            more = cutoff.commit if cutoff.commit >= boundary else None
    if version is None:
        reasons.append(_no_checkpoint(cutoff, more))
        return LogStart(None, protected, more, tuple(reasons))
    hampered = version < cutoff.commit and bool(reasons or protected)
    return LogStart(version, protected, more if hampered else None, tuple(reasons))


def _candidates(log: OldLog, limit: int) -> Iterator[Checkpoint]:
    """The checkpoints up to a version, newest first; of each version the one that readers choose."""
    last = None
    for checkpoint in reversed(log.checkpoints):
        if checkpoint.version <= limit and checkpoint.version != last:
            last = checkpoint.version
            yield checkpoint


def _why_not(
    storage: Storage,
    snapshot: Snapshot,
    log: OldLog,
    checkpoint: Checkpoint,
    cutoff: CleanupCutoff,
) -> str | None:
    """Why the log can't begin at a checkpoint, as a sentence; None where it can."""
    assert cutoff.commit is not None
    version = checkpoint.version
    if not log.begins_below(version):
        return None  # it begins there already
    if not keeps_times(snapshot, start=version, cutoff=cutoff.commit):
        return (
            f"if the log began at version {version}, the versions after {cutoff.commit} would seem older "
            "than now, because the times of their files ascend from those of older ones"
        )
    try:
        _read_through(storage, checkpoint)
    except (TableStateError, UnsupportedFeatureError, ObjectNotFoundError) as error:
        return f"the checkpoint {checkpoint.path} can't be relied on: {error.message}"
    return None


def _read_through(storage: Storage, checkpoint: Checkpoint) -> None:
    """Read a checkpoint to its end.

    Raises:
        CorruptLogError: it is damaged, or holds other files than the version has.
        UnsupportedFeatureError: the engine can't read its version.
        InvalidTableError: its protocol and metadata contradict each other.
        ObjectNotFoundError: it is gone.
    """
    import pyarrow.compute as pc

    from airflow_delta.engine.checkpoint.base_check import check_told
    from airflow_delta.engine.checkpoint.write import ExpectedFiles

    table, path, version = storage.root, checkpoint.path, checkpoint.version
    reader = open_checkpoint(storage, checkpoint, table=table)
    small = reconcile_small_actions(
        (kind, value, f"{path}: {kind}") for kind, value in reader.small_actions()
    )
    if small.protocol is None or small.metadata is None:
        missing = "protocol" if small.protocol is None else "metaData"
        raise without_action(missing, version=version, checkpoint=checkpoint, table=table)
    check_readable(small.protocol, small.metadata, table=table)
    num_adds = adds_size = 0
    for adds in reader.adds():
        num_adds += adds.num_rows
        adds_size += pc.sum(adds["size"]).as_py() or 0
    for _ in reader.removes():
        pass
    told = _checksum(storage, version)
    if told is not None:
        check_told(
            ExpectedFiles(told.num_files, told.table_size_bytes, checksum_path(version)),
            num_adds=num_adds,
            adds_size=adds_size,
            path=path,
            version=version,
            table=table,
        )


def _checksum(storage: Storage, version: int) -> VersionChecksum | None:
    try:
        return read_checksum(storage, version)
    except CorruptLogError:
        return None  # it is optional in every way


def _goes_with_all(unknown: UnknownProtocol, boundary: int) -> str:
    return (
        f"the engine doesn't know the protocol of version {unknown.version}, which may go only together "
        f"with all others below version {boundary} (checkpointProtection): {unknown.reason}"
    )


def _no_checkpoint(cutoff: CleanupCutoff, wanted: int | None) -> str:
    if wanted is None:
        return "no older version has a complete checkpoint to begin with, so all commits are needed"
    return (
        f"there is no complete checkpoint of version {wanted}, the newest from before {cutoff.time}, or of "
        "an older one; with none to begin with, all commits are needed. "
        f"table.checkpoint(version={wanted}) writes one"
    )

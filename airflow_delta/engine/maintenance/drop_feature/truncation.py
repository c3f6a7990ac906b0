"""Have the versions with a feature expire, and clean them up, before the feature leaves the protocol.

The feature's traces are taken out of the newest version first, and a checkpoint is written: the *start*,
the log's new beginning. Readers and writers that are under way may need what is before it for a while:
``delta.dropFeatureTruncateHistory.retentionDuration``, a day unless set. Once the start is as old as
that, to the minute, a cleanup takes all before it. If nothing that is left then has a trace the feature
can go.

A trace of the history is one of a version or of a commit: metadata
that turn the feature on, or files that need it; of ``v2Checkpoint`` any checkpoint with V2's names or
content. Of ``checkpointProtection`` it is every version below the one that the table's property names.

Protected checkpoints of dropped features stay until all before their boundary goes in one go, and with them
the versions that they rebuild. So where there is one that isn't after the last trace, the start isn't
before the boundary either. With the last of them ``checkpointProtection`` has nothing to protect any more,
and is dropped along.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from airflow_delta.engine.arrow.action_schema import VERSION
from airflow_delta.engine.checkpoint.read import open_checkpoint
from airflow_delta.engine.errors import CorruptLogError, VersionNotFoundError
from airflow_delta.engine.features.dropping import PROTECTION, metadata_traces
from airflow_delta.engine.log.completeness import check_commits
from airflow_delta.engine.log.files import Checkpoint, Commit
from airflow_delta.engine.log.listing import Listing, list_log
from airflow_delta.engine.maintenance.backfill.backfilled import open_backfilled
from airflow_delta.engine.maintenance.metadata_cleanup.checkpoint_protection import (
    read_protection_boundary,
)
from airflow_delta.engine.maintenance.metadata_cleanup.cutoff import find_cutoff_at
from airflow_delta.engine.maintenance.metadata_cleanup.plan import (
    MetadataCleanupPlan,
    plan_metadata_cleanup,
)
from airflow_delta.engine.model.actions import Metadata
from airflow_delta.engine.model.times import duration_text
from airflow_delta.engine.snapshot.feature_usage import files_with, path_keys, paths_with_vectors
from airflow_delta.engine.snapshot.new_commits import NewCommits, read_new_commits
from airflow_delta.engine.snapshot.opening import open_snapshot
from airflow_delta.engine.snapshot.snapshot import Snapshot
from airflow_delta.engine.snapshot.timestamps import utc_text
from airflow_delta.engine.storage.base import Storage

__all__ = ["Truncation", "plan_truncation"]

_MINUTE_MS = 60_000
_BATCH = 256
"""Commits that are read at a time."""


@dataclass(frozen=True, slots=True)
class Truncation:
    """What becomes of the history.

    Attributes:
        version: the newest version of the log.
        last_trace: the newest version with a trace that a cleanup would leave; None where it leaves none:
            then the feature can go.
        begins_after: the version that the log has to begin after, for no trace to be left; None where
            that isn't known yet, or none is left.
        start: the version of the checkpoint that the log has to begin with; None where it isn't there
            yet, or not needed.
        ready_at_ms: when the history before the start can be cleaned up, in epoch ms; None where that isn't
            known yet, or nothing has to be waited for.
        retention_ms: how old the start has to be.
        cleanup: what is cleaned up now; None while traces are still to be taken out of the newest version.
        unprotects: whether nothing is left, after the cleanup, that ``checkpointProtection`` protects.
    """

    version: int
    last_trace: int | None
    begins_after: int | None
    start: int | None
    ready_at_ms: int | None
    retention_ms: int
    cleanup: MetadataCleanupPlan | None = field(default=None, repr=False)
    unprotects: bool = False

    @property
    def waits(self) -> bool:
        """Whether the feature can't go yet."""
        return self.cleanup is None or self.last_trace is not None

    @property
    def needs_checkpoint(self) -> bool:
        """Whether a checkpoint has to be written before the time runs."""
        # The boundary may be a version that is yet to come, where a table came without its history.
        too_early = self.begins_after is not None and self.begins_after > self.version
        return self.waits and self.start is None and not too_early

    @property
    def needs_version(self) -> bool:
        """Whether that checkpoint has to be of a version of its own."""
        return self.needs_checkpoint and self.begins_after == self.version

    @property
    def steps(self) -> tuple[str, ...]:
        """What is to be done, as sentences without their ends."""
        told = []
        if self.needs_checkpoint:
            told.append("write a checkpoint, for the log to begin with")
        if self.waits:
            until = "" if self.ready_at_ms is None else f", at {utc_text(self.ready_at_ms)}"
            told.append(
                f"wait until that is {duration_text(self.retention_ms)} old "
                f"(delta.dropFeatureTruncateHistory.retentionDuration){until}, and come back"
            )
        if self.cleanup is None or self.waits:
            told.append("clean up the log before it")
        elif self.cleanup.needed:
            told.append(f"clean up the log before version {self.cleanup.earliest_version}")
        return tuple(told)


def plan_truncation(
    storage: Storage, base: Snapshot, feature: str, *, prepared: bool, now_ms: int
) -> Truncation:
    """Plan what becomes of the history.

    Args:
        storage: where the table is.
        base: the newest version.
        feature: the feature to be dropped.
        prepared: whether the newest version is free of its traces.
        now_ms: the time, in epoch ms.

    Raises:
        InvalidTableError: a property or a former schema can't be read.
        CorruptLogError: the log is damaged.
        UnsupportedFeatureError: a former version can't be read.
        StorageError: the store failed.
    """
    retention_ms = base.properties.drop_feature_truncate_history_retention_ms
    if not prepared:
        return Truncation(base.version, base.version, None, None, None, retention_ms)
    snapshot = open_backfilled(storage)
    expired_ms = now_ms - retention_ms
    cutoff = find_cutoff_at(snapshot, expired_ms - expired_ms % _MINUTE_MS)
    cleanup = plan_metadata_cleanup(storage, snapshot, newest=base, cutoff=cutoff, now_ms=now_ms)
    begin, boundary = cleanup.checkpoint, read_protection_boundary(base)
    if begin is None:
        begin = snapshot.timeline.earliest_recreatable
    alone = _versions_alone(storage, cleanup, begin)
    unprotects = begin >= boundary and not alone
    last_trace: int | None
    if feature == PROTECTION:
        last_trace = None if unprotects else boundary - 1
    else:
        last_trace = _last_trace(storage, snapshot, feature, first=begin)
        if last_trace is None:
            last_trace = _last_trace_alone(storage, feature, alone)
    begins_after = start = None
    if last_trace is not None:
        begins_after, start = _start_after(storage, last_trace, boundary=boundary)
    return Truncation(
        version=snapshot.version,
        last_trace=last_trace,
        begins_after=begins_after,
        start=start,
        ready_at_ms=None if start is None else _ready_at(snapshot, start, retention_ms),
        retention_ms=retention_ms,
        cleanup=cleanup,
        unprotects=unprotects,
    )


def _start_after(storage: Storage, last_trace: int, *, boundary: int) -> tuple[int, int | None]:
    """The version that the log has to begin after, and the oldest checkpoint after it."""
    versions = [checkpoint.version for checkpoint in list_log(storage).checkpoints]
    stays = any(version <= last_trace and version < boundary for version in versions)
    after = max(last_trace, boundary - 1) if stays else last_trace
    return after, min((version for version in versions if version > after), default=None)


def _ready_at(snapshot: Snapshot, start: int, retention_ms: int) -> int:
    """When a version is as old as it has to be, by cut-offs that are whole minutes."""
    time_ms = snapshot.timeline.timestamp_ms(start)
    return time_ms + -time_ms % _MINUTE_MS + retention_ms


def _last_trace(storage: Storage, snapshot: Snapshot, feature: str, *, first: int) -> int | None:
    """The newest version with a trace, among those from a version on that can be rebuilt."""
    listing = list_log(storage, start=first, end=snapshot.version)
    commits = [commit for commit in listing.commits if commit.version > first]
    check_commits(commits, after=first, to=snapshot.version, table=storage.root)
    last = _in_commits(storage, commits, feature, snapshot)
    if last.traced is None and metadata_traces(
        feature, open_snapshot(storage, first, verified=True).metadata, table=storage.root
    ):
        last.traced = last.until
    found = [last.traced, last.of_files]
    if feature == "v2Checkpoint":
        found.append(_in_checkpoints(storage, listing))
    return max((version for version in found if version is not None), default=None)


def _versions_alone(storage: Storage, cleanup: MetadataCleanupPlan, begin: int) -> Sequence[int]:
    """The versions that are left after a cleanup by nothing but their own checkpoints, ascending.

    Args:
        storage: where the table is.
        cleanup: the plan.
        begin: the version from which on there are all commits afterwards.
    """
    if cleanup.checkpoint is not None:
        return [*cleanup.protected_versions, *range(cleanup.earliest_version, begin)]
    # Nothing is cleaned up: what an earlier cleanup has left.
    found = {checkpoint.version for checkpoint in list_log(storage).checkpoints}
    return sorted(version for version in found if version < begin)


def _last_trace_alone(storage: Storage, feature: str, versions: Sequence[int]) -> int | None:
    """The newest version with a trace, among those of `_versions_alone`."""
    for version in reversed(versions):
        try:
            if _is_traced(storage, feature, version):
                return version
        except (CorruptLogError, VersionNotFoundError):
            continue  # a damaged checkpoint rebuilds nothing
    return None


def _is_traced(storage: Storage, feature: str, version: int) -> bool:
    snapshot = open_snapshot(storage, version, verified=True)
    if metadata_traces(feature, snapshot.metadata, table=storage.root):
        return True
    if feature == "v2Checkpoint":
        listing = list_log(storage, start=version, end=version)
        return _in_checkpoints(storage, listing) is not None
    return feature == "deletionVectors" and files_with(feature, snapshot).num_rows > 0


@dataclass(slots=True)
class _Last:
    """What is known of the newest trace, while commits are read from the newest on backwards.

    Attributes:
        until: up to which version the metadata hold that are looked for next.
        traced: the newest version whose metadata have a trace.
        of_files: the newest version with a file that has one, or with a commit that adds such a file.
    """

    until: int
    traced: int | None = None
    of_files: int | None = None

    @property
    def is_found(self) -> bool:
        """Whether older commits can't change what is known."""
        return self.traced is not None or (self.of_files or -1) >= self.until


def _in_commits(
    storage: Storage, commits: Sequence[Commit], feature: str, newest: Snapshot
) -> _Last:
    last, vectors = _Last(newest.version), pa.array([], pa.string())
    if feature == "deletionVectors":
        vectors = paths_with_vectors(newest.tombstones(include_expired=True), table=storage.root)
    for end in range(len(commits), 0, -_BATCH):
        read = _read(storage, commits[max(0, end - _BATCH) : end])
        if feature == "deletionVectors":
            versions = _versions_with_vectors(read, vectors, table=storage.root)
            last.of_files = max([last.of_files or -1, *versions]) if versions else last.of_files
        for action in reversed(read.parsed.non_file_actions):
            if action.kind != "metaData" or last.traced is not None:
                continue
            metadata = Metadata.from_json(action.value, f"commit {action.version}: metaData")
            if metadata_traces(feature, metadata, table=storage.root):
                last.traced = last.until
            last.until = action.version - 1
        if last.is_found:
            break
    return last


def _read(storage: Storage, commits: Sequence[Commit]) -> NewCommits:
    return read_new_commits(storage, tuple(commits), table=storage.root)


def _versions_with_vectors(read: NewCommits, removed: pa.Array, *, table: str) -> list[int]:
    """Versions that have files with deletion vectors, as commits add them or still had to remove them.

    Likewise those with a file whose path was that of one with a deletion vector; see ``file_traces``.

    Args:
        read: the commits.
        removed: the paths of removed files with deletion vectors, as `path_keys` has them.
        table: the table's location.
    """
    adds, removes = read.parsed.files.adds, read.parsed.files.removes
    added = adds.filter(pc.is_valid(adds["deletionVector"]))
    gone = removes.filter(
        pc.or_(
            pc.is_valid(removes["deletionVector"]),
            pc.is_in(path_keys(removes["path"], table=table), value_set=removed),
        )
    )
    added, gone = (rows[VERSION].unique().to_pylist() for rows in (added, gone))
    return [*added, *(version - 1 for version in gone)]


def _in_checkpoints(storage: Storage, listing: Listing) -> int | None:
    """The newest version with a V2 checkpoint, whatever its name."""
    for checkpoint in reversed(listing.checkpoints):
        if _is_v2(storage, checkpoint):
            return checkpoint.version
    return None


def _is_v2(storage: Storage, checkpoint: Checkpoint) -> bool:
    return open_checkpoint(storage, checkpoint, table=storage.root).metadata is not None

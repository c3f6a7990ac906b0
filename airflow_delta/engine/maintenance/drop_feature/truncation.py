"""Have the versions with a feature expire, and clean them up, before the feature leaves the protocol.

The feature's traces are taken out of the newest version first, and a checkpoint is written: the *start*,
the log's new beginning. Readers and writers that are under way may need what is before it for a while:
``delta.dropFeatureTruncateHistory.retentionDuration``, a day unless set. Once the start is as old as
that, to the minute, a cleanup takes all before it. If nothing that is left then has a trace the feature
can go.

A trace of the history is one of a version or of a commit: metadata
that turn the feature on, or files that need it; of ``v2Checkpoint`` any checkpoint with V2's names or
content. Of ``checkpointProtection`` it is every version below the one that the table's property names.

Protected checkpoints of dropped features stay until all before their boundary goes in one go, so that a
start isn't before that either; with the last of them ``checkpointProtection`` has nothing to protect any
more, and is dropped along.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow.compute as pc

from airflow_delta.engine.arrow.action_schema import VERSION
from airflow_delta.engine.checkpoint.read import open_checkpoint
from airflow_delta.engine.features.dropping import PROTECTION, metadata_traces
from airflow_delta.engine.log.completeness import check_commits
from airflow_delta.engine.log.files import Checkpoint, Commit
from airflow_delta.engine.log.listing import Listing, list_log
from airflow_delta.engine.maintenance.backfilled import open_backfilled
from airflow_delta.engine.maintenance.checkpoint_protection import protected_before
from airflow_delta.engine.maintenance.cleanup_cutoff import cutoff_at
from airflow_delta.engine.maintenance.metadata_cleanup import (
    MetadataCleanupPlan,
    plan_metadata_cleanup,
)
from airflow_delta.engine.model.actions import Metadata
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
        return self.waits and self.start is None

    @property
    def steps(self) -> tuple[str, ...]:
        """What is to be done, as sentences without their ends."""
        told = []
        if self.needs_checkpoint:
            told.append("write a checkpoint, for the log to begin with")
        if self.waits:
            until = "" if self.ready_at_ms is None else f", at {utc_text(self.ready_at_ms)}"
            told.append(
                f"wait until that is {self.retention_ms / 3_600_000:g} hours old "
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
        return Truncation(base.version, base.version, None, None, retention_ms)
    snapshot = open_backfilled(storage)
    expired_ms = now_ms - retention_ms
    cutoff = cutoff_at(snapshot, expired_ms - expired_ms % _MINUTE_MS)
    cleanup = plan_metadata_cleanup(storage, snapshot, newest=base, cutoff=cutoff, now_ms=now_ms)
    begin, boundary = cleanup.earliest_version, protected_before(base)
    if feature == PROTECTION:
        last_trace = boundary - 1 if begin < boundary else None
    else:
        last_trace = _last_trace(storage, snapshot, feature, first=begin)
    start = None if last_trace is None else _start_after(storage, last_trace)
    return Truncation(
        version=snapshot.version,
        last_trace=last_trace,
        start=start,
        ready_at_ms=None if start is None else _ready_at(snapshot, start, retention_ms),
        retention_ms=retention_ms,
        cleanup=cleanup,
        unprotects=begin >= boundary,
    )


def _start_after(storage: Storage, version: int) -> int | None:
    """The oldest checkpoint after a version."""
    checkpoints = list_log(storage, start=version + 1).checkpoints
    return min((checkpoint.version for checkpoint in checkpoints), default=None)


def _ready_at(snapshot: Snapshot, start: int, retention_ms: int) -> int:
    """When a version is as old as it has to be, by cut-offs that are whole minutes."""
    time_ms = snapshot.timeline.timestamp_ms(start)
    return time_ms + -time_ms % _MINUTE_MS + retention_ms


def _last_trace(storage: Storage, snapshot: Snapshot, feature: str, *, first: int) -> int | None:
    """The newest version with a trace, among those from a version on that can be rebuilt."""
    listing = list_log(storage, start=first, end=snapshot.version)
    commits = [commit for commit in listing.commits if commit.version > first]
    check_commits(commits, after=first, to=snapshot.version, table=storage.root)
    last = _in_commits(storage, commits, feature, newest=snapshot.version)
    if last.traced is None and metadata_traces(
        feature, open_snapshot(storage, first).metadata, table=storage.root
    ):
        last.traced = last.until
    found = [last.traced, last.of_files]
    if feature == "v2Checkpoint":
        found.append(_in_checkpoints(storage, listing))
    return max((version for version in found if version is not None), default=None)


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


def _in_commits(storage: Storage, commits: Sequence[Commit], feature: str, *, newest: int) -> _Last:
    last = _Last(newest)
    for end in range(len(commits), 0, -_BATCH):
        read = _read(storage, commits[max(0, end - _BATCH) : end])
        if feature == "deletionVectors":
            versions = _versions_with_vectors(read)
            last.of_files = max([last.of_files or -1, *versions]) if versions else last.of_files
        for action in reversed(read.parsed.small):
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


def _versions_with_vectors(read: NewCommits) -> list[int]:
    """Versions that have files with deletion vectors, as commits add them or still had to remove them."""
    adds, removes = read.parsed.files.adds, read.parsed.files.removes
    added, removed = (
        rows.filter(pc.is_valid(rows["deletionVector"]))[VERSION].unique().to_pylist()
        for rows in (adds, removes)
    )
    return [*added, *(version - 1 for version in removed)]


def _in_checkpoints(storage: Storage, listing: Listing) -> int | None:
    """The newest version with a V2 checkpoint, whatever its name."""
    for checkpoint in reversed(listing.checkpoints):
        if _is_v2(storage, checkpoint):
            return checkpoint.version
    return None


def _is_v2(storage: Storage, checkpoint: Checkpoint) -> bool:
    return open_checkpoint(storage, checkpoint, table=storage.root).metadata is not None

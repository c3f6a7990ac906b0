"""Plan the truncation of history: let versions with a feature expire, and clean them up.

1. Once the newest version doesn't use the feature, a checkpoint is written: the *start*, with which the
   log will begin.
2. When the start is as old as ``delta.dropFeatureTruncateHistory.retentionDuration``, a day unless set,
   running readers and writers no longer need older versions. A metadata cleanup deletes them.
3. If no version that remains uses the feature, it can be dropped.

A version uses a feature if its metadata enable it, or if it has a file that needs it. ``v2Checkpoint`` is
used by a checkpoint with V2's name or content, ``checkpointProtection`` by every version below the boundary
(`read_protection_boundary`).

With the last protected checkpoint ``checkpointProtection`` is dropped too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from airflow_delta.engine.arrow.action_schema import VERSION
from airflow_delta.engine.checkpoint.read import open_checkpoint
from airflow_delta.engine.errors import CorruptLogError, VersionNotFoundError
from airflow_delta.engine.features.dropping import PROTECTION, find_metadata_uses
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
from airflow_delta.engine.replay.file_filter import path_keys
from airflow_delta.engine.snapshot.feature_usage import files_with, paths_with_vectors
from airflow_delta.engine.snapshot.new_commits import NewCommits, read_new_commits
from airflow_delta.engine.snapshot.opening import open_snapshot
from airflow_delta.engine.snapshot.snapshot import Snapshot
from airflow_delta.engine.snapshot.timestamps import utc_text
from airflow_delta.engine.storage.base import Storage

__all__ = ["Truncation", "find_last_use", "plan_truncation"]

_MINUTE_MS = 60_000
_BATCH = 256
"""How many commits are read at a time."""


@dataclass(frozen=True, slots=True)
class Truncation:
    """The plan for the history, whose versions expire before the feature is dropped.

    Attributes:
        version: the newest version of the log.
        last_use: the newest version with the feature that a cleanup would leave; None if it leaves none, so
            that the feature can be dropped.
        begins_after: the version after which the log has to begin, so that no version uses the
            feature; None if that isn't known yet, or none does.
        start: the version of the checkpoint that the log has to begin with; None if it doesn't exist yet,
            or isn't needed.
        ready_at_ms: when the history before the start can be cleaned up, in epoch ms; None if that isn't
            known yet, or there is nothing to wait for.
        retention_ms: how old the start has to be.
        cleanup: the cleanup that is due now; None while the newest version uses the feature.
        unprotects: whether the cleanup leaves nothing that ``checkpointProtection`` protects.
    """

    version: int
    last_use: int | None
    begins_after: int | None
    start: int | None
    ready_at_ms: int | None
    retention_ms: int
    cleanup: MetadataCleanupPlan | None = field(default=None, repr=False)
    unprotects: bool = False

    @property
    def waits(self) -> bool:
        """Whether the feature can't be dropped yet."""
        return self.cleanup is None or self.last_use is not None

    @property
    def needs_checkpoint(self) -> bool:
        """Whether the start has to be written."""
        # If a table was copied without its history, the boundary may be a future version.
        too_early = self.begins_after is not None and self.begins_after > self.version
        return self.waits and self.start is None and not too_early

    @property
    def needs_version(self) -> bool:
        """Whether the start has to be a new, empty version."""
        return self.needs_checkpoint and self.begins_after == self.version

    @property
    def steps(self) -> tuple[str, ...]:
        """The steps that are left to do, as sentences without a full stop."""
        steps = []
        if self.needs_checkpoint:
            steps.append("write a checkpoint, for the log to begin with")
        if self.waits:
            until = "" if self.ready_at_ms is None else f", at {utc_text(self.ready_at_ms)}"
            steps.append(
                f"wait until that is {duration_text(self.retention_ms)} old "
                f"(delta.dropFeatureTruncateHistory.retentionDuration){until}, and come back"
            )
        if self.cleanup is None or self.waits:
            steps.append("clean up the log before it")
        elif self.cleanup.needed:
            steps.append(f"clean up the log before version {self.cleanup.earliest_version}")
        return tuple(steps)


def plan_truncation(
    storage: Storage, base: Snapshot, feature: str, *, prepared: bool, now_ms: int
) -> Truncation:
    """Plan what happens to the history.

    Args:
        storage: where the table is.
        base: the newest version.
        feature: the feature to be dropped.
        prepared: whether the newest version doesn't use it.
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
    isolated = _list_isolated_versions(storage, cleanup, begin)
    unprotects = begin >= boundary and not isolated
    last_use: int | None
    if feature == PROTECTION:
        last_use = None if unprotects else boundary - 1
    else:
        last_use = find_last_use(storage, snapshot, feature, first=begin)
        if last_use is None:
            last_use = _find_last_isolated_use(storage, feature, isolated)
    begins_after = start = None
    if last_use is not None:
        begins_after, start = _find_start(storage, last_use, boundary=boundary)
    return Truncation(
        version=snapshot.version,
        last_use=last_use,
        begins_after=begins_after,
        start=start,
        ready_at_ms=None if start is None else _compute_ready_at(snapshot, start, retention_ms),
        retention_ms=retention_ms,
        cleanup=cleanup,
        unprotects=unprotects,
    )


def _find_start(storage: Storage, last_use: int, *, boundary: int) -> tuple[int, int | None]:
    """Find the version after which the log has to begin, and the oldest checkpoint after it."""
    versions = [checkpoint.version for checkpoint in list_log(storage).checkpoints]
    # Protected checkpoints stay until all below the boundary is deleted at once.
    stays = any(version <= last_use and version < boundary for version in versions)
    after = max(last_use, boundary - 1) if stays else last_use
    return after, min((version for version in versions if version > after), default=None)


def _compute_ready_at(snapshot: Snapshot, start: int, retention_ms: int) -> int:
    """Return when a version will be old enough. Cut-offs are whole minutes."""
    time_ms = snapshot.timeline.timestamp_ms(start)
    return time_ms + -time_ms % _MINUTE_MS + retention_ms


def find_last_use(storage: Storage, snapshot: Snapshot, feature: str, *, first: int) -> int | None:
    """Find the newest version with a feature, among those from a version on that can be rebuilt.

    Args:
        storage: where the table is.
        snapshot: the newest version, with the versions before it backfilled.
        feature: the feature.
        first: the first version to look at.

    Returns:
        The version; None if no version uses the feature.

    Raises:
        DeltaError: see `plan_truncation`.
    """
    listing = list_log(storage, start=first, end=snapshot.version)
    commits = [commit for commit in listing.commits if commit.version > first]
    check_commits(commits, after=first, to=snapshot.version, table=storage.root)
    last = _search_commits(storage, commits, feature, snapshot)
    if last.by_metadata is None and find_metadata_uses(
        feature, open_snapshot(storage, first, verified=True).metadata, table=storage.root
    ):
        last.by_metadata = last.until
    found = [last.by_metadata, last.by_files]
    if feature == "v2Checkpoint":
        found.append(_find_v2_checkpoint(storage, listing))
    return max((version for version in found if version is not None), default=None)


def _list_isolated_versions(
    storage: Storage, cleanup: MetadataCleanupPlan, begin: int
) -> Sequence[int]:
    """List the versions that only their own checkpoints can rebuild after a cleanup, ascending.

    Args:
        storage: where the table is.
        cleanup: the plan.
        begin: the version from which on all commits exist afterwards.
    """
    if cleanup.checkpoint is not None:
        return [*cleanup.protected_versions, *range(cleanup.earliest_version, begin)]
    # Nothing is cleaned up, but an earlier cleanup may have left such versions.
    found = {checkpoint.version for checkpoint in list_log(storage).checkpoints}
    return sorted(version for version in found if version < begin)


def _find_last_isolated_use(storage: Storage, feature: str, versions: Sequence[int]) -> int | None:
    """Find the newest version with the feature, among those of `_list_isolated_versions`."""
    for version in reversed(versions):
        try:
            if _uses_feature(storage, feature, version):
                return version
        except (CorruptLogError, VersionNotFoundError):
            continue  # a damaged checkpoint rebuilds nothing
    return None


def _uses_feature(storage: Storage, feature: str, version: int) -> bool:
    snapshot = open_snapshot(storage, version, verified=True)
    if find_metadata_uses(feature, snapshot.metadata, table=storage.root):
        return True
    if feature == "v2Checkpoint":
        listing = list_log(storage, start=version, end=version)
        return _find_v2_checkpoint(storage, listing) is not None
    return feature == "deletionVectors" and files_with(feature, snapshot).num_rows > 0


@dataclass(slots=True)
class _Last:
    """The newest uses that are known, while commits are read backwards from the newest.

    Attributes:
        until: the last version for which the next older metadata are in force.
        by_metadata: the newest version whose metadata use the feature.
        by_files: the newest version that has a file that needs it, or whose commit adds such a file.
    """

    until: int
    by_metadata: int | None = None
    by_files: int | None = None

    @property
    def is_found(self) -> bool:
        """Whether older commits can't change what is known."""
        return self.by_metadata is not None or (self.by_files or -1) >= self.until


def _search_commits(
    storage: Storage, commits: Sequence[Commit], feature: str, newest: Snapshot
) -> _Last:
    last, vectors = _Last(newest.version), pa.array([], pa.string())
    if feature == "deletionVectors":
        vectors = paths_with_vectors(newest.tombstones(include_expired=True), table=storage.root)
    for end in range(len(commits), 0, -_BATCH):
        read = _read(storage, commits[max(0, end - _BATCH) : end])
        if feature == "deletionVectors":
            versions = _list_versions_with_vectors(read, vectors, table=storage.root)
            last.by_files = max([last.by_files or -1, *versions]) if versions else last.by_files
        for action in reversed(read.parsed.non_file_actions):
            if action.kind != "metaData" or last.by_metadata is not None:
                continue
            metadata = Metadata.from_json(action.value, f"commit {action.version}: metaData")
            if find_metadata_uses(feature, metadata, table=storage.root):
                last.by_metadata = last.until
            last.until = action.version - 1
        if last.is_found:
            break
    return last


def _read(storage: Storage, commits: Sequence[Commit]) -> NewCommits:
    return read_new_commits(storage, tuple(commits), table=storage.root)


def _list_versions_with_vectors(read: NewCommits, removed: pa.Array, *, table: str) -> list[int]:
    """List versions that have files with deletion vectors, by the commits that add or remove these.

    A file also counts if its path once had a deletion vector; see ``snapshot/feature_usage.py``.

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


def _find_v2_checkpoint(storage: Storage, listing: Listing) -> int | None:
    """Find the newest version with a V2 checkpoint, whatever its name."""
    for checkpoint in reversed(listing.checkpoints):
        if _is_v2(storage, checkpoint):
            return checkpoint.version
    return None


def _is_v2(storage: Storage, checkpoint: Checkpoint) -> bool:
    return open_checkpoint(storage, checkpoint, table=storage.root).metadata is not None

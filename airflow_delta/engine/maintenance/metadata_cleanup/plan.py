"""Plan a metadata cleanup: which files of a log are deleted, and why others stay.

The steps of PROTOCOL.md, "Metadata Cleanup", with the changes of the RFCs managed-commits and
checkpoint-protection, each in a module of its own:

1. how far back the log is kept: ``cutoff.py``;
2. the checkpoint that the log begins with afterwards: ``log_start.py``;
3. older commits, checksums, compactions, checkpoints and un-backfilled commits: ``expired_files.py``;
4. and 5. sidecars: ``sidecars.py``;
6. (ours) temporary files of dead writers: ``unfinished_files.py``.

A plan deletes nothing; ``execution.py`` carries it out. Of a managed table, only backfilled files are
deleted, but the newest version decides, by its protocol and properties, whether it is backfilled or not.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from airflow_delta.engine import clock
from airflow_delta.engine.errors import InvalidArgumentError
from airflow_delta.engine.features.protocol import Operation, check_writable
from airflow_delta.engine.log.files import Checkpoint, UnbackfilledCommit
from airflow_delta.engine.maintenance.metadata_cleanup.checkpoint_protection import (
    read_protection_boundary,
)
from airflow_delta.engine.maintenance.metadata_cleanup.checkpoints import explain_unreliable
from airflow_delta.engine.maintenance.metadata_cleanup.cutoff import (
    DAY_MS,
    CleanupCutoff,
    choose_cutoff,
)
from airflow_delta.engine.maintenance.metadata_cleanup.expired_files import (
    FileGroup,
    Kind,
    OldLog,
    ProposedCommits,
    find_hadoop_checksums,
    scan_old_log,
)
from airflow_delta.engine.maintenance.metadata_cleanup.log_start import LogStart, find_log_start
from airflow_delta.engine.maintenance.metadata_cleanup.sidecars import (
    SidecarPlan,
    plan_sidecar_cleanup,
)
from airflow_delta.engine.maintenance.metadata_cleanup.unfinished_files import find_unfinished_files
from airflow_delta.engine.model.arguments import check_type
from airflow_delta.engine.model.times import utc_text
from airflow_delta.engine.snapshot.opening import open_earlier
from airflow_delta.engine.snapshot.snapshot import Snapshot
from airflow_delta.engine.storage.base import Storage

__all__ = ["KeptFiles", "MetadataCleanupPlan", "open_backfilled_part", "plan_metadata_cleanup"]


@dataclass(frozen=True, slots=True)
class KeptFiles:
    """Files that stay although they are old or seem useless.

    Attributes:
        kind: what they are.
        count: how many there are.
        reason: why they stay, as a sentence.
    """

    kind: Kind
    count: int
    reason: str


@dataclass(frozen=True, slots=True)
class MetadataCleanupPlan:
    """The plan of a metadata cleanup.

    Attributes:
        table: the table's location.
        version: the newest version in the log.
        cutoff: how far back the log is kept.
        checkpoint: the version of the checkpoint that the log begins with afterwards; None if the log stays
            as it is.
        deletes: the files to delete, by kind, in the order of deletion.
        keeps: files that stay although they are old, and why.
        earliest_version: the first version that can be read afterwards, and all later ones with it.
        protected_versions: earlier versions that can also be read afterwards, from checkpoints that
            ``checkpointProtection`` protects, ascending.
        wanted_checkpoint: the version whose checkpoint, if it existed, would allow more to be deleted; None
            if none would.
        reason: why nothing is deleted, or not more, as a sentence; None if everything old is deleted.
        begins_with: the checkpoint that the log begins with, as it was read; None where ``checkpoint`` is.
        sidecars: what happens to the sidecars; None if the log stays as it is.
    """

    table: str
    version: int
    cutoff: CleanupCutoff
    checkpoint: int | None
    deletes: tuple[FileGroup, ...]
    keeps: tuple[KeptFiles, ...]
    earliest_version: int
    protected_versions: tuple[int, ...] = ()
    wanted_checkpoint: int | None = None
    reason: str | None = None
    begins_with: Checkpoint | None = field(default=None, repr=False)
    sidecars: SidecarPlan | None = field(default=None, repr=False)

    @property
    def needed(self) -> bool:
        """Whether anything is to be deleted."""
        return bool(self.deletes)

    @property
    def num_files(self) -> int:
        """The number of files to delete."""
        return sum(group.count for group in self.deletes)

    @property
    def size_in_bytes(self) -> int:
        """The sum of their sizes."""
        return sum(group.size_in_bytes for group in self.deletes)

    def count(self, kind: Kind) -> int:
        """The number of files of a kind to delete."""
        return sum(group.count for group in self.deletes if group.kind == kind)

    def to_dict(self) -> dict[str, Any]:
        """The plan as plain JSON values. It counts files and names none.

        Returns:
            ``version`` (the newest one in the log), ``cutoff`` (ISO-8601) and ``cutoff_version``,
            ``checkpoint`` (the version of the checkpoint that the log begins with afterwards, None if it
            stays as it is), ``earliest_version``, ``num_protected_versions`` (earlier ones that can also be
            read), ``files`` and ``bytes`` to be deleted, ``deletes`` and ``keeps`` (what is deleted and
            what stays, by kind), ``wanted_checkpoint`` and the ``reason`` why not more is deleted.
        """
        return {
            "version": self.version,
            "cutoff": utc_text(self.cutoff.time_ms),
            "cutoff_version": self.cutoff.commit,
            "checkpoint": self.checkpoint,
            "earliest_version": self.earliest_version,
            "num_protected_versions": len(self.protected_versions),
            "files": self.num_files,
            "bytes": self.size_in_bytes,
            "deletes": [
                {
                    "kind": group.kind,
                    "files": group.count,
                    "bytes": group.size_in_bytes,
                    "first_version": group.first_version,
                    "last_version": group.last_version,
                }
                for group in self.deletes
            ],
            "keeps": [
                {"kind": kept.kind, "files": kept.count, "reason": kept.reason}
                for kept in self.keeps
            ],
            "wanted_checkpoint": self.wanted_checkpoint,
            "reason": self.reason,
        }


def plan_metadata_cleanup(
    storage: Storage,
    snapshot: Snapshot,
    *,
    newest: Snapshot | None = None,
    older_than: timedelta | None = None,
    force: bool = False,
    cutoff: CleanupCutoff | None = None,
    now_ms: int | None = None,
) -> MetadataCleanupPlan:
    """Plan a metadata cleanup.

    Args:
        storage: where the table is.
        snapshot: the newest version in the log, by `open_backfilled_part` or `open_backfilled`.
        newest: the newest version of a managed table, as its commit owner knows it. Its protocol and its
            properties decide what may be deleted. None if that is ``snapshot``.
        older_than: how old commits must be to be deleted; None: ``delta.logRetentionDuration``.
        force: see `choose_cutoff`.
        cutoff: how far back the log is kept; None to let the table's properties decide.
        now_ms: the time, in epoch ms; by the clock unless given.

    Raises:
        UnsupportedFeatureError: the engine can't write the table.
        RetentionError: see `choose_cutoff`.
        InvalidArgumentError: ``older_than`` is no duration, or negative.
        InvalidTableError: a property can't be read.
        CorruptLogError: a commit lacks the in-commit timestamp that it must have.
        StorageError: the store failed.
    """
    if newest is None or newest.version < snapshot.version:
        newest = snapshot
    check_writable(newest.protocol, newest.metadata, table=newest.table, operation=Operation.COMMIT)
    now_ms = clock.now_ms() if now_ms is None else now_ms
    if cutoff is None:
        older_than_ms = _to_milliseconds(older_than, snapshot.table)
        cutoff = choose_cutoff(
            snapshot, now_ms=now_ms, newest=newest, older_than_ms=older_than_ms, force=force
        )
    if cutoff.commit is None:
        return _without(snapshot, cutoff, LogStart(None, reasons=(cutoff.reason or "",)))
    log = scan_old_log(storage, end=cutoff.commit)
    boundary = read_protection_boundary(newest)
    start = find_log_start(storage, snapshot, log, cutoff=cutoff, boundary=boundary)
    if start.checkpoint is None:
        return _without(snapshot, cutoff, start)
    return _Planning(storage, snapshot, log, start, start.checkpoint, now_ms).plan(cutoff)


def open_backfilled_part(newest: Snapshot) -> Snapshot:
    """Open the newest version in the log itself, whose files a cleanup deletes.

    Args:
        newest: the newest version of the table.

    Raises:
        DeltaError: see `open_snapshot`.
    """
    proposed = (file for file in newest.segment.commits if isinstance(file, UnbackfilledCommit))
    first = next(proposed, None)
    if first is None:
        return newest
    return open_earlier(newest, first.version - 1)


def _to_milliseconds(older_than: timedelta | None, table: str) -> int | None:
    if older_than is None:
        return None
    check_type("older_than", older_than, timedelta, "a timedelta", table=table)
    if older_than < timedelta():
        raise InvalidArgumentError(
            f"older_than: expected a duration of at least zero, found {older_than!r}; commits of the "
            "future can't be cleaned up",
            table=table,
        )
    return older_than // timedelta(milliseconds=1)


def _without(snapshot: Snapshot, cutoff: CleanupCutoff, start: LogStart) -> MetadataCleanupPlan:
    """Make the plan of a log that stays as it is."""
    timeline = snapshot.timeline
    return MetadataCleanupPlan(
        table=snapshot.table,
        version=snapshot.version,
        cutoff=cutoff,
        checkpoint=None,
        deletes=(),
        keeps=(),
        earliest_version=_extend_back(timeline.earliest_recreatable, timeline.checkpoints),
        wanted_checkpoint=start.wanted,
        reason="; ".join(start.reasons),
    )


def _extend_back(earliest: int, checkpoints: Container[int]) -> int:
    """Return the first version from which on all can be read, if adjacent checkpoints stay."""
    while earliest - 1 in checkpoints:
        earliest -= 1
    return earliest


@dataclass(frozen=True, slots=True)
class _Planning:
    """Plans a cleanup, once it is decided where the log begins."""

    storage: Storage
    snapshot: Snapshot
    log: OldLog
    start: LogStart
    checkpoint: Checkpoint
    now_ms: int

    @property
    def version(self) -> int:
        """The version that the log begins at."""
        return self.checkpoint.version

    def plan(self, cutoff: CleanupCutoff) -> MetadataCleanupPlan:
        """Make the plan."""
        assert cutoff.commit is not None
        log, version, protected = self.log, self.version, bool(self.start.protected_before)
        old = log.groups(version, keeps_checkpoints=protected)
        proposed = ProposedCommits.of(self.storage)
        # As of midnight, like the cut-off.
        day_old_ms = self.now_ms - self.now_ms % DAY_MS - DAY_MS
        first_checkpoint = 0 if protected else version
        sidecars = plan_sidecar_cleanup(
            self.storage, first_version=first_checkpoint, before_ms=day_old_ms
        )
        hidden = (*log.hidden, *proposed.hidden)
        unfinished = find_unfinished_files(
            self.storage, hidden, latest=self.snapshot.version, before_ms=day_old_ms
        )
        groups = (
            *old,
            proposed.group(version),
            sidecars.unneeded,
            unfinished.abandoned,
            find_hadoop_checksums(hidden, version, keeps_checkpoints=protected),
        )
        deletes = tuple(group for group in groups if group.count)
        kept = self._check_kept_checkpoints()
        readable = {version for version, reason in kept.items() if reason is None}
        earliest = _extend_back(version, readable)
        keeps = (
            *self._list_kept_of_log(cutoff.commit),
            *_list_kept_sidecars(sidecars),
            KeptFiles(
                "files in the making",
                unfinished.kept,
                "they are younger than a day, or belong to a future version",
            ),
        )
        return MetadataCleanupPlan(
            table=self.snapshot.table,
            version=self.snapshot.version,
            cutoff=cutoff,
            checkpoint=version,
            deletes=deletes,
            keeps=tuple(kept for kept in keeps if kept.count),
            earliest_version=earliest,
            protected_versions=tuple(sorted(found for found in readable if found < earliest)),
            wanted_checkpoint=self.start.wanted,
            reason=self._explain(kept, deletes, earliest),
            begins_with=self.checkpoint,
            sidecars=sidecars,
        )

    def _check_kept_checkpoints(self) -> dict[int, str | None]:
        """Return the versions whose protected checkpoints stay; each with why it can't be read, else None.

        The checkpoints are read to their ends, because the commits that could replace them are deleted.
        """
        if not self.start.protected_before:
            return {}
        kept: dict[int, str | None] = {}
        # Of several checkpoints of a version readers choose the last; if that is damaged, one before it.
        for checkpoint in reversed(self.log.checkpoints):
            version = checkpoint.version
            if version < self.version and kept.get(version, "") is not None:
                kept[version] = explain_unreliable(self.storage, checkpoint)
        return kept

    def _list_kept_of_log(self, cutoff_commit: int) -> Iterator[KeptFiles]:
        version, boundary = self.version, self.start.protected_before
        yield KeptFiles(
            "commits",
            max(0, cutoff_commit - version),
            f"they are older than the cut-off, but version {cutoff_commit} is rebuilt from them and the "
            f"checkpoint of version {version}",
        )
        files = self.log.checkpoint_files
        if boundary:
            protected = sum(1 for of, _ in files if of < version)
            yield KeptFiles("checkpoints", protected, _explain_protection(boundary))
        whole = {file.path for found in self.log.checkpoints for file in found.files}
        unfinished = sum(1 for of, info in files if of >= version and info.path not in whole)
        yield KeptFiles(
            "checkpoints",
            unfinished,
            f"they are incomplete, but no older than version {version}: a writer may be making them",
        )

    def _explain(
        self, kept: Mapping[int, str | None], deletes: tuple[FileGroup, ...], earliest: int
    ) -> str | None:
        reasons = [*self.start.reasons]
        if any(version < earliest for version in kept):
            reasons.append(_explain_protection(self.start.protected_before))
        reasons += [reason for reason in kept.values() if reason is not None]
        if not (deletes or reasons):
            reasons.append(
                f"the log already begins at version {earliest}, and nothing else is left over"
            )
        return "; ".join(reasons) or None


def _explain_protection(boundary: int) -> str:
    return (
        f"checkpoints below version {boundary} are deleted only all at once, when the log can begin with "
        "one of that version or later (checkpointProtection)"
    )


def _list_kept_sidecars(plan: SidecarPlan) -> Iterator[KeptFiles]:
    yield KeptFiles(
        "sidecars", plan.num_named, plan.reason or "remaining checkpoints refer to them"
    )
    yield KeptFiles(
        "sidecars",
        plan.num_young,
        "they are younger than a day: a writer may be making a checkpoint that refers to them",
    )

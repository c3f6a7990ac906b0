"""Find the version at which a log begins after a cleanup.

PROTOCOL.md, "Metadata Cleanup", step 2: the version of the newest complete checkpoint that isn't newer than
the cut-off commit. `find_log_start` takes an older one

* if a newer one is unreliable (``checkpoints.py``), or commits after it are gone;
* if commits after the cut-off would change their times (`would_keep_times`);
* if ``checkpointProtection`` forbids it (``checkpoint_protection.py``).

Without such a checkpoint all commits are needed (RFC managed-commits, "Metadata Cleanup").
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from airflow_delta.engine.log.files import Checkpoint
from airflow_delta.engine.maintenance.metadata_cleanup.checkpoint_protection import (
    UnknownProtocol,
    find_first_unknown,
)
from airflow_delta.engine.maintenance.metadata_cleanup.checkpoints import explain_unreliable
from airflow_delta.engine.maintenance.metadata_cleanup.cutoff import CleanupCutoff, would_keep_times
from airflow_delta.engine.maintenance.metadata_cleanup.expired_files import OldLog
from airflow_delta.engine.snapshot.snapshot import Snapshot
from airflow_delta.engine.storage.base import Storage

__all__ = ["LogStart", "find_log_start"]


@dataclass(frozen=True, slots=True)
class LogStart:
    """The beginning of a log: a checkpoint, or the first commit.

    Attributes:
        checkpoint: the checkpoint; None if no checkpoint will do.
        protected_before: the version below which checkpoints stay; 0 if none has to.
        wanted: the version whose checkpoint, if it existed, would allow more to be deleted; None if none
            would.
        reasons: why the log doesn't begin later, as sentences.
    """

    checkpoint: Checkpoint | None
    protected_before: int = 0
    wanted: int | None = None
    reasons: tuple[str, ...] = ()


def find_log_start(
    storage: Storage, snapshot: Snapshot, log: OldLog, *, cutoff: CleanupCutoff, boundary: int
) -> LogStart:
    """Find the version at which the log begins.

    Args:
        storage: where the table is.
        snapshot: the newest version in the log.
        log: the log up to the cut-off commit.
        cutoff: a cut-off that has a commit.
        boundary: see `read_protection_boundary`.

    Raises:
        StorageError: the store failed.
    """
    assert cutoff.commit is not None
    reasons: list[str] = []

    def newest(limit: int) -> Checkpoint | None:
        """Return the newest checkpoint up to a version that the log may begin with."""
        for checkpoint in _list_candidates(log, limit):
            reason = _explain_why_not(storage, snapshot, log, checkpoint, cutoff)
            if reason is None:
                return checkpoint
            reasons.append(reason)
        return None

    start = newest(cutoff.commit)
    more: int | None = cutoff.commit
    protected = 0
    if start is not None and start.version < boundary:
        protected = boundary
        unknown = find_first_unknown(storage, log, before=start.version)
        if unknown is not None:
            reasons.append(_explain_protected(unknown, boundary))
            start = newest(unknown.version)
            more = cutoff.commit if cutoff.commit >= boundary else None
    if start is None:
        reasons.append(_explain_no_checkpoint(cutoff, more))
        return LogStart(None, protected, more, tuple(reasons))
    hampered = start.version < cutoff.commit and bool(reasons or protected)
    return LogStart(start, protected, more if hampered else None, tuple(reasons))


def _list_candidates(log: OldLog, limit: int) -> Iterator[Checkpoint]:
    """Yield the checkpoints up to a version, newest first: for each version the one that readers choose."""
    last = None
    for checkpoint in reversed(log.checkpoints):
        if checkpoint.version <= limit and checkpoint.version != last:
            last = checkpoint.version
            yield checkpoint


def _explain_why_not(
    storage: Storage,
    snapshot: Snapshot,
    log: OldLog,
    checkpoint: Checkpoint,
    cutoff: CleanupCutoff,
) -> str | None:
    """Explain why the log can't begin with a checkpoint, as a sentence; None if it can."""
    assert cutoff.commit is not None
    version = checkpoint.version
    commits = snapshot.timeline.commits
    if commits and version < commits.first - 1:
        return f"the checkpoint {checkpoint.path} is useless: commits after it are gone"
    if not log.begins_below(version):
        return None  # it begins there already
    if not would_keep_times(snapshot, start=version, cutoff=cutoff.commit):
        return (
            f"if the log began at version {version}, the versions after {cutoff.commit} would seem older "
            "than they do now, because file times are adjusted to ascend from those of older versions"
        )
    return explain_unreliable(storage, checkpoint)


def _explain_protected(unknown: UnknownProtocol, boundary: int) -> str:
    return (
        f"the engine doesn't know the protocol of version {unknown.version}, which may be deleted only "
        f"together with all others below version {boundary} (checkpointProtection): {unknown.reason}"
    )


def _explain_no_checkpoint(cutoff: CleanupCutoff, wanted: int | None) -> str:
    if wanted is None:
        return "no older version has a complete checkpoint to begin with, so all commits are needed"
    return (
        f"there is no complete checkpoint of version {wanted}, the newest from before {cutoff.time}, or "
        "of an older one, so all commits are needed. "
        f"table.checkpoint(version={wanted}) writes one"
    )

"""Execute the plan of a checkpoint: write it, then the hint to it.

PROTOCOL.md, "Checkpoints" and "Last Checkpoint File"; RFC checkpoint-protection, rule b. ``plan.py``
decides everything before.

1. The checkpoint is streamed to files that nobody sees, until it is complete and its counts are as expected
   (`read_expected_files`).
2. It is published. A crash before that leaves the table as it was.
3. The hint is written. If that fails it is a `DeltaWarning`: readers then list the log.

If the version has a checkpoint already, which planning has read to its end, only a missing hint is written.
``docs/explanation/checkpoints-in-proportion-to-the-change.md`` has the reasons.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from airflow_delta.engine.checkpoint.incremental_v1 import write_incremental_classic
from airflow_delta.engine.checkpoint.incremental_v2 import write_incremental_v2
from airflow_delta.engine.checkpoint.v2_write import write_v2_checkpoint
from airflow_delta.engine.checkpoint.write import (
    CheckpointContent,
    CheckpointWritten,
    ExpectedFiles,
    NonFileContent,
    Written,
    write_classic_checkpoint,
)
from airflow_delta.engine.clock import now_ms
from airflow_delta.engine.errors import (
    CorruptLogError,
    DeltaWarning,
    ObjectExistsError,
    ObjectNotFoundError,
    StorageError,
)
from airflow_delta.engine.log.files import checksum_path
from airflow_delta.engine.log.last_checkpoint import LastCheckpointHint
from airflow_delta.engine.log.version_checksum import read_checksum
from airflow_delta.engine.maintenance.checkpoint.base import (
    find_classic_base,
    find_incremental_base,
    has_checkpoint,
)
from airflow_delta.engine.maintenance.checkpoint.hint import write_hint, write_missing_hint
from airflow_delta.engine.maintenance.checkpoint.plan import (
    CheckpointPlan,
    Kind,
    plan_checkpoint,
)
from airflow_delta.engine.replay.reconcile import ReconciledCommits
from airflow_delta.engine.snapshot.action_stream import stream_file_actions
from airflow_delta.engine.snapshot.next_checksum import leave_checksum
from airflow_delta.engine.snapshot.next_totals import FileTotals
from airflow_delta.engine.snapshot.segment_commits import SegmentCommits
from airflow_delta.engine.snapshot.snapshot import Snapshot
from airflow_delta.engine.storage.base import Storage

__all__ = [
    "CheckpointPlan",
    "CheckpointResult",
    "execute_checkpoint",
    "plan_checkpoint",
    "read_expected_files",
]


@dataclass(frozen=True, slots=True)
class CheckpointResult:
    """The result of writing a checkpoint.

    Attributes:
        plan: what was planned.
        written: whether this call has written a checkpoint. False for a dry run, if none was needed, and if
            another writer was faster.
        size_in_bytes: of the new checkpoint, with all its sidecars.
        num_actions: actions in it.
        num_files: live files in it.
        sidecars_written: new sidecars; 0 for a classic checkpoint.
        sidecars_reused: sidecars of the previous checkpoint that it also refers to.
        bytes_written: bytes written for it; less than its size if sidecars are reused.
    """

    plan: CheckpointPlan
    written: bool
    size_in_bytes: int | None = None
    num_actions: int | None = None
    num_files: int | None = None
    sidecars_written: int | None = None
    sidecars_reused: int | None = None
    bytes_written: int | None = None

    @property
    def version(self) -> int:
        """The version that now has a checkpoint; after a dry run, the one that would get it."""
        return self.plan.version

    @property
    def kind(self) -> Kind:
        """The spec that the checkpoint follows."""
        return self.plan.kind

    @property
    def path(self) -> str:
        """The checkpoint's file, or its top level, below the table's root."""
        return self.plan.path

    def to_dict(self) -> dict[str, Any]:
        """The report, as plain JSON values.

        Returns:
            ``version``, ``kind`` and ``path`` of the checkpoint; ``written``, with the ``reason`` why or
            why not. If it was written also its live ``files``, the ``bytes`` written for it, its ``rows``,
            ``sidecars_written`` and ``sidecars_reused``; these are None otherwise.
        """
        return {
            "version": self.version,
            "kind": self.kind,
            "path": self.path,
            "written": self.written,
            "reason": self.plan.reason,
            "files": self.num_files,
            "bytes": self.bytes_written,
            "rows": self.num_actions,
            "sidecars_written": self.sidecars_written,
            "sidecars_reused": self.sidecars_reused,
        }


def execute_checkpoint(
    storage: Storage,
    snapshot: Snapshot,
    plan: CheckpointPlan,
    *,
    write: Callable[[CheckpointPlan], Written] | None = None,
) -> CheckpointResult:
    """Write the checkpoint that a plan describes.

    Args:
        storage: where the table is.
        snapshot: of the version in the plan.
        plan: made by `plan_checkpoint` from this snapshot.
        write: writes and publishes the checkpoint instead of this process. It must recognize its own file
            if the put is retried; see ``checkpoint/idempotent_put.py``.

    Raises:
        CorruptLogError: an action lacks a required field, or none of the log's checkpoints can be read;
            nothing was published.
        InvalidTableError: the counts of what was written differ from the expected ones; nothing was
            published.
        StorageError: the store failed. Nothing was published, unless the publishing itself failed.
    """
    if not plan.needed:
        if has_checkpoint(snapshot):
            write_missing_hint(storage, snapshot)
        return CheckpointResult(plan, written=False)
    try:
        written = _put(storage, snapshot, plan, write)
    except ObjectExistsError:
        # It has the same content, and replacing it could disturb its readers.
        reason = f"another writer has published {plan.path} concurrently"
        _delete_damaged(storage, plan)
        return CheckpointResult(replace(plan, needed=False, reason=reason), written=False)
    checkpoint = written.checkpoint
    write_hint(
        storage,
        LastCheckpointHint(
            version=plan.version,
            size=checkpoint.num_actions,
            size_in_bytes=checkpoint.size_in_bytes,
            num_of_add_files=checkpoint.num_adds,
            v2_checkpoint=checkpoint.hint_content,
        ),
    )
    _delete_damaged(storage, plan)
    # None: deletion vectors weren't counted.
    leave_checksum(snapshot, FileTotals(checkpoint.num_adds, checkpoint.adds_size_sum, None, None))
    return CheckpointResult(
        plan,
        written=True,
        size_in_bytes=checkpoint.size_in_bytes,
        num_actions=checkpoint.num_actions,
        num_files=checkpoint.num_adds,
        sidecars_written=written.sidecars_written,
        sidecars_reused=written.sidecars_reused,
        bytes_written=written.bytes_written,
    )


def _put(
    storage: Storage,
    snapshot: Snapshot,
    plan: CheckpointPlan,
    write: Callable[[CheckpointPlan], Written] | None,
) -> Written:
    put = write or partial(_write, storage, snapshot)
    if plan.target.has_classic_name and not storage.capabilities.put_if_absent:
        plan = replace(plan, replaces=True)  # the last writer wins
    try:
        return put(plan)
    except ObjectExistsError:
        # A dead writer has left an empty file. Readers and listings ignore it, so replace it.
        if storage.head(plan.path).size:
            raise
        return put(replace(plan, replaces=True))


def _delete_damaged(storage: Storage, plan: CheckpointPlan) -> None:
    """Delete the damaged checkpoints of the plan, now that the new one is published."""
    if not plan.deletes:
        return
    try:
        storage.delete(plan.deletes)
    except StorageError as error:
        warnings.warn(
            f"{storage.root}: {', '.join(plan.deletes)} can't be deleted ({error.message}); they are "
            f"damaged, and readers that prefer them to {plan.path} fail. Delete them",
            DeltaWarning,
            stacklevel=3,
        )


def _write(storage: Storage, snapshot: Snapshot, plan: CheckpointPlan) -> Written:
    while True:
        try:
            if plan.kind == "v2":
                return _write_v2(storage, snapshot, plan)
            checkpoint = _write_classic(storage, snapshot, plan)
            return Written(checkpoint, 0, 0, checkpoint.size_in_bytes)
        except (CorruptLogError, ObjectNotFoundError) as error:
            # A file of the snapshot is damaged or gone: read the version from older ones, and try again.
            snapshot.state.recover(error)


def _write_classic(storage: Storage, snapshot: Snapshot, plan: CheckpointPlan) -> CheckpointWritten:
    content, expected = _collect_content(snapshot), read_expected_files(storage, snapshot)
    oldest_ms = _find_oldest_tombstone_ms(snapshot)
    version, table = snapshot.version, snapshot.table
    # Not from the plan: the base may have turned out to be damaged since.
    base = find_classic_base(snapshot) if plan.incremental else None
    if base is not None:
        return write_incremental_classic(
            storage,
            content,
            base,
            _reconcile_commits(storage, snapshot),
            oldest_tombstone_ms=oldest_ms,
            version=version,
            table=table,
            expected=expected,
            expected_base=_read_expected(storage, base.version),
            replaces=plan.replaces,
        )
    content = CheckpointContent(
        protocol=content.protocol,
        metadata=content.metadata,
        transactions=content.transactions,
        domains=content.domains,
        files=stream_file_actions(snapshot.state, oldest_tombstone_ms=oldest_ms),
        expected=expected,
    )
    return write_classic_checkpoint(
        storage, content, version=version, table=table, replaces=plan.replaces
    )


def _reconcile_commits(storage: Storage, snapshot: Snapshot) -> ReconciledCommits:
    segment = snapshot.segment
    return SegmentCommits(storage, segment.plan(), table=segment.table).files(None)


def _write_v2(storage: Storage, snapshot: Snapshot, plan: CheckpointPlan) -> Written:
    oldest_ms = _find_oldest_tombstone_ms(snapshot)
    # As in `_write_classic`.
    base = find_incremental_base(snapshot) if plan.incremental else None
    if base is None:
        return write_v2_checkpoint(
            storage,
            _collect_content(snapshot),
            stream_file_actions(snapshot.state, oldest_tombstone_ms=oldest_ms),
            plan.target,
            expected=read_expected_files(storage, snapshot),
        )
    return write_incremental_v2(
        storage,
        _collect_content(snapshot),
        base,
        _reconcile_commits(storage, snapshot),
        plan.target,
        oldest_tombstone_ms=oldest_ms,
        expected=read_expected_files(storage, snapshot),
        expected_base=_read_expected(storage, base.version),
    )


def _collect_content(snapshot: Snapshot) -> NonFileContent:
    return NonFileContent(
        protocol=snapshot.protocol,
        metadata=snapshot.metadata,
        transactions=tuple(snapshot.transactions.values()),
        domains=tuple(snapshot.domains.values()),
    )


def _find_oldest_tombstone_ms(snapshot: Snapshot) -> int:
    return now_ms() - snapshot.properties.deleted_file_retention_ms


def read_expected_files(storage: Storage, snapshot: Snapshot) -> ExpectedFiles:
    """Read the number and size of the live files from the version checksum, if there is one.

    A writer that checks its own counts checks nothing. So the counts are compared with those of another
    witness: the version checksum; and for an incremental checkpoint the counts of the previous one, plus
    what the commits since have added and removed. A first checkpoint without a checksum has no witness:
    reading the log twice with the same code would prove nothing. A checksum that can't be read is a
    `DeltaWarning`, since it is optional.

    Raises:
        StorageError: the store failed.
    """
    if snapshot.segment.checksum is None:
        return ExpectedFiles()
    return _read_expected(storage, snapshot.version)


def _read_expected(storage: Storage, version: int) -> ExpectedFiles:
    try:
        checksum = read_checksum(storage, version)
    except CorruptLogError as error:
        warnings.warn(
            f"{storage.root}: the checkpoint of version {version} isn't compared with "
            f"{checksum_path(version)} ({error.message})",
            DeltaWarning,
            stacklevel=3,
        )
        return ExpectedFiles()
    if checksum is None:
        return ExpectedFiles()
    return ExpectedFiles(checksum.num_files, checksum.table_size_bytes, checksum_path(version))

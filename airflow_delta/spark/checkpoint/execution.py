"""`write_checkpoint`: a checkpoint computed by Spark, for logs that are too large for one machine.

1. The driver opens the version with the engine: protocol, metadata and the other non-file actions, and
   which files its log consists of.
2. Executors count the live files and the tombstones, dealt out by a hash of their keys, and sample
   the keys (`action_counts`). The version checksum, where there is one, must tell the same.
3. Executors read the log once more, whole now, bring the actions of each file together
   (`key_shuffle`), reconcile them by the engine's rules, and write sidecars (`action_files`). The driver
   gets their names and what they hold, never a row (`sidecar_run`). Now the keys are dealt out by ranges,
   so that each sidecar holds a range of paths of its own: the next checkpoint, which the local engine
   makes from this one, finds by it which sidecars a change can't have touched. After a hash it could be
   any.
4. The driver compares that with the counts, and publishes the checkpoint with the engine: all of it
   becomes visible at once, by its top level.

A table without the feature ``v2Checkpoint`` can't have sidecars, and a checkpoint in many parts is
deprecated and unsafe. Its checkpoint is one file, which one machine has to write: the driver streams
the row groups of the sidecars into it, a few of them in memory at a time, and deletes the sidecars.
Reading, parsing and reconciling, where the memory goes, is the executors' work all the same.

Until the last step readers see nothing of it. What a job that was killed leaves behind are sidecars
that nothing refers to; metadata cleanup deletes them when they are a day old.

Driver and executors reach the log with the engine's own clients. A table in a file system must be in
one that all machines share, and executors need ``obstore`` for one in an object store.

In the driver, memory is that of opening the version. Where more than 128 MB of commits come after the
checkpoint, that is the paths and sizes of their files, some hundred bytes for each action.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.checkpoint.distinct_files import holds_twice
from airflow_delta.engine.checkpoint.layout import checkpoint_schema
from airflow_delta.engine.checkpoint.sidecars.layout import (
    SidecarLayout,
    sidecar_layout,
    stats_form,
)
from airflow_delta.engine.checkpoint.v2_write import publish_top_level
from airflow_delta.engine.checkpoint.write import (
    CheckpointContent,
    ExpectedFiles,
    NonFileContent,
    Written,
    write_classic_checkpoint,
)
from airflow_delta.engine.errors import (
    CorruptLogError,
    InvalidArgumentError,
    NothingWrittenError,
    ObjectExistsError,
    ObjectNotFoundError,
)
from airflow_delta.engine.maintenance.backfill.backfilled import open_backfilled
from airflow_delta.engine.maintenance.checkpoint.execution import (
    CheckpointResult,
    execute_checkpoint,
    expected_files,
)
from airflow_delta.engine.maintenance.checkpoint.plan import (
    CheckpointPlan,
    Kind,
    plan_checkpoint,
)
from airflow_delta.engine.snapshot.snapshot import Snapshot
from airflow_delta.engine.storage.base import Storage
from airflow_delta.spark.checkpoint.action_counts import ActionCounts, count_actions
from airflow_delta.spark.checkpoint.action_files import SidecarTask
from airflow_delta.spark.checkpoint.key_shuffle import StorageAddress
from airflow_delta.spark.checkpoint.log_parts import LogPart, log_parts
from airflow_delta.spark.checkpoint.sidecar_run import SidecarRun, write_sidecars

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["write_checkpoint"]

_CLASSIC = checkpoint_schema()
_PLAIN = SidecarLayout(
    pa.schema([_CLASSIC.field("add"), _CLASSIC.field("remove")]),
    typed=None,
    stats_form=stats_form(texts=True, parsed=()),
)
"""The sidecars that a file of the V1 spec is made from: statistics as texts, from which come the rest."""


def write_checkpoint(
    spark: SparkSession,
    uri: str,
    version: int | None = None,
    *,
    policy: Kind | None = None,
    if_needed: bool = False,
    storage_options: Mapping[str, str] | None = None,
) -> CheckpointResult:
    """Write a checkpoint of a version with Spark.

    The state it holds is the one that ``DeltaTable.checkpoint`` writes. A whole checkpoint of the
    version that is there already is kept, and a damaged one replaced.

    Args:
        spark: the session.
        uri: the table's path or URI; executors must reach it by the same.
        version: the version; None for the newest.
        policy: ``classic`` or ``v2``, instead of what ``delta.checkpointPolicy`` says.
        if_needed: write none where fewer than ``delta.checkpointInterval`` commits have come since the
            last one.
        storage_options: credentials and settings with which the engine reads and writes the log, in
            the driver and in executors.

    Raises:
        InvalidArgumentError: executors can't see the location, or an argument makes no sense.
        TableNotFoundError: there is no table.
        VersionNotFoundError: the log can't rebuild the version.
        NotBackfilledError: the version of a managed table isn't backfilled.
        UnsupportedFeatureError: writing needs a feature that the engine or the table lacks.
        CorruptLogError: the log can't be read by any of its checkpoints; nothing was published.
        InvalidTableError: what was counted differs from the version checksum, or what was written from
            what was counted; nothing was published.
        StorageError: the store failed. Nothing was published, unless that was what it failed in.
        PySparkException, Py4JError: Spark's own errors; nothing was published.
    """
    options = dict(storage_options or {})
    storage = DeltaTable(uri, options).storage
    if storage.root.startswith("memory:"):
        raise InvalidArgumentError(
            f"{uri!r}: executors can't see the memory of this process; use a path that all machines "
            "share, or an object store",
            uri=uri,
        )
    snapshot = open_backfilled(storage, version)
    job = _Job(spark, storage, snapshot, options)
    plan = job.plan(policy, if_needed=if_needed)
    return execute_checkpoint(storage, snapshot, plan, write=job.write)


class _Job:
    """One checkpoint in the making.

    Args:
        spark: the session.
        storage: the table's storage.
        snapshot: of the version.
        options: the storage options.
    """

    def __init__(
        self, spark: SparkSession, storage: Storage, snapshot: Snapshot, options: Mapping[str, str]
    ) -> None:
        self._context = spark.sparkContext
        self._storage = storage
        self._snapshot = snapshot
        self._address = StorageAddress(storage.root, dict(options))
        retention = snapshot.properties.deleted_file_retention_ms
        # Taken once, so that all tasks, and their repetitions, agree on what has expired.
        self._oldest_tombstone_ms = time.time_ns() // 1_000_000 - retention

    def plan(self, policy: Kind | None, *, if_needed: bool) -> CheckpointPlan:
        """What to write. A checkpoint of the version that is there is read to its end, by Spark."""
        plan = plan_checkpoint(
            self._snapshot, policy=policy, if_needed=if_needed, read_through=self._read_through
        )
        return replace(plan, incremental=False)

    def _read_through(self) -> None:
        segment = self._snapshot.segment
        while True:
            try:
                self._count(log_parts(self._storage, segment), whole=True)
            except (CorruptLogError, ObjectNotFoundError) as error:
                self._snapshot.state.recover(error)
                segment = self._snapshot.segment
            else:
                return

    def write(self, plan: CheckpointPlan) -> Written:
        """What the plan says, and if need be from something older than is there."""
        while True:
            try:
                return self._write_v2(plan) if plan.kind == "v2" else self._write_classic(plan)
            except (CorruptLogError, ObjectNotFoundError) as error:
                self._snapshot.state.recover(error)

    def _write_v2(self, plan: CheckpointPlan) -> Written:
        """A checkpoint of sidecars."""
        snapshot = self._snapshot
        layout = sidecar_layout(snapshot.protocol, snapshot.metadata, table=snapshot.table)
        run = self._write_sidecars(layout)
        sidecars = run.sidecars
        try:
            written = publish_top_level(self._storage, self._small(), sidecars, plan.target)
        except (NothingWrittenError, ObjectExistsError):
            # After any other error sidecars stay: the top level may be there all the same.
            run.delete()
            raise
        return Written(written, len(sidecars), 0, written.size_in_bytes)

    def _write_classic(self, plan: CheckpointPlan) -> Written:
        """A checkpoint in one file."""
        snapshot, run = self._snapshot, self._write_sidecars(_PLAIN)
        small = self._small()
        try:
            written = write_classic_checkpoint(
                self._storage,
                CheckpointContent(
                    small.protocol,
                    small.metadata,
                    small.transactions,
                    small.domains,
                    files=run.rows(),
                    expected=ExpectedFiles(run.total("numAdds"), run.total("addsSizeSum")),
                ),
                version=snapshot.version,
                table=snapshot.table,
                replaces=plan.replaces,
            )
        finally:
            run.delete()
        return Written(written, 0, 0, written.size_in_bytes)

    def _write_sidecars(self, layout: SidecarLayout) -> SidecarRun:
        """Sidecars with all of the state, verified."""
        snapshot = self._snapshot
        parts = log_parts(self._storage, snapshot.segment)
        counts = self._count(parts)
        expected_files(self._storage, snapshot).check(
            num_adds=counts.adds,
            adds_size=counts.adds_size,
            version=snapshot.version,
            table=snapshot.table,
        )
        task = SidecarTask(
            self._address, layout, str(uuid.uuid4()), snapshot.version, self._oldest_tombstone_ms
        )
        return write_sidecars(self._context, self._storage, task, parts, counts)

    def _count(self, parts: Sequence[LogPart], *, whole: bool = False) -> ActionCounts:
        """The counts; what is read must be all of the snapshot's log."""
        counts = count_actions(
            self._context,
            self._address,
            parts,
            oldest_tombstone_ms=self._oldest_tombstone_ms,
            whole=whole,
        )
        base = self._snapshot.segment.checkpoint
        if counts.twice and base is not None:
            file = counts.twice[0].partition("\0")[0]
            raise holds_twice(
                file, path=base.path, version=base.version, table=self._snapshot.table
            )
        return counts

    def _small(self) -> NonFileContent:
        snapshot = self._snapshot
        return NonFileContent(
            snapshot.protocol,
            snapshot.metadata,
            tuple(snapshot.transactions.values()),
            tuple(snapshot.domains.values()),
        )

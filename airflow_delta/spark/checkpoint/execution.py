"""`write_checkpoint`: write a checkpoint with Spark, for logs that are too large for one machine.

1. The driver opens the version with the engine: the non-file actions, and the files of the log segment.
2. Executors count live files and tombstones, partitioned by a hash of their keys (`action_counts`). The
   counts must agree with the version checksum, if there is one.
3. Executors read all columns, shuffle the actions by ranges of their keys (`key_shuffle`), reconcile them
   by the engine's rules, and write sidecars (`action_files`). Each sidecar has a range of paths, so the
   next incremental checkpoint can reuse it. The driver gets only ``sidecar`` actions (`sidecar_run`).
4. The driver compares them with the counts, and publishes the top level. Readers see nothing before that.

For a table without ``v2Checkpoint`` the driver instead streams the row groups of the sidecars into one
file, and deletes the sidecars. A killed job leaves unreferenced sidecars, which metadata cleanup deletes
after a day.

docs/how-to/maintain-a-table.md says what the machines need.
"""

from __future__ import annotations

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
from airflow_delta.engine.clock import now_ms
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
    read_expected_files,
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
"""The layout of sidecars from which a V1 checkpoint is made: with statistics as text only."""


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

    It has the same state as one by ``DeltaTable.checkpoint``. An intact checkpoint of the version is kept,
    and a damaged one is replaced.

    Args:
        spark: the session.
        uri: the table's path or URI, which must also be valid on executors.
        version: the version; None for the newest.
        policy: ``classic`` or ``v2``, instead of ``delta.checkpointPolicy``.
        if_needed: write none if there are fewer than ``delta.checkpointInterval`` commits since the
            last one.
        storage_options: credentials and settings of the engine, in the driver and in executors.

    Raises:
        InvalidArgumentError: executors can't reach the location, or an argument is invalid.
        TableNotFoundError: there is no table.
        VersionNotFoundError: the version can't be rebuilt from the log.
        NotBackfilledError: the version of a managed table isn't backfilled.
        UnsupportedFeatureError: writing needs a feature that the engine or the table lacks.
        CorruptLogError: the log can't be read from any of its checkpoints; nothing was published.
        InvalidTableError: the counts differ from the version checksum, or the written sidecars from the
            counts; nothing was published.
        StorageError: the store failed; nothing was published, unless publishing itself failed.
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
    """Plans and writes one checkpoint.

    Args:
        spark: the session.
        storage: the table's storage.
        snapshot: the snapshot of the version.
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
        # Computed once, so that all tasks and their retries agree on what has expired.
        self._oldest_tombstone_ms = now_ms() - retention

    def plan(self, policy: Kind | None, *, if_needed: bool) -> CheckpointPlan:
        """Plan the checkpoint; Spark checks an existing one of the version by reading it completely."""
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
        """Write the planned checkpoint; if the log's base is damaged, from an older one."""
        while True:
            try:
                return self._write_v2(plan) if plan.kind == "v2" else self._write_classic(plan)
            except (CorruptLogError, ObjectNotFoundError) as error:
                self._snapshot.state.recover(error)

    def _write_v2(self, plan: CheckpointPlan) -> Written:
        """Write a checkpoint with sidecars."""
        snapshot = self._snapshot
        layout = sidecar_layout(snapshot.protocol, snapshot.metadata, table=snapshot.table)
        run = self._write_sidecars(layout)
        sidecars = run.sidecars
        try:
            written = publish_top_level(
                self._storage, self._non_file_content(), sidecars, plan.target
            )
        except (NothingWrittenError, ObjectExistsError):
            # After any other error the sidecars are kept, because the top level may have been written.
            run.delete()
            raise
        return Written(written, len(sidecars), 0, written.size_in_bytes)

    def _write_classic(self, plan: CheckpointPlan) -> Written:
        """Write a checkpoint in one file."""
        snapshot, run = self._snapshot, self._write_sidecars(_PLAIN)
        small = self._non_file_content()
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
        """Write sidecars with the whole state, and verify them."""
        snapshot = self._snapshot
        parts = log_parts(self._storage, snapshot.segment)
        counts = self._count(parts)
        read_expected_files(self._storage, snapshot).check(
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
        """Count the actions of the snapshot's whole log."""
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

    def _non_file_content(self) -> NonFileContent:
        snapshot = self._snapshot
        return NonFileContent(
            snapshot.protocol,
            snapshot.metadata,
            tuple(snapshot.transactions.values()),
            tuple(snapshot.domains.values()),
        )

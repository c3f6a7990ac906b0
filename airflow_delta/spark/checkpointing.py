"""`write_checkpoint`: a checkpoint computed by Spark, for logs that are too large for one machine.

1. The driver opens the version with the engine: protocol, metadata and the other small actions, and
   which files its log consists of.
2. Executors count the live files and the tombstones, dealt out by a hash of their keys, and sample
   the keys (`action_counts`).
3. Executors read the log once more, whole now, bring the actions of each file together
   (`key_shuffle`), reconcile them by the engine's rules, and write sidecars (`action_files`). The driver
   gets their names and what they hold, never a row. Now the keys are dealt out by ranges, so that each
   sidecar holds a range of paths of its own: the next checkpoint, which the local engine makes from this
   one, finds by it which sidecars a change can't have touched. After a hash it could be any.
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
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.arrow.parquet import ActionFile, read_pieces, reader_threads
from airflow_delta.engine.checkpoint.action_rows import FileActionTable
from airflow_delta.engine.checkpoint.layout import checkpoint_schema
from airflow_delta.engine.checkpoint.sidecar_layout import (
    SIDECAR_ROWS,
    SidecarLayout,
    sidecar_layout,
    stats_form,
)
from airflow_delta.engine.checkpoint.sidecar_tags import count_of
from airflow_delta.engine.checkpoint.v2_write import V2Written, publish_top_level
from airflow_delta.engine.checkpoint.write import (
    CheckpointContent,
    ExpectedFiles,
    SmallContent,
    write_classic_checkpoint,
)
from airflow_delta.engine.errors import (
    CorruptLogError,
    DeltaWarning,
    InvalidArgumentError,
    InvalidTableError,
    ObjectNotFoundError,
    StorageError,
)
from airflow_delta.engine.log.files import sidecar_path
from airflow_delta.engine.log.segment import load_segment
from airflow_delta.engine.maintenance.checkpoint_plan import (
    CheckpointPlan,
    Kind,
    plan_checkpoint,
)
from airflow_delta.engine.maintenance.checkpointing import CheckpointResult, execute_checkpoint
from airflow_delta.engine.snapshot.snapshot import Snapshot
from airflow_delta.engine.storage.base import FileInfo, Storage
from airflow_delta.spark.action_counts import ActionCounts, count_actions
from airflow_delta.spark.action_files import SidecarTask, delete_leftovers
from airflow_delta.spark.executor_errors import errors_of_executors
from airflow_delta.spark.key_shuffle import ByRange, StorageAddress, shuffled_actions
from airflow_delta.spark.log_parts import LogPart, log_parts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from airflow_delta.engine.model.actions import Sidecar

__all__ = ["write_checkpoint"]

_PARTITION_ROWS = SIDECAR_ROWS * 4 // 5
"""Rows of the log in a partition, so that a sidecar has room for what the sample got wrong."""

_MOST_PARTITIONS = 2000
"""Each part of the log sends a parcel to each partition. In larger logs partitions are larger, and
have several sidecars each."""


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
        UnsupportedFeatureError: writing needs a feature that the engine or the table lacks.
        CorruptLogError: the log can't be read by any of its checkpoints; nothing was published.
        InvalidTableError: what was written differs from what was counted; nothing was published.
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
    snapshot = Snapshot(storage, load_segment(storage, version=version))
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

    def write(self, plan: CheckpointPlan) -> V2Written:
        """What the plan says, and if need be from something older than is there."""
        while True:
            try:
                return self._write_v2(plan.path) if plan.kind == "v2" else self._write_classic()
            except (CorruptLogError, ObjectNotFoundError) as error:
                self._snapshot.state.recover(error)

    def _write_v2(self, path: str) -> V2Written:
        """A checkpoint of sidecars, published as a top level at a path."""
        snapshot = self._snapshot
        layout = sidecar_layout(snapshot.protocol, snapshot.metadata, table=snapshot.table)
        _, sidecars = self._write_sidecars(layout)
        # From here on sidecars stay, whatever happens: where the top level can't be published
        # for sure, it may be there all the same.
        written = publish_top_level(
            self._storage,
            self._small(),
            sidecars,
            path=path,
            version=snapshot.version,
            table=snapshot.table,
        )
        return V2Written(written, len(sidecars), 0, written.size_in_bytes)

    def _write_classic(self) -> V2Written:
        """A checkpoint in one file."""
        snapshot = self._snapshot
        run, sidecars = self._write_sidecars(_PLAIN)
        small, totals = self._small(), _sums(sidecars)
        try:
            written = write_classic_checkpoint(
                self._storage,
                CheckpointContent(
                    small.protocol,
                    small.metadata,
                    small.transactions,
                    small.domains,
                    files=self._streamed(sidecars),
                    expected=ExpectedFiles(totals["numAdds"], totals["addsSizeSum"]),
                ),
                version=snapshot.version,
                table=snapshot.table,
            )
        finally:
            _delete(self._storage, run)
        return V2Written(written, 0, 0, written.size_in_bytes)

    def _write_sidecars(self, layout: SidecarLayout) -> tuple[str, list[Sidecar]]:
        """Sidecars with all of the state, verified; and what their names begin with."""
        parts = log_parts(self._storage, self._snapshot.segment)
        counts = self._count(parts)
        run = str(uuid.uuid4())
        task = SidecarTask(
            self._address, layout, run, self._snapshot.version, self._oldest_tombstone_ms
        )
        try:
            actions = shuffled_actions(
                self._context, self._address, parts, columns=None, partitions=_ranges(counts)
            )
            with errors_of_executors():
                written = actions.mapPartitions(task).collect()
            self._verify(written, counts)
        except BaseException:
            _delete(self._storage, run)
            raise
        _delete(self._storage, run, kept=[sidecar.path for sidecar in written])
        return run, written

    def _count(self, parts: Sequence[LogPart], *, whole: bool = False) -> ActionCounts:
        return count_actions(
            self._context,
            self._address,
            parts,
            oldest_tombstone_ms=self._oldest_tombstone_ms,
            whole=whole,
        )

    def _verify(self, sidecars: Sequence[Sidecar], counts: ActionCounts) -> None:
        version, table = self._snapshot.version, self._snapshot.table
        found = _sums(sidecars)
        expected = {
            "numAdds": counts.adds,
            "addsSizeSum": counts.adds_size,
            "numRemoves": counts.removes,
        }
        if found != expected:
            raise InvalidTableError(
                f"the checkpoint of version {version} was not written: it would hold {found}, and "
                f"counting the log gave {expected}. Try again; if it stays so, report it",
                table=table,
                version=version,
                found=found,
                expected=expected,
            )

    def _small(self) -> SmallContent:
        snapshot = self._snapshot
        return SmallContent(
            snapshot.protocol,
            snapshot.metadata,
            tuple(snapshot.transactions.values()),
            tuple(snapshot.domains.values()),
        )

    def _streamed(self, sidecars: Sequence[Sidecar]) -> Iterator[FileActionTable]:
        """The rows of sidecars: adds, then removes."""
        files = [
            ActionFile(
                self._storage,
                FileInfo(sidecar_path(sidecar.path), sidecar.size_in_bytes, 0),
                exact_size=True,
            )
            for sidecar in sidecars
        ]
        workers = reader_threads(self._storage)
        for kind in ("add", "remove"):
            pieces = (piece for file in files for piece in file.pieces(kind))
            for rows in read_pieces(pieces, workers=workers):
                yield kind, rows


def _ranges(counts: ActionCounts) -> ByRange:
    """Ranges of keys with about as many actions each, by a sample of the keys."""
    wanted = min(-(-counts.read // _PARTITION_ROWS), _MOST_PARTITIONS)
    sample = sorted(counts.sample)
    places = (len(sample) * number // max(wanted, 1) for number in range(1, wanted))
    return ByRange(tuple(dict.fromkeys(sample[place] for place in places)))


def _sums(sidecars: Sequence[Sidecar]) -> dict[str, int]:
    """What sidecars hold, as their tags tell."""
    return {
        tag: sum(count_of(sidecar.tags, tag) or 0 for sidecar in sidecars)
        for tag in ("numAdds", "addsSizeSum", "numRemoves")
    }


def _delete(storage: Storage, run: str, *, kept: Collection[str] = ()) -> None:
    """Delete the sidecars of a run that nothing will refer to, as far as the store lets us."""
    try:
        delete_leftovers(storage, run, kept=kept)
    except StorageError as error:
        warnings.warn(
            f"{storage.root}: sidecars whose names begin with {run} can't be deleted "
            f"({error.message}); nothing refers to them, and metadata cleanup deletes them later",
            DeltaWarning,
            stacklevel=3,
        )

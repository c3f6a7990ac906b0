"""`vacuum`: run a vacuum with Spark, for tables with too many files for the memory of one machine.

It deletes the same files as ``DeltaTable.vacuum``, by the same rules (``engine/maintenance/vacuum/``):

1. Executors list the table's directory (`listing`), or read an inventory (`inventory`).
2. After that, the driver opens the newest version. Executors reconcile its log, and find the files that the
   table needs and those that older versions removed (`collect_references`).
3. Spark partitions found files and references by file name, and executors decide (`classification`). The
   driver gets the paths of the files to be deleted, and counts of all others. It checks whether these files
   are in directories of other tables, if the listing can't show that.
4. Executors delete the files in waves. Before each wave the driver checks which files concurrent commits
   have added again. At the end the progress of the vacuum is recorded.

docs/how-to/vacuum-a-table.md says what driver and executors need.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import StorageLevel

from airflow_delta.engine import DeltaTable, Snapshot, clock
from airflow_delta.engine.commit.registry import CommitOwners
from airflow_delta.engine.errors import CorruptLogError, InvalidArgumentError, ObjectNotFoundError
from airflow_delta.engine.maintenance.table_files.listing import (
    LISTED_SCHEMA,
    find_directory_markers,
)
from airflow_delta.engine.maintenance.table_files.removals import read_removes_since
from airflow_delta.engine.maintenance.vacuum.classification import KeptFiles
from airflow_delta.engine.maintenance.vacuum.concurrent_commits import Deletions
from airflow_delta.engine.maintenance.vacuum.execution import VacuumResult
from airflow_delta.engine.maintenance.vacuum.last_vacuum import write_last_vacuum
from airflow_delta.engine.maintenance.vacuum.other_tables import drop_other_tables
from airflow_delta.engine.maintenance.vacuum.plan import (
    VacuumPlan,
    explain_nothing_to_delete,
    find_expired_versions,
    open_for_vacuum,
)
from airflow_delta.engine.maintenance.vacuum.references import collect_references
from airflow_delta.engine.maintenance.vacuum.retention import Retention, choose_retention
from airflow_delta.engine.maintenance.vacuum.scope import Scope, find_roots_of_other_tables
from airflow_delta.engine.model.properties import TableProperties
from airflow_delta.engine.storage.base import Storage
from airflow_delta.spark.checkpoint.key_shuffle import ByHash, Parcel, StorageAddress, itself
from airflow_delta.spark.runtime.executor_errors import errors_for_driver, errors_of_executors
from airflow_delta.spark.runtime.locations import hadoop_path
from airflow_delta.spark.vacuum.classification import (
    DELETABLE,
    FOUND_FILES,
    Decision,
    FileClassifier,
)
from airflow_delta.spark.vacuum.inventory import inventory_batches
from airflow_delta.spark.vacuum.listing import listed_files
from airflow_delta.spark.vacuum.references import (
    RECENT,
    log_parcels,
    parcels_by_name,
    reference_parcels,
)

if TYPE_CHECKING:
    from pyspark import RDD
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["for_spark", "vacuum"]

_PARTITION_FILES = 200_000
"""The number of files per task; with the references of the log they take some hundred megabytes."""

_DELETED_AT_ONCE = 1000
"""The number of objects that one S3 request can delete."""

_DELETING_TASKS = 4
"""Tasks per core: a task mostly waits for the store."""


def vacuum(
    spark: SparkSession,
    uri: str,
    *,
    retention_hours: float | None = None,
    inventory: DataFrame | str | None = None,
    enforce_retention: bool = True,
    dry_run: bool = False,
    storage_options: Mapping[str, str] | None = None,
) -> VacuumResult:
    """Delete files in a table's directory that no retained version needs.

    Args:
        spark: the session.
        uri: the table's path or URI, which must also be valid on executors.
        retention_hours: see ``DeltaTable.vacuum``.
        inventory: files to use instead of a listing, with the columns ``path``, ``length``, ``isDir`` and
            ``modificationTime``: a DataFrame, or the path of a Parquet file or directory.
        enforce_retention: see ``DeltaTable.vacuum``.
        dry_run: only plan the vacuum: ``result.plan.files`` has the paths.
        storage_options: credentials and settings of the engine, in the driver and in executors.

    Raises:
        InvalidArgumentError: executors can't reach the location, or an argument is invalid.
        DeltaError: see ``DeltaTable.vacuum``. Some files may be deleted; another call deletes the rest.
        PySparkException, Py4JError: Spark's own errors; likewise.
    """
    options = dict(storage_options or {})
    storage = DeltaTable(uri, options).storage
    if storage.root.startswith("memory:"):
        raise InvalidArgumentError(
            f"{uri!r}: executors can't see the memory of this process; use a path that all machines "
            "share, or an object store",
            uri=uri,
        )
    now_ms = clock.now_ms()
    retain = partial(
        choose_retention, hours=retention_hours, now_ms=now_ms, enforce=enforce_retention
    )
    job = _Job(spark, storage, options, now_ms)
    rows = spark.read.parquet(for_spark(inventory)) if isinstance(inventory, str) else inventory
    plan = job.plan(retain, rows)
    return VacuumResult(plan, 0, 0) if dry_run else job.execute(plan)


def for_spark(uri: str) -> str:
    """Give a URI the scheme of Spark's connector; a path stays as it is.

    Raises:
        InvalidArgumentError: Spark has no connector for it.
    """
    return hadoop_path(uri) if "://" in uri and not uri.startswith("file:") else uri


class _Job:
    """Plans and executes one vacuum.

    Args:
        spark: the session.
        storage: the table's storage.
        options: the storage options.
        now_ms: the current time, in epoch ms.
    """

    def __init__(
        self, spark: SparkSession, storage: Storage, options: Mapping[str, str], now_ms: int
    ) -> None:
        self._now_ms = now_ms
        self._context = spark.sparkContext
        self._storage = storage
        self._address = StorageAddress(storage.root, dict(options))
        self._owners = CommitOwners()

    def plan(
        self, retain: Callable[[TableProperties], Retention], inventory: DataFrame | None
    ) -> VacuumPlan:
        """Find the files to be deleted.

        Args:
            retain: computes the retention from the table's properties.
            inventory: files to use instead of a listing.
        """
        before = open_for_vacuum(self._storage, self._owners)
        retain(before.properties)
        with errors_of_executors():
            if inventory is None:
                found = listed_files(self._context, self._storage, self._address)
            else:
                found = inventory_batches(inventory, root=self._storage.root, now_ms=self._now_ms)
            # Persisted because it is used several times, and must be listed once.
            found = found.persist(StorageLevel.DISK_ONLY)
            try:
                summaries = found.map(_summarize).collect()
                newest = open_for_vacuum(self._storage, self._owners)
                snapshot = before if newest.version == before.version else newest
                retention = retain(snapshot.properties)
                listed = before.version if inventory is None else None
                expired = range(0)
                if listed is not None:
                    expired = find_expired_versions(snapshot, retention)
                decisions = self._decisions(
                    snapshot, found, summaries, retention, listed=listed, expired=expired
                )
            finally:
                found.unpersist()
        return _plan_of(decisions, snapshot, retention, listed=listed, expired=expired)

    def execute(self, plan: VacuumPlan) -> VacuumResult:
        """Delete the files of a plan, except those that a concurrent commit has added again."""
        address, paths, files = self._address, plan.files["path"], plan.files
        if files.num_rows:
            deletions = Deletions(self._storage, self._owners, plan)
            tasks = _DELETING_TASKS * self._context.defaultParallelism

            def delete(given: Iterable[str]) -> Iterator[None]:
                """Delete the files of one task."""
                with errors_for_driver():
                    address.open().delete(list(given))
                return iter(())

            # In waves, to check for new commits in between.
            for start in range(0, len(paths), tasks * _DELETED_AT_ONCE):
                wave = paths.slice(start, tasks * _DELETED_AT_ONCE).to_pylist()
                going = deletions.drop_needed(wave)
                slices = max(-(-len(going) // _DELETED_AT_ONCE), 1)
                with errors_of_executors():
                    self._context.parallelize(going, slices).mapPartitions(delete).count()
            files = deletions.finish()
        if plan.vacuumed is not None:
            write_last_vacuum(self._storage, plan.vacuumed)
        return VacuumResult(plan, files.num_rows, pc.sum(files["size"]).as_py() or 0)

    def _decisions(
        self,
        snapshot: Snapshot,
        found: RDD[bytes],
        summaries: Sequence[_BatchSummary],
        retention: Retention,
        *,
        listed: int | None,
        expired: range,
    ) -> list[Decision]:
        """Decide about the files, partitioned by their names."""
        names = ByHash(1 + sum(summary.count for summary in summaries) // _PARTITION_FILES)
        cutoff_ms, until = retention.cutoff_ms, snapshot.version if listed is None else listed
        # Tombstones that checkpoints don't have any more are only in commits.
        longer = retention.duration_ms > retention.configured_ms
        removes = read_removes_since(snapshot, cutoff_ms, all_needed=longer)
        forgotten = collect_references(removes, table=snapshot.table)
        extra = list(reference_parcels(RECENT, forgotten, names))
        files_found = self._found_parcels(found, summaries, names, is_listed=listed is not None)
        classifier = FileClassifier(
            Scope.of(snapshot),
            retention,
            tuple(sorted({root for summary in summaries for root in summary.others})),
            self._address,
            is_listed=listed is not None,
        )
        while True:
            try:
                logged = log_parcels(
                    self._context,
                    self._address,
                    snapshot,
                    names,
                    cutoff_ms=cutoff_ms,
                    until=until,
                    expired=expired,
                )
                known = self._context.parallelize(extra, max(len(extra), 1))
                parcels = self._context.union([files_found, logged, known])
                with errors_of_executors():
                    by_name = parcels.partitionBy(names.count, itself)
                    return by_name.mapPartitions(classifier).collect()
            except (CorruptLogError, ObjectNotFoundError) as error:
                snapshot.state.recover(error)

    def _found_parcels(
        self,
        found: RDD[bytes],
        summaries: Sequence[_BatchSummary],
        names: ByHash,
        *,
        is_listed: bool,
    ) -> RDD[tuple[int, Parcel]]:
        """Distribute the found files by their names, without directory markers."""
        markers = pa.array([], pa.string())
        empty = [path for summary in summaries for path in summary.empty]
        if is_listed and empty and self._storage.capabilities.remote:
            column = pa.chunked_array([empty], pa.string())
            marked = found.map(partial(_marked, column)).collect()
            markers = pa.array(sorted({path for paths in marked for path in paths}), pa.string())

        def deal(batch: bytes) -> Iterator[tuple[int, Parcel]]:
            """Send the files of a batch to the partitions of their names, without directory markers."""
            files = _files(batch)
            files = files.filter(pc.invert(pc.is_in(files["path"], value_set=markers)))
            return parcels_by_name(FOUND_FILES, files, names)

        return found.flatMap(deal)


@dataclass(frozen=True, slots=True)
class _BatchSummary:
    """The summary of a batch of files, for the driver.

    Attributes:
        count: the number of files.
        others: the directories of other tables.
        empty: the paths of empty files, which may be directory markers.
    """

    count: int
    others: tuple[str, ...]
    empty: tuple[str, ...]


def _summarize(batch: bytes) -> _BatchSummary:
    files = _files(batch)
    empty = files["path"].filter(pc.equal(files["size"], pa.scalar(0, pa.int64())))
    others = find_roots_of_other_tables(files["path"])
    return _BatchSummary(files.num_rows, tuple(others.to_pylist()), tuple(empty.to_pylist()))


def _marked(empty: pa.ChunkedArray, batch: bytes) -> list[str]:
    marked: list[str] = find_directory_markers(empty, _files(batch)["path"]).to_pylist()
    return marked


def _files(batch: bytes) -> pa.Table:
    return pa.Table.from_batches([pa.ipc.read_record_batch(pa.py_buffer(batch), LISTED_SCHEMA)])


def _plan_of(
    decisions: Sequence[Decision],
    snapshot: Snapshot,
    retention: Retention,
    *,
    listed: int | None,
    expired: range,
) -> VacuumPlan:
    """Combine the decisions about all partitions into a plan."""
    tables = [pa.ipc.open_stream(decision.files).read_all() for decision in decisions]
    files = pa.concat_tables([DELETABLE.empty_table(), *tables])
    kept = KeptFiles(
        *(
            sum(getattr(decision.kept, field.name) for decision in decisions)
            for field in fields(KeptFiles)
        )
    )
    storage, is_listed = snapshot.storage, listed is not None
    files, kept = drop_other_tables(files, kept, storage, is_listed=is_listed)
    lost = max((decision.lost or 0 for decision in decisions), default=0)
    kept_from = [each.kept_from for each in decisions if each.kept_from is not None]
    done = range(expired.start, min([expired.stop, *kept_from]))
    num_found = sum(decision.num_found for decision in decisions)
    return VacuumPlan(
        snapshot.table,
        snapshot.version,
        "inventory" if listed is None else "full",
        retention,
        files,
        kept,
        min(max(lost, snapshot.timeline.earliest_recreatable), snapshot.version),
        vacuumed=done[-1] if done else None,
        reason=None if files.num_rows else explain_nothing_to_delete(num_found, kept),
    )

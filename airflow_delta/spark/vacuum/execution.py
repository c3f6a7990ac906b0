"""`vacuum`: a vacuum by Spark, of tables whose files are too many for the memory of one machine.

It deletes what ``DeltaTable.vacuum`` deletes, by the same rules (``maintenance/vacuum.py``):

1. Executors list the table's directory (`vacuuming_listing`), or read an inventory
(`vacuuming_inventory`). 2. The driver asks for the newest version, after that. Executors reconcile
its log, and work out what the table
   needs and what older versions did (`vacuuming_references`).
3. Both meet by the names of files, where executors decide (`vacuuming_sifting`). The driver gets
the paths of
   the files that are to be deleted, and numbers of all others. It asks the directories of these files
   whether they belong to other tables, where the listing can't show that (`vacuum_other_tables`).
4. Executors delete them, a thousand at a time, in waves. Before each the driver looks what commits have
   brought back meanwhile (`vacuum_meanwhile`). How far the vacuum has come is noted at the very end.

So the driver's memory is that of opening the newest version, and of what is to be deleted, some
hundred bytes for each file. A vacuum that is broken off does no harm, and the next one finds what is left.

Driver and executors reach the table with the engine's own clients. A table in a file system must be in one
that all machines share, and executors need ``obstore`` for one in an object store.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import StorageLevel

from airflow_delta.engine import DeltaTable, Snapshot
from airflow_delta.engine.commit.registry import CommitOwners
from airflow_delta.engine.errors import CorruptLogError, InvalidArgumentError, ObjectNotFoundError
from airflow_delta.engine.maintenance.table_files.listing import FOUND, marked_directories
from airflow_delta.engine.maintenance.table_files.removals import removed_since
from airflow_delta.engine.maintenance.vacuum.classification import KeptFiles
from airflow_delta.engine.maintenance.vacuum.concurrent_commits import Deletions
from airflow_delta.engine.maintenance.vacuum.execution import VacuumResult
from airflow_delta.engine.maintenance.vacuum.last_vacuum import write_last_vacuum
from airflow_delta.engine.maintenance.vacuum.other_tables import without_other_tables
from airflow_delta.engine.maintenance.vacuum.plan import (
    VacuumPlan,
    open_for_vacuum,
    reached_version,
    why_nothing,
)
from airflow_delta.engine.maintenance.vacuum.references import references
from airflow_delta.engine.maintenance.vacuum.retention import Retention, retention_of
from airflow_delta.engine.maintenance.vacuum.scope import Scope, roots_of_other_tables
from airflow_delta.engine.model.properties import TableProperties
from airflow_delta.engine.storage.base import Storage
from airflow_delta.spark.checkpoint.key_shuffle import ByHash, Parcel, StorageAddress, itself
from airflow_delta.spark.runtime.executor_errors import errors_for_driver, errors_of_executors
from airflow_delta.spark.runtime.locations import hadoop_path
from airflow_delta.spark.vacuum.classification import FOUND_FILES, SIFTED, Decision, Sifting
from airflow_delta.spark.vacuum.inventory import inventory_batches
from airflow_delta.spark.vacuum.listing import listed_files
from airflow_delta.spark.vacuum.references import (
    RECENT,
    by_name,
    log_parcels,
    reference_parcels,
)

if TYPE_CHECKING:
    from pyspark import RDD
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["for_spark", "vacuum"]

_PARTITION_FILES = 200_000
"""Of so many files a task decides: with what the log says of them, some hundred megabytes."""

_DELETED_AT_ONCE = 1000
"""As many as one request to S3 deletes."""

_DELETING_TASKS = 4
"""For each core: a task mostly waits for the store."""


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
    """Delete the files in a table's directory that nobody needs any more.

    Args:
        spark: the session.
        uri: the table's path or URI; executors must reach it by the same.
        retention_hours: see ``DeltaTable.vacuum``.
        inventory: files to be looked at in place of a listing, with the columns ``path``, ``length``,
            ``isDir``, ``modificationTime``: rows, or the Parquet file or directory that Spark reads.
        enforce_retention: see ``DeltaTable.vacuum``.
        dry_run: only say what would be done: ``result.plan.files`` has the paths.
        storage_options: credentials and settings with which the engine reaches the table, in the driver
            and in executors.

    Raises:
        InvalidArgumentError: executors can't see the location, or an argument makes no sense.
        DeltaError: see ``DeltaTable.vacuum``. What is deleted by then stays so; a repetition goes on.
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
    now_ms = time.time_ns() // 1_000_000
    retain = partial(retention_of, hours=retention_hours, now_ms=now_ms, enforce=enforce_retention)
    job = _Job(spark, storage, options, now_ms)
    rows = spark.read.parquet(for_spark(inventory)) if isinstance(inventory, str) else inventory
    plan = job.plan(retain, rows)
    return VacuumResult(plan, 0, 0) if dry_run else job.execute(plan)


def for_spark(uri: str) -> str:
    """A location by the scheme that Spark has a connector for; a path stays as it is.

    Raises:
        InvalidArgumentError: it has none.
    """
    return hadoop_path(uri) if "://" in uri and not uri.startswith("file:") else uri


class _Job:
    """One vacuum.

    Args:
        spark: the session.
        storage: the table's storage.
        options: the storage options.
        now_ms: the time, in epoch ms.
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
        """What is to be deleted.

        Args:
            retain: the retention of a table with some properties.
            inventory: what to look at in place of a listing.
        """
        before = open_for_vacuum(self._storage, self._owners)
        retain(before.properties)
        with errors_of_executors():
            if inventory is None:
                found = listed_files(self._context, self._storage, self._address)
            else:
                found = inventory_batches(inventory, root=self._storage.root, now_ms=self._now_ms)
            # Gone through more than once, and listed once.
            found = found.persist(StorageLevel.DISK_ONLY)
            try:
                looks = found.map(_look).collect()
                newest = open_for_vacuum(self._storage, self._owners)
                snapshot = before if newest.version == before.version else newest
                retention = retain(snapshot.properties)
                listed = before.version if inventory is None else None
                decisions = self._decisions(snapshot, found, looks, retention, listed=listed)
            finally:
                found.unpersist()
        return _plan_of(decisions, snapshot, retention, listed=listed)

    def execute(self, plan: VacuumPlan) -> VacuumResult:
        """Do what a plan says, but for files that a commit has brought back; see `vacuum_meanwhile`."""
        address, paths, files = self._address, plan.files["path"], plan.files
        if files.num_rows:
            deletions = Deletions(self._storage, self._owners, plan)
            tasks = _DELETING_TASKS * self._context.defaultParallelism

            def delete(given: Iterable[str]) -> Iterator[None]:
                with errors_for_driver():
                    address.open().delete(list(given))
                return iter(())

            # Wave by wave, so that the log is looked at in between.
            for start in range(0, len(paths), tasks * _DELETED_AT_ONCE):
                wave = paths.slice(start, tasks * _DELETED_AT_ONCE).to_pylist()
                going = deletions.without_needed(wave)
                slices = max(-(-len(going) // _DELETED_AT_ONCE), 1)
                with errors_of_executors():
                    self._context.parallelize(going, slices).mapPartitions(delete).count()
            files = deletions.deleted()
        if plan.vacuumed is not None:
            write_last_vacuum(self._storage, plan.vacuumed)
        return VacuumResult(plan, files.num_rows, pc.sum(files["size"]).as_py() or 0)

    def _decisions(
        self,
        snapshot: Snapshot,
        found: RDD[bytes],
        looks: Sequence[_Look],
        retention: Retention,
        *,
        listed: int | None,
    ) -> list[Decision]:
        """What becomes of the files, by partitions of their names."""
        names = ByHash(1 + sum(look.count for look in looks) // _PARTITION_FILES)
        cutoff_ms, until = retention.cutoff_ms, snapshot.version if listed is None else listed
        # What checkpoints may have forgotten: told by commits alone; see `vacuum_log`.
        longer = retention.duration_ms > retention.configured_ms
        removes = removed_since(snapshot, cutoff_ms, all_needed=longer)
        forgotten = references(removes, table=snapshot.table)
        extra = list(reference_parcels(RECENT, forgotten, names))
        files_found = self._found_parcels(found, looks, names, is_listed=listed is not None)
        sifting = Sifting(
            Scope.of(snapshot),
            retention,
            tuple(sorted({root for look in looks for root in look.others})),
            self._address,
            is_listed=listed is not None,
        )
        while True:
            try:
                told = log_parcels(
                    self._context, self._address, snapshot, names, cutoff_ms=cutoff_ms, until=until
                )
                known = self._context.parallelize(extra, max(len(extra), 1))
                parcels = self._context.union([files_found, told, known])
                with errors_of_executors():
                    return parcels.partitionBy(names.count, itself).mapPartitions(sifting).collect()
            except (CorruptLogError, ObjectNotFoundError) as error:
                snapshot.state.recover(error)

    def _found_parcels(
        self, found: RDD[bytes], looks: Sequence[_Look], names: ByHash, *, is_listed: bool
    ) -> RDD[tuple[int, Parcel]]:
        """The files that were found, dealt out by their names; without markers of directories."""
        markers = pa.array([], pa.string())
        empty = [path for look in looks for path in look.empty]
        if is_listed and empty and self._storage.capabilities.remote:
            column = pa.chunked_array([empty], pa.string())
            marked = found.map(partial(_marked, column)).collect()
            markers = pa.array(sorted({path for paths in marked for path in paths}), pa.string())

        def deal(batch: bytes) -> Iterator[tuple[int, Parcel]]:
            files = _files(batch)
            files = files.filter(pc.invert(pc.is_in(files["path"], value_set=markers)))
            return by_name(FOUND_FILES, files, names)

        return found.flatMap(deal)


@dataclass(frozen=True, slots=True)
class _Look:
    """What a batch of files tells of others.

    Attributes:
        count: how many files they are.
        others: the directories of other tables.
        empty: the paths of empty files, which may stand for directories.
    """

    count: int
    others: tuple[str, ...]
    empty: tuple[str, ...]


def _look(batch: bytes) -> _Look:
    files = _files(batch)
    empty = files["path"].filter(pc.equal(files["size"], pa.scalar(0, pa.int64())))
    others = roots_of_other_tables(files["path"])
    return _Look(files.num_rows, tuple(others.to_pylist()), tuple(empty.to_pylist()))


def _marked(empty: pa.ChunkedArray, batch: bytes) -> list[str]:
    marked: list[str] = marked_directories(empty, _files(batch)["path"]).to_pylist()
    return marked


def _files(batch: bytes) -> pa.Table:
    return pa.Table.from_batches([pa.ipc.read_record_batch(pa.py_buffer(batch), FOUND)])


def _plan_of(
    decisions: Sequence[Decision], snapshot: Snapshot, retention: Retention, *, listed: int | None
) -> VacuumPlan:
    """The plan that the decisions about all files come to."""
    tables = [pa.ipc.open_stream(decision.files).read_all() for decision in decisions]
    files = pa.concat_tables([SIFTED.empty_table(), *tables])
    kept = KeptFiles(
        *(
            sum(getattr(decision.kept, field.name) for decision in decisions)
            for field in fields(KeptFiles)
        )
    )
    storage, is_listed = snapshot.storage, listed is not None
    files, kept = without_other_tables(files, kept, storage, is_listed=is_listed)
    lost = max((decision.lost or 0 for decision in decisions), default=0)
    num_found = sum(decision.num_found for decision in decisions)
    return VacuumPlan(
        snapshot.table,
        snapshot.version,
        "inventory" if listed is None else "full",
        retention,
        files,
        kept,
        min(max(lost, snapshot.timeline.earliest_recreatable), snapshot.version),
        vacuumed=None if listed is None else reached_version(snapshot, retention),
        reason=None if files.num_rows else why_nothing(num_found, kept),
    )

"""Reconcile a partition of a log in a task, and write it to sidecars.

A partition has all actions of its files, so the engine's rules can reconcile it like a whole log. Its
live files and unexpired tombstones become sidecars with the engine's own layout: usually one of adds
and one of removes. Only their ``sidecar`` actions go to the driver.

Spark may run a task more than once, after a failure or by speculation. Each run writes new sidecars,
and Spark uses the result of one run. `SidecarRun.delete` finds the sidecars of the others by their
names.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext

from airflow_delta.engine.arrow.action_schema import POSITION, VERSION, FileActions
from airflow_delta.engine.arrow.numpy_arrays import Int64Vector, int64_array, int64_view
from airflow_delta.engine.arrow.parquet.action_file import ActionFile
from airflow_delta.engine.arrow.python_arrays import scalar_of
from airflow_delta.engine.checkpoint.action_rows import new_action_file
from airflow_delta.engine.checkpoint.sidecars.layout import SidecarLayout, SidecarRows, clustered
from airflow_delta.engine.checkpoint.sidecars.tags import facts_of_rows
from airflow_delta.engine.clock import now_ms
from airflow_delta.engine.log.files import sidecar_path
from airflow_delta.engine.model.actions import Sidecar
from airflow_delta.engine.replay.reconcile import reconcile_commits
from airflow_delta.engine.replay.tombstones import unexpired
from airflow_delta.engine.storage.base import FileInfo, Storage
from airflow_delta.spark.checkpoint.key_shuffle import Parcel, StorageAddress, gathered
from airflow_delta.spark.checkpoint.log_parts import BASE_VERSION
from airflow_delta.spark.runtime.executor_errors import errors_for_driver

__all__ = ["SidecarTask", "reconciled"]

_ORDER = [VERSION, POSITION]


@dataclass(frozen=True, slots=True)
class SidecarTask:
    """Writes the sidecars of a partition, in tasks; for ``RDD.mapPartitions``.

    Attributes:
        address: the table's address.
        layout: the layout of the sidecars.
        run: the unique prefix of their names.
        version: the version of the table.
        oldest_tombstone_ms: see ``tombstones.expired``.
    """

    address: StorageAddress
    layout: SidecarLayout
    run: str
    version: int
    oldest_tombstone_ms: int

    def __call__(self, parcels: Iterable[tuple[int, Parcel]]) -> Iterator[Sidecar]:
        """Write the sidecars of a partition, without empty ones."""
        task = TaskContext.get()
        assert task is not None, "called outside of a task"
        with errors_for_driver():
            adds, removes = reconciled(gathered(parcels, columns=None), self.address.root)
            young = unexpired(removes, self.oldest_tombstone_ms)
            storage = self.address.open()
            pieces = clustered([("add", adds), ("remove", young)])
            for number, piece in enumerate(pieces):
                # The attempt id is unique among all tasks of the application and their attempts.
                name = f"{self.run}.{task.taskAttemptId()}.{number}.parquet"
                yield self._write(storage, name, piece)

    def _write(self, storage: Storage, name: str, piece: SidecarRows) -> Sidecar:
        path, rows, root = sidecar_path(name), piece.load(), self.address.root
        with storage.writer(path, overwrite=False) as stream:
            with new_action_file(
                stream, self.layout.schema, table=root, version=self.version
            ) as file:
                file.write_files([(piece.kind, rows)], self.layout.typed)
            size = stream.tell()
        # Reads the footer back, so that no incomplete file is published.
        ActionFile(storage, FileInfo(path, size, 0), exact_size=True).load_footer()
        adds, removes = (rows, None) if piece.kind == "add" else (None, rows)
        facts = facts_of_rows(adds, removes, stats_form=self.layout.stats_form)
        return Sidecar(name, size, now_ms(), facts.to_tags())


def reconciled(actions: FileActions, table: str) -> tuple[pa.Table, pa.Table]:
    """Reconcile actions to live files and tombstones, including expired ones.

    Args:
        actions: all actions of some files.
        table: the table's location.
    """
    both = (actions.adds, actions.removes)
    adds, removes = (_where_base(found, wanted=False) for found in both)
    commits = reconcile_commits(_in_one_order(adds, removes), table=table)
    base = (_where_base(found, wanted=True) for found in both)
    live, gone = (
        pa.concat_tables([commits.survivors(old), new]).drop_columns(_ORDER)
        for old, new in zip(base, (commits.adds, commits.removes), strict=True)
    )
    return live, gone


def _where_base(actions: pa.Table, *, wanted: bool) -> pa.Table:
    in_base = pc.equal(actions[VERSION], scalar_of(BASE_VERSION, pa.int64()))
    return actions.filter(in_base if wanted else pc.invert(in_base))


def _in_one_order(adds: pa.Table, removes: pa.Table) -> FileActions:
    """Renumber the positions of actions so that they ascend over the whole log."""
    orders = pa.concat_tables([adds.select(_ORDER), removes.select(_ORDER)])
    order = pc.sort_indices(orders, sort_keys=[(name, "ascending") for name in _ORDER])
    positions = np.empty(len(order), np.int64)
    positions[int64_view(order.cast(pa.int64()))] = np.arange(len(order))
    return FileActions(
        _at_positions(adds, positions[: len(adds)]),
        _at_positions(removes, positions[len(adds) :]),
    )


def _at_positions(actions: pa.Table, positions: Int64Vector) -> pa.Table:
    column = actions.schema.get_field_index(POSITION)
    return actions.set_column(column, POSITION, int64_array(positions)).sort_by(POSITION)

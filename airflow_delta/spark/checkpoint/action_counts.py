"""Count the files and tombstones of a log's state with Spark, to verify the checkpoint afterwards.

This is a separate pass over few columns. It uses a sort and a group-by, not the engine's
reconciliation, which makes the checkpoint, so that one checks the other. It also samples the file
keys, to split the checkpoint into even ranges.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_delta.engine.arrow.action_schema import POSITION, VERSION, FileActions
from airflow_delta.engine.arrow.numpy_arrays import int64_array
from airflow_delta.engine.arrow.python_arrays import scalar_of
from airflow_delta.engine.replay.file_key import file_keys
from airflow_delta.engine.replay.tombstones import deletion_times, unexpired
from airflow_delta.spark.checkpoint.key_shuffle import (
    ByHash,
    Parcel,
    StorageAddress,
    gathered,
    shuffled_actions,
)
from airflow_delta.spark.checkpoint.log_parts import BASE_VERSION, LogPart
from airflow_delta.spark.runtime.executor_errors import errors_for_driver, errors_of_executors

if TYPE_CHECKING:
    from pyspark import SparkContext

__all__ = ["ActionCounts", "count_actions"]

_COLUMNS = ("size", "deletionTimestamp")
_COUNTED = ("live", *_COLUMNS)

_SAMPLED = 500
"""One of so many keys is sampled: about a hundred for each sidecar."""


@dataclass(frozen=True, slots=True)
class ActionCounts:
    """The counts of a log's file actions.

    Attributes:
        read: the number of actions before reconciliation.
        adds: the number of live files.
        adds_size: the sum of their sizes in bytes.
        removes: the number of unexpired tombstones.
        sample: the keys of a sample of the actions, in no order.
        twice: keys that the base checkpoint contains twice; at most one from each partition.
    """

    read: int
    adds: int
    adds_size: int
    removes: int
    sample: tuple[str, ...] = field(repr=False)
    twice: tuple[str, ...] = ()


def count_actions(
    context: SparkContext,
    address: StorageAddress,
    parts: Sequence[LogPart],
    *,
    oldest_tombstone_ms: int,
    whole: bool = False,
) -> ActionCounts:
    """Count the live files and the tombstones of a log.

    Args:
        context: the Spark context.
        address: the table's address, for tasks.
        parts: the log.
        oldest_tombstone_ms: see ``tombstones.expired``.
        whole: whether to read all columns, to find out whether they can be read.

    Raises:
        CorruptLogError: a file of the log is damaged.
        ObjectNotFoundError: a file is gone.
        PySparkException, Py4JError: Spark's own errors.
    """
    columns = None if whole else _COLUMNS
    root = address.root

    def count(parcels: Iterable[tuple[int, Parcel]]) -> Iterator[ActionCounts]:
        """Count the actions of one partition."""
        with errors_for_driver():
            yield _counted(gathered(parcels, columns=columns), root, oldest_tombstone_ms)

    actions = shuffled_actions(
        context, address, parts, columns=columns, partitions=ByHash(max(len(parts), 1))
    )
    with errors_of_executors():
        found = actions.mapPartitions(count).collect()
    return ActionCounts(
        read=sum(counts.read for counts in found),
        adds=sum(counts.adds for counts in found),
        adds_size=sum(counts.adds_size for counts in found),
        removes=sum(counts.removes for counts in found),
        sample=tuple(key for counts in found for key in counts.sample),
        twice=tuple(key for counts in found for key in counts.twice),
    )


def _counted(actions: FileActions, table: str, oldest_tombstone_ms: int) -> ActionCounts:
    rows = pa.concat_tables(
        [_rows(actions.adds, table, live=True), _rows(actions.removes, table, live=False)]
    )
    in_base = pc.equal(rows[VERSION], scalar_of(BASE_VERSION, pa.int64()))
    base, commits = rows.filter(in_base), rows.filter(pc.invert(in_base))
    met = pc.value_counts(base["key"])
    twice = pc.struct_field(met, "values").filter(pc.greater(pc.struct_field(met, "counts"), 1))
    # The last of each group is the newest action of a file.
    ordered = commits.sort_by([(VERSION, "ascending"), (POSITION, "ascending")])
    newest = ordered.group_by("key", use_threads=False).aggregate(
        [(name, "last") for name in _COUNTED]
    )
    newest = newest.rename_columns([name.removesuffix("_last") for name in newest.column_names])
    kept = base.filter(pc.invert(pc.is_in(base["key"], value_set=newest["key"])))
    state = pa.concat_tables([newest.select(_COUNTED), kept.select(_COUNTED)])
    adds, removes = state.filter(state["live"]), state.filter(pc.invert(state["live"]))
    return ActionCounts(
        read=rows.num_rows,
        adds=adds.num_rows,
        adds_size=pc.sum(adds["size"], min_count=0).as_py(),
        removes=unexpired(removes, oldest_tombstone_ms).num_rows,
        sample=tuple(
            rows["key"].take(int64_array(np.arange(0, rows.num_rows, _SAMPLED))).to_pylist()
        ),
        twice=tuple(twice[:1].to_pylist()),
    )


def _rows(actions: pa.Table, table: str, *, live: bool) -> pa.Table:
    nothing = scalar_of(0, pa.int64())
    rows = actions.num_rows
    columns = {
        "key": file_keys(actions, table=table),
        VERSION: actions[VERSION],
        POSITION: actions[POSITION],
        "live": pa.repeat(scalar_of(live, pa.bool_()), rows),
        "size": pc.coalesce(actions["size"], nothing),
        "deletionTimestamp": pa.repeat(nothing, rows) if live else deletion_times(actions),
    }
    return pa.table(columns)

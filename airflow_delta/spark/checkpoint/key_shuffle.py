"""Bring all actions of a file together: Spark's shuffle, over Arrow batches.

Reconciliation needs all actions of one logical file in one place. Each task reads its part of the log,
splits it by the files' keys into as many batches as there are partitions, and Spark shuffles the
batches as opaque bytes. So actions stay columns from the log to the sidecar: the JVM never makes a row
of one, as it would of a DataFrame's. (PySpark's ``mapInArrow`` would besides need pandas in the driver.)

Keys are dealt out in one of two ways, the same on every machine and in every process:

* `ByHash`, which needs to know nothing of the keys;
* `ByRange`, whose partitions follow each other as the keys do. Keys begin with paths, so files of one
  directory, hence of one partition of the table, lie together.
"""

from __future__ import annotations

import zlib
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa

from airflow_delta.engine.arrow.action_schema import FileActions
from airflow_delta.engine.arrow.numpy_arrays import int64_array
from airflow_delta.engine.public_text import without_password
from airflow_delta.engine.replay.file_key import file_keys
from airflow_delta.engine.storage.file_access import FileAccess
from airflow_delta.engine.storage.location import open_storage
from airflow_delta.spark.checkpoint.log_parts import LogPart, action_schemas, read_part
from airflow_delta.spark.runtime.executor_errors import errors_for_driver

if TYPE_CHECKING:
    from pyspark import RDD, SparkContext

    from airflow_delta.engine.checkpoint.action_rows import FileActionTable
    from airflow_delta.engine.storage.base import Storage

__all__ = [
    "ByHash",
    "ByRange",
    "Parcel",
    "StorageAddress",
    "gathered",
    "itself",
    "parcels",
    "shuffled_actions",
]

Parcel: TypeAlias = tuple[str, bytes]
"""The kind of some actions, and their Arrow batch as bytes, without its schema."""

_SPLIT_ROWS = 500_000
_SPLIT_BYTES = 256 << 20
"""A task splits its actions when it has gathered so many: the more at once, the fewer parcels."""


@dataclass(frozen=True, slots=True)
class StorageAddress:
    """How a task opens the table's storage. Travels to executors inside Spark's tasks.

    Attributes:
        root: the table's location, absolute.
        options: the storage options; may hold secrets, and are not shown.
        allowed_outside: what the table may read outside of its root.
    """

    root: str
    options: dict[str, str]
    allowed_outside: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"StorageAddress({without_password(self.root)!r})"

    def open(self) -> Storage:
        """The storage."""
        return open_storage(self.root, self.options)

    def access(self) -> FileAccess:
        """Opens the files that the table's log names."""
        return FileAccess(self.open(), self.options, self.allowed_outside)


@dataclass(frozen=True, slots=True)
class ByHash:
    """Keys dealt out by their hash.

    Attributes:
        count: how many partitions there are.
    """

    count: int

    def numbers(self, keys: Iterable[str]) -> Iterator[int]:
        """The partition of each key."""
        return (zlib.crc32(key.encode()) % self.count for key in keys)


@dataclass(frozen=True, slots=True)
class ByRange:
    """Keys dealt out by their order.

    Attributes:
        bounds: the keys at which the second and each further partition begins, ascending.
    """

    bounds: tuple[str, ...]

    @property
    def count(self) -> int:
        """How many partitions there are."""
        return len(self.bounds) + 1

    def numbers(self, keys: Iterable[str]) -> Iterator[int]:
        """The partition of each key."""
        return (bisect_right(self.bounds, key) for key in keys)


def shuffled_actions(
    context: SparkContext,
    address: StorageAddress,
    parts: Sequence[LogPart],
    *,
    columns: Sequence[str] | None,
    partitions: ByHash | ByRange,
) -> RDD[tuple[int, Parcel]]:
    """All file actions of a log, those of one file in one partition.

    Args:
        context: Spark's.
        address: where the table is.
        parts: the log.
        columns: the columns wanted beside those of the file's key; None for all.
        partitions: which partition each file belongs to.

    Returns:
        Pairs of a partition's number and some of its actions; see `gathered`.
    """
    wanted = None if columns is None else tuple(columns)

    def read(_: int, given: Iterable[LogPart]) -> Iterator[tuple[int, Parcel]]:
        with errors_for_driver():
            storage = address.open()
            tables = (pair for part in given for pair in read_part(storage, part, columns=wanted))
            yield from _split(tables, partitions, table=address.root)

    parted: RDD[LogPart] = context.parallelize(parts, max(len(parts), 1))
    return parted.mapPartitionsWithIndex(read).partitionBy(partitions.count, itself)


def parcels(
    kind: str, rows: pa.Table, keys: pa.ChunkedArray, partitions: ByHash | ByRange
) -> Iterator[tuple[int, Parcel]]:
    """Rows, dealt out to partitions.

    Args:
        kind: what they are, for who gathers them.
        rows: the rows.
        keys: by which each is dealt out.
        partitions: which partition each key belongs to.
    """
    if not rows.num_rows:
        return
    # A loop over rows: neither pyarrow nor numpy hashes texts or finds them among others, and
    # over vectors of their bytes it would take numpy as long as this, 0.3 µs a key.
    numbers = np.fromiter(partitions.numbers(keys.to_pylist()), np.int64, len(keys))
    order = np.argsort(numbers, kind="stable")
    present, starts = np.unique(numbers[order], return_index=True)
    ends = [*starts[1:].tolist(), len(order)]
    # A loop over partitions, not over rows.
    for number, start, end in zip(present.tolist(), starts.tolist(), ends, strict=True):
        chosen = rows.take(int64_array(order[start:end])).combine_chunks()
        for batch in chosen.to_batches():
            yield number, (kind, batch.serialize().to_pybytes())


def gathered(found: Iterable[tuple[int, Parcel]], *, columns: Sequence[str] | None) -> FileActions:
    """The actions of one partition.

    Args:
        found: as `shuffled_actions` brings them.
        columns: as they were asked for there.
    """
    schemas = action_schemas(columns)
    batches: dict[str, list[pa.RecordBatch]] = {kind: [] for kind in schemas}
    for _, (kind, content) in found:
        batches[kind].append(pa.ipc.read_record_batch(pa.py_buffer(content), schemas[kind]))
    adds, removes = (pa.Table.from_batches(batches[kind], schemas[kind]) for kind in schemas)
    return FileActions(adds, removes)


def _split(
    tables: Iterable[FileActionTable], partitions: ByHash | ByRange, *, table: str
) -> Iterator[tuple[int, Parcel]]:
    """Actions as parcels for the partitions that their files belong to."""
    held: dict[str, list[pa.Table]] = {"add": [], "remove": []}
    for kind, actions in tables:
        if actions.num_rows:
            held[kind].append(actions)
        if _is_much(held[kind]):
            yield from _parcels(kind, pa.concat_tables(held[kind]), partitions, table)
            held[kind] = []
    for kind, rest in held.items():
        if rest:
            yield from _parcels(kind, pa.concat_tables(rest), partitions, table)


def _is_much(tables: Sequence[pa.Table]) -> bool:
    rows = sum(table.num_rows for table in tables)
    return bool(rows >= _SPLIT_ROWS or sum(table.nbytes for table in tables) >= _SPLIT_BYTES)


def _parcels(
    kind: str, actions: pa.Table, partitions: ByHash | ByRange, table: str
) -> Iterator[tuple[int, Parcel]]:
    return parcels(kind, actions, file_keys(actions, table=table), partitions)


def itself(number: Any) -> int:
    """The number of a partition, for Spark's ``partitionBy``: keys are numbers by then."""
    return int(number)

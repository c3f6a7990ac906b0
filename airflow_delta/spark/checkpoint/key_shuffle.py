"""Shuffle actions with Spark so that all actions of a logical file are in one partition.

Each task reads a part of the log and splits it by file keys into Arrow batches, one per partition.
Spark shuffles the batches as opaque bytes. So actions stay in columns from the log to the sidecar;
a DataFrame would convert each to a JVM row, and PySpark's ``mapInArrow`` needs pandas.

Keys are partitioned in one of two ways, the same in every process:

* `ByHash`, which needs no knowledge of the keys;
* `ByRange`, by the order of keys. Keys begin with paths, so the files of a directory stay together.
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
"""A kind of rows, and an Arrow batch of them as bytes, without its schema."""

_SPLIT_ROWS = 500_000
_SPLIT_BYTES = 256 << 20
"""A task collects so many actions before it splits them: larger batches make fewer parcels."""


@dataclass(frozen=True, slots=True)
class StorageAddress:
    """The arguments with which a task opens the table's storage. Spark sends it to executors in its tasks.

    Attributes:
        root: the table's location, absolute.
        options: the storage options; may contain secrets, so ``repr`` leaves them out.
        allowed_outside: locations outside its root that the table may read.
    """

    root: str
    options: dict[str, str]
    allowed_outside: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"StorageAddress({without_password(self.root)!r})"

    def open(self) -> Storage:
        """Open the storage."""
        return open_storage(self.root, self.options)

    def access(self) -> FileAccess:
        """Create the access to the files that the table's log names."""
        return FileAccess(self.open(), self.options, self.allowed_outside)


@dataclass(frozen=True, slots=True)
class ByHash:
    """Partitions keys by their hash.

    Attributes:
        count: the number of partitions.
    """

    count: int

    def numbers(self, keys: Iterable[str]) -> Iterator[int]:
        """The partition of each key."""
        return (zlib.crc32(key.encode()) % self.count for key in keys)


@dataclass(frozen=True, slots=True)
class ByRange:
    """Partitions keys by their order.

    Attributes:
        bounds: the keys at which the second and each further partition begins, ascending.
    """

    bounds: tuple[str, ...]

    @property
    def count(self) -> int:
        """The number of partitions."""
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
    """Read the file actions of a log, with all actions of a file in one partition.

    Args:
        context: the Spark context.
        address: the table's address, for tasks.
        parts: the log.
        columns: the columns to read besides those of the file key; None for all.
        partitions: the partitioning by file key.

    Returns:
        Pairs of a partition's number and some of its actions; see `gathered`.
    """
    wanted = None if columns is None else tuple(columns)

    def read(_: int, given: Iterable[LogPart]) -> Iterator[tuple[int, Parcel]]:
        """Read some parts of the log, and split their actions by key."""
        with errors_for_driver():
            storage = address.open()
            tables = (pair for part in given for pair in read_part(storage, part, columns=wanted))
            yield from _split(tables, partitions, table=address.root)

    parted: RDD[LogPart] = context.parallelize(parts, max(len(parts), 1))
    return parted.mapPartitionsWithIndex(read).partitionBy(partitions.count, itself)


def parcels(
    kind: str, rows: pa.Table, keys: pa.ChunkedArray, partitions: ByHash | ByRange
) -> Iterator[tuple[int, Parcel]]:
    """Split rows into parcels for partitions.

    Args:
        kind: the kind of the rows.
        rows: the rows.
        keys: their keys.
        partitions: the partitioning by key.
    """
    if not rows.num_rows:
        return
    # A Python loop over rows, 0.3 µs each: pyarrow and numpy have no hash or binary search of texts, and
    # numpy over arrays of bytes takes as long.
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
    """Combine the parcels of one partition.

    Args:
        found: the parcels, from `shuffled_actions`.
        columns: the same as there.
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
    """Split actions into parcels by their file keys."""
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
    """The partition function for ``partitionBy``: the keys are partition numbers already."""
    return int(number)

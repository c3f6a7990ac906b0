"""Compact the small files of partitions to which a write has added files, if a table property says so.

Delta Spark does so after a write to a table with ``delta.autoOptimize.autoCompact``. It counts the files of
a partition in the memory of its process, so that the first write of each process compacts. Here the live
files of all writers are counted: a partition with 50 small files is compacted. Small means less than half
of ``delta.targetFileSize``, or of 128 MiB.

The driver does it after the commit, as `DeltaTable.optimize`. If it fails, the rows stay written. Tables
with clustering columns are left out: there an optimization may sort 100 GiB again, which is no work for a
driver after a write.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_, or_
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from airflow_delta.engine import AddFile, DeltaTable, Metadata, Snapshot
from airflow_delta.engine.arrow.python_arrays import scalar_of
from airflow_delta.engine.errors import DeltaWarning
from airflow_delta.engine.features.column_mapping import mapping_mode, physical_name
from airflow_delta.engine.maintenance.optimize.candidates import NAN_KEY, partition_key
from airflow_delta.engine.maintenance.optimize.sorting.order import clustering_paths_of
from airflow_delta.engine.model.properties import TableProperties
from airflow_delta.engine.model.schema import StructField
from airflow_delta.engine.scan.predicates.reading import as_expression

__all__ = ["AutoCompaction", "compact_after_write"]

_LEAST_FILES = 50
_MOST_PARTITIONS = 128
"""Both are the reference's defaults."""

_TARGET_SIZE = 128 << 20

_Column: TypeAlias = tuple[str, StructField]
"""A partition column with its name in the log."""

_Partition: TypeAlias = tuple[tuple[Any, ...], ...]
"""The key of each value (`partition_key`)."""


@dataclass(frozen=True, slots=True)
class AutoCompaction:
    """The compaction after a write.

    Attributes:
        version: the version of its last commit; None if there is none.
        num_removed_files: the number of small files that it replaced.
        num_added_files: the number of files that it wrote.
        error: why it failed, as a sentence; None if it didn't.
    """

    version: int | None = None
    num_removed_files: int = 0
    num_added_files: int = 0
    error: str | None = None


def compact_after_write(
    table: DeltaTable, metadata: Metadata, adds: Sequence[AddFile]
) -> AutoCompaction | None:
    """Compact partitions with many small files after a commit, if the table's properties say so.

    Args:
        table: the table.
        metadata: its metadata as of the commit.
        adds: the files that the commit has added.

    Returns:
        What was done, also if it failed; None if there was nothing to do.
    """
    try:
        if not adds or not TableProperties(metadata.configuration, table.uri).auto_compact:
            return None
        return _compact(table, adds)
    except Exception as error:  # noqa: BLE001 - the commit is made; no failure now is one of the write
        text = (
            f"{table.uri}: the rows are written, but the compaction of small files failed: {error}"
        )
        warnings.warn(DeltaWarning(text), stacklevel=2)
        return AutoCompaction(error=str(error))


def _compact(table: DeltaTable, adds: Sequence[AddFile]) -> AutoCompaction | None:
    snapshot = table.snapshot()
    if clustering_paths_of(snapshot):
        return None
    columns = _partition_columns(snapshot)
    # A loop over the files of one write, which came as objects.
    touched = _count_partitions(
        Counter(
            tuple(add.partition_values.get(name) for name, _ in columns) for add in adds
        ).items(),
        columns,
    )
    partitions = [key for key, _ in touched.most_common(_MOST_PARTITIONS)]
    crowded = _crowded(snapshot, columns, partitions)
    if not crowded:
        return None
    done = table.optimize(_any_of(snapshot, columns, crowded))
    if not done.num_commits:
        return None
    return AutoCompaction(done.version, done.num_removed, done.num_added)


def _partition_columns(snapshot: Snapshot) -> list[_Column]:
    """The partition columns, with their names in the log."""
    mode = mapping_mode(snapshot.protocol, snapshot.metadata, table=snapshot.table)
    names = snapshot.metadata.partition_columns
    return [(physical_name(field, mode), field) for field in snapshot.schema if field.name in names]


def _crowded(
    snapshot: Snapshot, columns: Sequence[_Column], partitions: Sequence[_Partition]
) -> list[_Partition]:
    """The partitions with many small files."""
    files = snapshot.files(
        columns=["partitionValues", "size"],
        predicate=_any_of(snapshot, columns, partitions),
    )
    least = (snapshot.properties.target_file_size or _TARGET_SIZE) // 2
    small = files.filter(pc.less(files["size"], scalar_of(least, pa.int64())))
    counts = _count_partitions(_count_texts(small["partitionValues"], columns), columns)
    return [key for key in partitions if counts[key] >= _LEAST_FILES]


def _count_texts(
    values: pa.ChunkedArray, columns: Sequence[_Column]
) -> Iterable[tuple[tuple[str | None, ...], int]]:
    """The different texts of partitions, each with its number of files."""
    if not columns:
        return [((), len(values))]
    maps = values.combine_chunks()
    names = [str(index) for index in range(len(columns))]
    texts = [pc.map_lookup(maps, scalar_of(name, pa.string()), "last") for name, _ in columns]
    counted = pa.table(texts, names=names).group_by(names).aggregate([([], "count_all")])
    found = zip(*(counted[name].to_pylist() for name in names), strict=True)
    return zip(found, counted["count_all"].to_pylist(), strict=True)


def _count_partitions(
    counts: Iterable[tuple[tuple[str | None, ...], int]], columns: Sequence[_Column]
) -> Counter[_Partition]:
    """The number of files of each partition, as an optimization distinguishes them.

    A value may be written in several ways, such as ``1.0`` and ``1.00``.
    """
    found: Counter[_Partition] = Counter()
    for texts, number in counts:
        pairs = zip(texts, columns, strict=True)
        found[tuple(partition_key(text, field.data_type) for text, (_, field) in pairs)] += number
    return found


def _any_of(
    snapshot: Snapshot, columns: Sequence[_Column], partitions: Sequence[_Partition]
) -> pc.Expression | None:
    """The condition for some partitions; None if there are no partition columns."""
    if not columns:
        return None
    return reduce(or_, (_is_in(snapshot, columns, key) for key in partitions))


def _is_in(snapshot: Snapshot, columns: Sequence[_Column], partition: _Partition) -> pc.Expression:
    """The condition for a partition."""
    conditions = []
    for (_, field), key in zip(columns, partition, strict=True):
        if key == NAN_KEY:
            # It equals nothing, not even itself.
            column = pc.field(field.name)
            conditions.append(column.is_null(nan_is_null=True) & ~column.is_null())
            continue
        test = ((field.name,), "is", None) if key[0] is None else ((field.name,), "=", key[0])
        conditions.append(as_expression([test], snapshot.schema, table=snapshot.table))
    return reduce(and_, conditions)

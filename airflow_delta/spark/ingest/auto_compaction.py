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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from airflow_delta.engine import AddFile, DeltaTable, Metadata, Snapshot
from airflow_delta.engine.arrow.python_arrays import scalar_of
from airflow_delta.engine.errors import DeltaWarning
from airflow_delta.engine.features.column_mapping import mapping_mode, physical_name
from airflow_delta.engine.maintenance.optimize.sorting.order import clustering_paths_of
from airflow_delta.engine.model.partition_values import parse_partition_value
from airflow_delta.engine.model.properties import TableProperties

__all__ = ["AutoCompaction", "compact_after_write"]

_LEAST_FILES = 50
_MOST_PARTITIONS = 128
"""Both are the reference's defaults."""

_TARGET_SIZE = 128 << 20

_SEPARATOR, _NULL = "\0", "\1"

_Partition: TypeAlias = tuple[str | None, ...]


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
    names = _physical_names(snapshot)
    # A loop over the files of one write, which came as objects.
    touched = Counter(
        tuple(add.partition_values.get(name) for name in names.values()) for add in adds
    )
    partitions = [values for values, _ in touched.most_common(_MOST_PARTITIONS)]
    crowded = _crowded(snapshot, names, partitions)
    if not crowded:
        return None
    done = table.optimize(_any_of(snapshot, names, crowded))
    if not done.num_commits:
        return None
    return AutoCompaction(done.version, done.num_removed, done.num_added)


def _physical_names(snapshot: Snapshot) -> dict[str, str]:
    """The names of the partition columns in the log, by their logical names."""
    mode = mapping_mode(snapshot.protocol, snapshot.metadata, table=snapshot.table)
    columns = snapshot.metadata.partition_columns
    return {
        field.name: physical_name(field, mode) for field in snapshot.schema if field.name in columns
    }


def _crowded(
    snapshot: Snapshot, names: Mapping[str, str], partitions: Sequence[_Partition]
) -> list[_Partition]:
    """The partitions with many small files."""
    files = snapshot.files(
        columns=["partitionValues", "size"],
        predicate=_any_of(snapshot, names, partitions),
    )
    least = (snapshot.properties.target_file_size or _TARGET_SIZE) // 2
    small = files.filter(pc.less(files["size"], scalar_of(least, pa.int64())))
    keys = pa.array([""] * len(small)) if not names else _keys(small["partitionValues"], names)
    counts = pc.value_counts(keys)
    is_crowded = pc.greater_equal(counts.field("counts"), scalar_of(_LEAST_FILES, pa.int64()))
    found = set(counts.field("values").filter(is_crowded).to_pylist())
    return [values for values in partitions if _key(values) in found]


def _keys(values: pa.ChunkedArray, names: Mapping[str, str]) -> pa.Array:
    """A text for the partition of each file, as `_key` makes it."""
    maps = values.combine_chunks()
    texts = [pc.map_lookup(maps, scalar_of(name, pa.string()), "last") for name in names.values()]
    return pc.binary_join_element_wise(
        *texts,
        scalar_of(_SEPARATOR, pa.string()),
        null_handling="replace",
        null_replacement=_NULL,
    )


def _key(values: _Partition) -> str:
    return _SEPARATOR.join(_NULL if value is None else value for value in values)


def _any_of(
    snapshot: Snapshot, names: Mapping[str, str], partitions: Sequence[_Partition]
) -> list[Any] | None:
    """The condition for some partitions; None if there are no partition columns."""
    if not names:
        return None
    fields = {field.name: field for field in snapshot.schema}
    conditions = []
    for values in partitions:
        condition: list[tuple[Any, ...]] = []
        for name, text in zip(names, values, strict=True):
            value = parse_partition_value(text, fields[name].data_type)
            condition.append(((name,), "is", None) if value is None else ((name,), "=", value))
        conditions.append(condition)
    return conditions

"""The live files of a table as an optimization sees them: sizes, deleted rows, partitions.

Everything comes from the log, and stays in Arrow and numpy, because a table may have a million files.
Statistics are read for files with deletion vectors alone, which are few: only there the number of rows
matters.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from airflow_delta.engine.arrow.numpy_arrays import Int64Vector, int64_view
from airflow_delta.engine.arrow.python_arrays import scalar_of
from airflow_delta.engine.arrow.statistics.parse import num_records
from airflow_delta.engine.errors import InvalidTableError
from airflow_delta.engine.features.column_mapping import mapping_mode, physical_name
from airflow_delta.engine.features.protocol import supported_features
from airflow_delta.engine.features.schema_walk import SchemaPath
from airflow_delta.engine.model.partition_values import has_zone, parse_partition_value
from airflow_delta.engine.model.schema import BINARY, STRING, DataType, StructField
from airflow_delta.engine.scan.file_pruner import FilePruner
from airflow_delta.engine.snapshot.snapshot import Snapshot

__all__ = ["NAN_KEY", "LiveFiles", "partition_key", "read_live_files"]

NAN_KEY = ("NaN", True)
"""The `partition_key` of NaN, which equals itself."""

_COLUMNS = ("path", "partitionValues", "size", "deletionVector", "tags", "clusteringProvider")


@dataclass(frozen=True, slots=True)
class LiveFiles:
    """The live files that a condition chooses.

    Attributes:
        adds: ``path``, ``size``, ``deletionVector``, ``tags`` and ``clusteringProvider`` of each.
        sizes: the sizes in bytes.
        deleted: the number of deleted rows of each.
        records: the number of rows of each, including deleted ones; -1 where it is unknown, as it is for
            all files without a deletion vector.
        partitions: the number of the partition of each: the same for equal values, however they are
            written; see `partition_key` for those that readers distinguish.
    """

    adds: pa.Table
    sizes: Int64Vector
    deleted: Int64Vector
    records: Int64Vector
    partitions: Int64Vector

    @property
    def live_sizes(self) -> Int64Vector:
        """The bytes of the rows that aren't deleted, about."""
        known = self.records > 0
        rows = np.where(known, self.records, 1)
        return np.where(known, self.sizes * (1 - self.deleted / rows), self.sizes).astype(np.int64)

    def with_deleted_rows(self, ratio: float) -> npt.NDArray[np.bool_]:
        """Which files have a larger part of deleted rows than a ratio, or an unknown one."""
        unknown = (self.deleted > 0) & (self.records < 0)
        return unknown | (self.deleted > ratio * np.maximum(self.records, 0)) & (self.deleted > 0)


class _ByVector:
    """Keeps the adds with a deletion vector, or those without; a `RowFilter`."""

    columns = ("deletionVector",)

    def __init__(self, *, present: bool) -> None:
        self._present = present

    def parsed_leaves(
        self,
        stored: pa.DataType,  # noqa: ARG002
        *,
        all_needed: bool,  # noqa: ARG002
    ) -> tuple[SchemaPath, ...] | None:
        """None: statistics aren't needed."""
        return None

    def kept(self, adds: pa.RecordBatch) -> pa.BooleanArray:
        """Which files are kept; without nulls."""
        vectors = adds["deletionVector"]
        return vectors.is_valid() if self._present else vectors.is_null()

    def prune(self, adds: pa.Table) -> pa.Table:
        """The files that are kept, in order."""
        vectors = adds["deletionVector"]
        return adds.filter(vectors.is_valid() if self._present else vectors.is_null())


def read_live_files(snapshot: Snapshot, where: Any, *, with_partitions: bool = True) -> LiveFiles:
    """Read the live files of a version.

    Args:
        snapshot: the version.
        where: a `pyarrow.compute.Expression` over partition columns; None for all files.
        with_partitions: whether to number the partitions; else all files have number 0.

    Raises:
        InvalidTableError: a partition value that is needed isn't one of its column's type.
        DeltaError: the log is damaged.
    """
    parts = [_chosen(adds, snapshot, where) for adds in _adds(snapshot)]
    adds = pa.concat_tables(parts)
    records = num_records(adds["stats"])
    cardinalities = pc.struct_field(adds["deletionVector"], "cardinality")
    return LiveFiles(
        adds.drop_columns(["partitionValues", "stats"]),
        _numbers(adds["size"], 0),
        _numbers(cardinalities, 0),
        np.where(_numbers(cardinalities, -1) >= 0, _numbers(records, -1), np.int64(-1)),
        _partitions(adds["partitionValues"], snapshot)
        if with_partitions
        else np.zeros(len(adds), np.int64),
    )


def _adds(snapshot: Snapshot) -> list[pa.Table]:
    """The adds: those without a deletion vector, then those with one, which have statistics."""
    state = snapshot.state
    if "deletionVectors" not in supported_features(snapshot.protocol):
        return [_without_statistics(state.live_adds(_COLUMNS))]
    return [
        _without_statistics(state.live_adds(_COLUMNS, row_filter=_ByVector(present=False))),
        state.live_adds((*_COLUMNS, "stats"), row_filter=_ByVector(present=True)).select(
            [*_COLUMNS, "stats"]
        ),
    ]


def _without_statistics(adds: pa.Table) -> pa.Table:
    return adds.select(_COLUMNS).append_column("stats", pa.nulls(len(adds), pa.string()))


def _chosen(adds: pa.Table, snapshot: Snapshot, where: Any) -> pa.Table:
    if where is None:
        return adds
    pruner = FilePruner(
        where,
        schema=snapshot.schema,
        partition_columns=snapshot.metadata.partition_columns,
        mapping_mode=mapping_mode(snapshot.protocol, snapshot.metadata, table=snapshot.table),
        table=snapshot.table,
    )
    return pruner.prune(adds)


def _numbers(values: pa.ChunkedArray, missing: int) -> Int64Vector:
    filled = pc.fill_null(values.cast(pa.int64()), scalar_of(missing, pa.int64()))
    return int64_view(filled.combine_chunks())


def _partitions(values: pa.ChunkedArray, snapshot: Snapshot) -> Int64Vector:
    """The number of the partition of each file."""
    numbers = np.zeros(len(values), np.int64)
    mode = mapping_mode(snapshot.protocol, snapshot.metadata, table=snapshot.table)
    for name in snapshot.metadata.partition_columns:
        field = snapshot.schema.field(name)
        assert field is not None
        codes = _value_codes(values, field, physical_name(field, mode), snapshot.table)
        # Combined column by column, and counted anew, so that the numbers stay small.
        combined = numbers * (int(codes.max(initial=0)) + 1) + codes
        numbers = np.unique(combined, return_inverse=True)[1].astype(np.int64).ravel()
    return numbers


def _value_codes(
    values: pa.ChunkedArray, field: StructField, physical: str, table: str
) -> Int64Vector:
    """A number for the value of a partition column in each file, the same for equal values."""
    texts = pc.map_lookup(values.combine_chunks(), scalar_of(physical, pa.string()), "last")
    encoded = texts.dictionary_encode()
    try:
        parsed = [partition_key(text, field.data_type) for text in encoded.dictionary.to_pylist()]
    except InvalidTableError as error:
        raise InvalidTableError(
            f"the partition column {field.name!r}: {error.message}", table=table
        ) from error
    numbers = _number_keys([partition_key(None, field.data_type), *parsed])
    indices = pc.fill_null(
        pc.add(encoded.indices.cast(pa.int64()), scalar_of(1, pa.int64())), scalar_of(0, pa.int64())
    )
    return np.array(numbers, np.int64)[int64_view(indices)]


def _number_keys(keys: Sequence[Any]) -> list[int]:
    """A number for each key, the same for equal ones."""
    known: dict[Any, int] = {}
    return [known.setdefault(key, len(known)) for key in keys]


def partition_key(text: str | None, data_type: DataType) -> tuple[Any, ...]:
    """A key that is equal for values that no reader distinguishes: NaN, but not the zeros of both signs.

    Readers differ in what a timestamp without a zone is, so it never equals one with a zone. An empty text
    is null by the protocol, but Spark and the kernels read it as an empty string or binary, so there it
    isn't the null that they read.

    Args:
        text: the text in the log; None for null.
        data_type: the type of the partition column.

    Returns:
        `NAN_KEY`, or the value and what else distinguishes it.

    Raises:
        InvalidTableError: the text isn't a value of the type.
    """
    value = parse_partition_value(text, data_type)
    if isinstance(value, float):
        return NAN_KEY if math.isnan(value) else (value, math.copysign(1, value))
    if isinstance(value, datetime):
        return (value, has_zone(str(text)))
    if text == "" and data_type in (STRING, BINARY):
        return (None, text)
    return (value,)

"""Find files whose statistics have decimal bounds that were rounded, and compute the exact ones.

Earlier releases of this provider rounded the minima and maxima of decimals to 28 significant digits. If a
bound was rounded inwards, readers skip the file although it has a row that they look for. The footer of the
data file has the exact bounds. To spare requests, `find_rounded_statistics` reads only the footers of files
with a suspicious bound: one of more than 28 digits, with only zeros from the 29th on.

Spec: PROTOCOL.md, "Per-file Statistics". ``statistics_repair.py`` commits the exact bounds.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from airflow_delta.engine.arrow.parquet.decimals import decimal_of
from airflow_delta.engine.arrow.parquet.source import ParquetSource
from airflow_delta.engine.arrow.statistics.parse import parse_stats
from airflow_delta.engine.data_files.footer_bounds import has_usable_bounds
from airflow_delta.engine.errors import CorruptLogError, ObjectNotFoundError
from airflow_delta.engine.features.column_mapping import mapping_mode, physical_schema
from airflow_delta.engine.features.schema_walk import SchemaPath
from airflow_delta.engine.features.statistics_columns import leaf_columns
from airflow_delta.engine.maintenance.table_files.locations import locate_paths
from airflow_delta.engine.model.schema import DecimalType, StructType
from airflow_delta.engine.progress import report_progress
from airflow_delta.engine.snapshot.snapshot import Snapshot
from airflow_delta.engine.storage.base import FileInfo

__all__ = ["RoundedStatistics", "find_rounded_statistics"]

_KEPT_DIGITS = 28
"""The precision of Python's default decimal context, to which bounds were rounded."""

_MINIMUM, _MAXIMUM = "minValues", "maxValues"
_AT_A_TIME = 8
"""How many footers are read at once. Each is a request or two, and mostly waiting."""


@dataclass(frozen=True, slots=True)
class RoundedStatistics:
    """A file whose statistics have wrong bounds.

    Attributes:
        row: the index of the file in the table of files.
        columns: the columns, by their physical names.
        stats: the statistics with the exact bounds.
    """

    row: int
    columns: tuple[str, ...]
    stats: str


def find_rounded_statistics(snapshot: Snapshot, files: pa.Table) -> list[RoundedStatistics]:
    """Find the files with a decimal bound that was rounded inwards, so that a value lies beyond it.

    Files outside the table's directory, and files that can't be read, are ignored.

    Args:
        snapshot: the version.
        files: its live files, with ``path``, ``size``, ``stats`` and ``deletionVector``.

    Raises:
        CorruptLogError: a path can't be decoded.
        StorageError: the store failed.
    """
    columns = dict(_find_wide_decimals(snapshot))
    if not columns or not files.num_rows:
        return []
    rows = _find_suspects(files["stats"], columns)
    locations = locate_paths(files["path"], root=snapshot.table)
    storage = snapshot.storage

    def _compare(row: int) -> RoundedStatistics | None:
        path = locations[row].as_py()
        if path is None:
            return None
        source = ParquetSource(storage, FileInfo(path, files["size"][row].as_py(), 0), slice_rows=1)
        has_deleted = files["deletionVector"][row].is_valid
        return _compare_with_footer(source, files["stats"][row].as_py(), columns, row, has_deleted)

    # A loop over files, since each takes a request.
    with (
        ThreadPoolExecutor(_AT_A_TIME) as pool,
        report_progress("read footers", "files", len(rows)) as reporter,
    ):
        compared = reporter.count(pool.map(_compare, rows))
        return [found for found in compared if found is not None]


def _find_wide_decimals(snapshot: Snapshot) -> Iterator[tuple[SchemaPath, DecimalType]]:
    """Yield the columns whose bounds may have more than 28 digits, by their physical names."""
    mode = mapping_mode(snapshot.protocol, snapshot.metadata, table=snapshot.table)
    partitioning = snapshot.metadata.partition_columns
    data = StructType(tuple(f for f in snapshot.schema if f.name not in partitioning))
    for path, data_type in leaf_columns(physical_schema(data, mode)).items():
        if isinstance(data_type, DecimalType) and data_type.precision > _KEPT_DIGITS:
            yield path, data_type


def _find_suspects(stats: pa.ChunkedArray, columns: Mapping[SchemaPath, DecimalType]) -> list[int]:
    """Return the rows of files with a bound that may have been rounded."""
    found: set[int] = set()
    for path, data_type in columns.items():
        type_: pa.DataType = pa.decimal128(data_type.precision, data_type.scale)
        least = pa.scalar(Decimal((0, (1,), _KEPT_DIGITS - data_type.scale)), _widen(type_))
        for name in reversed(path):
            type_ = pa.struct([(name, type_)])
        parsed = parse_stats(stats, pa.struct([(_MINIMUM, type_), (_MAXIMUM, type_)]))
        for which in range(2):
            bounds = pc.struct_field(parsed, [which, *(0 for _ in path)])
            rows = pc.indices_nonzero(
                pc.greater_equal(pc.abs(bounds.cast(_widen(bounds.type))), least)
            )
            # A loop over bounds of more than 28 digits, which hardly any table has.
            values = bounds.take(rows).to_pylist()
            found.update(
                row
                for row, v in zip(rows.to_pylist(), values, strict=True)
                if _has_trailing_zeros(v)
            )
    return sorted(found)


def _widen(type_: pa.DataType) -> pa.DataType:
    """Return a type that also holds the power of ten for comparison, whatever the precision of a column."""
    return pa.decimal256(76, type_.scale)


def _has_trailing_zeros(value: Decimal) -> bool:
    digits = value.as_tuple().digits
    return not any(digits[_KEPT_DIGITS:])


def _compare_with_footer(
    source: ParquetSource,
    stats: str,
    columns: Mapping[SchemaPath, DecimalType],
    row: int,
    has_deleted: bool,
) -> RoundedStatistics | None:
    """Compare the statistics of a file with its footer; None if nothing is wrong."""
    try:
        exact = {path: bounds for path in columns if (bounds := _read_footer_bounds(source, path))}
    except (CorruptLogError, ObjectNotFoundError):
        return None  # its rows can't be read either, which other checks report
    recorded = json.loads(stats, parse_float=Decimal)
    wrong = []
    for path, (low, high) in exact.items():
        holders = [_find_holder(recorded, name, path) for name in (_MINIMUM, _MAXIMUM)]
        least, greatest = (holder.get(path[-1]) for holder in holders)
        # Without a bound, readers skip nothing.
        if (least is not None and least > low) or (greatest is not None and greatest < high):
            wrong.append(".".join(path))
            for holder, bound in zip(holders, (low, high), strict=True):
                holder[path[-1]] = bound
    if not wrong:
        return None
    if has_deleted:
        # The footer includes rows that the deletion vector has deleted.
        recorded["tightBounds"] = False
    return RoundedStatistics(row, tuple(wrong), _to_json(recorded))


def _read_footer_bounds(source: ParquetSource, path: SchemaPath) -> tuple[Decimal, Decimal] | None:
    """Read the least and the greatest value of a column; None if the footer has none to rely on."""
    footer = source.footer
    index = source.leaf_paths.get(path)
    if index is None or not has_usable_bounds(footer, index):
        return None
    # The file's scale: the table's may have grown since (type widening).
    scale = footer.schema.column(index).scale
    bounds = []
    for group in range(footer.num_row_groups):
        chunk = footer.row_group(group).column(index)
        statistics = chunk.statistics
        if statistics is None or not statistics.has_min_max:
            if statistics is not None and statistics.null_count == chunk.num_values:
                continue
            return None
        low, high = (decimal_of(raw, scale) for raw in (statistics.min_raw, statistics.max_raw))
        if low > high:
            return None  # They bound nothing.
        bounds += [low, high]
    return (min(bounds), max(bounds)) if bounds else None


def _find_holder(stats: Any, name: str, path: SchemaPath) -> dict[str, Any]:
    """Return the object in the statistics that has a column's bound."""
    found = stats.get(name) if isinstance(stats, dict) else None
    for part in path[:-1]:
        found = found.get(part) if isinstance(found, dict) else None
    return found if isinstance(found, dict) else {}


def _to_json(value: Any) -> str:
    """Write JSON with exact numbers."""
    if isinstance(value, dict):
        members = (f"{json.dumps(k, ensure_ascii=False)}:{_to_json(v)}" for k, v in value.items())
        return "{" + ",".join(members) + "}"
    return str(value) if isinstance(value, Decimal) else json.dumps(value, ensure_ascii=False)

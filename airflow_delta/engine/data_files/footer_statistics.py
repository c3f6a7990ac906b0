"""Compute per-file statistics from Parquet footers, without reading the data again.

A footer has the null count, minimum and maximum of each column chunk. Delta's statistics are the
same, with a few rules (PROTOCOL.md, "Per-file Statistics"):

=====================  ==========================================================================
strings                truncated to a prefix; a truncated maximum is raised so that it stays a bound
timestamps             minimum and maximum truncated to milliseconds (readers widen the maximum)
float, double          no bounds if a value is NaN or infinite: JSON has no such numbers, and
                       readers disagree on the order of NaN
boolean, binary, void  null counts at most, as in Delta Spark
in arrays and maps     none
old dates and times    none, if the file counts them in the hybrid calendar
decimals               none, if an old writer ordered them by their bytes (`footer_bounds`)
minimum above maximum  none, if the footer has such bounds of any row group
=====================  ==========================================================================

Only the first columns get statistics (``delta.dataSkippingNumIndexedCols``), or those that the table names
(``delta.dataSkippingStatsColumns``). A statistic that the footer lacks is left out.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from json.encoder import encode_basestring
from typing import Any

from airflow_delta.engine.arrow.parquet.decimals import decimal_of
from airflow_delta.engine.data_files.footer_bounds import has_usable_bounds
from airflow_delta.engine.data_files.hybrid_calendar import HybridCalendar, calendar_of
from airflow_delta.engine.features.column_mapping import physical_paths
from airflow_delta.engine.features.schema_walk import SchemaPath
from airflow_delta.engine.features.statistics_columns import columns_with_statistics
from airflow_delta.engine.model.properties import TableProperties
from airflow_delta.engine.model.schema import (
    TIMESTAMP,
    VARIANT,
    VOID,
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    StructType,
)

__all__ = [
    "PREFIX_CHARACTERS",
    "IndexedColumn",
    "column_bounds",
    "file_statistics",
    "has_only_nulls",
    "indexed_by_physical_name",
    "indexed_columns",
    "json_text",
    "leaf_chunks",
    "longer_prefix",
]

PREFIX_CHARACTERS = 32
"""The length to which strings are truncated, as by Delta Spark."""

_ENCODE = json.JSONEncoder(ensure_ascii=False).encode
"""One encoder for all values: to make one costs more than to encode a value."""

_EPOCH = datetime(1970, 1, 1)
_EPOCH_DAY = date(1970, 1, 1)


@dataclass(frozen=True, slots=True)
class IndexedColumn:
    """A column that gets statistics.

    Attributes:
        path: its name, below the names of the structs around it.
        data_type: its type.
        leaf: the index of its column chunks in a row group.
    """

    path: tuple[str, ...]
    data_type: DataType
    leaf: int


def leaf_chunks(stored: StructType) -> tuple[IndexedColumn, ...]:
    """Every leaf column of data files, in order, with the index of its column chunks.

    Args:
        stored: the schema of the data files: without void.
    """
    return tuple(_leaves(stored))


def indexed_columns(
    stored: StructType,
    properties: TableProperties,
    *,
    also: Sequence[tuple[str, ...]] = (),
    partition_by: Collection[str] = (),
) -> tuple[IndexedColumn, ...]:
    """The columns of data files that get statistics, in order.

    Args:
        stored: the schema of the data files: without void.
        properties: the table's.
        also: paths of columns that must have statistics in any case: the clustering columns.
        partition_by: the partition columns, which have none, even if the files hold them.

    Raises:
        InvalidTableError: the properties that choose columns can't be read.
    """
    leaves = [leaf for leaf in _leaves(stored) if leaf.path[0] not in partition_by]
    types = {leaf.path: leaf.data_type for leaf in leaves}
    chosen = columns_with_statistics(types, properties).union(also)
    return tuple(leaf for leaf in leaves if leaf.path in chosen)


def indexed_by_physical_name(
    stored: StructType,
    schema: StructType,
    properties: TableProperties,
    mode: str,
    clustered_by: Sequence[SchemaPath],
    *,
    partition_by: tuple[str, ...],
) -> tuple[IndexedColumn, ...]:
    """The columns that get statistics, by their physical names.

    The table's properties choose them by logical names; clustering columns have physical names.

    Args:
        stored: the columns in the files, logical names.
        schema: the table's schema.
        properties: its properties.
        mode: its column mapping mode.
        clustered_by: the physical paths of its clustering columns.
        partition_by: its partition columns.

    Raises:
        InvalidTableError: the properties that choose columns can't be read.
    """
    paths = physical_paths(schema, mode)
    logical = {physical: path for path, physical in paths.items()}
    columns = indexed_columns(
        stored,
        properties,
        also=[logical.get(path, path) for path in clustered_by],
        partition_by=partition_by,
    )
    return tuple(IndexedColumn(paths[c.path], c.data_type, c.leaf) for c in columns)


def file_statistics(
    metadata: Any,
    columns: Sequence[IndexedColumn],
    *,
    prefix: int = PREFIX_CHARACTERS,
    states_tight_bounds: bool = False,
    known_bounds: Mapping[SchemaPath, tuple[Any, Any] | None] | None = None,
    absent: Collection[SchemaPath] = (),
) -> str:
    """The ``stats`` of a data file.

    Args:
        metadata: the file's footer, a ``pyarrow.parquet.FileMetaData``.
        columns: from `indexed_columns`, of the schema that the file was written with.
        prefix: the characters to which strings are truncated.
        states_tight_bounds: whether to say that the bounds are tight, as writers of tables with
            deletion vectors do.
        known_bounds: minimum and maximum by the paths of columns, instead of those of the footer; None for
            no bounds. Some writers leave NaN out of the footer.
        absent: the paths of columns that the file lacks, so that they are null in all rows.

    Returns:
        JSON text with ``numRecords``, ``minValues``, ``maxValues`` and ``nullCount``.
    """
    minimums: dict[str, Any] = {}
    maximums: dict[str, Any] = {}
    null_counts: dict[str, Any] = {}
    groups = [metadata.row_group(index) for index in range(metadata.num_row_groups)]
    calendar = calendar_of(metadata)
    for column in columns:
        if isinstance(column.data_type, (ArrayType, MapType)) or column.data_type == VARIANT:
            continue
        chunks = [group.column(column.leaf) for group in groups]
        nulls = _null_count(chunks)
        if nulls is not None:
            _put(null_counts, column.path, nulls)
        if known_bounds and column.path in known_bounds:
            bounds = known_bounds[column.path]
        else:
            bounds = _bounds(metadata, chunks, column, calendar)
        shown = None if bounds is None else _shown(*bounds, column.data_type, prefix)
        if shown is not None:
            _put(minimums, column.path, shown[0])
            _put(maximums, column.path, shown[1])
    for path in absent:
        _put(null_counts, path, metadata.num_rows)
    return json_text(
        {
            "numRecords": metadata.num_rows,
            "minValues": minimums,
            "maxValues": maximums,
            "nullCount": null_counts,
            **({"tightBounds": True} if states_tight_bounds else {}),
        }
    )


def column_bounds(metadata: Any, column: IndexedColumn) -> tuple[Any, Any] | None:
    """The exact minimum and maximum of a column; None if the footer has none to rely on, or all are null.

    Args:
        metadata: the file's footer, a ``pyarrow.parquet.FileMetaData``.
        column: the column.
    """
    groups = [metadata.row_group(index) for index in range(metadata.num_row_groups)]
    chunks = [group.column(column.leaf) for group in groups]
    return _bounds(metadata, chunks, column, calendar_of(metadata))


def has_only_nulls(metadata: Any, column: IndexedColumn) -> bool:
    """Whether a footer shows that all values of a column are null.

    Args:
        metadata: the file's footer, a ``pyarrow.parquet.FileMetaData``.
        column: the column.
    """
    groups = [metadata.row_group(index) for index in range(metadata.num_row_groups)]
    nulls = _null_count([group.column(column.leaf) for group in groups])
    return nulls is not None and nulls == int(metadata.num_rows)


def longer_prefix(text: str, prefix: int = PREFIX_CHARACTERS) -> str | None:
    """Truncate a string to a short text that isn't less than it.

    After the prefix comes a character that is greater than the first one that was cut off. If that
    one is the greatest of all, a longer prefix is tried, up to twice the usual length; None if that
    doesn't help.
    """
    if len(text) <= prefix:
        return text
    for length in range(prefix, 2 * prefix):
        if length >= len(text):
            return text
        for raised in ("\x7f", "\U0010ffff"):
            if text[length] < raised:
                return text[:length] + raised
    return None


def _leaves(stored: StructType) -> list[IndexedColumn]:
    """Every leaf column; arrays and maps are leaves, however many chunks they take."""
    found: list[IndexedColumn] = []
    chunk = 0

    def visit(struct: StructType, path: tuple[str, ...]) -> None:
        """Add the leaf columns below a struct, and count their chunks."""
        nonlocal chunk
        for field in struct:
            here = (*path, field.name)
            if isinstance(field.data_type, StructType):
                visit(field.data_type, here)
            else:
                found.append(IndexedColumn(here, field.data_type, chunk))
                chunk += _chunks(field.data_type)

    visit(stored, ())
    return found


def _chunks(data_type: DataType) -> int:
    """The number of column chunks of a type in a row group."""
    match data_type:
        case StructType(fields):
            return sum(_chunks(field.data_type) for field in fields)
        case ArrayType(element_type):
            return _chunks(element_type)
        case MapType(key_type, value_type):
            return _chunks(key_type) + _chunks(value_type)
        case _:
            # A variant is a struct of metadata and value in parquet.
            return 2 if data_type == VARIANT else 0 if data_type == VOID else 1


def _null_count(chunks: Sequence[Any]) -> int | None:
    total = 0
    for chunk in chunks:
        statistics = chunk.statistics
        if statistics is None or not statistics.has_null_count:
            return None
        total += statistics.null_count
    return total


def _bounds(
    metadata: Any, chunks: Sequence[Any], column: IndexedColumn, calendar: HybridCalendar | None
) -> tuple[Any, Any] | None:
    """The minimum and maximum as Python values; None if the footer has none to rely on."""
    data_type = column.data_type
    read = _reader(data_type)
    if read is None:
        return None
    # Only for decimals, since it takes as long as reading the bounds.
    if isinstance(data_type, DecimalType) and not has_usable_bounds(metadata, column.leaf):
        return None
    values = []
    for chunk in chunks:
        statistics = chunk.statistics
        if statistics is None:
            return None
        if statistics.has_min_max:
            values.append((statistics.min_raw, statistics.max_raw))
        elif not statistics.has_null_count or statistics.null_count < chunk.num_values:
            return None
    if not values:
        return None
    try:
        pairs = [(read(least), read(greatest)) for least, greatest in values]
    except (OverflowError, ValueError):
        # A date or time outside of Python's range, a NaN, or a text that isn't UTF-8.
        return None
    if any(least > greatest for least, greatest in pairs):
        # They bound nothing: the chunk's values may lie on both sides.
        return None
    low, high = min(least for least, _ in pairs), max(greatest for _, greatest in pairs)
    if calendar is not None and calendar.hides(low, is_instant=data_type == TIMESTAMP):
        return None
    return low, high


def _reader(data_type: DataType) -> Callable[[Any], Any] | None:
    """A function from Parquet's physical values to values that compare like those of the column."""
    if isinstance(data_type, DecimalType):
        scale = data_type.scale
        return lambda raw: decimal_of(raw, scale)
    return _READERS.get(str(data_type))


def _text(raw: Any) -> str:
    # Python compares strings by code points, which is the order of their UTF-8 bytes.
    return bytes(raw).decode("utf-8")


def _finite(raw: Any) -> float:
    if not math.isfinite(raw):
        raise ValueError(raw)
    return float(raw)


def _wall_clock(micros: Any) -> datetime:
    return _EPOCH + timedelta(microseconds=micros)


_READERS: Mapping[str, Callable[[Any], Any]] = {
    "byte": int,
    "short": int,
    "integer": int,
    "long": int,
    "float": _finite,
    "double": _finite,
    "string": _text,
    "date": lambda days: _EPOCH_DAY + timedelta(days=days),
    "timestamp": _wall_clock,
    "timestamp_ntz": _wall_clock,
}


def _shown(low: Any, high: Any, data_type: DataType, prefix: int) -> tuple[Any, Any] | None:
    """Bounds as values of JSON."""
    if isinstance(low, str):
        greatest = longer_prefix(high, prefix)
        return None if greatest is None else (low[:prefix], greatest)
    if isinstance(low, datetime):
        zone = "Z" if str(data_type) == "timestamp" else ""
        # isoformat truncates, and the microseconds field is never negative: it rounds down even
        # before 1970.
        return tuple(f"{value.isoformat(timespec='milliseconds')}{zone}" for value in (low, high))  # type: ignore[return-value]
    if isinstance(low, date):
        return low.isoformat(), high.isoformat()
    return low, high


def _put(target: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    for name in path[:-1]:
        target = target.setdefault(name, {})
    target[path[-1]] = value


def json_text(value: Any) -> str:
    """Encode JSON with exact decimals; the standard encoder has only floats."""
    # The commonest types first: to call the encoder costs more than all of these tests.
    if type(value) is str:
        return encode_basestring(value)
    if type(value) is int:
        return str(value)
    if isinstance(value, dict):
        members = [f"{encode_basestring(k)}:{json_text(v)}" for k, v in value.items()]
        return f"{{{','.join(members)}}}"
    return f"{value:f}" if isinstance(value, Decimal) else _ENCODE(value)

"""Read the statistics of some columns: bounds that hold, and null counts, one entry per file.

The source are JSON texts, or the struct ``stats_parsed`` of a checkpoint, which is made from the texts.
Writers round the values in ``minValues`` and ``maxValues``, so bounds are widened:

==================  ===================================================================================
timestamps          are cut to milliseconds, before 1970 sometimes towards 1970: widened by 1 ms
floats              may be the shortest text of the *float*: widened by the spacing of floats
decimals            of more than 15 digits may have been doubles: widened by the error of doubles
texts               are cut to a prefix. A maximum that ends in U+FFFD (older writers) is no bound
NaN, infinities     are no bounds; nor is a pair with the minimum above the maximum
==================  ===================================================================================

``nullCount`` only counts if it is 0 or the number of records. Spec: PROTOCOL.md, "Per-file Statistics".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from airflow_delta.engine.arrow.python_arrays import array_of, scalar_of
from airflow_delta.engine.arrow.statistics.parse import parse_stats_array
from airflow_delta.engine.arrow.statistics.parsed import parsed_leaves
from airflow_delta.engine.arrow.statistics.typed import bound_type
from airflow_delta.engine.features.schema_walk import SchemaPath
from airflow_delta.engine.model.schema import DataType, DecimalType, PrimitiveType

__all__ = ["ColumnStatistics", "StatisticsColumns"]


@dataclass(frozen=True, slots=True)
class ColumnStatistics:
    """The statistics of one column, one entry per file.

    Attributes:
        minimum: a lower bound of all values except NaN; null if unknown. None for types without order.
        maximum: an upper bound of all values except NaN; likewise.
        all_null: whether certainly every row is null. Without nulls.
        none_null: whether certainly no row is null. Without nulls.
    """

    minimum: Any
    maximum: Any
    all_null: Any
    none_null: Any


class StatisticsColumns:
    """Reads the statistics of some columns.

    Args:
        columns: the physical path of each column, and its type. No column is inside another.
    """

    def __init__(self, columns: Iterable[tuple[SchemaPath, DataType]]) -> None:
        self._columns = dict(columns)
        self._json_type = self._struct(_raw_type)
        self._parsed_type = self._struct(bound_type)

    def parsed_leaves(
        self, stored: pa.DataType, *, all_needed: bool
    ) -> tuple[SchemaPath, ...] | None:
        """The leaves of ``stats_parsed`` to read instead of texts; None if the texts are needed.

        Args:
            stored: the type of ``stats_parsed`` in the file.
            all_needed: whether the texts may contain a leaf that ``stats_parsed`` lacks.
        """
        return parsed_leaves(stored, self._parsed_type, all_needed=all_needed)

    def read(self, stats: pa.Array) -> dict[SchemaPath, ColumnStatistics]:
        """Read the statistics of each column.

        Args:
            stats: JSON texts of ``add.stats``, a few ten thousand at a time; or structs with at least
                the `parsed_leaves`.
        """
        if not pa.types.is_struct(stats.type):
            stats = parse_stats_array(stats, self._json_type)
        records = _leaf(stats, ("numRecords",), pa.int64())
        return {
            path: self._column(stats, records, path, type_) for path, type_ in self._columns.items()
        }

    def _struct(self, type_of: Callable[[DataType], pa.DataType | None]) -> pa.StructType:
        """The struct type of the statistics of the columns; ``type_of`` gives the types of bounds."""
        counts = _nested((path, pa.int64()) for path in self._columns)
        typed = [(path, type_of(type_)) for path, type_ in self._columns.items()]
        bounds = _nested((path, type_) for path, type_ in typed if type_ is not None)
        return pa.struct(
            [
                ("numRecords", pa.int64()),
                ("nullCount", counts),
                ("minValues", bounds),
                ("maxValues", bounds),
            ]
        )

    def _column(
        self, stats: pa.StructArray, records: pa.Array, path: SchemaPath, data_type: DataType
    ) -> ColumnStatistics:
        nulls = _leaf(stats, ("nullCount", *path), pa.int64())
        all_null = pc.fill_null(pc.equal(nulls, records), _FALSE)
        none_null = pc.fill_null(pc.equal(nulls, _ZERO), _FALSE)
        raw_type = _raw_type(data_type)
        if raw_type is None:
            return ColumnStatistics(None, None, all_null, none_null)
        low, high = (
            _typed(_leaf(stats, (name, *path), raw_type), data_type)
            for name in ("minValues", "maxValues")
        )
        low, high = _widen(low, high, data_type)
        contradiction = pc.fill_null(pc.greater(low, high), _FALSE)
        if pc.any(contradiction).as_py():
            low, high = _null_where(contradiction, low), _null_where(contradiction, high)
        return ColumnStatistics(low, high, all_null, none_null)


def _nested(leaves: Iterable[tuple[SchemaPath, pa.DataType]]) -> pa.StructType:
    """The struct type in which each path leads to its type."""
    groups: dict[str, list[tuple[SchemaPath, pa.DataType]]] = {}
    for path, type_ in leaves:
        groups.setdefault(path[0], []).append((path[1:], type_))
    return pa.struct(
        [
            (name, inner[0][1] if inner[0][0] == () else _nested(inner))
            for name, inner in groups.items()
        ]
    )


def _leaf(stats: pa.StructArray, path: SchemaPath, missing: pa.DataType) -> pa.Array:
    """The field at a path; nulls of a type if it is missing."""
    type_, indices = stats.type, []
    for name in path:
        index = type_.get_field_index(name) if pa.types.is_struct(type_) else -1
        if index < 0:
            return pa.nulls(len(stats), missing)
        indices.append(index)
        type_ = type_.field(index).type
    # By numbers, because pyarrow takes a name with a leading dot for a path.
    return pc.struct_field(stats, indices)


_RAW_TYPES = {
    **dict.fromkeys(("byte", "short", "integer", "long"), pa.int64()),
    **dict.fromkeys(("float", "double"), pa.float64()),
    **dict.fromkeys(("string", "date", "timestamp", "timestamp_ntz"), pa.string()),
}


def _raw_type(data_type: DataType) -> pa.DataType | None:
    """The type of a bound in JSON; None for types whose bounds aren't used."""
    if isinstance(data_type, DecimalType):
        return pa.decimal128(data_type.precision, data_type.scale)
    return _RAW_TYPES.get(data_type.name) if isinstance(data_type, PrimitiveType) else None


_INSTANT = pa.timestamp("us", "UTC")
_WALL_CLOCK = pa.timestamp("us")
_TEXT_TYPES = {"date": pa.date32(), "timestamp": _INSTANT, "timestamp_ntz": _WALL_CLOCK}
"""The types of bounds that are texts in JSON."""


def _typed(bound: pa.Array, data_type: DataType) -> pa.Array:
    """Convert a bound, from JSON or a struct, to the type for comparisons: the widest of its kind."""
    if isinstance(data_type, DecimalType):
        return bound
    assert isinstance(data_type, PrimitiveType)
    target = _TEXT_TYPES.get(data_type.name)
    if target is None:
        return pc.cast(bound, _RAW_TYPES[data_type.name])
    if pa.types.is_string(bound.type) and data_type.name == "timestamp_ntz":
        # Some writers add a Z to times without time zone, too.
        bound = pc.utf8_rtrim(bound, characters="Z")
    return _parse_times(bound, target)


def _widen(low: pa.Array, high: pa.Array, data_type: DataType) -> tuple[pa.Array, pa.Array]:
    """Widen bounds by what writers may have rounded; see the module."""
    if isinstance(data_type, DecimalType):
        return _decimal_bounds(low, high, data_type)
    assert isinstance(data_type, PrimitiveType)
    widen = _BOUNDS.get(data_type.name)
    return (low, high) if widen is None else widen(low, high)


def _string_bounds(low: pa.Array, high: pa.Array) -> tuple[pa.Array, pa.Array]:
    # Characters beyond U+FFFF are greater than U+FFFD.
    return low, _null_where(pc.ends_with(high, "\ufffd"), high)


def _float_bounds(low: pa.Array, high: pa.Array) -> tuple[pa.Array, pa.Array]:
    low, high = (_null_where(pc.invert(pc.is_finite(bound)), bound) for bound in (low, high))
    return pc.subtract(low, _float_spacing(low)), pc.add(high, _float_spacing(high))


def _float_spacing(bound: pa.Array) -> pa.Array:
    """An upper bound of the distance from each number to the next float of single precision."""
    return pc.add(pc.multiply(pc.abs(bound), 2.0**-23), 2.0**-149)


def _finite_bounds(low: pa.Array, high: pa.Array) -> tuple[pa.Array, pa.Array]:
    low, high = (_null_where(pc.invert(pc.is_finite(bound)), bound) for bound in (low, high))
    return low, high


def _decimal_bounds(
    low: pa.Array, high: pa.Array, data_type: DecimalType
) -> tuple[pa.Array, pa.Array]:
    """Widen bounds of more than 15 digits by more than the error of a double."""
    if data_type.precision <= _EXACT_DIGITS:
        return low, high
    wide = pa.decimal256(_WIDE_DIGITS, data_type.scale)
    low, high = low.cast(wide), high.cast(wide)
    return (
        pc.subtract_checked(low, _double_error(low, data_type.scale)),
        pc.add_checked(high, _double_error(high, data_type.scale)),
    )


_EXACT_DIGITS = 15
"""A number of this many decimal digits doesn't change when it becomes a double and back."""

_WIDE_DIGITS = 45
"""More digits than 128 bits can hold. The JSON reader accepts such numbers for any precision."""


def _double_error(bound: pa.Array, scale: int) -> pa.Array:
    magnitude = pc.abs(bound)
    error = pc.multiply(pc.cast(magnitude, pa.float64()), 2.0**-50)
    # The cast to the scale rounds down, so a unit is added.
    units = pc.add_checked(
        pc.cast(error, bound.type, safe=False), pa.scalar(Decimal((0, (1,), -scale)), bound.type)
    )
    exact = pc.less(magnitude, pa.scalar(Decimal((0, (1,), _EXACT_DIGITS - scale)), bound.type))
    return pc.if_else(exact, pa.scalar(Decimal(0), units.type), units)


_ZERO, _MILLISECOND, _EARLIEST, _LATEST = array_of(
    [0, 1000, -(2**63) + 1000, 2**63 - 1 - 1000], pa.int64()
)
_FALSE = scalar_of(False, pa.bool_())


def _timestamp_bounds(low: pa.Array, high: pa.Array) -> tuple[pa.Array, pa.Array]:
    type_ = low.type
    # Limit the values first, or the sum would overflow.
    low = pc.max_element_wise(pc.cast(low, pa.int64()), _EARLIEST, skip_nulls=False)
    high = pc.min_element_wise(pc.cast(high, pa.int64()), _LATEST, skip_nulls=False)
    low = pc.if_else(pc.less_equal(low, _ZERO), pc.subtract(low, _MILLISECOND), low)
    return pc.cast(low, type_), pc.cast(pc.add(high, _MILLISECOND), type_)


def _parse_times(texts: pa.StringArray, type_: pa.DataType) -> pa.Array:
    """Convert texts (or values) to dates or times; invalid texts become null."""
    try:
        return pc.cast(texts, type_)
    except pa.ArrowInvalid:
        # A loop over the distinct texts of a slice with an invalid one.
        distinct = texts.dictionary_encode()
        values = [_parse_or_null(text, type_) for text in distinct.dictionary]
        return array_of(values, type_).take(distinct.indices)


def _parse_or_null(text: pa.StringScalar, type_: pa.DataType) -> Any:
    try:
        return pc.cast(text, type_).as_py()
    except pa.ArrowInvalid:
        return None


def _null_where(condition: pa.Array, values: pa.Array) -> pa.Array:
    return pc.if_else(condition, scalar_of(None, values.type), values)


_BOUNDS: dict[str, Callable[[pa.Array, pa.Array], tuple[pa.Array, pa.Array]]] = {
    "string": _string_bounds,
    "float": _float_bounds,
    "double": _finite_bounds,
    "timestamp": _timestamp_bounds,
    "timestamp_ntz": _timestamp_bounds,
}

"""The statistics of some columns: typed bounds and null counts, one entry per file.

PROTOCOL.md, "Per-file Statistics". They come as JSON texts, or as the struct ``stats_parsed`` of a
checkpoint, which holds the same values typed and is as coarse: it is made from the texts.

What is in ``minValues`` and ``maxValues`` are bounds, whatever ``tightBounds`` says; but not always of
the value that the text shows, because writers lose digits:

* timestamps are cut to milliseconds: the maximum may be up to 1 ms more. Before 1970 a careless
  writer cuts towards 1970, so there the minimum may be up to 1 ms less;
* floats of single precision may be written in the shortest form that reads back as the same *float*,
  which isn't the same double: bounds are moved outwards by the spacing of floats;
* decimals beyond 15 digits were doubles on the way in some writers: moved outwards likewise;
* texts are cut to a prefix, with a last character in the maximum that was made larger. Where that is
  U+FFFD, as in older writers, characters beyond U+FFFF are larger still: no bound;
* NaN and infinities are no bounds.

A pair with the minimum above the maximum is no pair of bounds. Of ``nullCount`` two values count: 0,
and the number of records ("any other value carries no information").
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from airflow_delta.engine.arrow.python_arrays import array_of
from airflow_delta.engine.arrow.statistics.parse import parse_stats_array
from airflow_delta.engine.arrow.statistics.parsed import parsed_leaves
from airflow_delta.engine.arrow.statistics.typed import bound_type
from airflow_delta.engine.features.schema_walk import SchemaPath
from airflow_delta.engine.model.schema import DataType, DecimalType, PrimitiveType

__all__ = ["ColumnStatistics", "StatisticsColumns"]


@dataclass(frozen=True, slots=True)
class ColumnStatistics:
    """What the statistics say about one column, one entry per file.

    Attributes:
        minimum: no value that isn't NaN is less; null where unknown. None for types without order.
        maximum: no value that isn't NaN is greater; likewise.
        all_null: whether every row is null for certain. Without nulls.
        none_null: whether no row is null for certain. Without nulls.
    """

    minimum: Any
    maximum: Any
    all_null: Any
    none_null: Any


class StatisticsColumns:
    """Reads the statistics of some columns, and nothing else.

    Args:
        columns: the physical path of each column, none inside another, and its type.
    """

    def __init__(self, columns: Iterable[tuple[SchemaPath, DataType]]) -> None:
        self._columns = dict(columns)
        self._json_type = self._struct(_raw_type)
        self._parsed_type = self._struct(bound_type)

    def parsed_leaves(
        self, stored: pa.DataType, *, all_needed: bool
    ) -> tuple[SchemaPath, ...] | None:
        """The leaves of ``stats_parsed`` to read instead of texts; None if it must be texts.

        Args:
            stored: the type that ``stats_parsed`` has in the file.
            all_needed: whether a leaf that it lacks may be in the texts; else it is unknown.
        """
        return parsed_leaves(stored, self._parsed_type, all_needed=all_needed)

    def read(self, stats: pa.Array) -> dict[SchemaPath, ColumnStatistics]:
        """The statistics of each column.

        Args:
            stats: JSON texts, ``add.stats``, a few ten thousand at a time; or structs with (at least)
                what `parsed_leaves` asks for.
        """
        if not pa.types.is_struct(stats.type):
            stats = parse_stats_array(stats, self._json_type)
        records = _leaf(stats, ("numRecords",), pa.int64())
        return {
            path: self._column(stats, records, path, type_) for path, type_ in self._columns.items()
        }

    def _struct(self, type_of: Callable[[DataType], pa.DataType | None]) -> pa.StructType:
        """The type of statistics with the leaves of the columns, and bounds of the type given."""
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
        all_null = pc.fill_null(pc.equal(nulls, records), False)
        none_null = pc.fill_null(pc.equal(nulls, 0), False)
        raw_type = _raw_type(data_type)
        if raw_type is None:
            return ColumnStatistics(None, None, all_null, none_null)
        low, high = (
            _typed(_leaf(stats, (name, *path), raw_type), data_type)
            for name in ("minValues", "maxValues")
        )
        low, high = _outwards(low, high, data_type)
        contradiction = pc.fill_null(pc.greater(low, high), False)
        if pc.any(contradiction).as_py():
            low = pc.if_else(contradiction, pa.scalar(None, low.type), low)
            high = pc.if_else(contradiction, pa.scalar(None, high.type), high)
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
    """The field at a path; nulls of a type where it is missing.

    By numbers, since pyarrow reads a name with a leading dot as a path.
    """
    type_, indices = stats.type, []
    for name in path:
        index = type_.get_field_index(name) if pa.types.is_struct(type_) else -1
        if index < 0:
            return pa.nulls(len(stats), missing)
        indices.append(index)
        type_ = type_.field(index).type
    return pc.struct_field(stats, indices)


_RAW_TYPES = {
    **dict.fromkeys(("byte", "short", "integer", "long"), pa.int64()),
    **dict.fromkeys(("float", "double"), pa.float64()),
    **dict.fromkeys(("string", "date", "timestamp", "timestamp_ntz"), pa.string()),
}


def _raw_type(data_type: DataType) -> pa.DataType | None:
    """What a bound is in JSON; None for types whose bounds are not to be used."""
    if isinstance(data_type, DecimalType):
        return pa.decimal128(data_type.precision, data_type.scale)
    return _RAW_TYPES.get(data_type.name) if isinstance(data_type, PrimitiveType) else None


_INSTANT = pa.timestamp("us", "UTC")
_WALL_CLOCK = pa.timestamp("us")
_TEXT_TYPES = {"date": pa.date32(), "timestamp": _INSTANT, "timestamp_ntz": _WALL_CLOCK}
"""The types of bounds that JSON holds as texts."""


def _typed(bound: pa.Array, data_type: DataType) -> pa.Array:
    """A bound, as JSON or a struct has it, in the type to compare in: the widest of its kind."""
    if isinstance(data_type, DecimalType):
        return bound
    assert isinstance(data_type, PrimitiveType)
    target = _TEXT_TYPES.get(data_type.name)
    if target is None:
        return pc.cast(bound, _RAW_TYPES[data_type.name])
    if pa.types.is_string(bound.type) and data_type.name == "timestamp_ntz":
        # Some writers put a Z on wall clock times, too.
        bound = pc.utf8_rtrim(bound, characters="Z")
    return _parsed(bound, target)


def _outwards(low: pa.Array, high: pa.Array, data_type: DataType) -> tuple[pa.Array, pa.Array]:
    """Bounds that hold in spite of what writers lose."""
    if isinstance(data_type, DecimalType):
        return _decimal_bounds(low, high, data_type)
    assert isinstance(data_type, PrimitiveType)
    widen = _BOUNDS.get(data_type.name)
    return (low, high) if widen is None else widen(low, high)


def _string_bounds(low: pa.Array, high: pa.Array) -> tuple[pa.Array, pa.Array]:
    return low, _null_where(pc.ends_with(high, "\ufffd"), high)


def _float_bounds(low: pa.Array, high: pa.Array) -> tuple[pa.Array, pa.Array]:
    low, high = (_null_where(pc.invert(pc.is_finite(bound)), bound) for bound in (low, high))
    return pc.subtract(low, _float_spacing(low)), pc.add(high, _float_spacing(high))


def _float_spacing(bound: pa.Array) -> pa.Array:
    """At least the distance from each number to the next float of single precision."""
    return pc.add(pc.multiply(pc.abs(bound), 2.0**-23), 2.0**-149)


def _finite_bounds(low: pa.Array, high: pa.Array) -> tuple[pa.Array, pa.Array]:
    low, high = (_null_where(pc.invert(pc.is_finite(bound)), bound) for bound in (low, high))
    return low, high


def _decimal_bounds(
    low: pa.Array, high: pa.Array, data_type: DecimalType
) -> tuple[pa.Array, pa.Array]:
    """Move bounds of more than 15 digits outwards by more than a double's error."""
    if data_type.precision <= _EXACT_DIGITS:
        return low, high
    wide = pa.decimal256(_WIDE_DIGITS, data_type.scale)
    low, high = low.cast(wide), high.cast(wide)
    return (
        pc.subtract_checked(low, _double_error(low, data_type.scale)),
        pc.add_checked(high, _double_error(high, data_type.scale)),
    )


_EXACT_DIGITS = 15
"""Numbers of this many decimal digits survive becoming doubles."""

_WIDE_DIGITS = 45
"""More than 128 bits hold, which is what the JSON reader lets through for any precision."""


def _double_error(bound: pa.Array, scale: int) -> pa.Array:
    magnitude = pc.abs(bound)
    error = pc.multiply(pc.cast(magnitude, pa.float64()), 2.0**-50)
    # Cast down to the scale, a unit is added for what that cuts off.
    units = pc.add_checked(
        pc.cast(error, bound.type, safe=False), pa.scalar(Decimal((0, (1,), -scale)), bound.type)
    )
    exact = pc.less(magnitude, pa.scalar(Decimal((0, (1,), _EXACT_DIGITS - scale)), bound.type))
    return pc.if_else(exact, pa.scalar(Decimal(0), units.type), units)


_ZERO, _MILLISECOND, _EARLIEST, _LATEST = array_of(
    [0, 1000, -(2**63) + 1000, 2**63 - 1 - 1000], pa.int64()
)


def _timestamp_bounds(low: pa.Array, high: pa.Array) -> tuple[pa.Array, pa.Array]:
    type_ = low.type
    # Cut off first: beyond the ends of time the sum would begin anew at the other end.
    low = pc.max_element_wise(pc.cast(low, pa.int64()), _EARLIEST, skip_nulls=False)
    high = pc.min_element_wise(pc.cast(high, pa.int64()), _LATEST, skip_nulls=False)
    low = pc.if_else(pc.less_equal(low, _ZERO), pc.subtract(low, _MILLISECOND), low)
    return pc.cast(low, type_), pc.cast(pc.add(high, _MILLISECOND), type_)


def _parsed(texts: pa.StringArray, type_: pa.DataType) -> pa.Array:
    """Texts (or values) as dates or times; null for texts that are none."""
    try:
        return pc.cast(texts, type_)
    except pa.ArrowInvalid:
        # A loop over the distinct texts of a slice that has a bad one.
        distinct = texts.dictionary_encode()
        values = [_parsed_or_null(text, type_) for text in distinct.dictionary]
        return pa.array(values, type_).take(distinct.indices)


def _parsed_or_null(text: pa.StringScalar, type_: pa.DataType) -> Any:
    try:
        return pc.cast(text, type_).as_py()
    except pa.ArrowInvalid:
        return None


def _null_where(condition: pa.Array, values: pa.Array) -> pa.Array:
    return pc.if_else(condition, pa.scalar(None, values.type), values)


_BOUNDS: dict[str, Callable[[pa.Array, pa.Array], tuple[pa.Array, pa.Array]]] = {
    "string": _string_bounds,
    "float": _float_bounds,
    "double": _finite_bounds,
    "timestamp": _timestamp_bounds,
    "timestamp_ntz": _timestamp_bounds,
}

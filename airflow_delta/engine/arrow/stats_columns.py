"""The statistics of some columns: typed bounds and null counts, one entry per file.

PROTOCOL.md, "Per-file Statistics". What is in ``minValues`` and ``maxValues`` are bounds, whatever
``tightBounds`` says; but not always of the value that the text shows, because writers lose digits:

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
from airflow_delta.engine.arrow.stats import parse_stats_array
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
    """Reads the statistics of some columns, and nothing else, from the texts.

    Args:
        columns: the physical path of each column, none inside another, and its type.
    """

    def __init__(self, columns: Iterable[tuple[SchemaPath, DataType]]) -> None:
        self._columns = dict(columns)
        counts = _nested((path, pa.int64()) for path in self._columns)
        raw = [(path, _raw_type(type_)) for path, type_ in self._columns.items()]
        bounds = _nested((path, type_) for path, type_ in raw if type_ is not None)
        self._type = pa.struct(
            [
                ("numRecords", pa.int64()),
                ("nullCount", counts),
                ("minValues", bounds),
                ("maxValues", bounds),
            ]
        )

    def read(self, stats: pa.Array) -> dict[SchemaPath, ColumnStatistics]:
        """The statistics of each column.

        Args:
            stats: JSON texts, ``add.stats``; a few ten thousand at a time.
        """
        parsed = parse_stats_array(stats, self._type)
        records = pc.struct_field(parsed, [0])
        return {
            path: self._column(parsed, records, path, type_)
            for path, type_ in self._columns.items()
        }

    def _column(
        self, parsed: pa.StructArray, records: pa.Array, path: SchemaPath, data_type: DataType
    ) -> ColumnStatistics:
        nulls = _leaf(parsed, ("nullCount", *path))
        all_null = pc.fill_null(pc.equal(nulls, records), False)
        none_null = pc.fill_null(pc.equal(nulls, 0), False)
        if _raw_type(data_type) is None:
            return ColumnStatistics(None, None, all_null, none_null)
        low, high = _typed_bounds(
            _leaf(parsed, ("minValues", *path)), _leaf(parsed, ("maxValues", *path)), data_type
        )
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


def _leaf(parsed: pa.StructArray, path: SchemaPath) -> pa.Array:
    """The field at a path. By numbers, since pyarrow reads a name with a leading dot as a path."""
    type_, indices = parsed.type, []
    for name in path:
        indices.append(type_.get_field_index(name))
        type_ = type_.field(indices[-1]).type
    return pc.struct_field(parsed, indices)


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


def _typed_bounds(low: pa.Array, high: pa.Array, data_type: DataType) -> tuple[pa.Array, pa.Array]:
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


def _date_bounds(low: pa.Array, high: pa.Array) -> tuple[pa.Array, pa.Array]:
    return _parsed(low, pa.date32()), _parsed(high, pa.date32())


_MILLISECOND = array_of([1000], pa.int64()).cast(pa.duration("us"))[0]


def _timestamp_bounds(low: pa.Array, high: pa.Array) -> tuple[pa.Array, pa.Array]:
    return _widened(_parsed(low, _INSTANT), _parsed(high, _INSTANT))


def _timestamp_ntz_bounds(low: pa.Array, high: pa.Array) -> tuple[pa.Array, pa.Array]:
    # Some writers put a Z on wall clock times, too.
    low, high = (pc.utf8_rtrim(bound, characters="Z") for bound in (low, high))
    return _widened(_parsed(low, pa.timestamp("us")), _parsed(high, pa.timestamp("us")))


_INSTANT = pa.timestamp("us", "UTC")


def _widened(low: pa.Array, high: pa.Array) -> tuple[pa.Array, pa.Array]:
    before_1970 = pc.less_equal(low, pa.scalar(0, pa.int64()).cast(low.type))
    earlier = pc.subtract(low, _MILLISECOND)
    return pc.if_else(before_1970, earlier, low), pc.add(high, _MILLISECOND)


def _parsed(texts: pa.StringArray, type_: pa.DataType) -> pa.Array:
    """Texts as dates or times; null for those that are none."""
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
    "date": _date_bounds,
    "timestamp": _timestamp_bounds,
    "timestamp_ntz": _timestamp_ntz_bounds,
}

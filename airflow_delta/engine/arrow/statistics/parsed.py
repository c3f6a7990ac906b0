"""Read the typed columns of a checkpoint: ``add.stats_parsed`` and ``add.partitionValues_parsed``.

A writer may leave out ``add.stats`` and store the statistics as a struct. Readers that need a few
columns read their leaves (`parsed_leaves`). For all others `stats_from_parsed` converts the struct to
the JSON text of "Per-file Statistics", column by column.

Values stay exact, because the next checkpoint is made from the text (`typed` is the way back). So
timestamps keep their microseconds, although commits have milliseconds. Values that JSON can't represent
(NaN, infinities, binary, years without four digits) are left out, since statistics are optional.

Spec: PROTOCOL.md, "Checkpoints".
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_delta.engine.arrow.action_schema import STRING_MAP
from airflow_delta.engine.arrow.numpy_arrays import int32_array, int64_array
from airflow_delta.engine.arrow.python_arrays import array_of, joined_text, scalar_of

__all__ = ["parsed_leaves", "partition_values_from_parsed", "stats_from_parsed"]

# The appendix of the protocol spells the name this way, once; all writers use nullCount.
_NAMES = {"nullCounts": "nullCount"}

_DATE_LENGTH = len("2024-01-31")
_TIME_LENGTHS = {"ms": len("2024-01-31 12:00:00.123"), "us": len("2024-01-31 12:00:00.123456")}

_CONTROL_CHARACTERS = {
    "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r",
    **{chr(code): f"\\u{code:04x}" for code in range(32) if chr(code) not in "\b\t\n\f\r"},
}  # fmt: skip


def parsed_leaves(
    stored: pa.DataType, wanted: pa.StructType, *, all_needed: bool
) -> tuple[tuple[str, ...], ...] | None:
    """The paths of the wanted leaves in a typed column.

    A leaf may have another type than its column has now, if the type was changed or the writer chose
    another one. Then the text is needed.

    Args:
        stored: the type of the column in the file.
        wanted: the wanted leaves, each of the type that the protocol gives it.
        all_needed: whether no leaf may be missing.

    Returns:
        The paths; None if the text is needed.
    """
    if not pa.types.is_struct(stored) or any(field.name in _NAMES for field in stored):
        return None
    paths: list[tuple[str, ...]] = []
    for field in wanted:
        index = stored.get_field_index(field.name)
        if index < 0:
            if all_needed and _has_leaf(field.type):
                return None
            continue
        found = stored.field(index).type
        if pa.types.is_struct(field.type):
            inner = parsed_leaves(found, field.type, all_needed=all_needed)
            if inner is None:
                return None
            paths += [(field.name, *path) for path in inner]
        elif _holds(found, field.type):
            paths.append((field.name,))
        else:
            return None
    return tuple(paths)


def _has_leaf(type_: pa.DataType) -> bool:
    return not pa.types.is_struct(type_) or any(_has_leaf(field.type) for field in type_)


def _holds(stored: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether a leaf of one type can be read as another. Integers in Parquet may be wider."""
    if pa.types.is_integer(wanted) and pa.types.is_signed_integer(stored):
        return int(stored.bit_width) >= int(wanted.bit_width)
    if pa.types.is_string(wanted):
        return bool(pa.types.is_string(stored) or pa.types.is_large_string(stored))
    return bool(stored == wanted)


def stats_from_parsed(
    parsed: pa.StructArray, *, utc: Collection[str], path: str = "add.stats_parsed"
) -> pa.StringArray:
    """Convert typed statistics to JSON texts; null where they are null.

    Args:
        parsed: ``stats_parsed``, for rows that are adds.
        utc: the Parquet paths of timestamps that are in UTC although their type has no time zone
            (INT96).
        path: the Parquet path of the struct.
    """
    return _struct_json(parsed, utc, path)


def _struct_json(array: pa.StructArray, utc: Collection[str], path: str) -> pa.StringArray:
    """``{"name":value,…}`` per row, without the fields that are null; null for a null row."""
    members = []
    for index, field in enumerate(array.type):
        value = _value_json(array.field(index), utc, f"{path}.{field.name}")
        if value is not None:
            name = _NAMES.get(field.name, field.name)
            key = _quoted(array_of([name], pa.string()))[0].as_py()
            member = joined_text(f",{key}:", value)
            members.append(pc.coalesce(member, scalar_of("", pa.string())))
    # Each member starts with a comma, and the first comma is removed at the end. Joining with commas
    # isn't possible: if Arrow's join skips nulls, a row with only nulls becomes null.
    open_ = pa.repeat(scalar_of("{", pa.string()), len(array))
    text = joined_text(open_, *members, "}")
    text = pc.replace_substring(text, "{,", "{", max_replacements=1)
    return pc.if_else(array.is_valid(), text, scalar_of(None, pa.string()))


def _value_json(array: pa.Array, utc: Collection[str], path: str) -> pa.StringArray | None:
    """A column as JSON values, null where it is null; None for a type without a JSON form."""
    type_ = array.type
    if pa.types.is_struct(type_):
        return _struct_json(array, utc, path)
    if pa.types.is_timestamp(type_):
        zone = "Z" if type_.tz is not None or path in utc else ""
        return _timestamp_json(array, zone)
    if pa.types.is_date(type_):
        return _date_json(array)
    if pa.types.is_string(type_) or pa.types.is_large_string(type_):
        return _quoted(pc.cast(array, pa.string()))
    if pa.types.is_floating(type_):
        return _float_json(array)
    if pa.types.is_integer(type_) or pa.types.is_boolean(type_) or pa.types.is_decimal(type_):
        return pc.cast(array, pa.string())
    return None


def _float_json(array: pa.Array) -> pa.StringArray:
    finite = pc.if_else(pc.is_finite(array), array, scalar_of(None, array.type))
    text = pc.cast(finite, pa.string())
    # Many readers parse "-0" as an integer, which loses the sign.
    negative_zero = pc.equal(text, scalar_of("-0", pa.string()))
    return pc.if_else(negative_zero, scalar_of("-0.0", pa.string()), text)


def _timestamp_json(array: pa.Array, zone: str) -> pa.StringArray:
    """``"2024-01-31T12:00:00.123Z"``; a timestamp without time zone has no ``Z``."""
    instants = pc.cast(array, pa.timestamp(array.type.unit))
    if array.type.unit == "ns":
        # Delta's types have microseconds. A cast would round towards 1970, which is up before 1970.
        instants = pc.floor_temporal(instants, unit="microsecond").cast(pa.timestamp("us"))
    text = _of_length(pc.cast(instants, pa.string()), _TIME_LENGTHS[instants.type.unit])
    # Whole milliseconds are written as in the statistics of commits.
    whole = pc.utf8_slice_codeunits(text, 0, _TIME_LENGTHS["ms"])
    text = pc.if_else(pc.ends_with(text, "000"), whole, text)
    text = pc.replace_substring(text, " ", "T", max_replacements=1)
    return joined_text('"', text, zone + '"')


def _date_json(array: pa.Array) -> pa.StringArray:
    return joined_text('"', _of_length(pc.cast(array, pa.string()), _DATE_LENGTH), '"')


def _of_length(text: pa.StringArray, length: int) -> pa.StringArray:
    """The texts of a length; null for others, whose year doesn't have four digits."""
    usual = pc.equal(pc.binary_length(text), scalar_of(length, pa.int32()))
    return pc.if_else(usual, text, scalar_of(None, pa.string()))


def _quoted(text: pa.StringArray) -> pa.StringArray:
    """Texts as JSON strings."""
    text = pc.replace_substring(pc.replace_substring(text, "\\", "\\\\"), '"', '\\"')
    if pc.any(pc.match_substring_regex(text, r"[\x00-\x1f]")).as_py():
        for character, escape in _CONTROL_CHARACTERS.items():
            text = pc.replace_substring(text, character, escape)
    return joined_text('"', text, '"')


def partition_values_from_parsed(parsed: pa.StructArray) -> pa.MapArray:
    """Convert typed partition values to texts (PROTOCOL.md, "Partition Value Serialization")."""
    rows, names = len(parsed), [field.name for field in parsed.type]
    if not names:
        return array_of([{}] * rows, STRING_MAP)
    columns = [_partition_text(parsed.field(index)) for index in range(len(names))]
    # The entries are ordered by row: entry i belongs to row i // k and to column i % k.
    entries = np.arange(rows * len(names))
    row, column = np.divmod(entries, len(names))
    return pa.MapArray.from_arrays(
        int32_array(np.arange(rows + 1) * len(names)),
        array_of(names, pa.string()).take(int64_array(column)),
        pa.concat_arrays(columns).take(int64_array(column * rows + row)),
        type=STRING_MAP,
    )


def _partition_text(array: pa.Array) -> pa.StringArray:
    if pa.types.is_timestamp(array.type):
        text = pc.cast(pc.cast(array, pa.timestamp("us")), pa.string())
        return pc.replace_substring_regex(text, r"\.0+$", "")
    return pc.cast(array, pa.string())

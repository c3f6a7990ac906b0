"""Convert the columns of a checkpoint to the types of the protocol.

The protocol names the columns of a checkpoint (PROTOCOL.md, "Checkpoint Schema"), but writers store
them in different types: a size as int32, a map as a list of pairs, a deletion vector without
``maxRowIndex``. The rest of the engine sees one type for each column.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["conform", "present_rows"]


def present_rows(structs: pa.StructArray) -> pa.StructArray:
    """The rows of a struct column that are not null.

    ``StructArray.field`` ignores the null mask of the struct, so it is only right for the result. Rows
    that follow each other, as most engines write them, are sliced instead of copied.
    """
    if structs.null_count == 0:
        return structs
    valid = structs.is_valid()
    rows = pc.indices_nonzero(valid)
    if len(rows) == 0:
        return structs.slice(0, 0)
    first, last = rows[0].as_py(), rows[-1].as_py()
    if last - first + 1 == len(rows):
        return structs.slice(first, len(rows))
    return structs.filter(valid)


def conform(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Convert an array to another type that can hold its values.

    Raises:
        pyarrow.ArrowException: a value doesn't fit, or the types have nothing in common.
    """
    if pa.types.is_map(target):
        return _conform_map(array, target)
    if pa.types.is_struct(target) and pa.types.is_struct(array.type):
        return _conform_struct(array, target)
    return array if array.type == target else pc.cast(array, target)


def _conform_struct(array: pa.StructArray, target: pa.StructType) -> pa.StructArray:
    """Convert a struct by the names of its fields. Fields that it lacks become null; others go."""
    if array.null_count == len(array):
        return pa.nulls(len(array), target)
    given = {field.name for field in array.type}
    children = [
        conform(array.field(field.name), field.type)
        if field.name in given
        else pa.nulls(len(array), field.type)
        for field in target
    ]
    mask = array.is_null() if array.null_count else None
    return pa.StructArray.from_arrays(children, fields=list(target), mask=mask)


def _conform_map(array: pa.Array, target: pa.MapType) -> pa.MapArray:
    """Convert a map, or the list of pairs that some writers store instead."""
    if pa.types.is_null(array.type):
        return pa.nulls(len(array), target)
    if pa.types.is_map(array.type):
        if (array.type.key_type, array.type.item_type) == (target.key_type, target.item_type):
            return array
        keys, items = array.keys, array.items
    elif not _is_list_of_pairs(array.type):
        return pc.cast(array, target)
    else:
        keys, items = array.values.field(0), array.values.field(1)
    # Keys and items are those of the whole buffer; the offsets of a slice select a part of them.
    first, last = array.offsets[0].as_py(), array.offsets[-1].as_py()
    return pa.MapArray.from_arrays(
        pc.subtract(array.offsets, array.offsets[0]),
        conform(keys.slice(first, last - first), target.key_type),
        conform(items.slice(first, last - first), target.item_type),
        type=target,
        mask=array.is_null() if array.null_count else None,
    )


def _is_list_of_pairs(type_: pa.DataType) -> bool:
    if not pa.types.is_list(type_) or not pa.types.is_struct(type_.value_type):
        return False
    return bool(type_.value_type.num_fields == 2)

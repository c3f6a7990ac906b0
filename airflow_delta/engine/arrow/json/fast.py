"""Read lines of file actions into Arrow columns with pyarrow's JSON reader: fast and exact, or not at all.

`read_columns` gives the reader the exact `ActionShape`, and makes it fail on all other fields. So a success
means that no key of a map and no second action in a line is lost. After a failure `ActionShape.learn` adds
the fields and map keys of the failed lines, and the caller tries again; or it reads the lines by `exact`.
"""

# pyarrow can infer the shape, too, but deep nesting crashes it then.

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from airflow_delta.engine.arrow.action_schema import ADD_FIELDS, REMOVE_FIELDS
from airflow_delta.engine.arrow.memory_pool import decoding_pool
from airflow_delta.engine.arrow.string_maps import map_from_struct

__all__ = ["ActionShape", "read_columns"]

_FIELDS = {"add": ADD_FIELDS, "remove": REMOVE_FIELDS}
_SCALARS = {bool: pa.bool_(), int: pa.int64(), float: pa.float64(), str: pa.string()}

# Each column takes memory in every row, so maps with ever new keys are left to `exact`.
_MAX_COLUMNS = 256

_SHARED_ROWS = 1 << 16


class ActionShape:
    """The fields and map keys seen so far in one kind of action. The parsing threads share it.

    No lock is needed: `learn` replaces the schema as a whole, every schema is right for the lines that it
    can read, and a thread that loses a race learns again.
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.schema = pa.schema([(kind, pa.struct([("path", pa.string())]))])

    def learn(self, actions: Iterable[Mapping[str, Any]]) -> bool:
        """Add the fields and map keys of actions; return whether there were new ones."""
        known = {field.name: field.type for field in self.schema.field(0).type}
        before = columns = sum(map(_width, known.values()))
        for name, values in _seen(actions).items():
            for value in values:
                wider = _widen(known.get(name), value, _FIELDS[self.kind].get(name))
                more = _width(wider) - _width(known.get(name))
                if wider is not None and more > 0 and columns + more <= _MAX_COLUMNS:
                    known[name] = wider
                    columns += more
        self.schema = pa.schema([(self.kind, pa.struct(list(known.items())))])
        return columns > before


def _seen(actions: Iterable[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """For each field, one value of each type, and of each set of map keys."""
    seen: dict[str, dict[object, Any]] = {}
    for action in actions:
        for name, value in action.items():
            kind = frozenset(value) if isinstance(value, dict) else type(value)
            seen.setdefault(name, {}).setdefault(kind, value)
    return {name: list(values.values()) for name, values in seen.items()}


def _width(type_: pa.DataType | None) -> int:
    """The number of columns that a field takes: itself and its children."""
    return 0 if type_ is None else 1 + int(type_.num_fields)


def _widen(known: pa.DataType | None, value: Any, column: pa.DataType | None) -> pa.DataType | None:
    """The reader's type for a field that accepts this value, too; None for an unknown nested field."""
    if column is None:  # A field that isn't in the protocol is read only to be dropped.
        return known or _SCALARS.get(type(value))
    if not pa.types.is_map(column):
        return column
    keys = [field.name for field in known] if known is not None else []
    more = [key for key in value if key not in keys] if isinstance(value, dict) else []
    return pa.struct([(key, pa.string()) for key in (*keys, *more)])


def read_columns(
    text: memoryview, shape: ActionShape, *, rows: int, fields: Mapping[str, pa.DataType]
) -> list[pa.Array] | None:
    """Read file actions as Arrow arrays, in the order of the fields; None if that can't be exact.

    Args:
        text: whole lines in UTF-8, each of which starts with ``{"add":`` or ``{"remove":``, as is the kind
            of the shape, and ends with ``}``. A success doesn't prove that.
        shape: the fields and map keys that the actions may have.
        rows: the number of lines.
        fields: the wanted columns and their types.
    """
    try:
        actions = _read_structs(text, shape.schema)
    except pa.ArrowInvalid:
        return None
    # The reader accepts two objects on a line, and an object over two lines. But no unfinished object ends
    # a line with } and starts the next one with {. So with as many rows as lines, each line is one object.
    if len(actions) != rows or actions.null_count:
        return None
    columns = []
    shared = _shared_names(actions.type)
    for name, type_ in fields.items():
        number = actions.type.get_field_index(name)
        child = actions.field(number) if number >= 0 else _nulls(type_, rows)
        if pa.types.is_map(type_) and number >= 0:
            child = map_from_struct(child, text=text, shared=shared)
        if child is None or not _identifies_files(name, child):
            return None
        columns.append(child)
    return columns


def _shared_names(type_: pa.StructType) -> frozenset[str]:
    """The names that more than one field has, at any depth."""
    fields = Counter(_names(type_))
    return frozenset(name for name, count in fields.items() if count > 1)


def _names(type_: pa.DataType) -> Iterator[str]:
    if pa.types.is_struct(type_):
        for field in type_:
            yield field.name
            yield from _names(field.type)


def _read_structs(text: memoryview, schema: pa.Schema) -> pa.StructArray:
    """Read the rows of the text as one block, because no line may span two blocks.

    One block gives one chunk, so no chunks must be combined, which would copy them.
    """
    table = pyarrow.json.read_json(
        pa.BufferReader(pa.py_buffer(text)),
        read_options=pyarrow.json.ReadOptions(use_threads=False, block_size=len(text)),
        parse_options=pyarrow.json.ParseOptions(
            explicit_schema=schema, unexpected_field_behavior="error"
        ),
        memory_pool=decoding_pool(),
    )
    return table.column(0).chunk(0)


@lru_cache(maxsize=32)
def _shared_nulls(type_: pa.DataType) -> pa.Array:
    return pa.nulls(_SHARED_ROWS, type_)


def _nulls(type_: pa.DataType, rows: int) -> pa.Array:
    """A column that the lines don't have; all slices share its memory."""
    return _shared_nulls(type_)[:rows] if rows <= _SHARED_ROWS else pa.nulls(rows, type_)


def _identifies_files(name: str, column: pa.Array) -> bool:
    """Whether every action has the fields of a column that identify its file."""
    if name == "path":
        return not column.null_count
    if name != "deletionVector" or column.null_count == len(column):
        return True
    parts = [pc.struct_field(column, part) for part in ("storageType", "pathOrInlineDv")]
    return all(part.null_count == column.null_count for part in parts)

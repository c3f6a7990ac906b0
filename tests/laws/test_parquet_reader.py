"""The engine's own Parquet reader returns what was written, as pyarrow does, or `PyarrowFallback`.

Each case is a random schema (struct columns with nested fields, in any order), random rows, and random
settings of the writer. If the file uses only what the reader implements, it must not fall back.
"""

from __future__ import annotations

import io
import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_delta.engine.errors import CorruptLogError
from airflow_delta.engine.model.checkpoint_kinds import CHECKPOINT_KINDS
from airflow_delta.engine.parquet import PyarrowFallback
from tests.engine.parquet.files import Rows, by_pyarrow, here, stored

TEXTS = ("", "a", "é", "日本", '{"k":[1]}', "x" * 300, "\x00")
INTEGERS = {pa.int32(): 31, pa.int64(): 63}

# What the reader implements. All else it may leave to pyarrow, but must never misread.
CODECS = ("none", "snappy", "gzip")
OTHER_CODECS = ("zstd", "lz4", "brotli")
ENCODINGS = {pa.int64(): "DELTA_BINARY_PACKED", pa.string(): "DELTA_BYTE_ARRAY"}


@dataclass
class Case:
    """A file.

    Attributes:
        data: its bytes.
        actions: the actions that were written.
        supported: whether the reader has to read it without pyarrow.
    """

    data: bytes
    actions: Rows
    supported: bool


class Files:
    """Makes random files of non-file actions."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.supported = True

    def case(self) -> Case:
        """A random file."""
        kinds = self.chance.sample(sorted(CHECKPOINT_KINDS), self.chance.randint(1, 6))
        columns = [*((kind, self.action(CHECKPOINT_KINDS[kind])) for kind in kinds), *self.others()]
        self.chance.shuffle(columns)
        schema = pa.schema(columns)
        rows = self.rows(schema)
        options = self.options(schema, len(rows))
        actions = written_actions(rows, schema, options["row_group_size"])
        return Case(stored(rows, schema, **options), actions, self.supported)

    def action(self, required: str) -> pa.StructType:
        """The struct of an action, with its required field somewhere."""
        type_ = self.chance.choice([pa.int32(), pa.int64(), pa.string()])
        nullable = self.chance.random() < 0.7
        fields = [pa.field(required, type_, nullable=nullable)]
        for number in range(self.chance.randint(0, 4)):
            nullable = self.chance.random() < 0.8
            fields.append(pa.field(f"f{number}", self.type(depth=2), nullable=nullable))
        self.chance.shuffle(fields)
        return pa.struct(fields)

    def type(self, depth: int) -> pa.DataType:
        """A type of a field: mostly one that the reader supports."""
        chance = self.chance
        if chance.random() < 0.03:
            self.supported = False
            return chance.choice(
                [
                    pa.float64(),
                    pa.int16(),
                    pa.binary(),
                    pa.date32(),
                    pa.list_(pa.list_(pa.string())),
                ]
            )
        value = chance.choice([pa.int32(), pa.int64(), pa.string(), pa.bool_()])
        form = chance.choice(["value", "value", "list", "map", "struct"]) if depth else "value"
        if form == "list":
            nullable = chance.random() < 0.7
            return pa.list_(pa.field("element", value, nullable=nullable))
        if form == "map":
            nullable = chance.random() < 0.7
            return pa.map_(pa.string(), pa.field("value", value, nullable=nullable))
        if form == "struct":
            names = "uvw"[: chance.randint(1, 3)]
            return pa.struct([(name, self.type(depth - 1)) for name in names])
        return value

    def others(self) -> list[tuple[str, pa.DataType]]:
        """Columns that the reader doesn't read, of any types."""
        types = [
            pa.struct([("path", pa.string()), ("score", pa.float16())]),
            pa.list_(pa.float64()),
        ]
        count = self.chance.randint(0, 2)
        return [(f"other{number}", types[number]) for number in range(count)]

    def rows(self, schema: pa.Schema) -> list[dict[str, Any]]:
        """Rows of one action each, in any order, between runs of rows without any."""
        rows: list[dict[str, Any]] = []
        for _ in range(self.chance.choice([0, 1, 3, 20])):
            rows += [{}] * self.chance.choice([0, 0, 1, 7, 400])
            name = self.chance.choice(schema.names)
            type_ = schema.field(name).type
            value = self.value(type_)
            if name in CHECKPOINT_KINDS:
                required = CHECKPOINT_KINDS[name]
                value[required] = self.value(type_.field(required).type)
            rows.append({name: value})
        return rows

    def value(self, type_: pa.DataType, *, nullable: bool = False) -> Any:
        """A value of a type."""
        chance = self.chance
        if nullable and chance.random() < 0.3:
            return None
        if pa.types.is_struct(type_):
            return {f.name: self.value(f.type, nullable=f.nullable) for f in type_}
        if pa.types.is_map(type_):
            nullable = type_.item_field.nullable
            keys = chance.sample(TEXTS, chance.randint(0, 3))
            return [(key, self.value(type_.item_type, nullable=nullable)) for key in keys]
        if pa.types.is_list(type_):
            field = type_.value_field
            return [
                self.value(field.type, nullable=field.nullable) for _ in range(chance.randint(0, 4))
            ]
        if type_ in INTEGERS:
            bits = chance.choice([1, 8, INTEGERS[type_]])
            return chance.randrange(-(1 << bits), 1 << bits)
        if pa.types.is_string(type_):
            return chance.choice(TEXTS)
        if pa.types.is_boolean(type_):
            return chance.random() < 0.5
        return _OTHERS[type_](chance) if type_ in _OTHERS else chance.randrange(100)

    def options(self, schema: pa.Schema, num_rows: int) -> dict[str, Any]:
        """Settings of the writer."""
        chance = self.chance
        options: dict[str, Any] = {
            "compression": chance.choice(CODECS),
            "data_page_version": chance.choice(["1.0", "2.0"]),
            "use_dictionary": chance.random() < 0.6,
            # At most 20 row groups: the reader leaves files with very long footers to pyarrow.
            "row_group_size": max(num_rows // 20, chance.choice([1, 2, 50, 100_000])),
            "data_page_size": chance.choice([20, 200, 1 << 20]),
            "write_batch_size": chance.choice([1, 5, 1024]),
            "write_page_checksum": chance.random() < 0.5,
            "write_statistics": chance.random() < 0.5,
            "write_page_index": chance.random() < 0.3,
            "store_schema": chance.random() < 0.5,
            "version": chance.choice(["1.0", "2.6"]),
        }
        if chance.random() < 0.08:
            self.supported = False
            options["compression"] = chance.choice(OTHER_CODECS)
        elif chance.random() < 0.08:
            self.supported = False
            paths = _leaf_paths(schema)
            options["use_dictionary"] = False
            options["column_encoding"] = {
                path: ENCODINGS[type_] for path, type_ in paths.items() if type_ in ENCODINGS
            }
        return options


_OTHERS: dict[pa.DataType, Callable[[random.Random], Any]] = {
    pa.float64(): lambda chance: chance.random(),
    pa.float16(): lambda chance: float(chance.randrange(9)),
    pa.binary(): lambda chance: chance.randbytes(3),
    pa.date32(): lambda chance: date(2026, 1, chance.randint(1, 31)),
}


def _leaf_paths(schema: pa.Schema) -> dict[str, pa.DataType]:
    """The dotted Parquet paths of the leaves, with their Arrow types where these are simple."""
    buffer = io.BytesIO()
    pq.write_table(schema.empty_table(), buffer)
    file = pq.ParquetFile(buffer)
    leaves = (file.schema.column(number) for number in range(len(file.schema)))
    simple = {"INT64": pa.int64(), "BYTE_ARRAY": pa.string()}
    return {leaf.path: simple.get(leaf.physical_type, pa.null()) for leaf in leaves}


def written_actions(rows: list[dict[str, Any]], schema: pa.Schema, group_rows: int) -> Rows:
    """The actions of rows in the order of a reader: by row group, then kind, then row."""
    return [
        (kind, plain(row[kind], schema.field(kind).type))
        for start in range(0, len(rows), group_rows)
        for kind in CHECKPOINT_KINDS
        for row in rows[start : start + group_rows]
        if kind in row
    ]


def plain(value: Any, type_: pa.DataType) -> Any:
    """A value as JSON: maps as dicts, null fields of structs left out."""
    if value is not None and pa.types.is_map(type_):
        return dict(value)
    if value is not None and pa.types.is_struct(type_):
        fields = {field.name: plain(value[field.name], field.type) for field in type_}
        return {name: item for name, item in fields.items() if item is not None}
    return value


def read_here(data: bytes) -> Rows | None:
    """What the reader returns; None if it falls back."""
    try:
        return here(data)
    except PyarrowFallback:
        return None


def read_by_pyarrow(data: bytes) -> Rows | None:
    """What pyarrow returns; None if it can't read the file.

    It can't read some that it has written itself, such as null booleans of lists in compressed pages of
    version 2, and required lists in structs that are null.
    """
    try:
        return by_pyarrow(data)
    except CorruptLogError:
        return None


@pytest.mark.parametrize("seed", range(6))
def test_any_file_is_read_as_it_was_written_and_as_pyarrow_reads_it(seed: int) -> None:
    chance = random.Random(seed)
    read_by_both = 0
    for _ in range(25):
        case = Files(chance).case()
        found, peer = read_here(case.data), read_by_pyarrow(case.data)
        assert found == case.actions or (found is None and not case.supported)
        assert peer in (None, case.actions)
        read_by_both += found is not None and peer is not None
    assert read_by_both > 10


@pytest.mark.parametrize("seed", range(4))
def test_a_damaged_file_is_read_as_pyarrow_reads_it_or_left_to_it(seed: int) -> None:
    """Any other error than `PyarrowFallback`, and any other rows, fail."""
    chance = random.Random(100 + seed)
    for _ in range(6):
        case = Files(chance).case()
        good = read_here(case.data)
        if read_by_pyarrow(case.data) is None:
            continue
        for _ in range(15):
            bad = _damage(case.data, chance)
            found = read_here(bad)
            if found is None or found == good:
                continue
            # A changed bit in a page without a checksum makes other values, for pyarrow as well.
            assert found == read_by_pyarrow(bad)


def _damage(data: bytes, chance: random.Random) -> bytes:
    """The file with a byte changed, cut off, with bytes lost, or with bytes of another part."""
    bad = bytearray(data)
    # The footer is left alone here: pyarrow ends the process over some damaged footers. See
    # tests/engine/parquet/test_corruption.py.
    last = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    at = chance.randrange(4, max(last, 5))
    form = chance.choice(["bit", "bit", "byte", "zeros", "copy", "cut"])
    if form == "bit":
        bad[at] ^= 1 << chance.randrange(8)
    elif form == "byte":
        bad[at] = chance.randrange(256)
    elif form == "zeros":
        length = min(8, last - at)
        bad[at : at + length] = bytes(length)
    elif form == "copy":
        other = chance.randrange(4, max(last, 5))
        length = max(min(16, last - at, last - other), 0)
        bad[at : at + length] = data[other : other + length]
    else:
        del bad[at : at + chance.randint(1, 20)]
    return bytes(bad)

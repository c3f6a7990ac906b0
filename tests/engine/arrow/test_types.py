"""Schemas as Arrow's; `deltalake` is the oracle for the mapping."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.arrow.types import to_arrow_schema
from airflow_delta.engine.errors import InvalidTableError
from airflow_delta.engine.model.schema import (
    PRIMITIVE_TYPES,
    VARIANT,
    VOID,
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
)
from airflow_delta.engine.model.schema_json import schema_to_json

# The oracle doesn't know void.
_PRIMITIVES = [type_ for type_ in PRIMITIVE_TYPES.values() if type_ not in (VARIANT, VOID)]


def _with(data_type: DataType) -> StructType:
    return StructType((StructField("a", data_type),))


@pytest.mark.parametrize(
    "data_type",
    [
        *_PRIMITIVES,
        DecimalType(5, 2),
        DecimalType(38, 0),
        ArrayType(PrimitiveType("long"), contains_null=False),
        MapType(PrimitiveType("string"), PrimitiveType("date"), value_contains_null=False),
        StructType(
            (
                StructField("x", PrimitiveType("timestamp_ntz"), nullable=False),
                StructField("y", ArrayType(MapType(PrimitiveType("long"), DecimalType(9, 9)))),
            )
        ),
    ],
    ids=str,
)
def test_types_are_those_of_the_reference(data_type: DataType) -> None:
    schema = StructType(
        (StructField("a", data_type, nullable=False, metadata={"comment": "as agreed"}),)
    )
    theirs = pa.schema(deltalake.Schema.from_json(schema_to_json(schema)).to_arrow())
    assert to_arrow_schema(schema).equals(theirs, check_metadata=True)


def _metadata(value: Any) -> str:
    """A value of a column's metadata as Arrow has it."""
    field = StructField("a", PrimitiveType("long"), metadata={"key": value})
    found: bytes = to_arrow_schema(StructType((field,))).field("a").metadata[b"key"]
    return found.decode()


@pytest.mark.parametrize("value", ["text", "", "ä {", 5, -0.5, True, None, [1, "x"], {"a": {}}])
def test_metadata_is_that_of_the_reference(value: Any) -> None:
    field = StructField("a", PrimitiveType("long"), metadata={"key": value})
    schema = schema_to_json(StructType((field,)))
    theirs = pa.schema(deltalake.Schema.from_json(schema).to_arrow()).field("a").metadata
    assert _metadata(value) == theirs[b"key"].decode()


@pytest.mark.parametrize("value", ["5", "null", '"quoted"', "[1]", "NaN", " 1", "5x", [1], "é", 5])
def test_metadata_that_differs_is_told_apart(value: Any) -> None:
    text = _metadata(value)
    try:
        read = json.loads(text)
    except ValueError:
        read = text
    assert (type(read), read) == (type(value), value)


def test_metadata_of_nothing_but_brackets_is_text() -> None:
    brackets = "[" * 100_000
    assert json.loads(_metadata(brackets)) == brackets


def test_what_arrow_lacks_is_refused_with_the_column() -> None:
    schema = _with(MapType(PrimitiveType("string"), VARIANT))
    with pytest.raises(InvalidTableError, match=r"a\.value.*variant.*no counterpart in Arrow"):
        to_arrow_schema(schema)


def test_void_is_null_and_nothing_but_null() -> None:
    assert to_arrow_schema(_with(VOID)).field("a").type == pa.null()
    with pytest.raises(InvalidTableError, match=r"a\.element.*void, but not nullable"):
        to_arrow_schema(_with(ArrayType(VOID, contains_null=False)))


def test_the_schema_of_a_snapshot(tmp_path: Path) -> None:
    rows = pa.table({"a": pa.array([1], pa.int32()), "b": pa.array([None], pa.timestamp("us"))})
    deltalake.write_deltalake(tmp_path, rows)
    assert DeltaTable(str(tmp_path)).snapshot().arrow_schema == rows.schema

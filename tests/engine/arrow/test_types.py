"""Schemas to Arrow and back; `deltalake` is the oracle for the mapping."""

from __future__ import annotations

from pathlib import Path

import deltalake
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.arrow.types import from_arrow_schema, to_arrow_schema
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
    assert from_arrow_schema(theirs) == schema


def _schemas(types: st.SearchStrategy[DataType]) -> st.SearchStrategy[StructType]:
    json_values = st.one_of(
        st.none(), st.booleans(), st.integers(), st.text(), st.lists(st.integers(), max_size=2)
    )
    texts_like_json = st.sampled_from(["5", "null", '"quoted"', "[1]", "NaN", " 1", ""])
    metadata = st.dictionaries(st.text(min_size=1), json_values | texts_like_json, max_size=2)
    fields = st.builds(StructField, st.uuids().map(str), types, st.booleans(), metadata)
    return st.lists(fields, max_size=3).map(lambda found: StructType(tuple(found)))


_TYPES: st.SearchStrategy[DataType] = st.recursive(
    st.sampled_from(_PRIMITIVES)
    | st.integers(1, 38).flatmap(
        lambda precision: st.builds(DecimalType, st.just(precision), st.integers(0, precision))
    ),
    lambda inner: (
        st.builds(ArrayType, inner, st.booleans())
        | st.builds(MapType, inner, inner, st.booleans())
        | _schemas(inner)
    ),
    max_leaves=6,
)


@given(_schemas(_TYPES))
@settings(max_examples=50, deadline=None)
def test_nothing_is_lost_on_the_way_there_and_back(schema: StructType) -> None:
    assert from_arrow_schema(to_arrow_schema(schema)) == schema


@pytest.mark.parametrize(
    ("arrow_type", "data_type"),
    [
        (pa.large_string(), "string"),
        (pa.string_view(), "string"),
        (pa.dictionary(pa.int32(), pa.string()), "string"),
        (pa.binary(16), "binary"),
        (pa.date64(), "date"),
        (pa.timestamp("ms", "Europe/Berlin"), "timestamp"),
        (pa.timestamp("s"), "timestamp_ntz"),
    ],
    ids=str,
)
def test_other_forms_of_a_type_are_understood(arrow_type: pa.DataType, data_type: str) -> None:
    assert from_arrow_schema(pa.schema([("a", arrow_type)])) == _with(PrimitiveType(data_type))


def test_other_forms_of_nested_types_are_understood() -> None:
    element = pa.field("item", pa.decimal256(20, 3), nullable=False)
    expected = _with(ArrayType(DecimalType(20, 3), contains_null=False))
    for list_type in (pa.large_list(element), pa.list_(element, 2), pa.list_view(element)):
        assert from_arrow_schema(pa.schema([("a", list_type)])) == expected


@pytest.mark.parametrize(
    "arrow_type",
    [
        pa.uint8(),
        pa.float16(),
        pa.time64("us"),
        pa.duration("s"),
        pa.timestamp("ns"),
        pa.timestamp("ns", "UTC"),
        pa.decimal256(39, 0),
        pa.decimal128(5, -2),
        pa.month_day_nano_interval(),
    ],
    ids=str,
)
def test_what_delta_lacks_is_refused_with_the_column(arrow_type: pa.DataType) -> None:
    nested = pa.schema([("outer", pa.struct([("list", pa.list_(arrow_type))]))])
    with pytest.raises(InvalidTableError, match=r"outer\.list\.element.*no counterpart in Delta"):
        from_arrow_schema(nested)


def test_what_arrow_lacks_is_refused_with_the_column() -> None:
    schema = _with(MapType(PrimitiveType("string"), VARIANT))
    with pytest.raises(InvalidTableError, match=r"a\.value.*variant.*no counterpart in Arrow"):
        to_arrow_schema(schema)


def test_void_is_null_and_nothing_but_null() -> None:
    assert to_arrow_schema(_with(VOID)).field("a").type == pa.null()
    assert from_arrow_schema(to_arrow_schema(_with(VOID))) == _with(VOID)
    with pytest.raises(InvalidTableError, match=r"a\.element.*void, but not nullable"):
        to_arrow_schema(_with(ArrayType(VOID, contains_null=False)))


def test_names_that_differ_in_case_alone_are_refused() -> None:
    with pytest.raises(InvalidTableError, match="'a' and 'A'"):
        from_arrow_schema(pa.schema([("a", pa.int64()), ("A", pa.int64())]))


def test_the_schema_of_a_snapshot(tmp_path: Path) -> None:
    rows = pa.table({"a": pa.array([1], pa.int32()), "b": pa.array([None], pa.timestamp("us"))})
    deltalake.write_deltalake(tmp_path, rows)
    assert DeltaTable(str(tmp_path)).snapshot().arrow_schema == rows.schema

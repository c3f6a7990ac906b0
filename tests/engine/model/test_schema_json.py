"""Against the example of PROTOCOL.md, "Schema Serialization Format", and real tables."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_delta.engine.errors import InvalidTableError
from airflow_delta.engine.model.schema import (
    INTEGER,
    LONG,
    PRIMITIVE_TYPES,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    VOID,
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    StructField,
    StructType,
)
from airflow_delta.engine.model.schema_json import (
    data_type_from_json,
    data_type_to_json,
    parse_schema,
    schema_to_json,
)

WHERE = "commit 0, line 2: metaData.schemaString"

# The specification's example, by its own drawing of the tree.
EXAMPLE_TREE = StructType(
    (
        StructField("a", INTEGER, nullable=False),
        StructField("b", StructType((StructField("d", INTEGER, nullable=False),))),
        StructField("c", ArrayType(INTEGER, contains_null=False)),
        StructField(
            "e",
            ArrayType(StructType((StructField("d", INTEGER, nullable=False),)), contains_null=True),
        ),
        StructField("f", MapType(STRING, STRING, value_contains_null=True)),
    )
)
EXAMPLE_TEXT = """{
  "type" : "struct",
  "fields" : [ {
    "name" : "a", "type" : "integer", "nullable" : false, "metadata" : { }
  }, {
    "name" : "b",
    "type" : {
      "type" : "struct",
      "fields" : [ { "name" : "d", "type" : "integer", "nullable" : false, "metadata" : { } } ]
    },
    "nullable" : true, "metadata" : { }
  }, {
    "name" : "c",
    "type" : { "type" : "array", "elementType" : "integer", "containsNull" : false },
    "nullable" : true, "metadata" : { }
  }, {
    "name" : "e",
    "type" : {
      "type" : "array",
      "elementType" : {
        "type" : "struct",
        "fields" : [ { "name" : "d", "type" : "integer", "nullable" : false, "metadata" : { } } ]
      },
      "containsNull" : true
    },
    "nullable" : true, "metadata" : { }
  }, {
    "name" : "f",
    "type" : {
      "type" : "map", "keyType" : "string", "valueType" : "string", "valueContainsNull" : true
    },
    "nullable" : true, "metadata" : { }
  } ]
}"""


def test_the_example_of_the_specification() -> None:
    assert parse_schema(EXAMPLE_TEXT, WHERE) == EXAMPLE_TREE
    assert json.loads(schema_to_json(EXAMPLE_TREE)) == json.loads(EXAMPLE_TEXT)


def test_the_text_is_compact() -> None:
    schema = StructType((StructField("é", LONG, metadata={"comment": "ü"}),))
    assert schema_to_json(schema) == (
        '{"type":"struct","fields":[{"name":"é","type":"long","nullable":true,'
        '"metadata":{"comment":"ü"}}]}'
    )


def test_no_schema_string_is_no_columns() -> None:
    assert parse_schema(None, WHERE) == StructType()


@pytest.mark.parametrize(
    ("name", "data_type"),
    [
        ("null", VOID),
        ("void", VOID),
        ("timestamp without time zone", TIMESTAMP_NTZ),
        ("timestamp_ltz", TIMESTAMP),
        ("decimal", DecimalType(10, 0)),
        ("decimal(38,18)", DecimalType(38, 18)),
        ("decimal( 5 , 2 )", DecimalType(5, 2)),
        *PRIMITIVE_TYPES.items(),
    ],
)
def test_every_type_has_its_name_of_the_protocol(name: str, data_type: DataType) -> None:
    assert data_type_from_json(name) == data_type
    assert data_type_from_json(data_type_to_json(data_type)) == data_type


def test_metadata_is_kept_value_for_value() -> None:
    metadata = {
        "delta.columnMapping.id": 1,
        "delta.identity.start": 2**62,
        "delta.columnMapping.nested.ids": {"a.element": 2, "deep": [{"x": None}, 1.5, True]},
        "CURRENT_DEFAULT": "'it''s \\u00e9'",
        "": "",
    }
    schema = StructType((StructField("a", LONG, metadata=metadata),))
    assert parse_schema(schema_to_json(schema), WHERE) == schema


def _field(**changes: Any) -> dict[str, Any]:
    field = {"name": "a", "type": "long", "nullable": True, "metadata": {}, **changes}
    return {key: value for key, value in field.items() if value is not ...}


@pytest.mark.parametrize("metadata", [..., None, {}])
def test_metadata_may_be_missing(metadata: Any) -> None:
    text = json.dumps({"type": "struct", "fields": [_field(metadata=metadata)]})
    assert parse_schema(text, WHERE) == StructType((StructField("a", LONG),))


@pytest.mark.parametrize(
    ("field", "message"),
    [
        (_field(name=...), r"schema\.fields\[0\]: 'name' is missing"),
        (_field(type=...), r"fields\[0\] 'a': 'type' is missing"),
        (_field(nullable=...), "'a': 'nullable' is missing"),
        (_field(name=1), r"fields\[0\]\.name: expected a string, found 1"),
        (_field(nullable="true"), "'a'.nullable: expected true or false"),
        (_field(metadata=[]), r"'a'\.metadata: expected an object, found \[\]"),
        (_field(type="int"), "'a': \"int\" is no type of the Delta protocol"),
        (_field(type="Long"), "'a': \"Long\" is no type"),
        (_field(type="interval day to second"), "'a': \"interval day to second\" is no type"),
        (_field(type="decimal(39,0)"), r"'a': decimal\(39,0\): the precision"),
        (_field(type="decimal(3,4)"), r"'a': decimal\(3,4\)"),
        (_field(type="decimal(3,-1)"), r"'a': decimal\(3,-1\)"),
        (_field(type="decimal(3)"), r'"decimal\(3\)" is no type'),
        (_field(type=None), "'a': expected a type's name, .* found null"),
        (_field(type={"type": "udt", "class": "X"}), "'a': expected a type's name"),
        (_field(type={"type": "array", "containsNull": True}), "'a': 'elementType' is missing"),
        (_field(type={"type": "array", "elementType": "long"}), "'a': 'containsNull' is missing"),
        (
            _field(type={"type": "map", "keyType": "long", "valueContainsNull": True}),
            "'a': 'valueType' is missing",
        ),
        (
            _field(
                type={"type": "map", "keyType": "x", "valueType": "y", "valueContainsNull": True}
            ),
            r"'a'\.key: \"x\" is no type",
        ),
        (_field(type={"type": "struct"}), "'a': 'fields' is missing"),
        (_field(type={"type": "struct", "fields": {}}), r"'a'\.fields: expected an array"),
        (
            _field(type={"type": "struct", "fields": [_field(), _field(name="A")]}),
            "'a': column names 'a' and 'A' are the same",
        ),
        ("a", r"fields\[0\]: expected an object"),
    ],
)
def test_what_is_no_schema(field: Any, message: str) -> None:
    text = json.dumps({"type": "struct", "fields": [field]})
    with pytest.raises(InvalidTableError, match=message) as caught:
        parse_schema(text, WHERE)
    assert str(caught.value).startswith(f"{WHERE}: ")
    assert caught.value.where == WHERE


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no JSON"),
        ("{", "no JSON"),
        ('{"type":"struct","fields":[]} x', "no JSON"),
        ('{"type":"struct","fields":NaN}', "NaN is no JSON value"),
        ("null", "found null"),
        ('"long"', "must be a struct, found long"),
        ('{"type":"array","elementType":"long","containsNull":true}', "must be a struct"),
        ("[" * 100_000, "nested too deeply"),
        (
            '{"type":"array","containsNull":true,"elementType":' * 5_000 + '"long"' + "}" * 5_000,
            "nested too deeply",
        ),
    ],
)
def test_what_is_no_struct(text: str, message: str) -> None:
    with pytest.raises(InvalidTableError, match=message):
        parse_schema(text, WHERE)


_json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text("ab.", max_size=3), inner),
    max_leaves=4,
)  # fmt: skip
_decimals = st.integers(1, 38).flatmap(
    lambda p: st.builds(DecimalType, st.just(p), st.integers(0, p))
)


def _structs(types: st.SearchStrategy[DataType]) -> st.SearchStrategy[StructType]:
    column = st.builds(
        StructField,
        st.text(st.characters(exclude_categories=["Cs"]), max_size=6),
        types,
        st.booleans(),
        st.dictionaries(st.text("ab.", max_size=3), _json_values, max_size=2),
    )
    columns = st.lists(column, max_size=4, unique_by=lambda column: column.name.lower())
    return columns.map(lambda fields: StructType(tuple(fields)))


_types = st.recursive(
    st.sampled_from(list(PRIMITIVE_TYPES.values())) | _decimals,
    lambda types: (
        _structs(types)
        | st.builds(ArrayType, types, st.booleans())
        | st.builds(MapType, types, types, st.booleans())
    ),
    max_leaves=6,
)


@given(_structs(_types))
@settings(max_examples=50)
def test_a_schema_survives_json(schema: StructType) -> None:
    assert parse_schema(schema_to_json(schema), WHERE) == schema


@pytest.mark.parametrize(
    "case",
    ["dat-all_primitive_types", "dat-nested_types", "dat-column_mapping", "dat-generated_columns"],
)
def test_real_schemas_are_written_back_to_the_letter(
    golden_case: Callable[[str], Path], case: str
) -> None:
    text = (golden_case(case) / "_delta_log" / f"{0:020}.json").read_text(encoding="utf-8")
    lines = map(json.loads, text.splitlines())
    schema_string = next(line["metaData"]["schemaString"] for line in lines if "metaData" in line)
    assert schema_to_json(parse_schema(schema_string, case)) == schema_string

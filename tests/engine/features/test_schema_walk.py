from __future__ import annotations

from dataclasses import replace

from airflow_delta.engine.features.schema_walk import all_fields, all_types, map_fields
from airflow_delta.engine.model.schema import (
    INTEGER,
    LONG,
    STRING,
    ArrayType,
    MapType,
    StructField,
    StructType,
)

INNER = StructType((StructField("x", INTEGER),))
SCHEMA = StructType(
    (
        StructField("a", LONG),
        StructField("s", INNER),
        StructField("l", ArrayType(INNER)),
        StructField("m", MapType(INNER, ArrayType(STRING))),
    )
)


def test_fields_are_found_at_every_depth_parents_first() -> None:
    assert [path for path, _ in all_fields(SCHEMA)] == [
        ("a",),
        ("s",),
        ("l",),
        ("m",),
        ("s", "x"),
        ("l", "element", "x"),
        ("m", "key", "x"),
    ]


def test_types_are_found_at_every_depth() -> None:
    found = dict(all_types(SCHEMA))
    assert found[()] == SCHEMA
    assert found["m", "value", "element"] == STRING
    assert found["l", "element", "x"] == INTEGER
    assert len(found) == 12


def test_every_field_is_changed_and_no_type() -> None:
    upper = map_fields(
        SCHEMA, lambda field: replace(field, name=field.name.upper(), nullable=False)
    )
    assert [field.name for _, field in all_fields(upper)] == [
        field.name.upper() for _, field in all_fields(SCHEMA)
    ]
    assert not any(field.nullable for _, field in all_fields(upper))
    assert str(upper).lower() == str(SCHEMA)

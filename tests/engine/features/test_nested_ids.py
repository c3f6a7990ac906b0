from __future__ import annotations

import pytest

from airflow_delta.engine.features.column_mapping import assign_mapping
from airflow_delta.engine.features.nested_ids import (
    NESTED_IDS,
    assign_nested_ids,
    highest_nested_id,
    nested_paths,
)
from airflow_delta.engine.features.schema_walk import all_fields
from airflow_delta.engine.model.schema import (
    INTEGER,
    ArrayType,
    DataType,
    MapType,
    StructField,
    StructType,
)

# PROTOCOL.md, "Example of storing identifiers for nested fields in ArrayType and MapType".
EXAMPLE = StructType(
    (
        StructField("col1", ArrayType(ArrayType(INTEGER))),
        StructField("col2", MapType(INTEGER, ArrayType(INTEGER))),
        StructField(
            "col3", MapType(INTEGER, StructType((StructField("subcol1", ArrayType(INTEGER)),)))
        ),
    )
)


def test_the_example_of_the_specification() -> None:
    mapped, _ = assign_mapping(EXAMPLE, name_of=lambda field: field.name)
    numbered, last = assign_nested_ids(mapped, last=99)
    found = {field.name: field.metadata[NESTED_IDS] for _, field in all_fields(numbered)}
    assert found == {
        "col1": {"col1.element": 100, "col1.element.element": 101},
        "col2": {"col2.key": 102, "col2.value": 103, "col2.value.element": 104},
        "col3": {"col3.key": 105, "col3.value": 106},
        "subcol1": {"subcol1.element": 107},
    }
    assert last == highest_nested_id(numbered) == 107


def test_ids_that_are_there_are_kept() -> None:
    column = StructField(
        "m",
        MapType(INTEGER, INTEGER),
        metadata={
            "delta.columnMapping.id": 1,
            "delta.columnMapping.physicalName": "p",
            NESTED_IDS: {"p.value": 5},
        },
    )
    numbered, last = assign_nested_ids(StructType((column,)), last=8)
    assert numbered.fields[0].metadata[NESTED_IDS] == {"p.value": 5, "p.key": 9}
    assert last == 9
    assert assign_nested_ids(numbered, last=last) == (numbered, last)


def test_columns_without_any_get_no_key() -> None:
    mapped, last = assign_mapping(
        StructType((StructField("a", INTEGER),)), name_of=lambda field: field.name
    )
    assert assign_nested_ids(mapped, last=last) == (mapped, last)
    assert highest_nested_id(mapped) == 0


@pytest.mark.parametrize(
    ("data_type", "expected"),
    [
        (INTEGER, []),
        (StructType((StructField("a", ArrayType(INTEGER)),)), []),
        (ArrayType(INTEGER), ["element"]),
        (
            MapType(ArrayType(INTEGER), MapType(INTEGER, INTEGER)),
            ["key", "key.element", "value", "value.key", "value.value"],
        ),
    ],
)
def test_the_nested_paths_of_a_type(data_type: DataType, expected: list[str]) -> None:
    assert [".".join(path) for path in nested_paths(data_type)] == expected

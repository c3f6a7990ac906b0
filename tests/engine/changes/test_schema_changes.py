"""Which changes of a schema lose nothing of older rows."""

from __future__ import annotations

import re

import pytest

from airflow_delta.engine.changes.schema_changes import find_incompatible_change
from airflow_delta.engine.model.schema import (
    INTEGER,
    LONG,
    STRING,
    ArrayType,
    DataType,
    MapType,
    StructField,
    StructType,
)


def struct(**columns: DataType) -> StructType:
    return StructType(tuple(StructField(name, type_) for name, type_ in columns.items()))


def mapped(logical: str, physical: str) -> StructType:
    metadata = {"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": physical}
    return StructType((StructField(logical, LONG, metadata=metadata),))


def change(
    older: StructType, newer: StructType, older_mode: str = "none", newer_mode: str = "none"
) -> str | None:
    return find_incompatible_change(older, newer, older_mode=older_mode, newer_mode=newer_mode)


INNER = struct(a=LONG)
WIDER = struct(a=LONG, b=LONG)


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        (struct(a=LONG), struct(a=LONG)),
        (struct(a=LONG, b=STRING), struct(c=LONG, b=STRING, a=LONG)),
        (struct(s=INNER), struct(s=WIDER)),
        (struct(s=ArrayType(INNER)), struct(s=ArrayType(WIDER))),
        (struct(s=MapType(STRING, INNER)), struct(s=MapType(STRING, WIDER))),
        (StructType((StructField("a", LONG, nullable=False),)), struct(a=LONG)),
        (struct(s=ArrayType(LONG, contains_null=False)), struct(s=ArrayType(LONG))),
    ],
)
def test_added_columns_and_nulls_lose_nothing(older: StructType, newer: StructType) -> None:
    assert change(older, newer) is None


@pytest.mark.parametrize(
    ("older", "newer", "reason"),
    [
        (struct(a=LONG, b=LONG), struct(a=LONG), "column b was dropped or renamed"),
        (struct(a=INTEGER), struct(a=LONG), "column a changed its type from integer to long"),
        (struct(a=LONG), struct(a=INNER), "column a changed its type"),
        (struct(s=WIDER), struct(s=INNER), r"column s\.b was dropped"),
        (struct(s=ArrayType(WIDER)), struct(s=ArrayType(INNER)), r"column s\.element\.b was"),
        (
            struct(s=MapType(WIDER, LONG)),
            struct(s=MapType(INNER, LONG)),
            r"column s\.key\.b was dropped",
        ),
        (
            struct(s=MapType(STRING, LONG)),
            struct(s=MapType(STRING, STRING)),
            r"column s\.value changed its type",
        ),
        (struct(a=LONG), StructType((StructField("a", LONG, nullable=False),)), "no longer allows"),
        (
            struct(s=ArrayType(LONG)),
            struct(s=ArrayType(LONG, contains_null=False)),
            "elements of s no longer allow nulls",
        ),
        (
            struct(s=MapType(STRING, LONG)),
            struct(s=MapType(STRING, LONG, value_contains_null=False)),
            "values of s no longer allow nulls",
        ),
        (
            struct(),
            StructType((StructField("a", LONG, nullable=False),)),
            "column a was added and allows no nulls",
        ),
    ],
)
def test_every_other_change_is_named(older: StructType, newer: StructType, reason: str) -> None:
    found = change(older, newer)
    assert found is not None
    assert re.search(reason, found)


def test_a_column_is_its_physical_name() -> None:
    assert change(mapped("a", "p1"), mapped("a", "p1"), "name", "name") is None
    replaced = change(mapped("a", "p1"), mapped("a", "p2"), "name", "name")
    assert replaced == "the column a was dropped, and another one took its name"
    assert "renamed" in str(change(mapped("a", "p1"), mapped("b", "p1"), "name", "name"))


def test_turning_column_mapping_on_keeps_the_names() -> None:
    assert change(struct(a=LONG), mapped("a", "a"), "none", "name") is None

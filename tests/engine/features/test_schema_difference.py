"""Which columns differ between two schemas."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_delta.engine.features.column_mapping import ID, PHYSICAL_NAME
from airflow_delta.engine.features.schema_difference import compare_schemas
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


def column(
    name: str, data_type: DataType = LONG, physical: str | None = None, **metadata: Any
) -> StructField:
    keys = {} if physical is None else {PHYSICAL_NAME: physical, ID: 1}
    return StructField(name, data_type, metadata={**keys, **metadata})


def struct(*fields: StructField) -> StructType:
    return StructType(fields)


def changes(
    before: StructType, after: StructType, modes: tuple[str, str] = ("none", "none")
) -> list[tuple[Any, ...]]:
    found = compare_schemas(before, after, mode_before=modes[0], mode_after=modes[1])
    facts = [change.to_dict() for change in found]
    return [(fact["change"], fact["column"], fact["before"], fact["after"]) for fact in facts]


A, B = column("a"), column("b", STRING)
INSIDE = struct(column("x"), column("y"))

CASES: list[tuple[StructType, StructType, list[tuple[Any, ...]]]] = [
    (struct(A, B), struct(B, A), []),
    (struct(A), struct(A, B), [("added", "b", None, "string")]),
    (struct(A, B), struct(A), [("dropped", "b", "string", None)]),
    # A struct that comes or goes has no changes of its columns.
    (struct(A), struct(A, column("s", INSIDE)), [("added", "s", None, "struct<x:long,y:long>")]),
    (struct(A, column("s", INSIDE)), struct(A), [("dropped", "s", "struct<x:long,y:long>", None)]),
    (
        struct(column("s", struct(column("x")))),
        struct(column("s", INSIDE)),
        [("added", "s.y", None, "long")],
    ),
    (
        struct(column("l", ArrayType(struct(column("x", INTEGER))))),
        struct(column("l", ArrayType(struct(column("x", LONG))))),
        [("type widened", "l.element.x", "integer", "long")],
    ),
    (
        struct(column("m", MapType(STRING, INTEGER))),
        struct(column("m", MapType(STRING, LONG))),
        [("type widened", "m", "map<string,integer>", "map<string,long>")],
    ),
    (struct(A), struct(column("a", INTEGER)), [("type changed", "a", "long", "integer")]),
    (struct(A), struct(column("a", INSIDE)), [
        ("type changed", "a", "long", "struct<x:long,y:long>"),
        ("added", "a.x", None, "long"),
        ("added", "a.y", None, "long"),
    ]),
    (struct(A), struct(StructField("a", LONG, nullable=False)),
     [("nullability changed", "a", True, False)]),
    (struct(A), struct(column("a", comment="k")), [("metadata changed", "a", None, "k")]),
]  # fmt: skip


@pytest.mark.parametrize(("before", "after", "expected"), CASES)
def test_changes(before: StructType, after: StructType, expected: list[tuple[Any, ...]]) -> None:
    assert changes(before, after) == expected


def test_columns_are_matched_by_their_physical_names() -> None:
    before = struct(column("a", physical="p1"), column("b", physical="p2"))
    after = struct(column("b", physical="p1"), column("c", physical="p3"))
    assert changes(before, after, ("name", "name")) == [
        ("renamed", "b", "a", "b"),
        ("added", "c", None, "long"),
        ("dropped", "b", "long", None),
    ]
    # Column mapping gives a column its name as the physical name.
    mapped = struct(column("a", physical="a"), column("b", STRING, physical="b"))
    assert changes(struct(A, B), mapped, ("none", "name")) == []


def test_a_renamed_struct_has_no_changes_of_its_columns() -> None:
    def outer(name: str) -> StructType:
        return struct(column(name, struct(column("x", physical="q")), physical="p"))

    assert changes(outer("s"), outer("t"), ("name", "name")) == [("renamed", "t", "s", "t")]

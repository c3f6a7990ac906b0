"""Shapes that pyarrow doesn't write; those that it does are in test_rows."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_delta.engine.parquet.footer import (
    BYTE_ARRAY,
    INT32,
    OPTIONAL,
    REPEATED,
    REQUIRED,
    SchemaNode,
)
from airflow_delta.engine.parquet.refusals import NotReadHere
from airflow_delta.engine.parquet.shapes import struct_of


class Tree:
    """Schemas by hand: leaves are numbered in the order in which they are made."""

    def __init__(self) -> None:
        self.leaves = 0

    def leaf(
        self, name: str, repetition: int, definition: int, meaning: str = "string"
    ) -> SchemaNode:
        self.leaves += 1
        physical = BYTE_ARRAY if meaning == "string" else INT32
        return SchemaNode(
            name, repetition, physical, meaning, definition, 0, self.leaves - 1, (name,), ()
        )


def group(
    name: str, repetition: int, definition: int, meaning: str | None, *children: SchemaNode
) -> SchemaNode:
    return SchemaNode(name, repetition, None, meaning, definition, 0, -1, (name,), children)


def struct(*children: SchemaNode) -> SchemaNode:
    return group("k", OPTIONAL, 1, "", *children)


def two_levels() -> SchemaNode:
    return struct(group("l", OPTIONAL, 2, "list", Tree().leaf("x", REPEATED, 3)))


def three_levels(name: str = "list", meaning: str | None = "") -> SchemaNode:
    item = Tree().leaf("x", OPTIONAL, 4)
    return struct(group("l", OPTIONAL, 2, "list", group(name, REPEATED, 3, meaning, item)))


def texts(meaning: str | None = "map", inner: str | None = "", key: int = REQUIRED) -> SchemaNode:
    tree = Tree()
    pair = [tree.leaf("key", key, 3), tree.leaf("value", OPTIONAL, 4)]
    return struct(group("m", OPTIONAL, 2, meaning, group("kv", REPEATED, 3, inner, *pair)))


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        ([(1, None)], {}),
        ([(2, None)], {"l": []}),
        ([(3, "a"), (3, "b")], {"l": ["a", "b"]}),
        ([(0, None)], None),
    ],
)
def test_lists_of_two_levels(entries: Any, expected: Any) -> None:
    assert struct_of(two_levels())({0: entries}) == expected


@pytest.mark.parametrize("name", ["list", "bag", "element"])
def test_the_inner_name_of_a_list_is_free(name: str) -> None:
    assert struct_of(three_levels(name))({0: [(4, "a"), (3, None)]}) == {"l": ["a", None]}


@pytest.mark.parametrize("meaning", ["map", "map_key_value"])
@pytest.mark.parametrize("inner", ["", "map_key_value"])
def test_maps_of_both_annotations(meaning: str, inner: str) -> None:
    shape = struct_of(texts(meaning, inner))
    assert shape({0: [(3, "a"), (3, "b")], 1: [(4, "x"), (3, None)]}) == {
        "m": {"a": "x", "b": None}
    }
    assert shape({0: [(2, None)], 1: [(2, None)]}) == {"m": {}}
    assert shape({0: [(1, None)], 1: [(1, None)]}) == {}


@pytest.mark.parametrize(
    "node",
    [
        three_levels("array"),
        three_levels("l_tuple"),
        three_levels(meaning="list"),
        three_levels(meaning=None),
        texts(key=OPTIONAL),
        texts(inner="list"),
        texts(meaning="list"),
        texts(meaning=None),
        struct(Tree().leaf("x", REPEATED, 2)),
        struct(group("g", REPEATED, 2, "", Tree().leaf("x", OPTIONAL, 3))),
        struct(group("l", OPTIONAL, 2, "list", Tree().leaf("x", OPTIONAL, 3))),
        group("k", OPTIONAL, 1, "map", Tree().leaf("x", OPTIONAL, 2)),
        Tree().leaf("x", OPTIONAL, 1),
    ],
)
def test_other_shapes_are_refused(node: SchemaNode) -> None:
    with pytest.raises(NotReadHere, match="has an unknown shape"):
        struct_of(node)


def test_fields_of_one_name_are_refused() -> None:
    tree = Tree()
    with pytest.raises(NotReadHere, match="several fields of a name"):
        struct_of(struct(tree.leaf("x", OPTIONAL, 2), tree.leaf("x", OPTIONAL, 2)))


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({0: [(3, "a")], 1: [(2, None)]}, "other keys than values"),
        ({0: [(3, "a"), (3, "b")], 1: [(4, "x")]}, "other keys than values"),
        ({0: [(1, None)], 1: [(2, None)]}, "other keys than values"),
        ({0: [(0, None)], 1: [(4, "x")]}, "is null, and isn't"),
        ({0: [(3, "a"), (2, None)], 1: [(4, "x"), (4, "y")]}, "stands 2 times in a row"),
    ],
)
def test_levels_that_contradict_each_other_are_refused(row: Any, message: str) -> None:
    with pytest.raises(NotReadHere, match=message):
        struct_of(texts())(row)


def test_a_value_that_is_not_repeated_stands_once() -> None:
    shape = struct_of(struct(Tree().leaf("x", OPTIONAL, 2)))
    assert shape({0: [(2, "a")]}) == {"x": "a"}
    with pytest.raises(NotReadHere, match="stands 2 times in a row"):
        shape({0: [(2, "a"), (2, "b")]})

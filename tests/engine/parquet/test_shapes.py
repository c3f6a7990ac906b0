"""Shapes that pyarrow doesn't write; those that it does are in test_rows."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_delta.engine.parquet import PyarrowFallback
from airflow_delta.engine.parquet.footer import (
    BYTE_ARRAY,
    INT32,
    OPTIONAL,
    REPEATED,
    REQUIRED,
    SchemaNode,
)
from airflow_delta.engine.parquet.shapes import shape_of_struct


class Tree:
    """Schemas by hand: leaves are numbered in the order in which they are made."""

    def __init__(self) -> None:
        self.leaves = 0

    def leaf(
        self, name: str, repetition: int, definition: int, annotation: str = "string"
    ) -> SchemaNode:
        self.leaves += 1
        physical = BYTE_ARRAY if annotation == "string" else INT32
        return SchemaNode(
            name, repetition, physical, annotation, definition, 0, self.leaves - 1, (name,), ()
        )


def group(
    name: str, repetition: int, definition: int, annotation: str | None, *children: SchemaNode
) -> SchemaNode:
    return SchemaNode(name, repetition, None, annotation, definition, 0, -1, (name,), children)


def struct(*children: SchemaNode) -> SchemaNode:
    return group("k", OPTIONAL, 1, "", *children)


def two_levels() -> SchemaNode:
    return struct(group("l", OPTIONAL, 2, "list", Tree().leaf("x", REPEATED, 3)))


def three_levels(name: str = "list", annotation: str | None = "") -> SchemaNode:
    item = Tree().leaf("x", OPTIONAL, 4)
    return struct(group("l", OPTIONAL, 2, "list", group(name, REPEATED, 3, annotation, item)))


def texts(
    annotation: str | None = "map", inner: str | None = "", key: int = REQUIRED
) -> SchemaNode:
    tree = Tree()
    pair = [tree.leaf("key", key, 3), tree.leaf("value", OPTIONAL, 4)]
    return struct(group("m", OPTIONAL, 2, annotation, group("kv", REPEATED, 3, inner, *pair)))


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
    assert shape_of_struct(two_levels())({0: entries}) == expected


@pytest.mark.parametrize("name", ["list", "bag", "element"])
def test_the_inner_name_of_a_list_is_free(name: str) -> None:
    assert shape_of_struct(three_levels(name))({0: [(4, "a"), (3, None)]}) == {"l": ["a", None]}


@pytest.mark.parametrize("annotation", ["map", "map_key_value"])
@pytest.mark.parametrize("inner", ["", "map_key_value"])
def test_maps_of_both_annotations(annotation: str, inner: str) -> None:
    shape = shape_of_struct(texts(annotation, inner))
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
        three_levels(annotation="list"),
        three_levels(annotation=None),
        texts(key=OPTIONAL),
        texts(inner="list"),
        texts(annotation="list"),
        texts(annotation=None),
        struct(Tree().leaf("x", REPEATED, 2)),
        struct(group("g", REPEATED, 2, "", Tree().leaf("x", OPTIONAL, 3))),
        struct(group("l", OPTIONAL, 2, "list", Tree().leaf("x", OPTIONAL, 3))),
        group("k", OPTIONAL, 1, "map", Tree().leaf("x", OPTIONAL, 2)),
        Tree().leaf("x", OPTIONAL, 1),
    ],
)
def test_other_shapes_are_refused(node: SchemaNode) -> None:
    with pytest.raises(PyarrowFallback, match="has an unknown shape"):
        shape_of_struct(node)


def test_fields_of_one_name_are_refused() -> None:
    tree = Tree()
    with pytest.raises(PyarrowFallback, match="several fields of the same name"):
        shape_of_struct(struct(tree.leaf("x", OPTIONAL, 2), tree.leaf("x", OPTIONAL, 2)))


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({0: [(3, "a")], 1: [(2, None)]}, "as many keys as values"),
        ({0: [(3, "a"), (3, "b")], 1: [(4, "x")]}, "as many keys as values"),
        ({0: [(1, None)], 1: [(2, None)]}, "as many keys as values"),
        ({0: [(0, None)], 1: [(4, "x")]}, "is null in one leaf"),
        ({0: [(3, "a"), (2, None)], 1: [(4, "x"), (4, "y")]}, "2 values where it can have one"),
    ],
)
def test_levels_that_contradict_each_other_are_refused(row: Any, message: str) -> None:
    with pytest.raises(PyarrowFallback, match=message):
        shape_of_struct(texts())(row)


def test_a_value_that_is_not_repeated_stands_once() -> None:
    shape = shape_of_struct(struct(Tree().leaf("x", OPTIONAL, 2)))
    assert shape({0: [(2, "a")]}) == {"x": "a"}
    with pytest.raises(PyarrowFallback, match="2 values where it can have one"):
        shape({0: [(2, "a"), (2, "b")]})

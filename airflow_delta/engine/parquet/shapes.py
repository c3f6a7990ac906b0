"""Assemble the JSON object of an action from the rows of its leaves.

Actions consist of values, structs, lists of values, and maps to values. Parquet represents lists and
maps by groups, and writers follow different conventions:

=================================================  =================================
``optional group x (LIST) {``                      a list; inner names may differ
``  repeated group list { optional T element } }``
``optional group x (LIST) { repeated T element }``  a list of an old writer
``optional group x (MAP) {``                       a map
``  repeated group key_value { required K key;``
``  optional V value } }``
=================================================  =================================

A node is null where the definition level is below the node's. Null fields of structs are left out, as
in JSON.

Spec: LogicalTypes.md of Apache Parquet, "Nested Types".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from airflow_delta.engine.parquet.fallback import PyarrowFallback
from airflow_delta.engine.parquet.footer import OPTIONAL, REPEATED, REQUIRED, SchemaNode
from airflow_delta.engine.parquet.leaf_rows import Entry
from airflow_delta.engine.parquet.values import check_type

__all__ = ["Row", "Shape", "shape_of_struct"]

Row: TypeAlias = Mapping[int, list[Entry]]
"""The entries of each leaf in one row, by the index of the leaf."""


Shape: TypeAlias = Callable[[Row], Any]
"""Assembles a value from a row; None where it is null. Raises `PyarrowFallback` where the levels of its
leaves contradict each other."""


def shape_of_struct(node: SchemaNode) -> Shape:
    """The shape of a group that is a struct.

    Raises:
        PyarrowFallback: the group is no struct, or something in it has none of the shapes above.
    """
    if node.repetition == REPEATED or not node.children or node.annotation != "":
        raise _unknown(node)
    fields = {child.name: _shape(child) for child in node.children}
    if len(fields) < len(node.children):
        raise PyarrowFallback(f"{'.'.join(node.path)} has several fields of the same name")
    leaves = [leaf.leaf for leaf in node.leaves()]

    def _value(row: Row) -> Any:
        present = {row[leaf][0][0] >= node.definition for leaf in leaves}
        if len(present) > 1:
            raise PyarrowFallback(f"{'.'.join(node.path)} is null in one leaf, but not in another")
        if present == {False}:
            return None
        values = ((name, shape(row)) for name, shape in fields.items())
        return {name: value for name, value in values if value is not None}

    return _value


def _shape(node: SchemaNode) -> Shape:
    if node.repetition == REPEATED:
        raise _unknown(node)
    if not node.children:
        leaf = _leaf(node)
        return lambda row: _only(row[leaf])[1]
    if node.annotation == "list":
        return _list(node)
    if node.annotation in ("map", "map_key_value"):
        return _map(node)
    return shape_of_struct(node)


def _list(node: SchemaNode) -> Shape:
    repeated = item = _repeated(node)
    if repeated.children:
        # Early writers used these names for items that are structs.
        if len(repeated.children) != 1 or repeated.name in ("array", f"{node.name}_tuple"):
            raise _unknown(node)
        (item,) = repeated.children
        if repeated.annotation != "" or item.repetition == REPEATED:
            raise _unknown(node)
    leaf = _leaf(item)

    def _value(row: Row) -> Any:
        items = _items(row[leaf], node, repeated)
        return None if items is None else [value for _, value in items]

    return _value


def _map(node: SchemaNode) -> Shape:
    repeated = _repeated(node)
    if len(repeated.children) != 2 or repeated.annotation not in ("", "map_key_value"):
        raise _unknown(node)
    key, item = repeated.children
    if key.repetition != REQUIRED or item.repetition not in (REQUIRED, OPTIONAL):
        raise _unknown(node)
    key_leaf, item_leaf = _leaf(key), _leaf(item)

    def _value(row: Row) -> Any:
        keys = _items(row[key_leaf], node, repeated)
        items = _items(row[item_leaf], node, repeated)
        if keys is None or items is None:
            if keys is items:
                return None
        elif len(keys) == len(items):
            return {key: value for (_, key), (_, value) in zip(keys, items, strict=True)}
        raise PyarrowFallback(f"{'.'.join(node.path)} hasn't as many keys as values")

    return _value


def _repeated(node: SchemaNode) -> SchemaNode:
    """The repeated group below a list or a map."""
    if len(node.children) != 1 or node.children[0].repetition != REPEATED:
        raise _unknown(node)
    return node.children[0]


def _leaf(node: SchemaNode) -> int:
    """The index of a leaf whose values can be decoded."""
    if node.children:
        raise _unknown(node)
    check_type(node)
    return node.leaf


def _only(entries: list[Entry]) -> Entry:
    if len(entries) != 1:
        raise PyarrowFallback(f"a row has {len(entries)} values where it can have one")
    return entries[0]


def _items(entries: list[Entry], node: SchemaNode, repeated: SchemaNode) -> list[Entry] | None:
    """The entries of the items of a list; None if the list is null."""
    if any(level < repeated.definition for level, _ in entries):
        level, _ = _only(entries)
        return [] if level >= node.definition else None
    return entries


def _unknown(node: SchemaNode) -> PyarrowFallback:
    return PyarrowFallback(f"{'.'.join(node.path)} has an unknown shape")

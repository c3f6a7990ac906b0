"""Turn the rows of leaves back into the JSON object that an action is.

Four shapes occur in actions: values, structs, lists of values and maps to values. Lists and maps of
Parquet are groups by convention, and writers followed different ones:

=================================================  =================================
``optional group x (LIST) {``                      a list; the inner names are free
``  repeated group list { optional T element } }``
``optional group x (LIST) { repeated T element }``  a list as old writers wrote it
``optional group x (MAP) {``                       a map
``  repeated group key_value { required K key;``
``  optional V value } }``
=================================================  =================================

A null field of a struct is left out, as it would be in JSON. All that is said of definition levels
follows from the schema: a node is there where the level is at least that of the node.

Spec: LogicalTypes.md of Apache Parquet, "Nested Types".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from airflow_delta.engine.parquet.footer import OPTIONAL, REPEATED, REQUIRED, SchemaNode
from airflow_delta.engine.parquet.leaf_rows import Entry
from airflow_delta.engine.parquet.refusals import NotReadHere
from airflow_delta.engine.parquet.values import check_type

__all__ = ["Row", "Shape", "struct_of"]

Row: TypeAlias = Mapping[int, list[Entry]]
"""The entries of each leaf in one row, by the number of the leaf."""


Shape: TypeAlias = Callable[[Row], Any]
"""Puts a value together from a row; None where it is null. Raises `NotReadHere` where the levels of
its leaves contradict each other."""


def struct_of(node: SchemaNode) -> Shape:
    """The shape of a group that is a struct.

    Raises:
        NotReadHere: it isn't one, or something in it has another shape than those of the module.
    """
    if node.repetition == REPEATED or not node.children or node.meaning != "":
        raise _unknown(node)
    fields = {child.name: _shape(child) for child in node.children}
    if len(fields) < len(node.children):
        raise NotReadHere(f"{'.'.join(node.path)} has several fields of a name")
    leaves = [leaf.leaf for leaf in node.leaves()]

    def _value(row: Row) -> Any:
        there = {row[leaf][0][0] >= node.definition for leaf in leaves}
        if len(there) > 1:
            raise NotReadHere(f"{'.'.join(node.path)} is null, and isn't")
        if there == {False}:
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
    if node.meaning == "list":
        return _list(node)
    if node.meaning in ("map", "map_key_value"):
        return _map(node)
    return struct_of(node)


def _list(node: SchemaNode) -> Shape:
    repeated = item = _repeated(node)
    if repeated.children:
        # By these names early writers called the items themselves, and these are structs then.
        if len(repeated.children) != 1 or repeated.name in ("array", f"{node.name}_tuple"):
            raise _unknown(node)
        (item,) = repeated.children
        if repeated.meaning != "" or item.repetition == REPEATED:
            raise _unknown(node)
    leaf = _leaf(item)

    def _value(row: Row) -> Any:
        items = _items(row[leaf], node, repeated)
        return None if items is None else [value for _, value in items]

    return _value


def _map(node: SchemaNode) -> Shape:
    repeated = _repeated(node)
    if len(repeated.children) != 2 or repeated.meaning not in ("", "map_key_value"):
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
        raise NotReadHere(f"{'.'.join(node.path)} has other keys than values")

    return _value


def _repeated(node: SchemaNode) -> SchemaNode:
    """The one part of a list or a map, which is repeated."""
    if len(node.children) != 1 or node.children[0].repetition != REPEATED:
        raise _unknown(node)
    return node.children[0]


def _leaf(node: SchemaNode) -> int:
    """The number of a leaf whose values can be decoded."""
    if node.children:
        raise _unknown(node)
    check_type(node)
    return node.leaf


def _only(entries: list[Entry]) -> Entry:
    if len(entries) != 1:
        raise NotReadHere(f"a value that isn't repeated stands {len(entries)} times in a row")
    return entries[0]


def _items(entries: list[Entry], node: SchemaNode, repeated: SchemaNode) -> list[Entry] | None:
    """The entries of a list that stand for its items; None where the list is null."""
    if any(level < repeated.definition for level, _ in entries):
        level, _ = _only(entries)
        return [] if level >= node.definition else None
    return entries


def _unknown(node: SchemaNode) -> NotReadHere:
    return NotReadHere(f"{'.'.join(node.path)} has an unknown shape")

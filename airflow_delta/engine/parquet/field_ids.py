"""Add field ids to the columns of a Parquet file, in its footer.

The data stay where they are: all positions in a footer are those of bytes before it.

Spec: parquet.thrift of Apache Parquet, ``SchemaElement``.
"""

from __future__ import annotations

from collections.abc import Mapping

from airflow_delta.engine.parquet.fallback import PyarrowFallback
from airflow_delta.engine.parquet.footer_fields import MAGIC
from airflow_delta.engine.parquet.stored_file import footer_start
from airflow_delta.engine.parquet.thrift import I32, STRUCT, ThriftStruct, decode, encode

__all__ = ["FOOTER_END", "add_field_ids", "footer_start"]

FOOTER_END = 8
"""The bytes after a footer: its length, and the magic number."""

_SCHEMA = 2
_NAME, _NUM_CHILDREN, _FIELD_ID = 4, 5, 9


def add_field_ids(end: bytes, ids: Mapping[tuple[str, ...], int]) -> bytes:
    """Add field ids to a footer.

    Args:
        end: the end of a file, from the start of its footer on.
        ids: the ids, by the names of the nodes from the top down, as in ``("tags", "list", "element")``.

    Returns:
        The new end of the file.

    Raises:
        PyarrowFallback: the footer is damaged, or lacks one of the columns.
    """
    footer, length = decode(end)
    elements = footer.list_of(_SCHEMA, STRUCT)
    if length != len(end) - FOOTER_END or not elements:
        raise PyarrowFallback("the footer is damaged")
    left = dict(ids)
    # The path of each open node, and how many of its children are still to come.
    stack: list[tuple[tuple[str, ...], int]] = [((), elements[0].i32(_NUM_CHILDREN) or 0)]
    for element in elements[1:]:
        while stack and not stack[-1][1]:
            stack.pop()
        if not stack:
            raise PyarrowFallback("the schema has more nodes than its root")
        parent, children = stack.pop()
        stack.append((parent, children - 1))
        path = (*parent, element.text(_NAME) or "")
        number = left.pop(path, None)
        if number is not None:
            fields = {**element.fields, _FIELD_ID: (I32, number)}
            element.fields = dict(sorted(fields.items()))
        stack.append((path, element.i32(_NUM_CHILDREN) or 0))
    if left:
        raise PyarrowFallback(f"the schema has no {'.'.join(next(iter(left)))}")
    data = encode(ThriftStruct(footer.fields))
    return data + len(data).to_bytes(4, "little") + MAGIC

"""Read the non-file actions of a checkpoint without importing pyarrow.

Opening a table needs its protocol, its metadata and the few other non-file actions, a handful of rows
among millions. `read_non_file_rows` finds and decodes them: `ranges` reads the footer, `footer` lists
the row groups, `leaf_rows` decodes the rows of a column, and `shapes` assembles the actions.

It returns what ``ActionFile.non_file_actions`` reads with pyarrow, or raises `PyarrowFallback`.

Spec: PROTOCOL.md, "Checkpoint Schema".
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, BinaryIO

from airflow_delta.engine.parquet.fallback import PyarrowFallback
from airflow_delta.engine.parquet.footer import OPTIONAL, RowGroup, SchemaNode, read_footer
from airflow_delta.engine.parquet.leaf_rows import LeafRows
from airflow_delta.engine.parquet.ranges import ParquetBytes
from airflow_delta.engine.parquet.shapes import shape_of_struct

__all__ = ["read_non_file_rows"]

# With more rows, pyarrow is faster.
_MAX_ROWS = 10_000


def read_non_file_rows(
    source: BinaryIO, *, size: int, kinds: Mapping[str, str], single: Collection[str] = ()
) -> list[tuple[str, dict[str, Any]]]:
    """Read the rows in which one of some columns isn't null.

    Args:
        source: the file; it needs ``seek`` and ``read``. Only a few ranges of it are read.
        size: its size in bytes.
        kinds: the names of struct columns, each with the name of a required field of the struct. A row
            group in which that field is null in all rows, by the footer, isn't read. A column that the
            file lacks has no rows.
        single: the columns that have at most one row in a valid file.

    Returns:
        The name of the column, and the struct as a JSON object without its null fields. The order is
        that of the row groups, inside a row group that of the kinds, then that of the rows.

    Raises:
        PyarrowFallback: the file is damaged, uses an unsupported part of the format, has too many such
            rows, or has two rows of a column in ``single``. The second of these isn't decoded.
    """
    content = ParquetBytes(source, size=size)
    footer = read_footer(content.footer)
    columns = [
        _Column(node, required, max_rows=1 if node.name in single else None)
        for node, required in _nodes(footer.root, kinds)
    ]
    wanted = [
        (group, column)
        for group in footer.row_groups
        for column in columns
        if column.may_be_in(group)
    ]
    ranges = [
        (chunk.start, chunk.length)
        for group, column in wanted
        for chunk in map(group.chunk, column.leaves)
    ]
    chunks = iter(content.read(ranges))
    found: list[tuple[str, dict[str, Any]]] = []
    for group, column in wanted:
        data = [next(chunks) for _ in column.leaves]
        found.extend((column.name, value) for value in column.values(group, data))
        if len(found) > _MAX_ROWS:
            raise PyarrowFallback(f"there are more than {_MAX_ROWS} rows")
    return found


def _nodes(root: SchemaNode, kinds: Mapping[str, str]) -> Iterator[tuple[SchemaNode, SchemaNode]]:
    """The columns that the file has, each with its required field."""
    for kind, name in kinds.items():
        node = root.child(kind)
        if node is None:
            continue
        required = node.child(name)
        if required is None or required.children or required.repetitions:
            raise PyarrowFallback(f"the column {kind} lacks {name}")
        yield node, required


class _Column:
    """A column of structs, most of them null."""

    def __init__(self, node: SchemaNode, required: SchemaNode, *, max_rows: int | None) -> None:
        if node.repetition != OPTIONAL:
            raise PyarrowFallback(f"the column {node.name} can't be null")
        self.name = node.name
        self.leaves = tuple(node.leaves())
        self._required = required
        self._node = node
        # How many more rows the remaining row groups may have together; None for any number.
        self._rows_left = max_rows

    def may_be_in(self, group: RowGroup) -> bool:
        """Whether a row group may have rows of the column, by the footer."""
        return group.num_rows > 0 and group.chunk(self._required).null_count != group.num_rows

    def values(self, group: RowGroup, data: list[bytes]) -> Iterator[dict[str, Any]]:
        """Decode the structs that aren't null, in the order of the rows.

        Args:
            group: the row group.
            data: the column chunks of the leaves.
        """
        chunks = dict(zip((leaf.leaf for leaf in self.leaves), data, strict=True))

        def _read_leaf(leaf: SchemaNode, *, max_rows: int | None = None) -> LeafRows:
            chunk = group.chunk(leaf)
            return LeafRows(chunks[leaf.leaf], chunk, leaf, group.num_rows, max_rows=max_rows)

        required = _read_leaf(self._required, max_rows=self._rows_left)
        if not required.rows:
            return
        if self._rows_left is not None:
            self._rows_left -= len(required.rows)
        # A struct that is null in all rows may have any shape.
        shape = shape_of_struct(self._node)
        leaves = {leaf.leaf: _read_leaf(leaf) for leaf in self.leaves}
        if any(leaf.rows != required.rows for leaf in leaves.values()):
            raise PyarrowFallback(f"the fields of {self.name} have values in different rows")
        for number in range(len(required.rows)):
            yield shape({leaf: rows.entries[number] for leaf, rows in leaves.items()})

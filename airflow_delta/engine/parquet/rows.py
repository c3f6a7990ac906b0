"""Read the rows of a checkpoint that hold non-file actions, without importing pyarrow.

Opening a table needs its protocol, its metadata and the few other actions that aren't about files.
In a checkpoint these are a handful of rows among millions, and pyarrow takes longer to be imported
than this module takes to read them: see `leaf_rows` for why it needn't look at the others.

What it reads is what ``ActionFile.non_file_actions`` reads with pyarrow, or nothing: whatever is not
certainly understood is refused with `NotReadHere`, and pyarrow decides.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, BinaryIO

from airflow_delta.engine.parquet.footer import OPTIONAL, RowGroup, SchemaNode, read_footer
from airflow_delta.engine.parquet.leaf_rows import LeafRows
from airflow_delta.engine.parquet.ranges import ParquetBytes
from airflow_delta.engine.parquet.refusals import NotReadHere
from airflow_delta.engine.parquet.shapes import struct_of

__all__ = ["read_non_file_rows"]

# With more, pyarrow is faster.
_MOST_ROWS = 10_000


def read_non_file_rows(
    source: BinaryIO, *, size: int, kinds: Mapping[str, str], single: Collection[str] = ()
) -> list[tuple[str, dict[str, Any]]]:
    """The rows in which one of some columns isn't null.

    Args:
        source: the file; it needs ``seek`` and ``read``. A few ranges of it are read.
        size: its size in bytes.
        kinds: names of columns that are structs, and for each the name of a field that is never null
            in it. A row group is passed over where the footer says that this field is null in all
            rows. A column that the file lacks holds nothing.
        single: those that hold one row at most, in a file that is as it should be.

    Returns:
        The column's name and the struct as a JSON object: null fields left out, maps as ``dict``. In
        the order of the row groups; in one of them in the order of the kinds, then of the rows.

    Raises:
        NotReadHere: the file is damaged, not to be read here, or has very many such rows; or two of a
            column that holds one, of which the second isn't decoded.
    """
    content = ParquetBytes(source, size=size)
    footer = read_footer(content.footer)
    columns = [
        _Column(node, witness, most=1 if node.name in single else None)
        for node, witness in _nodes(footer.root, kinds)
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
        if len(found) > _MOST_ROWS:
            raise NotReadHere(f"there are more than {_MOST_ROWS} rows")
    return found


def _nodes(root: SchemaNode, kinds: Mapping[str, str]) -> Iterator[tuple[SchemaNode, SchemaNode]]:
    """The columns that the file has, each with its witness."""
    for kind, name in kinds.items():
        node = root.child(kind)
        if node is None:
            continue
        witness = node.child(name)
        if witness is None or witness.children or witness.repetitions:
            raise NotReadHere(f"the column {kind} lacks {name}")
        yield node, witness


class _Column:
    """A column of structs, most of them null."""

    def __init__(self, node: SchemaNode, witness: SchemaNode, *, most: int | None) -> None:
        if node.repetition != OPTIONAL:
            raise NotReadHere(f"the column {node.name} can't be null")
        self.name = node.name
        self.leaves = tuple(node.leaves())
        self._witness = witness
        self._node = node
        # How many rows there may still be, of all row groups together; None for any number.
        self._left = most

    def may_be_in(self, group: RowGroup) -> bool:
        """Whether the footer leaves open that there are rows in a row group."""
        return group.num_rows > 0 and group.chunk(self._witness).null_count != group.num_rows

    def values(self, group: RowGroup, data: list[bytes]) -> Iterator[dict[str, Any]]:
        """The structs that aren't null, in the order of the rows.

        Args:
            group: the row group.
            data: the column chunks of the leaves.
        """
        chunks = dict(zip((leaf.leaf for leaf in self.leaves), data, strict=True))

        def _rows_of(leaf: SchemaNode, *, most: int | None = None) -> LeafRows:
            return LeafRows(chunks[leaf.leaf], group.chunk(leaf), leaf, group.num_rows, most=most)

        witness = _rows_of(self._witness, most=self._left)
        if not witness.rows:
            return
        if self._left is not None:
            self._left -= len(witness.rows)
        # Only now must everything in the struct be of a known shape.
        shape = struct_of(self._node)
        leaves = {leaf.leaf: _rows_of(leaf) for leaf in self.leaves}
        if any(leaf.rows != witness.rows for leaf in leaves.values()):
            raise NotReadHere(f"the fields of {self.name} are there in different rows")
        for number in range(len(witness.rows)):
            yield shape({leaf: rows.entries[number] for leaf, rows in leaves.items()})

"""Read a Parquet footer: the tree of columns, and the position of each column chunk.

A footer is a Thrift struct ``FileMetaData``. It lists the nodes of the schema depth first. The leaves
among them, in this order, are the columns of every row group. The nodes above a leaf determine how its
values are stored: each optional or repeated node adds a *definition level*, and each repeated node adds
a *repetition level*.

Spec: parquet.thrift of Apache Parquet.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeVar

from airflow_delta.engine.parquet.fallback import PyarrowFallback
from airflow_delta.engine.parquet.thrift import BINARY, I8, STRUCT, ThriftStruct, decode

__all__ = [
    "BOOLEAN",
    "BYTE_ARRAY",
    "INT32",
    "INT64",
    "OPTIONAL",
    "REPEATED",
    "REQUIRED",
    "ColumnChunk",
    "Footer",
    "RowGroup",
    "SchemaNode",
    "read_footer",
]

BOOLEAN, INT32, INT64, BYTE_ARRAY = 0, 1, 2, 6
"""The physical types that occur in non-file actions. Parquet has more."""

REQUIRED, OPTIONAL, REPEATED = range(3)

# Annotations by field number of the union LogicalType, and by value of the enum ConvertedType.
_LOGICAL = {1: "string", 2: "map", 3: "list"}
_CONVERTED = {0: "string", 1: "map", 2: "map_key_value", 3: "list", 17: "int32", 18: "int64"}
_INTEGER = 10

# Fields of an encrypted file or chunk, and of a chunk in another file.
_UNSUPPORTED_IN_FILE = (8, 9)
_UNSUPPORTED_IN_CHUNK = (1, 8, 9)

_DEEPEST = 32

_Value = TypeVar("_Value")


class SchemaNode(NamedTuple):
    """A node of the schema: a column, or a part of one.

    Attributes:
        name: its name.
        repetition: `REQUIRED`, `OPTIONAL` or `REPEATED`.
        physical: the physical type of a leaf; None for a group.
        annotation: the logical type: ``"string"``, ``"int32"``, ``"int64"``, ``"list"``, ``"map"`` or
            ``"map_key_value"``. Empty if the node has none; None if it has an unknown one.
        definition: the lowest definition level at which the node isn't null.
        repetitions: the number of repeated nodes from the top down to this one, itself included.
        leaf: the index of a leaf among the leaves; -1 for a group.
        path: the names from the top down to this node.
        children: the nodes below a group.
    """

    name: str
    repetition: int
    physical: int | None
    annotation: str | None
    definition: int
    repetitions: int
    leaf: int
    path: tuple[str, ...]
    children: tuple[SchemaNode, ...]

    def child(self, name: str) -> SchemaNode | None:
        """The child of a name; None if there is none.

        Raises:
            PyarrowFallback: several children have the name.
        """
        found = [node for node in self.children if node.name == name]
        if len(found) > 1:
            raise PyarrowFallback(f"{len(found)} columns are named {'.'.join((*self.path, name))}")
        return found[0] if found else None

    def leaves(self) -> Iterator[SchemaNode]:
        """The leaves at or below the node."""
        if not self.children:
            yield self
        for node in self.children:
            yield from node.leaves()


class ColumnChunk(NamedTuple):
    """The values of one leaf in one row group.

    Attributes:
        codec: the codec of its pages, by its number in the format.
        num_values: the number of its values, nulls included.
        start: the position of its first page in the file, in bytes.
        length: the size of its pages with their headers, in bytes.
        null_count: the number of its nulls; None if the footer doesn't contain it.
    """

    codec: int
    num_values: int
    start: int
    length: int
    null_count: int | None


class RowGroup(NamedTuple):
    """A row group of a file.

    Attributes:
        num_rows: the number of its rows.
        chunks: its ``ColumnChunk`` structs, one for each leaf. `chunk` interprets one of them: a file
            has many more than a reader wants.
    """

    num_rows: int
    chunks: Sequence[ThriftStruct]

    def chunk(self, leaf: SchemaNode) -> ColumnChunk:
        """The chunk of a leaf.

        Raises:
            PyarrowFallback: the chunk belongs to another leaf, is encrypted, is in another file, or
                contradicts itself.
        """
        given = self.chunks[leaf.leaf]
        _check_supported(given, _UNSUPPORTED_IN_CHUNK)
        metadata = _require(given.struct(3), "meta_data")
        path = metadata.list_of(3, BINARY)
        if metadata.i32(1) != leaf.physical or path != [name.encode() for name in leaf.path]:
            raise PyarrowFallback(f"the chunk of {'.'.join(leaf.path)} is of another leaf")
        pages = _require(metadata.i64(9), "data_page_offset")
        dictionary = metadata.i64(11)
        # Some writers store 0 where there is no dictionary.
        start = dictionary if dictionary and 0 < dictionary < pages else pages
        statistics = metadata.struct(12)
        nulls = None if statistics is None else statistics.i64(3)
        values = _require_count(metadata.i64(5), "num_values")
        if nulls is not None and not 0 <= nulls <= values:
            raise PyarrowFallback(f"{nulls} of {values} values are null")
        return ColumnChunk(
            codec=_require(metadata.i32(4), "codec"),
            num_values=values,
            start=start,
            length=_require_count(metadata.i64(7), "total_compressed_size"),
            null_count=nulls,
        )


class Footer(NamedTuple):
    """A footer.

    Attributes:
        root: the top of the schema; its children are the columns.
        num_leaves: the number of leaves below it.
        row_groups: the row groups, in the order of the file.
    """

    root: SchemaNode
    num_leaves: int
    row_groups: tuple[RowGroup, ...]


def read_footer(data: bytes) -> Footer:
    """Read a footer.

    Args:
        data: the bytes of the struct, without what follows it in a file.

    Raises:
        PyarrowFallback: the footer is damaged, or the file is encrypted.
    """
    given, end = decode(data)
    if end != len(data):
        raise PyarrowFallback(f"the footer takes {end} bytes, expected {len(data)}")
    _check_supported(given, _UNSUPPORTED_IN_FILE)
    tree = _Tree(_require(given.list_of(2, STRUCT), "schema"))
    groups = tuple(
        _row_group(group, tree.num_leaves)
        for group in _require(given.list_of(4, STRUCT), "row_groups")
    )
    if sum(group.num_rows for group in groups) != given.i64(3):
        raise PyarrowFallback("the row groups don't have as many rows as the file")
    return Footer(tree.root, tree.num_leaves, groups)


def _row_group(given: ThriftStruct, num_leaves: int) -> RowGroup:
    chunks = _require(given.list_of(1, STRUCT), "columns")
    if len(chunks) != num_leaves:
        raise PyarrowFallback(f"a row group has {len(chunks)} chunks, expected {num_leaves}")
    return RowGroup(_require_count(given.i64(3), "num_rows"), chunks)


class _Tree:
    """Builds the tree of the schema from its nodes, which the footer lists depth first."""

    def __init__(self, elements: list[ThriftStruct]) -> None:
        self._elements = iter(elements)
        self.num_leaves = 0
        # The top is no column, so it adds no levels and no name to paths, whatever its fields contain.
        top = self._next()
        self.root = SchemaNode(
            name="",
            repetition=REQUIRED,
            physical=None,
            annotation="",
            definition=0,
            repetitions=0,
            leaf=-1,
            path=(),
            children=self._children(top, (), 0, 0),
        )
        if next(self._elements, None) is not None:
            raise PyarrowFallback("the schema has nodes outside of its tree")

    def _children(
        self, group: ThriftStruct, path: tuple[str, ...], definition: int, repetitions: int
    ) -> tuple[SchemaNode, ...]:
        count = group.i32(5)
        if not count or count < 0 or len(path) > _DEEPEST:
            raise PyarrowFallback(
                f"the group {'.'.join(path)!r} has {count} children, or is too deep"
            )
        return tuple(self._node(path, definition, repetitions) for _ in range(count))

    def _node(self, above: tuple[str, ...], definition: int, repetitions: int) -> SchemaNode:
        given = self._next()
        name = _require(given.text(4), "name")
        path = (*above, name)
        repetition = given.i32(3)
        if repetition not in (REQUIRED, OPTIONAL, REPEATED):
            raise PyarrowFallback(f"{'.'.join(path)} has the repetition {repetition}")
        definition += repetition != REQUIRED
        repetitions += repetition == REPEATED
        physical, leaf = given.i32(1), -1
        children: tuple[SchemaNode, ...] = ()
        if physical is None:
            children = self._children(given, path, definition, repetitions)
        elif given.i32(5):
            raise PyarrowFallback(f"{'.'.join(path)} has a physical type and children")
        else:
            leaf = self.num_leaves
            self.num_leaves += 1
        return SchemaNode(
            name,
            repetition,
            physical,
            _annotation(given),
            definition,
            repetitions,
            leaf,
            path,
            children,
        )

    def _next(self) -> ThriftStruct:
        element = next(self._elements, None)
        if element is None:
            raise PyarrowFallback("the schema has fewer nodes than its groups have children")
        return element


def _annotation(element: ThriftStruct) -> str | None:
    """The annotation of a node, which may have an old and a new one; None if they differ."""
    found = set()
    converted = element.i32(6)
    if converted is not None:
        found.add(_CONVERTED.get(converted))
    logical = element.struct(10)
    if logical is not None:
        found.add(_logical(logical))
    if not found:
        return ""
    return found.pop() if len(found) == 1 else None


def _logical(union: ThriftStruct) -> str | None:
    if len(union.fields) != 1:
        return None
    (number,) = union.fields
    parameters = _require(union.struct(number), "logicalType")
    if number == _INTEGER and parameters.flag(2):
        return {(I8, 32): "int32", (I8, 64): "int64"}.get(parameters.fields.get(1, (I8, 0)))
    return _LOGICAL.get(number)


def _check_supported(given: ThriftStruct, unsupported: tuple[int, ...]) -> None:
    if any(number in given.fields for number in unsupported):
        raise PyarrowFallback("the file is encrypted, or refers to another one")


def _require(value: _Value | None, name: str) -> _Value:
    if value is None:
        raise PyarrowFallback(f"{name} is missing in the footer")
    return value


def _require_count(value: int | None, name: str) -> int:
    if value is None or value < 0:
        raise PyarrowFallback(f"{name} is {value} in the footer")
    return value

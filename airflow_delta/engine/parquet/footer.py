"""What a Parquet footer tells a reader: the tree of columns, and where the chunks of each leaf lie.

A footer is a Thrift struct ``FileMetaData``. It lists the schema's nodes depth first; the leaves
among them, in this order, are the columns of every row group. How often a value of a leaf may be
missing or repeated follows from the nodes above it: each optional or repeated one adds a *definition
level*, each repeated one a *repetition level*.

Column chunks are looked at when asked for: a file has many more than a reader wants.

Spec: parquet.thrift of Apache Parquet.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeVar

from airflow_delta.engine.parquet.refusals import NotReadHere
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
"""Physical types; there are others."""

REQUIRED, OPTIONAL, REPEATED = range(3)

# By the numbers of the fields of the union LogicalType and of the enum ConvertedType.
_LOGICAL = {1: "string", 2: "map", 3: "list"}
_CONVERTED = {0: "string", 1: "map", 2: "map_key_value", 3: "list", 17: "int32", 18: "int64"}
_INTEGER = 10

# Fields that tell of encryption, or of a chunk in another file.
_NOT_PLAIN_FILE = (8, 9)
_NOT_PLAIN_CHUNK = (1, 8, 9)

_DEEPEST = 32

_Value = TypeVar("_Value")


class SchemaNode(NamedTuple):
    """A column, or a part of one.

    Attributes:
        name: its name.
        repetition: `REQUIRED`, `OPTIONAL` or `REPEATED`.
        physical: the physical type of a leaf, None of a group.
        meaning: ``"string"``, ``"int32"``, ``"int64"``, ``"list"``, ``"map"`` or ``"map_key_value"``;
            empty where none is said; None where one is said that isn't known here.
        definition: the definition level at which it is there.
        repetitions: how many repeated nodes there are from the top down to it.
        leaf: the number of a leaf among the leaves, -1 for a group.
        path: the names from the top.
        children: the parts of a group.
    """

    name: str
    repetition: int
    physical: int | None
    meaning: str | None
    definition: int
    repetitions: int
    leaf: int
    path: tuple[str, ...]
    children: tuple[SchemaNode, ...]

    def child(self, name: str) -> SchemaNode | None:
        """The part of a name.

        Raises:
            NotReadHere: there are several.
        """
        found = [node for node in self.children if node.name == name]
        if len(found) > 1:
            raise NotReadHere(f"{'.'.join((*self.path, name))} is there {len(found)} times")
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
        codec: how pages are compressed, as the format numbers codecs.
        num_values: how many values it has, those that are null included.
        start: the position of its first page in the file, in bytes.
        length: the size of its pages together with their headers, in bytes.
        null_count: how many values are null; None where the footer doesn't tell.
    """

    codec: int
    num_values: int
    start: int
    length: int
    null_count: int | None


class RowGroup(NamedTuple):
    """Some rows of a file.

    Attributes:
        num_rows: how many.
        chunks: its column chunks as they stand in the footer, one for each leaf.
    """

    num_rows: int
    chunks: Sequence[ThriftStruct]

    def chunk(self, leaf: SchemaNode) -> ColumnChunk:
        """The chunk of a leaf.

        Raises:
            NotReadHere: it is of another leaf, encrypted, in another file, or makes no sense.
        """
        given = self.chunks[leaf.leaf]
        _check_plain(given, _NOT_PLAIN_CHUNK)
        about = _there(given.struct(3), "meta_data")
        path = about.list_of(3, BINARY)
        if about.i32(1) != leaf.physical or path != [name.encode() for name in leaf.path]:
            raise NotReadHere(f"the chunk of {'.'.join(leaf.path)} is of another leaf")
        pages = _there(about.i64(9), "data_page_offset")
        dictionary = about.i64(11)
        # Some writers put 0 where there is no dictionary.
        start = dictionary if dictionary and 0 < dictionary < pages else pages
        statistics = about.struct(12)
        nulls = None if statistics is None else statistics.i64(3)
        values = _count(about.i64(5), "num_values")
        if nulls is not None and not 0 <= nulls <= values:
            raise NotReadHere(f"{nulls} of {values} values are null")
        return ColumnChunk(
            codec=_there(about.i32(4), "codec"),
            num_values=values,
            start=start,
            length=_count(about.i64(7), "total_compressed_size"),
            null_count=nulls,
        )


class Footer(NamedTuple):
    """A footer.

    Attributes:
        root: the top of the schema, whose children are the columns.
        num_leaves: how many leaves there are below it.
        row_groups: the row groups.
    """

    root: SchemaNode
    num_leaves: int
    row_groups: tuple[RowGroup, ...]


def read_footer(data: bytes) -> Footer:
    """Read a footer.

    Args:
        data: the bytes of the struct, without what follows it in a file.

    Raises:
        NotReadHere: it is damaged, or the file is encrypted.
    """
    given, end = decode(data)
    if end != len(data):
        raise NotReadHere(f"the footer takes {end} bytes, expected {len(data)}")
    _check_plain(given, _NOT_PLAIN_FILE)
    tree = _Tree(_there(given.list_of(2, STRUCT), "schema"))
    groups = tuple(
        _row_group(group, tree.num_leaves)
        for group in _there(given.list_of(4, STRUCT), "row_groups")
    )
    if sum(group.num_rows for group in groups) != given.i64(3):
        raise NotReadHere("the row groups don't have as many rows as the file")
    return Footer(tree.root, tree.num_leaves, groups)


def _row_group(given: ThriftStruct, num_leaves: int) -> RowGroup:
    chunks = _there(given.list_of(1, STRUCT), "columns")
    if len(chunks) != num_leaves:
        raise NotReadHere(f"a row group has {len(chunks)} chunks, expected {num_leaves}")
    return RowGroup(_count(given.i64(3), "num_rows"), chunks)


class _Tree:
    """The schema, from its nodes depth first."""

    def __init__(self, elements: list[ThriftStruct]) -> None:
        self._elements = iter(elements)
        self.num_leaves = 0
        # Whatever it says of itself, the top is no column: it adds no levels, and nothing to paths.
        top = self._next()
        self.root = SchemaNode(
            name="",
            repetition=REQUIRED,
            physical=None,
            meaning="",
            definition=0,
            repetitions=0,
            leaf=-1,
            path=(),
            children=self._children(top, (), 0, 0),
        )
        if next(self._elements, None) is not None:
            raise NotReadHere("the schema has nodes outside of its tree")

    def _children(
        self, group: ThriftStruct, path: tuple[str, ...], definition: int, repetitions: int
    ) -> tuple[SchemaNode, ...]:
        count = group.i32(5)
        if not count or count < 0 or len(path) > _DEEPEST:
            raise NotReadHere(f"the group {'.'.join(path)!r} has {count} children, or is too deep")
        return tuple(self._node(path, definition, repetitions) for _ in range(count))

    def _node(self, above: tuple[str, ...], definition: int, repetitions: int) -> SchemaNode:
        given = self._next()
        name = _there(given.text(4), "name")
        path = (*above, name)
        repetition = given.i32(3)
        if repetition not in (REQUIRED, OPTIONAL, REPEATED):
            raise NotReadHere(f"{'.'.join(path)} has the repetition {repetition}")
        definition += repetition != REQUIRED
        repetitions += repetition == REPEATED
        physical, leaf = given.i32(1), -1
        children: tuple[SchemaNode, ...] = ()
        if physical is None:
            children = self._children(given, path, definition, repetitions)
        elif given.i32(5):
            raise NotReadHere(f"{'.'.join(path)} is a leaf with children")
        else:
            leaf = self.num_leaves
            self.num_leaves += 1
        return SchemaNode(
            name,
            repetition,
            physical,
            _meaning(given),
            definition,
            repetitions,
            leaf,
            path,
            children,
        )

    def _next(self) -> ThriftStruct:
        element = next(self._elements, None)
        if element is None:
            raise NotReadHere("the schema has fewer nodes than its groups have children")
        return element


def _meaning(element: ThriftStruct) -> str | None:
    """What a node's annotations say, the old one and the new one; where they differ: None."""
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
    parameters = _there(union.struct(number), "logicalType")
    if number == _INTEGER and parameters.flag(2):
        return {(I8, 32): "int32", (I8, 64): "int64"}.get(parameters.fields.get(1, (I8, 0)))
    return _LOGICAL.get(number)


def _check_plain(given: ThriftStruct, unwanted: tuple[int, ...]) -> None:
    if any(number in given.fields for number in unwanted):
        raise NotReadHere("the file is encrypted, or refers to another one")


def _there(value: _Value | None, name: str) -> _Value:
    if value is None:
        raise NotReadHere(f"{name} is missing in the footer")
    return value


def _count(value: int | None, name: str) -> int:
    if value is None or value < 0:
        raise NotReadHere(f"{name} is {value} in the footer")
    return value

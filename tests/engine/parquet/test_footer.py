from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_delta.engine.parquet import PyarrowFallback
from airflow_delta.engine.parquet.footer import Footer, read_footer
from airflow_delta.engine.parquet.thrift import (
    BINARY,
    FALSE,
    I8,
    I32,
    I64,
    LIST,
    STRUCT,
    TRUE,
    ThriftList,
    ThriftStruct,
    encode,
)
from tests.engine.parquet.files import SCHEMA, footer_of, many_rows, stored

DATA = stored(many_rows(), row_group_size=25, use_dictionary=["metaData.id"])


def footer(change: Callable[[ThriftStruct], Any] = lambda given: None) -> Footer:
    given = footer_of(DATA)
    change(given)
    return read_footer(encode(given))


def schema_of(*elements: dict[int, tuple[int, Any]]) -> Footer:
    """A footer without row groups, of a schema with such nodes."""
    top = {4: (BINARY, b"schema"), 5: (I32, 1)}
    nodes = [ThriftStruct(element) for element in (top, *elements)]
    return read_footer(
        encode(
            ThriftStruct(
                {
                    2: (LIST, ThriftList(STRUCT, nodes)),
                    3: (I64, 0),
                    4: (LIST, ThriftList(STRUCT, [])),
                }
            )
        )
    )


def test_leaves_and_chunks_are_those_that_pyarrow_finds() -> None:
    ours, theirs = footer(), pq.read_metadata(io.BytesIO(DATA))
    leaves = list(ours.root.leaves())
    assert len(leaves) == ours.num_leaves == theirs.num_columns
    for number, leaf in enumerate(leaves):
        column = theirs.schema.column(number)
        assert leaf.leaf == number
        assert ".".join(leaf.path) == column.path
        assert leaf.definition == column.max_definition_level
        assert leaf.repetitions == column.max_repetition_level
        for group in range(theirs.num_row_groups):
            chunk = ours.row_groups[group].chunk(leaf)
            expected = theirs.row_group(group).column(number)
            first_page = expected.dictionary_page_offset or expected.data_page_offset
            assert chunk.start == first_page
            assert chunk.length == expected.total_compressed_size
            assert chunk.num_values == expected.num_values
            assert chunk.null_count == expected.statistics.null_count
    assert [group.num_rows for group in ours.row_groups] == [
        theirs.row_group(group).num_rows for group in range(theirs.num_row_groups)
    ]


def test_a_node_has_its_children_by_name() -> None:
    root = footer().root
    assert [child.name for child in root.children] == SCHEMA.names
    metadata = root.child("metaData")
    assert metadata is not None
    assert metadata.child("id") == metadata.children[0]
    assert metadata.child("other") is None


@pytest.mark.parametrize(
    ("annotations", "annotation"),
    [
        ({}, ""),
        ({6: (I32, 0)}, "string"),
        ({10: (STRUCT, ThriftStruct({1: (STRUCT, ThriftStruct())}))}, "string"),
        ({6: (I32, 0), 10: (STRUCT, ThriftStruct({1: (STRUCT, ThriftStruct())}))}, "string"),
        ({6: (I32, 0), 10: (STRUCT, ThriftStruct({4: (STRUCT, ThriftStruct())}))}, None),
        ({6: (I32, 17), 10: (STRUCT, ThriftStruct({1: (STRUCT, ThriftStruct())}))}, None),
        ({6: (I32, 17)}, "int32"),
        ({6: (I32, 18)}, "int64"),
        ({6: (I32, 99)}, None),
        ({10: (STRUCT, ThriftStruct())}, None),
        ({10: (STRUCT, ThriftStruct({99: (STRUCT, ThriftStruct())}))}, None),
        (
            {
                10: (
                    STRUCT,
                    ThriftStruct({10: (STRUCT, ThriftStruct({1: (I8, 64), 2: (TRUE, True)}))}),
                )
            },
            "int64",
        ),
        (
            {
                10: (
                    STRUCT,
                    ThriftStruct({10: (STRUCT, ThriftStruct({1: (I8, 32), 2: (FALSE, False)}))}),
                )
            },
            None,
        ),
        (
            {
                10: (
                    STRUCT,
                    ThriftStruct({10: (STRUCT, ThriftStruct({1: (I8, 8), 2: (TRUE, True)}))}),
                )
            },
            None,
        ),
    ],
)
def test_annotations_say_what_a_leaf_means(annotations: Any, annotation: str | None) -> None:
    # A new annotation and an old one may both be there, and must not differ.
    leaf = {1: (I32, 6), 3: (I32, 1), 4: (BINARY, b"x"), **annotations}
    assert schema_of(leaf).root.children[0].annotation == annotation


def chunk(given: ThriftStruct) -> ThriftStruct:
    """The first column chunk."""
    found: ThriftStruct = given.fields[4][1].items[0].fields[1][1].items[0]
    return found


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda f: f.fields.pop(2), "schema is missing"),
        (lambda f: f.fields.pop(4), "row_groups is missing"),
        (lambda f: f.fields.update({3: (I64, 1)}), "as many rows as the file"),
        (lambda f: f.fields.update({8: (STRUCT, ThriftStruct())}), "encrypted"),
        (lambda f: f.fields[2][1].items.pop(), "fewer nodes"),
        (lambda f: f.fields[2][1].items.append(ThriftStruct()), "outside of its tree"),
        (lambda f: f.fields[2][1].items.clear(), "fewer nodes"),
        (lambda f: f.fields[2][1].items[0].fields.pop(5), "has None children"),
        (
            lambda f: f.fields[2][1].items[2].fields.update({5: (I32, 1)}),
            "physical type and children",
        ),
        (lambda f: f.fields[2][1].items[2].fields.update({3: (I32, 3)}), "repetition 3"),
        (lambda f: f.fields[2][1].items[2].fields.pop(4), "name is missing"),
        (lambda f: f.fields[4][1].items[0].fields[1][1].items.pop(), "chunks, expected"),
        (lambda f: f.fields[4][1].items[0].fields.update({3: (I64, -1)}), "num_rows is -1"),
    ],
)
def test_a_footer_that_contradicts_itself_is_refused(
    change: Callable[[ThriftStruct], Any], message: str
) -> None:
    with pytest.raises(PyarrowFallback, match=message):
        footer(change)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: setattr(c, "fields", {1: (BINARY, b"x"), **c.fields}), "refers to another"),
        (lambda c: c.fields.update({8: (STRUCT, ThriftStruct())}), "encrypted"),
        (lambda c: c.fields.pop(3), "meta_data is missing"),
        (lambda c: c.fields[3][1].fields.update({1: (I32, 2)}), "of another leaf"),
        (lambda c: c.fields[3][1].fields[3][1].items.pop(), "of another leaf"),
        (lambda c: c.fields[3][1].fields.pop(4), "codec is missing"),
        (lambda c: c.fields[3][1].fields.update({5: (I64, -1)}), "num_values is -1"),
        (lambda c: c.fields[3][1].fields.update({7: (I64, -1)}), "total_compressed_size is -1"),
        (lambda c: c.fields[3][1].fields.pop(9), "data_page_offset is missing"),
        (lambda c: c.fields[3][1].fields[12][1].fields.update({3: (I64, 26)}), "26 of 25 values"),
    ],
)
def test_a_chunk_that_makes_no_sense_is_refused(
    change: Callable[[ThriftStruct], Any], message: str
) -> None:
    found = footer(lambda given: change(chunk(given)))
    leaf = next(found.root.leaves())
    with pytest.raises(PyarrowFallback, match=message):
        found.row_groups[0].chunk(leaf)


def test_names_that_occur_twice_are_refused_when_asked_for() -> None:
    def rename(given: ThriftStruct) -> None:
        given.fields[2][1].items[3].fields[4] = (BINARY, b"minReaderVersion")

    protocol = footer(rename).root.child("protocol")
    assert protocol is not None
    with pytest.raises(PyarrowFallback, match=r"2 columns are named protocol\.minReaderVersion"):
        protocol.child("minReaderVersion")


def test_what_follows_a_footer_is_refused() -> None:
    with pytest.raises(PyarrowFallback, match="the footer takes"):
        read_footer(encode(footer_of(DATA)) + b"\0")


def test_a_very_deep_schema_is_refused() -> None:
    type_ = pa.int32()
    for _ in range(40):
        type_ = pa.struct([("x", type_)])
    data = stored([], pa.schema([("x", type_)]))
    with pytest.raises(PyarrowFallback, match="too deep"):
        read_footer(encode(footer_of(data)))

from __future__ import annotations

import pytest

from airflow_delta.engine.parquet import PyarrowFallback
from airflow_delta.engine.parquet.footer import INT32, ColumnChunk, SchemaNode
from airflow_delta.engine.parquet.leaf_rows import LeafRows
from airflow_delta.engine.parquet.thrift import I32, STRUCT, ThriftStruct, encode

SCALAR = SchemaNode("x", 1, INT32, "", 2, 0, 0, ("k", "x"), ())
LIST = SchemaNode("x", 1, INT32, "", 3, 1, 0, ("k", "x"), ())


def levels(runs: list[tuple[int, int]]) -> bytes:
    content = b"".join(bytes([times << 1, level]) for times, level in runs)
    return len(content).to_bytes(4, "little") + content


def page(
    definitions: list[tuple[int, int]],
    repetitions: list[tuple[int, int]] | None = None,
    values: tuple[int, ...] = (),
) -> bytes:
    body = levels(repetitions) if repetitions else b""
    body += levels(definitions) + b"".join(n.to_bytes(4, "little") for n in values)
    count = sum(times for times, _ in definitions)
    about = ThriftStruct({1: (I32, count), 2: (I32, 0), 3: (I32, 3), 4: (I32, 3)})
    header = ThriftStruct(
        {1: (I32, 0), 2: (I32, len(body)), 3: (I32, len(body)), 5: (STRUCT, about)}
    )
    return encode(header) + body


def rows_of(leaf: SchemaNode, num_rows: int, num_values: int, *pages: bytes) -> LeafRows:
    data = b"".join(pages)
    return LeafRows(data, ColumnChunk(0, num_values, 4, len(data), None), leaf, num_rows)


def test_rows_where_the_struct_is_null_are_counted_only() -> None:
    nulls, few = page([(60, 0)]), page([(2, 0), (2, 2), (1, 1), (1, 0)], None, (7, 8))
    found = rows_of(SCALAR, 60 * 5 + 6, 60 * 5 + 6, nulls, nulls, nulls, few, nulls, nulls)
    assert found.rows == [182, 183, 184]
    assert found.entries == [[(2, 7)], [(2, 8)], [(1, None)]]


def test_a_row_may_go_on_in_the_next_page() -> None:
    first = page([(1, 0), (2, 3)], [(2, 0), (1, 1)], (1, 2))
    second = page([(1, 2), (1, 1), (2, 0)], [(1, 1), (3, 0)])
    found = rows_of(LIST, 5, 7, first, second)
    assert found.rows == [1, 2]
    assert found.entries == [[(3, 1), (3, 2), (2, None)], [(1, None)]]


@pytest.mark.parametrize(
    "pages",
    [
        [page([(1, 0), (1, 3)], [(1, 0), (1, 1)], (1,))],
        [page([(1, 3)], [(1, 1)], (1,))],
        [page([(1, 3), (1, 0)], [(1, 0), (1, 1)], (1,))],
        [page([(1, 3)], [(1, 0)], (1,)), page([(1, 0)], [(1, 0)]), page([(1, 3)], [(1, 1)], (1,))],
        [
            page([(1, 0)], [(1, 0)]),
            page([(1, 3)], [(1, 0)], (1,)),
            page([(1, 0)], [(1, 0)]),
            page([(1, 3)], [(1, 1)], (1,)),
        ],
    ],
)
def test_a_row_that_is_null_cannot_go_on(pages: list[bytes]) -> None:
    with pytest.raises(PyarrowFallback, match="a row that is null has another value"):
        rows_of(LIST, 2, 2, *pages)


@pytest.mark.parametrize(("num_rows", "num_values"), [(60, 61), (61, 60), (120, 120)])
def test_as_many_rows_and_values_as_there_should_be(num_rows: int, num_values: int) -> None:
    with pytest.raises(PyarrowFallback, match=r"k\.x has 60 values in 60 rows, expected"):
        rows_of(SCALAR, num_rows, num_values, page([(60, 0)]))


def test_very_many_entries_are_refused() -> None:
    pages = [page([(60, 1)])] * 834
    with pytest.raises(PyarrowFallback, match=r"k\.x has more than 50000 entries"):
        rows_of(SCALAR, 60 * 834, 60 * 834, *pages)


def test_a_dictionary_comes_first() -> None:
    about = ThriftStruct({1: (I32, 0), 2: (I32, 0)})
    dictionary = encode(ThriftStruct({1: (I32, 2), 2: (I32, 0), 3: (I32, 0), 7: (STRUCT, about)}))
    assert rows_of(SCALAR, 5, 5, dictionary, page([(5, 0)])).rows == []
    with pytest.raises(PyarrowFallback, match="not the first page"):
        rows_of(SCALAR, 5, 5, page([(5, 0)]), dictionary)

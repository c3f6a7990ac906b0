from __future__ import annotations

import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_delta.engine.parquet import (
    PyarrowFallback,
    StitchedFile,
    StoredFile,
    check_pages,
    parse_stored_file,
    read_stored_file,
    replace_columns,
)
from airflow_delta.engine.parquet.thrift import (
    BINARY,
    I16,
    I32,
    I64,
    STRUCT,
    ThriftStruct,
    decode,
    encode,
)

SCHEMA = pa.schema(
    [
        ("n", pa.int64()),
        ("text", pa.string()),
        ("nested", pa.struct([("of", pa.list_(pa.string()))])),
    ]
)
WRITER = {
    "use_dictionary": ["text"],
    "write_page_checksum": True,
    "store_schema": False,
    "compression": "zstd",
}


def rows(first: int, count: int) -> pa.Table:
    """Rows of which each is like no other."""
    return pa.Table.from_pylist(
        [
            {
                "n": n,
                "text": None if n % 5 == 4 else f"t{n % 7}",
                "nested": {"of": [str(n)] * (n % 4)},
            }
            for n in range(first, first + count)
        ],
        SCHEMA,
    )


def parquet(table: pa.Table, *, group: int = 1000, **settings: Any) -> bytes:
    sink = io.BytesIO()
    with pq.ParquetWriter(sink, table.schema, **{**WRITER, **settings}) as writer:
        writer.write_table(table, row_group_size=group)
    return sink.getvalue()


def read(content: bytes) -> pa.Table:
    file = pq.ParquetFile(io.BytesIO(content), page_checksum_verification=True)
    return file.read()


def stitched(*parts: tuple[bytes, list[int]]) -> bytes:
    """Some row groups of some files as one file."""
    sink = io.BytesIO()
    file = StitchedFile(sink)
    for content, numbers in parts:
        stored = parse_stored_file(content)
        for number in numbers:
            group = stored.groups[number]
            file.append(stored, group, content[group.start : group.start + group.length])
    file.close()
    return sink.getvalue()


def footer_of(content: bytes) -> tuple[ThriftStruct, int]:
    """A file's footer, and where it begins."""
    start = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    footer, end = decode(content[start:-8])
    assert end == len(content) - 8 - start
    return footer, start


def with_footer(content: bytes, footer: ThriftStruct) -> bytes:
    _, start = footer_of(content)
    new_footer = encode(footer)
    return content[:start] + new_footer + len(new_footer).to_bytes(4, "little") + b"PAR1"


def first_group(footer: ThriftStruct) -> ThriftStruct:
    group: ThriftStruct = footer.fields[4][1].items[0]
    return group


def first_chunk_of(group: ThriftStruct) -> ThriftStruct:
    metadata: ThriftStruct = group.fields[1][1].items[0].fields[3][1]
    return metadata


def first_chunk(footer: ThriftStruct) -> ThriftStruct:
    chunk: ThriftStruct = first_group(footer).fields[1][1].items[0]
    return chunk


def page_bytes(pages: bytes) -> list[int]:
    """The positions of the bytes of pages, without their headers."""
    positions: list[int] = []
    position = 0
    while position < len(pages):
        header, body = decode(pages, position)
        position = body + header.fields[3][1]
        positions += range(body, position)
    return positions


def test_files_in_memory_become_the_row_groups_of_one() -> None:
    tables = [rows(0, 3), rows(3, 1), rows(4, 40)]
    sink = io.BytesIO()
    file = StitchedFile(sink)
    for table in tables:
        file.append_file(pa.py_buffer(parquet(table)))
    end = file.close()
    content = sink.getvalue()
    assert content.endswith(end)
    assert read(content).equals(pa.concat_tables(tables))
    footer = pq.read_metadata(io.BytesIO(content))
    assert [footer.row_group(i).num_rows for i in range(footer.num_row_groups)] == [3, 1, 40]
    assert footer.created_by == pq.read_metadata(io.BytesIO(parquet(tables[0]))).created_by
    assert (footer.num_rows, footer.num_columns) == (44, 3)


def test_statistics_are_copied_with_their_row_group() -> None:
    content = stitched((parquet(rows(5, 5)), [0]), (parquet(rows(0, 5)), [0]))
    footer = pq.read_metadata(io.BytesIO(content))
    found = [footer.row_group(i).column(0).statistics for i in range(2)]
    assert [(s.min, s.max, s.null_count) for s in found] == [(5, 9, 0), (0, 4, 0)]


def test_all_offsets_are_moved() -> None:
    content = parquet(rows(0, 9), group=3)
    footer, _ = footer_of(content)
    for number, group in enumerate(footer.fields[4][1].items):
        group.fields[7] = (I16, number)
        chunk = group.fields[1][1].items[0]
        chunk.fields[2] = (I64, chunk.fields[3][1].fields[9][1])
        metadata = chunk.fields[3][1]
        metadata.fields = dict(sorted({**metadata.fields, 14: (I64, 5), 15: (I32, 6)}.items()))
    moved, _ = footer_of(stitched((with_footer(content, footer), [2, 1])))
    second = moved.fields[4][1].items[1]
    assert 7 not in second.fields  # the number of a row group in its file
    chunk = second.fields[1][1].items[0]
    metadata = chunk.fields[3][1]
    assert chunk.fields[2] == (I64, 0)  # deprecated, "writers should write 0"
    assert not {13, 14, 15, 16} & set(metadata.fields)  # optional; a bloom filter stayed behind
    first = footer.fields[4][1].items
    distance = first[1].fields[5][1] - 4 - first[2].fields[6][1]
    assert second.fields[5][1] == first[1].fields[5][1] - distance
    assert metadata.fields[9][1] == first_chunk_of(first[1]).fields[9][1] - distance


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_any_row_groups_of_any_files_any_number_of_times(data: st.DataObject) -> None:
    sizes = data.draw(st.lists(st.integers(1, 12), min_size=1, max_size=4))
    tables = [rows(100 * number, size) for number, size in enumerate(sizes)]
    groups = [data.draw(st.integers(1, 5)) for _ in tables]
    files = [parquet(table, group=g) for table, g in zip(tables, groups, strict=True)]
    positions = [(f, n) for f, g in enumerate(groups) for n in range(-(-sizes[f] // g))]
    chosen = data.draw(st.lists(st.sampled_from(positions), min_size=1, max_size=9))
    content = stitched(*((files[f], [n]) for f, n in chosen))
    expected = [tables[f].slice(n * groups[f], groups[f]) for f, n in chosen]
    assert read(content).equals(pa.concat_tables(expected))
    stored = parse_stored_file(content)
    assert read_stored_file(io.BytesIO(content), size=len(content)) == stored
    for group in stored.groups:
        check_pages(group, content[group.start : group.start + group.length])
    # What was stitched can be stitched.
    order = data.draw(st.permutations(range(len(chosen))))
    again = stitched((content, list(order)))
    assert read(again).equals(pa.concat_tables([expected[number] for number in order]))


def test_a_file_without_rows_keeps_its_schema() -> None:
    sink = io.BytesIO()
    file = StitchedFile(sink)
    empty = io.BytesIO()
    pq.ParquetWriter(empty, SCHEMA, **WRITER).close()
    file.append_file(empty.getvalue())
    file.close()
    assert read(sink.getvalue()).equals(rows(0, 0))


def test_without_any_file_there_is_no_schema() -> None:
    with pytest.raises(PyarrowFallback, match="no schema"):
        StitchedFile(io.BytesIO()).close()


def test_page_indexes_are_left_behind() -> None:
    indexed = parquet(rows(0, 9), group=3, write_page_index=True)
    assert pq.read_metadata(io.BytesIO(indexed)).row_group(1).column(0).has_offset_index
    content = stitched((indexed, [1, 2]))
    chunk = pq.read_metadata(io.BytesIO(content)).row_group(0).column(0)
    assert not chunk.has_offset_index
    assert not chunk.has_column_index
    assert read(content).equals(rows(3, 6))


@pytest.mark.parametrize(
    "other",
    [
        parquet(rows(0, 2).rename_columns(["n", "text", "other"])),
        parquet(rows(0, 2).select(["n", "text"])),
        parquet(rows(0, 2), version="1.0"),
        parquet(rows(0, 2).replace_schema_metadata({"k": "v"}), store_schema=True),
        parquet(rows(0, 2), compression="snappy"),
        parquet(rows(0, 2), compression={"n": "none", "text": "zstd", "nested.of": "zstd"}),
        parquet(rows(0, 2), write_statistics=["n"]),
    ],
)
def test_what_was_written_otherwise_is_refused(other: bytes) -> None:
    file = StitchedFile(io.BytesIO())
    file.append_file(parquet(rows(0, 2)))
    with pytest.raises(PyarrowFallback, match=r"another writer|another compression"):
        file.append_file(other)


def test_another_writer_is_refused() -> None:
    content = parquet(rows(0, 2))
    footer, _ = footer_of(content)
    footer.fields[6] = (BINARY, b"parquet-mr version 1.8.0")
    file = StitchedFile(io.BytesIO())
    file.append_file(content)
    with pytest.raises(PyarrowFallback, match="another schema"):
        file.append_file(with_footer(content, footer))


def test_more_or_fewer_bytes_are_refused() -> None:
    content = parquet(rows(0, 2))
    stored = parse_stored_file(content)
    (group,) = stored.groups
    file = StitchedFile(io.BytesIO())
    for data in (content[group.start :], content[group.start : group.start + group.length - 1]):
        with pytest.raises(PyarrowFallback, match="bytes, expected"):
            file.append(stored, group, data)


@pytest.mark.parametrize(
    ("where", "number", "value", "match"),
    [
        ("file", 8, (STRUCT, ThriftStruct()), "encrypted"),
        ("file", 3, (I64, 10), "as many rows"),
        ("group", 3, (I64, -1), "number of rows"),
        ("chunk", 1, (BINARY, b"elsewhere.parquet"), "another file"),
        ("chunk", 8, (STRUCT, ThriftStruct()), "encrypted"),
        ("metadata", 9, (I64, 1), "overlap"),
        ("metadata", 9, (I64, 10**9), "overlap|after the start of the footer"),
        ("metadata", 7, (I64, -5), "overlap"),
        ("metadata", 7, (I64, 10**9), "overlap|after the start of the footer"),
        ("metadata", 7, (BINARY, b"5"), "wire type"),
    ],
)
def test_footers_that_make_no_sense_are_refused(
    where: str, number: int, value: tuple[int, Any], match: str
) -> None:
    content = parquet(rows(0, 2))
    footer, start = footer_of(content)
    chunk = first_chunk(footer)
    metadata = chunk.fields[3][1]
    structs = {"file": footer, "group": first_group(footer), "chunk": chunk, "metadata": metadata}
    structs[where].fields = dict(sorted({**structs[where].fields, number: value}.items()))
    with pytest.raises(PyarrowFallback, match=match):
        StoredFile.from_footer(encode(footer), end=start)


@pytest.mark.parametrize(
    "content", [b"", b"PAR1", b"PAR1\x00\x00\x00\x00PAR1", b"x" * 50, parquet(rows(0, 3))[:-3]]
)
def test_what_is_no_parquet_file_is_refused(content: bytes) -> None:
    with pytest.raises(PyarrowFallback):
        parse_stored_file(content)
    with pytest.raises(PyarrowFallback):
        read_stored_file(io.BytesIO(content), size=len(content))


def test_a_file_of_very_many_small_row_groups_is_refused() -> None:
    """To decode such a footer takes longer than to write the rows anew."""
    few, many = parquet(rows(0, 2400), group=800), parquet(rows(0, 2400), group=1)
    assert len(many) - footer_of(many)[1] > 256 * 1024
    assert len(read_stored_file(io.BytesIO(few), size=len(few)).groups) == 3
    with pytest.raises(PyarrowFallback, match="the footer takes"):
        read_stored_file(io.BytesIO(many), size=len(many))


def test_a_file_that_is_shorter_than_it_was_is_refused() -> None:
    content = parquet(rows(0, 3))
    with pytest.raises(PyarrowFallback, match="expected more"):
        read_stored_file(io.BytesIO(content[:-1]), size=len(content))


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_damaged_footers_are_refused_or_understood(data: st.DataObject) -> None:
    content = bytearray(parquet(rows(0, 5), group=2))
    _, start = footer_of(bytes(content))
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(start, len(content) - 1))] = data.draw(st.integers(0, 255))
    file = StitchedFile(io.BytesIO())
    try:
        stored = parse_stored_file(content)
        for group in stored.groups:
            file.append(stored, group, content[group.start : group.start + group.length])
            check_pages(group, bytes(content[group.start : group.start + group.length]))
    except PyarrowFallback:
        return
    file.close()


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_damaged_pages_are_found(data: st.DataObject) -> None:
    content = parquet(rows(0, 40), compression="none")
    (group,) = parse_stored_file(content).groups
    pages = bytearray(content[group.start : group.start + group.length])
    check_pages(group, bytes(pages))
    position = data.draw(st.sampled_from(page_bytes(bytes(pages))))
    pages[position] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(PyarrowFallback, match="checksum"):
        check_pages(group, bytes(pages))


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_damaged_headers_never_make_other_rows(data: st.DataObject) -> None:
    content = parquet(rows(0, 40), compression="none")
    (group,) = parse_stored_file(content).groups
    pages = bytearray(content[group.start : group.start + group.length])
    position = data.draw(
        st.sampled_from(sorted({*range(len(pages))} - {*page_bytes(bytes(pages))}))
    )
    pages[position] ^= 1 << data.draw(st.integers(0, 7))
    try:
        check_pages(group, bytes(pages))
    except PyarrowFallback:
        return
    damaged = content[: group.start] + bytes(pages) + content[group.start + group.length :]
    try:
        found = read(damaged)
    except (OSError, pa.ArrowException):
        return
    assert found.equals(rows(0, 40))


def test_pages_without_checksums_are_refused() -> None:
    content = parquet(rows(0, 5), write_page_checksum=False)
    (group,) = parse_stored_file(content).groups
    with pytest.raises(PyarrowFallback, match="other fields"):
        check_pages(group, content[group.start : group.start + group.length])


def test_columns_can_be_taken_from_another_row_group() -> None:
    both = rows(0, 50)
    name = both.column_names[1]
    first, other = parquet(both), parquet(rows(500, 50).select([name]))
    (group,), (taken,) = parse_stored_file(first).groups, parse_stored_file(other).groups
    parts = [
        memoryview(data)[part.start : part.start + part.length]
        for data, part in ((first, group), (other, taken))
    ]
    found, data = replace_columns(group, parts[0], replacement=taken, replacement_data=parts[1])
    expected = both.set_column(1, both.schema.field(1), rows(500, 50)[name])
    stream = io.BytesIO()
    file = StitchedFile(stream)
    file.append(parse_stored_file(first), found, data)
    file.close()
    assert read(stream.getvalue()).equals(expected)
    # As if all of it had been encoded at once, to the byte.
    at_once = parquet(expected)
    (whole,) = parse_stored_file(at_once).groups
    assert data == at_once[whole.start : whole.start + whole.length]
    assert (found.length, found.size, found.num_rows) == (whole.length, whole.size, whole.num_rows)


@pytest.mark.parametrize(
    ("taken", "reason"),
    [
        (rows(0, 49), "49 rows don't fit to 50"),
        (rows(0, 50).append_column("more", pa.nulls(50, pa.int64())), "doesn't have"),
    ],
)
def test_columns_that_do_not_fit_are_refused(taken: pa.Table, reason: str) -> None:
    contents = parquet(rows(0, 50)), parquet(taken)
    groups = [parse_stored_file(content).groups[0] for content in contents]
    with pytest.raises(PyarrowFallback, match=reason):
        replace_columns(groups[0], contents[0], replacement=groups[1], replacement_data=contents[1])

"""The reader as a whole, with pyarrow as oracle."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_delta.engine.checkpoint.layout import null_structs
from airflow_delta.engine.errors import StorageError
from airflow_delta.engine.model.checkpoint_kinds import CHECKPOINT_KINDS
from airflow_delta.engine.parquet import PyarrowFallback, read_non_file_rows
from airflow_delta.engine.parquet.thrift import BINARY, I32, LIST, ThriftList, ThriftStruct
from tests.conftest import golden_manifest
from tests.engine.parquet.files import (
    METADATA,
    PROTOCOL,
    SCHEMA,
    TEXTS,
    action_rows,
    by_pyarrow,
    here,
    many_rows,
    stored,
    with_footer,
)


@pytest.mark.parametrize("case", golden_manifest(), ids=lambda case: case["name"])
def test_the_parquet_files_of_golden_logs_are_read_as_pyarrow_reads_them(
    golden_root: Path, case: dict[str, Any]
) -> None:
    with tarfile.open(golden_root / "cases" / Path(case["file"]).name) as archive:
        for member in archive:
            if "/_delta_log/" in member.name and member.name.endswith(".parquet"):
                content = archive.extractfile(member)
                assert content is not None
                data = content.read()
                # None of them is refused: Spark, Kernel and delta-rs wrote them.
                assert here(data) == by_pyarrow(data), member.name


def test_a_checkpoint_of_deltalake_is_read_as_pyarrow_reads_it(sales_copy: Path) -> None:
    DeltaTable(str(sales_copy)).create_checkpoint()
    (path,) = (sales_copy / "_delta_log").glob("*.checkpoint.parquet")
    data = path.read_bytes()
    assert here(data) == by_pyarrow(data)
    assert {kind for kind, _ in here(data)} >= {"protocol", "metaData"}


@pytest.mark.parametrize("compression", ["none", "snappy", "gzip"])
@pytest.mark.parametrize("pages", ["1.0", "2.0"])
@pytest.mark.parametrize("dictionary", [False, True])
def test_whatever_pyarrow_writes(compression: str, pages: str, dictionary: bool) -> None:
    # The first of each pair once with the first and once with the second of each other.
    for group_rows, page_bytes, checksums, statistics in (
        (1000, 1 << 20, False, True),
        (17, 1 << 20, True, False),
        (1000, 20, True, True),
        (17, 20, False, False),
    ):
        data = stored(
            many_rows(),
            compression=compression,
            data_page_version=pages,
            use_dictionary=dictionary,
            row_group_size=group_rows,
            data_page_size=page_bytes,
            write_batch_size=5,
            write_page_checksum=checksums,
            write_statistics=statistics,
        )
        assert here(data) == by_pyarrow(data)


def test_an_empty_file_and_one_without_the_columns_hold_nothing() -> None:
    assert here(stored([])) == []
    assert here(stored([{}, {}])) == []
    assert here(stored([{"x": 1}], pa.schema([("x", pa.int64())]))) == []


def test_rows_come_by_row_group_then_kind_then_row() -> None:
    rows = [
        *action_rows("txn", {"appId": "a", "version": 1}, {"appId": "b", "version": 2}),
        *action_rows("protocol", {"minReaderVersion": 1}),
        *action_rows("txn", {"appId": "c", "version": 3}),
    ]
    found = [(kind, value.get("appId")) for kind, value in here(stored(rows, row_group_size=3))]
    assert found == [("protocol", None), ("txn", "a"), ("txn", "b"), ("txn", "c")]


@pytest.mark.parametrize("statistics", [False, True])
def test_few_rows_among_very_many_are_found(statistics: bool) -> None:
    few = pa.Table.from_pylist(
        [
            {**dict.fromkeys(SCHEMA.names), **row}
            for row in ({"protocol": PROTOCOL}, {"metaData": METADATA})
        ],
        schema=SCHEMA,
    )
    none = pa.Table.from_arrays(
        [null_structs(200_000, field.type) for field in SCHEMA], schema=SCHEMA
    )
    buffer = io.BytesIO()
    pq.write_table(
        pa.concat_tables([none, few, none]),
        buffer,
        compression="none",
        use_dictionary=False,
        write_statistics=statistics,
    )
    data = buffer.getvalue()
    assert [kind for kind, _ in here(data)] == ["protocol", "metaData"]
    assert here(data) == by_pyarrow(data)


TEXT = st.text(st.characters(codec="utf-8"), max_size=6)
LONG = st.integers(-(2**63), 2**63 - 1)
MAPS = st.lists(st.tuples(TEXT, st.none() | TEXT), max_size=3)
KINDS = {
    "protocol": st.fixed_dictionaries(
        {
            "minReaderVersion": st.none() | st.integers(-(2**31), 2**31 - 1),
            "readerFeatures": st.none() | st.lists(st.none() | TEXT, max_size=3),
        }
    ),
    "metaData": st.fixed_dictionaries(
        {
            "id": TEXT,
            "format": st.none()
            | st.fixed_dictionaries({"provider": st.none() | TEXT, "options": st.none() | MAPS}),
            "configuration": st.none() | MAPS,
            "createdTime": st.none() | LONG,
        }
    ),
    "txn": st.fixed_dictionaries({"appId": st.none() | TEXT, "version": st.none() | LONG}),
    "domainMetadata": st.fixed_dictionaries({"domain": TEXT, "removed": st.none() | st.booleans()}),
    "add": st.fixed_dictionaries({"path": TEXT}),
}
ROWS = st.lists(
    st.one_of(
        *(values.map(lambda value, kind=kind: {kind: value}) for kind, values in KINDS.items())
    )
    | st.just({}),
    max_size=12,
)


@given(
    ROWS,
    st.integers(1, 12),
    st.sampled_from(["none", "snappy", "gzip"]),
    st.sampled_from(["1.0", "2.0"]),
    st.booleans(),
)
@settings(max_examples=50)
def test_random_rows_are_read_as_pyarrow_reads_them(
    rows: list[dict[str, Any]], group_rows: int, compression: str, pages: str, dictionary: bool
) -> None:
    data = stored(
        rows,
        row_group_size=group_rows,
        compression=compression,
        data_page_version=pages,
        use_dictionary=dictionary,
    )
    assert here(data) == by_pyarrow(data)


def two_levels(footer: ThriftStruct) -> None:
    """Turn the lists of required items into those of old writers, whose levels are the same."""
    nodes = footer.fields[2][1].items
    number = next(n for n, node in enumerate(nodes) if node.text(4) == "list")
    item = nodes.pop(number + 1)
    item.fields[3] = (I32, 2)
    nodes[number] = ThriftStruct(dict(sorted(item.fields.items())))
    for group in footer.fields[4][1].items:
        for chunk in group.fields[1][1].items:
            path = chunk.fields[3][1].fields[3][1].items
            if b"list" in path:
                path.remove(b"list")


def test_lists_of_old_writers() -> None:
    features = pa.list_(pa.field("element", pa.string(), nullable=False))
    protocol = pa.struct([("minReaderVersion", pa.int32()), ("readerFeatures", features)])
    rows = [
        {"protocol": {"minReaderVersion": 3, "readerFeatures": given}}
        for given in (["a", "b"], [], None, ["c"])
    ]
    data = with_footer(
        stored(rows, pa.schema([("protocol", protocol)]), store_schema=False), two_levels
    )
    assert here(data) == by_pyarrow(data)
    assert [value.get("readerFeatures") for _, value in here(data)] == [["a", "b"], [], None, ["c"]]


def one_kind(kind: str, fields: list[Any], *values: Any, **options: Any) -> bytes:
    schema = pa.schema([(kind, pa.struct(fields))])
    return stored(action_rows(kind, *values), schema, **options)


TXN = [("appId", pa.string()), ("version", pa.int64())]
A_TXN = {"appId": "a" * 50, "version": 1}


def encoded(encodings: dict[str, str]) -> bytes:
    return one_kind("txn", TXN, A_TXN, use_dictionary=False, column_encoding=encodings)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (one_kind("txn", TXN, A_TXN, compression="zstd"), "codec 6"),
        (one_kind("txn", TXN, A_TXN, compression="brotli"), "codec 4"),
        (encoded({"txn.version": "DELTA_BINARY_PACKED"}), "encoding 5"),
        (encoded({"txn.appId": "DELTA_BYTE_ARRAY"}), "encoding 7"),
        (one_kind("txn", [("appId", pa.binary())], {"appId": b"a"}), r"txn\.appId is of the type 6"),
        (one_kind("txn", [*TXN, ("x", pa.float64())], A_TXN), r"txn\.x is of the type 5"),
        (one_kind("txn", [*TXN, ("x", pa.int16())], A_TXN), r"txn\.x is of the type 1"),
        (one_kind("txn", [*TXN, ("x", pa.uint32())], A_TXN), r"txn\.x is of the type 1"),
        (one_kind("txn", [*TXN, ("x", pa.timestamp("us"))], A_TXN), r"txn\.x is of the type 2"),
        (one_kind("txn", [*TXN, ("x", pa.list_(TEXTS))], A_TXN), "unknown shape"),
        (one_kind("txn", [*TXN, ("x", pa.list_(pa.struct(TXN)))], A_TXN), "unknown shape"),
        (one_kind("txn", [*TXN, ("x", pa.map_(pa.string(), TEXTS))], A_TXN), "unknown shape"),
        (one_kind("txn", [("id", pa.string())], {"id": "a"}), "the column txn lacks appId"),
        (one_kind("txn", [("appId", pa.struct(TXN))], {"appId": A_TXN}), "lacks appId"),
        (stored([{"txn": "a"}], pa.schema([("txn", pa.string())])), "lacks appId"),
        (
            stored([{"txn": A_TXN}], pa.schema([pa.field("txn", pa.struct(TXN), nullable=False)])),
            "can't be null",
        ),
        (stored([{"txn": [A_TXN]}], pa.schema([("txn", pa.list_(pa.struct(TXN)))])), "lacks appId"),
        (stored([{"txn": A_TXN}] * 10_001, pa.schema([("txn", pa.struct(TXN))])), "more than 10000 rows"),
        (b"PAR1" + bytes(100), "doesn't end as Parquet"),
    ],
)  # fmt: skip
def test_what_is_not_certain_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(PyarrowFallback, match=message):
        here(data)


def test_columns_of_other_kinds_may_be_of_any_type_and_encoding() -> None:
    # A struct that is null in all rows needn't be understood, either.
    schema = pa.schema(
        [
            ("txn", pa.struct(TXN)),
            ("metaData", pa.struct([("id", pa.string()), ("x", pa.list_(pa.float16()))])),
            ("other", pa.list_(pa.float64())),
        ]
    )
    for statistics in (True, False):
        data = stored([{"txn": A_TXN, "other": [1.0]}], schema, write_statistics=statistics)
        assert here(data) == [("txn", A_TXN)]


def shift(number: int, by: int) -> Callable[[ThriftStruct], None]:
    """Change a number about the first chunk."""

    def change(footer: ThriftStruct) -> None:
        about = footer.fields[4][1].items[0].fields[1][1].items[0].fields[3][1]
        type_, value = about.fields[number]
        about.fields[number] = (type_, value + by)

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (shift(5, 1), "has 1 values in 1 rows, expected 2 in 1"),
        (shift(7, -1), "page runs over the end"),
        (shift(7, 1), "cut off|wire type|page of|comes after"),
        (shift(9, 1), "cut off|wire type|page of|comes after"),
        (shift(9, 10_000), "outside of the data"),
    ],
)
def test_a_chunk_that_is_not_as_the_footer_says_is_refused(
    change: Callable[[ThriftStruct], None], message: str
) -> None:
    data = one_kind("txn", TXN, A_TXN, use_dictionary=False, write_statistics=False)
    with pytest.raises(PyarrowFallback, match=message):
        here(with_footer(data, change))


def test_a_page_without_its_checksum_is_refused() -> None:
    data = one_kind(
        "txn", TXN, A_TXN, use_dictionary=False, write_statistics=False, write_page_checksum=True
    )
    assert here(data) == [("txn", A_TXN)]
    with pytest.raises(PyarrowFallback, match="checksum"):
        here(data.replace(b"aaaa", b"aaba", 1))


def test_fields_that_are_there_in_other_rows_than_the_witness_are_refused() -> None:
    data = one_kind("txn", TXN, A_TXN, None, use_dictionary=False)
    other = one_kind("txn", TXN, None, A_TXN, use_dictionary=False)

    def chunk(content: bytes) -> tuple[int, int]:
        column = pq.read_metadata(io.BytesIO(content)).row_group(0).column(1)
        return column.data_page_offset, column.total_compressed_size

    (start, length), (theirs, same) = chunk(data), chunk(other)
    assert length == same
    mixed = data[:start] + other[theirs : theirs + length] + data[start + length :]
    with pytest.raises(PyarrowFallback, match="the fields of txn have values in different rows"):
        here(mixed)


def test_renamed_map_groups_are_maps_still() -> None:
    # Only the annotation of the outer group counts; Spark once called the inner one "map".
    def rename(footer: ThriftStruct) -> None:
        for node in footer.fields[2][1].items:
            if node.text(4) == "key_value":
                node.fields[4] = (BINARY, b"map")
        for group in footer.fields[4][1].items:
            for chunk in group.fields[1][1].items:
                about = chunk.fields[3][1]
                names = [b"map" if n == b"key_value" else n for n in about.fields[3][1].items]
                about.fields[3] = (LIST, ThriftList(BINARY, names))

    data = with_footer(stored(many_rows()), rename)
    assert here(data) == by_pyarrow(data)


def test_errors_of_the_storage_pass() -> None:
    class Broken(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            raise StorageError("the store is down")

    with pytest.raises(StorageError, match="the store is down"):
        read_non_file_rows(Broken(stored([])), size=100, kinds=CHECKPOINT_KINDS)

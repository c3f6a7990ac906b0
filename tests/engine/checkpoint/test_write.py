from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_delta.engine.checkpoint import action_rows
from airflow_delta.engine.checkpoint.write import ExpectedFiles, write_classic_checkpoint
from airflow_delta.engine.errors import CorruptLogError, InvalidTableError
from airflow_delta.engine.model.actions import DomainMetadata, Protocol
from airflow_delta.engine.storage.memory import MemoryStorage
from tests.engine.checkpoint.contents import (
    METADATA,
    add_row,
    add_table,
    content,
    memory,
    remove_row,
    remove_table,
)

PATH = "_delta_log/00000000000000000007.checkpoint.parquet"


def parquet(storage: MemoryStorage) -> pq.ParquetFile:
    return pq.ParquetFile(io.BytesIO(storage.read(PATH)))


def rows_written(**changes: Any) -> list[dict[str, Any]]:
    storage = memory()
    write_classic_checkpoint(storage, content(**changes), version=7, table="t")
    rows: list[dict[str, Any]] = parquet(storage).read().to_pylist()
    return rows


def test_each_row_is_one_action_and_v1_kinds_only() -> None:
    rows = rows_written()
    kinds = [[kind for kind, value in row.items() if value is not None] for row in rows]
    assert all(len(kind) == 1 for kind in kinds)
    assert Counter(kind for (kind,) in kinds) == {
        "protocol": 1,
        "metaData": 1,
        "txn": 2,
        "domainMetadata": 1,
        "add": 3,
        "remove": 2,
    }
    assert set(rows[0]) == {"protocol", "metaData", "txn", "domainMetadata", "add", "remove"}


def test_non_file_actions_keep_their_fields() -> None:
    rows = rows_written()
    assert [row["txn"] for row in rows if row["txn"]] == [
        {"appId": "app", "version": 5, "lastUpdated": 1_700_000_000_000},
        {"appId": "other", "version": -1, "lastUpdated": None},
    ]
    (metadata,) = [row["metaData"] for row in rows if row["metaData"]]
    assert metadata == {
        "id": METADATA.id,
        "name": "orders",
        "description": None,
        "format": {"provider": "parquet", "options": []},
        "schemaString": METADATA.schema_string,
        "partitionColumns": ["p"],
        "configuration": [("delta.appendOnly", "false")],
        "createdTime": 1_700_000_000_000,
    }


def test_file_actions_change_no_data_and_tombstones_carry_neither_statistics_nor_tags() -> None:
    vector = {
        "storageType": "u",
        "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^",
        "offset": 4,
        "sizeInBytes": 40,
        "cardinality": 6,
        "maxRowIndex": None,
    }
    full = {
        "tags": [("k", None)],
        "deletionVector": vector,
        "baseRowId": 10,
        "defaultRowCommitVersion": 3,
    }
    rows = rows_written(
        adds=[add_table([add_row(1, clusteringProvider="liquid", **full)])],
        removes=[remove_table([remove_row(2, stats="{}", **full)])],
    )
    (add,) = [row["add"] for row in rows if row["add"]]
    expected = add_row(1, clusteringProvider="liquid", **full)
    assert add == {**expected, "dataChange": False}
    (remove,) = [row["remove"] for row in rows if row["remove"]]
    expected = remove_row(2, **full)
    del expected["tags"]
    assert remove == {**expected, "dataChange": False}


@pytest.mark.parametrize(
    ("protocol", "reader_features", "writer_features"),
    [
        (Protocol(1, 2), None, None),
        (Protocol(2, 5), None, None),
        (Protocol(1, 7, None, frozenset({"b", "a"})), None, ["a", "b"]),
        (Protocol(3, 7, frozenset(), frozenset({"a"})), [], ["a"]),
        (Protocol(3, 7, None, None), [], []),
        # Lists that the versions don't allow must not be written.
        (Protocol(2, 6, frozenset({"x"}), frozenset({"y"})), None, None),
    ],
)
def test_feature_lists_are_there_exactly_where_the_versions_want_them(
    protocol: Protocol, reader_features: Any, writer_features: Any
) -> None:
    rows = rows_written(protocol=protocol)
    (found,) = [row["protocol"] for row in rows if row["protocol"]]
    assert found["readerFeatures"] == reader_features
    assert found["writerFeatures"] == writer_features
    assert (found["minReaderVersion"], found["minWriterVersion"]) == (
        protocol.min_reader_version,
        protocol.min_writer_version,
    )


def test_removed_domains_are_left_out() -> None:
    rows = rows_written(domains=(DomainMetadata("a", "", removed=True), DomainMetadata("b", "")))
    assert [row["domainMetadata"]["domain"] for row in rows if row["domainMetadata"]] == ["b"]


def test_maps_and_required_fields_are_laid_out_for_every_reader() -> None:
    storage = memory()
    write_classic_checkpoint(storage, content(), version=7, table="t")
    schema = parquet(storage).schema
    leaves = {schema.column(i).path: schema.column(i) for i in range(len(schema))}
    # A required field below an optional struct: one definition level, the struct's.
    for leaf in ("add.path", "add.size", "add.modificationTime", "add.dataChange", "remove.path"):
        assert leaves[leaf].max_definition_level == 1
    assert leaves["add.stats"].max_definition_level == 2
    for action in ("add.partitionValues", "add.tags", "remove.partitionValues"):
        assert {f"{action}.key_value.key", f"{action}.key_value.value"} <= set(leaves)
        key, value = leaves[f"{action}.key_value.key"], leaves[f"{action}.key_value.value"]
        assert value.max_definition_level == key.max_definition_level + 1
    assert "remove.stats" not in leaves
    assert not any(leaf.startswith("remove.tags") for leaf in leaves)
    text = str(schema)
    assert text.count("(Map)") == 5
    assert "repeated group field_id=-1 key_value" in text


def test_kinds_have_row_groups_of_their_own_told_by_null_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(action_rows, "_GROUP_ROWS", 2)
    storage = memory()
    write_classic_checkpoint(storage, content(), version=7, table="t")
    footer = parquet(storage).metadata
    assert [footer.row_group(i).num_rows for i in range(footer.num_row_groups)] == [5, 2, 2, 1]
    index = {footer.row_group(0).column(i).path_in_schema: i for i in range(footer.num_columns)}
    nulls = {
        leaf: [
            footer.row_group(i).column(index[leaf]).statistics.null_count
            for i in range(footer.num_row_groups)
        ]
        for leaf in ("protocol.minReaderVersion", "add.path", "remove.path")
    }
    assert nulls == {
        "protocol.minReaderVersion": [4, 2, 2, 1],
        "add.path": [5, 0, 2, 0],
        "remove.path": [5, 2, 0, 1],
    }


def row_groups(tables: list[pa.Table]) -> Iterator[pa.Table]:
    gathered = action_rows._Gathered()
    for table in tables:
        yield from gathered.add(table)
    if gathered.rows:
        yield gathered.take()


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(0, 7), max_size=6), st.integers(1, 5))
def test_row_groups_are_full_whatever_the_tables_sizes(sizes: list[int], group: int) -> None:
    tables, start = [], 0
    for size in sizes:
        tables.append(pa.table({"n": pa.array(range(start, start + size), pa.int64())}))
        start += size
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(action_rows, "_GROUP_ROWS", group)
        groups = list(row_groups(tables))
    assert [n for t in groups for n in t["n"].to_pylist()] == list(range(start))
    assert [t.num_rows for t in groups] == [
        min(group, start - done) for done in range(0, start, group)
    ]


def test_row_groups_are_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(action_rows, "_GROUP_BYTES", 1000)
    table = pa.table({"s": ["x" * 300] * 10})
    groups = list(row_groups([table]))
    assert sum(group.num_rows for group in groups) == 10
    assert max(group.num_rows for group in groups) <= 4


def test_an_empty_table_has_a_checkpoint_too() -> None:
    storage = memory()
    empty = content(adds=[], removes=[], transactions=(), domains=(), expected=ExpectedFiles(0, 0))
    result = write_classic_checkpoint(storage, empty, version=7, table="t")
    assert (result.num_actions, result.num_adds, result.adds_size_sum) == (2, 0, 0)
    assert parquet(storage).metadata.num_rows == 2


def test_the_result_tells_what_was_written() -> None:
    storage = memory()
    result = write_classic_checkpoint(
        storage, content(expected=ExpectedFiles(3, 306)), version=7, table="t"
    )
    assert (result.version, result.path) == (7, PATH)
    assert result.size_in_bytes == storage.head(PATH).size
    assert (result.num_actions, result.num_adds, result.adds_size_sum) == (10, 3, 306)
    assert parquet(storage).metadata.num_rows == 10


@pytest.mark.parametrize(
    ("expected", "message"),
    [
        (ExpectedFiles(4), "would hold 3 live files, and the version has 4"),
        (ExpectedFiles(3, 307), "306 bytes in live files, and the version has 307"),
        (
            ExpectedFiles(4, checksum="_delta_log/7.crc"),
            r"live files, and by _delta_log/7\.crc the version has 4\. .* delete that file",
        ),
    ],
)
def test_nothing_is_published_that_does_not_add_up(expected: ExpectedFiles, message: str) -> None:
    storage = memory()
    with pytest.raises(InvalidTableError, match=message):
        write_classic_checkpoint(storage, content(expected=expected), version=7, table="t")
    assert list(storage.list("_delta_log")) == []


def test_nothing_is_published_and_an_older_one_stays_where_reading_fails() -> None:
    def failing() -> Iterator[pa.Table]:
        yield add_table([add_row(1)])
        raise CorruptLogError("the base is damaged")

    storage = memory()
    write_classic_checkpoint(storage, content(), version=7, table="t")
    before = storage.read(PATH)
    with pytest.raises(CorruptLogError, match="the base is damaged"):
        write_classic_checkpoint(storage, content(adds=failing()), version=7, table="t")
    assert storage.read(PATH) == before


@pytest.mark.parametrize("field", ["path", "size", "modificationTime"])
def test_an_add_without_a_required_field_is_refused(field: str) -> None:
    storage = memory()
    broken = content(adds=[add_table([add_row(1), add_row(2, **{field: None})])])
    with pytest.raises(CorruptLogError, match=f"version 7 .*'add'.*{field} of"):
        write_classic_checkpoint(storage, broken, version=7, table="t")
    assert list(storage.list("_delta_log")) == []


def test_missing_partition_values_are_written_as_none_at_all() -> None:
    rows = rows_written(adds=[add_table([add_row(1, partitionValues=None), add_row(2)])])
    assert [row["add"]["partitionValues"] for row in rows if row["add"]] == [[], [("p", "x")]]

"""Which files a compaction chooses, from logs without data files."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_delta.engine import (
    BINARY,
    DOUBLE,
    LONG,
    STRING,
    TIMESTAMP,
    AddFile,
    DeltaTable,
    StructField,
    StructType,
)
from airflow_delta.engine.errors import InvalidArgumentError, UnsupportedFeatureError
from airflow_delta.engine.maintenance.optimize.packing import pack_files
from airflow_delta.engine.model.dv_descriptor import DeletionVectorDescriptor
from airflow_delta.engine.model.schema import DataType

SCHEMA = StructType((StructField("id", LONG), StructField("p", STRING)))
MB = 1 << 20


def table_of(
    path: Path,
    files: list[tuple[str, int, dict[str, Any]]],
    *,
    properties: dict[str, str] | None = None,
) -> DeltaTable:
    """A table of files by partition, size and what else the action has."""
    told = {"delta.enableDeletionVectors": "true", **(properties or {})}
    table = DeltaTable.create(str(path), SCHEMA, partition_by=["p"], properties=told)
    transaction = table.transaction("WRITE")
    for number, (partition, size, other) in enumerate(files):
        fields = {"stats": json.dumps({"numRecords": 100, "tightBounds": False}), **other}
        transaction.add_file(
            AddFile(f"{number}.parquet", {"p": partition}, size, 1, data_change=True, **fields)
        )
    transaction.commit()
    return table


def vector(rows: int) -> DeletionVectorDescriptor:
    return DeletionVectorDescriptor("u", "ab^-aqEH.-t@S}K{vb[*k^", 4, 40, rows)


def chosen(table: DeltaTable, **options: Any) -> list[set[int]]:
    """The numbers of the files of each bin."""
    files = table.optimize(dry_run=True, **options).plan.files.to_pylist()
    bins: dict[int, set[int]] = {}
    for file in files:
        bins.setdefault(file["bin"], set()).add(int(file["path"].partition(".")[0]))
    return sorted(bins.values(), key=min)


def test_a_table_without_clustering_columns_packs_files_that_others_have_clustered(
    tmp_path: Path,
) -> None:
    clustered = {"clustering_provider": "liquid"}
    files = [("a", MB, clustered), ("a", MB, clustered), ("a", MB, {}), ("a", MB, {})]
    assert chosen(table_of(tmp_path, files)) == [{0, 1, 2, 3}]


def test_small_files_of_a_partition_are_packed(tmp_path: Path) -> None:
    table = table_of(
        tmp_path,
        [
            *(("a", MB, {}), ("b", MB, {}), ("a", 2 * MB, {})),
            *(("b", 63 * MB, {}), ("b", 64 * MB, {}), ("c", MB, {})),
        ],
    )
    assert chosen(table) == [{0, 2}, {1, 3}]
    assert chosen(table, where="p = 'a' OR p = 'c'") == [{0, 2}]
    assert chosen(table, where=[("p", "in", ["b"])]) == [{1, 3}]
    assert chosen(table, min_file_size=128 * MB) == [{0, 2}, {1, 3, 4}]
    assert chosen(table, max_file_size=16 * MB, min_file_size=2 * MB) == []
    plan = table.optimize(dry_run=True).plan
    assert plan.to_dict() == {
        "version": 1,
        "files": 4,
        "bytes": 67 * MB,
        "new_files": 2,
        "partitions": 2,
        "deleted_rows": 0,
        "live_files": 6,
        "postponed_files": 0,
        "min_file_size": 64 * MB,
        "max_file_size": 128 * MB,
        "z_order_by": [],
        "cluster_by": [],
        "full": False,
        "reason": None,
    }


def test_the_table_says_how_large_files_should_be(tmp_path: Path) -> None:
    files: list[Any] = [("a", 3 * MB, {})] * 4
    table = table_of(tmp_path, files, properties={"delta.targetFileSize": "8mb"})
    assert chosen(table) == [{0, 1}, {2, 3}]
    assert chosen(table, max_file_size=12 * MB) == [{0, 1, 2, 3}]


def test_files_with_many_deleted_rows_are_rewritten_alone(tmp_path: Path) -> None:
    table = table_of(
        tmp_path,
        [
            ("a", 100 * MB, {"deletion_vector": vector(5)}),
            ("b", 100 * MB, {"deletion_vector": vector(6)}),
            ("c", MB, {"deletion_vector": vector(1)}),
            ("d", 100 * MB, {}),
        ],
    )
    assert chosen(table) == [{1}]
    assert chosen(table, max_deleted_ratio=0.01) == [{0}, {1}]
    assert chosen(table, max_deleted_ratio=0) == chosen(table, purge=True) == [{0}, {1}, {2}]
    assert table.optimize(dry_run=True, purge=True).plan.num_deleted_rows == 12


def test_deleted_rows_take_no_space(tmp_path: Path) -> None:
    large = ("a", 100 * MB, {"deletion_vector": vector(60)})
    table = table_of(tmp_path / "1", [large, ("a", 60 * MB, {}), ("a", 28 * MB, {})])
    assert chosen(table) == [{0, 1, 2}]
    # 40, 60 and 29 are more than 128: the two smallest make a bin.
    table = table_of(tmp_path / "2", [large, ("a", 60 * MB, {}), ("a", 29 * MB, {})])
    assert chosen(table) == [{0, 2}]


def test_what_an_earlier_run_wrote_is_no_reason_for_another(tmp_path: Path) -> None:
    tag = {"tags": {"OPTIMIZE_TARGET_SIZE": str(128 * MB)}}
    other = {"tags": {"OPTIMIZE_TARGET_SIZE": "1"}}
    table = table_of(
        tmp_path,
        [
            *(("a", MB, tag), ("a", MB, tag), ("b", MB, tag)),
            *(("b", MB, {}), ("c", MB, tag), ("c", MB, other)),
        ],
    )
    assert chosen(table) == [{2, 3}, {4, 5}]
    assert chosen(table, max_file_size=64 * MB) == [{0, 1}, {2, 3}, {4, 5}]


def test_a_budget_prefers_what_saves_most_files(tmp_path: Path) -> None:
    files: list[Any] = [("a", 30 * MB, {})] * 2 + [("b", MB, {})] * 10 + [("c", 20 * MB, {})] * 2
    table = table_of(tmp_path, files)
    assert [len(each) for each in chosen(table, max_bytes=10 * MB)] == [10]
    assert [len(each) for each in chosen(table, max_bytes=50 * MB)] == [10, 2]
    plan = table.optimize(dry_run=True, max_bytes=50 * MB).plan
    assert (plan.num_postponed, plan.size_in_bytes) == (2, 50 * MB)
    none = table.optimize(dry_run=True, max_bytes=MB).plan
    assert (
        none.reason
        == "no files that belong together have at most 1.0 MiB (1,048,576 bytes) (max_bytes)"
    )


def test_equal_partition_values_are_one_partition_however_they_are_spelled(tmp_path: Path) -> None:
    schema = StructType((StructField("id", LONG), StructField("p", LONG)))
    table = DeltaTable.create(str(tmp_path), schema, partition_by=["p"])
    transaction = table.transaction("WRITE")
    for number, text in enumerate(["1", "01", "", None, "2"]):
        transaction.add_file(AddFile(f"{number}.parquet", {"p": text}, 9, 1, data_change=True))
    transaction.commit()
    assert chosen(table) == [{0, 1}, {2, 3}]


def test_zeros_of_both_signs_are_two_partitions(tmp_path: Path) -> None:
    """They equal each other, and a reader returns the sign."""
    schema = StructType((StructField("id", LONG), StructField("p", DOUBLE)))
    table = DeltaTable.create(str(tmp_path), schema, partition_by=["p"])
    transaction = table.transaction("WRITE")
    for number, text in enumerate(["0.0", "-0.0", "0", "-0", "NaN", "NaN"]):
        transaction.add_file(AddFile(f"{number}.parquet", {"p": text}, 9, 1, data_change=True))
    transaction.commit()
    assert chosen(table) == [{0, 2}, {1, 3}, {4, 5}]


def test_timestamps_with_and_without_a_zone_are_two_partitions(tmp_path: Path) -> None:
    """Spark reads those without one in the zone of its session, so they may be other values."""
    schema = StructType((StructField("id", LONG), StructField("p", TIMESTAMP)))
    table = DeltaTable.create(str(tmp_path), schema, partition_by=["p"])
    transaction = table.transaction("WRITE")
    bare, zoned = "2020-01-01 00:00:00", "2020-01-01T00:00:00.000000Z"
    for number, text in enumerate([bare, zoned, f"{bare}.0", "2020-01-01 01:00:00+01:00"]):
        transaction.add_file(AddFile(f"{number}.parquet", {"p": text}, 9, 1, data_change=True))
    transaction.commit()
    assert chosen(table) == [{0, 2}, {1, 3}]


@pytest.mark.parametrize("type_", [STRING, BINARY])
def test_empty_texts_and_nulls_are_two_partitions(tmp_path: Path, type_: DataType) -> None:
    """Both are null by the protocol, but Delta Spark and the kernels read an empty text as a value."""
    schema = StructType((StructField("id", LONG), StructField("p", type_)))
    table = DeltaTable.create(str(tmp_path), schema, partition_by=["p"])
    transaction = table.transaction("WRITE")
    for number, text in enumerate(["", None, "", None]):
        transaction.add_file(AddFile(f"{number}.parquet", {"p": text}, 9, 1, data_change=True))
    transaction.commit()
    assert chosen(table) == [{0, 2}, {1, 3}]


def test_reasons_why_there_is_nothing_to_do(tmp_path: Path) -> None:
    table = DeltaTable.create(str(tmp_path / "empty"), SCHEMA)
    assert table.optimize().plan.reason == "there are no files"
    table = table_of(tmp_path / "t", [("a", MB, {}), ("b", MB, {})])
    assert "no two files of less than 64.0 MiB (67,108,864 bytes)" in str(
        table.optimize().plan.reason
    )
    assert table.optimize(purge=True).plan.reason == "no file has deleted rows"
    assert table.optimize().to_dict()["commits"] == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"min_file_size": 0}, "min_file_size=0: expected a number of bytes"),
        ({"max_file_size": "1mb"}, "max_file_size='1mb': expected a number of bytes"),
        ({"min_file_size": 2, "max_file_size": 1}, "min_file_size=2 is more than max_file_size=1"),
        ({"max_deleted_ratio": 2}, "max_deleted_ratio=2: expected a number from 0 to 1"),
        ({"max_bytes": -1}, "max_bytes=-1: expected a number of bytes"),
        (
            {"where": "id = 1"},
            r"where: the columns \['id'\] don't partition the table, which has the",
        ),
        ({"where": "no = 1"}, "names the column 'no', which the table doesn't have"),
    ],
)
def test_wrong_arguments_are_refused(
    tmp_path: Path, arguments: dict[str, Any], message: str
) -> None:
    table = DeltaTable.create(str(tmp_path), SCHEMA, partition_by=["p"])
    with pytest.raises(InvalidArgumentError, match=message):
        table.optimize(**arguments)


def test_files_in_the_form_of_iceberg_are_refused(tmp_path: Path) -> None:
    told = {"delta.enableIcebergCompatV2": "true", "delta.columnMapping.mode": "name"}
    table = DeltaTable.create(str(tmp_path), SCHEMA, properties=told)
    with pytest.raises(UnsupportedFeatureError, match="icebergCompatV2"):
        table.optimize()


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 50)), max_size=40), st.integers(1, 60))
def test_bins_are_those_of_a_loop(files: list[tuple[int, int]], most: int) -> None:
    """The rule of the reference implementation: sorted by size, a bin ends where it would overflow."""
    partitions, sizes = (np.array([f[n] for f in files], np.int64) for n in (0, 1))
    bins = pack_files(np.arange(len(files)), partitions, sizes, most=most)
    expected: list[Counter[tuple[int, int]]] = []
    for partition in sorted({p for p, _ in files}):
        current: list[int] = []
        for size in sorted(s for p, s in files if p == partition):
            if current and sum(current) + size > most:
                expected.append(Counter((partition, s) for s in current))
                current = []
            current.append(size)
        expected.append(Counter((partition, s) for s in current))
    found = [
        Counter(files[number] for number in bins.files[start:end].tolist())
        for start, end in zip(bins.starts[:-1].tolist(), bins.starts[1:].tolist(), strict=True)
    ]
    assert found == expected
    assert bins.sums(sizes).tolist() == [sum(s * n for (_, s), n in b.items()) for b in expected]

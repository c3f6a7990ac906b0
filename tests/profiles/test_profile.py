from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable as Peer
from deltalake import write_deltalake

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.errors import InvalidArgumentError
from airflow_delta.engine.model.schema import LONG, STRING, ArrayType, StructField, StructType
from airflow_delta.profiles.profile import (
    ColumnProfile,
    TableProfile,
    checked_leaves,
    count_partitions,
    leaf_columns,
    profile_by_statistics,
    profile_report,
)
from tests.log_builder import add, remove, write_table

SCHEMA = StructType(
    (
        StructField("id", LONG),
        StructField(
            "address",
            StructType(
                (
                    StructField("city", STRING),
                    StructField("zip.code", StructType((StructField("a`b", LONG),))),
                )
            ),
        ),
        StructField("zip.code", LONG),
        StructField("many", ArrayType(StructType((StructField("x", LONG),)))),
        StructField("none", StructType(())),
    )
)
NAMES = ["id", "address.city", "address.`zip.code`.`a``b`", "`zip.code`", "many"]


def test_leaf_columns_are_called_as_in_an_expression() -> None:
    assert [leaf.name for leaf in leaf_columns(SCHEMA)] == NAMES
    paths = [leaf.path for leaf in leaf_columns(SCHEMA)]
    assert paths[1:4] == [("address", "city"), ("address", "zip.code", "a`b"), ("zip.code",)]


@pytest.mark.parametrize(
    ("columns", "chosen"),
    [
        (None, NAMES),
        ([], []),
        (["many", "id"], ["id", "many"]),
        (["address"], NAMES[1:3]),
        (["address.`zip.code`", "address.city"], NAMES[1:3]),
        (["`zip.code`"], ["`zip.code`"]),
    ],
)
def test_columns_are_chosen_by_name_or_by_struct(
    columns: list[str] | None, chosen: list[str]
) -> None:
    assert [leaf.name for leaf in checked_leaves(columns, SCHEMA, table="/t")] == chosen


@pytest.mark.parametrize("unknown", ["ID", "city", "address.town", "zip.code", "many.x", ""])
def test_an_unknown_column_is_refused(unknown: str) -> None:
    with pytest.raises(InvalidArgumentError, match=r"unknown columns .* the table has id, address"):
        checked_leaves(["id", unknown], SCHEMA, table="/t")


@pytest.mark.parametrize("columns", ["id", [1]])
def test_what_is_no_list_of_names_is_refused(columns: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="expected a list of names"):
        checked_leaves(columns, SCHEMA, table="/t")


def test_a_report_has_the_figures_that_there_are() -> None:
    columns = (
        ColumnProfile("id", "long", 0, distinct=3, min=0, max=9, mean=0.0, stddev=None),
        ColumnProfile("many", "array<long>", 2),
    )
    report = profile_report(TableProfile(4, 3, "scan", 2, None, columns))
    assert json.loads(json.dumps(report)) == {
        "version": 4,
        "num_rows": 3,
        "counted_by": "scan",
        "num_files": 2,
        "num_partitions": None,
        "columns": {
            "id": {"type": "long", "nulls": 0, "distinct": 3, "min": 0, "max": 9, "mean": 0.0},
            "many": {"type": "array<long>", "nulls": 2},
        },
    }


def partitioned(root: Path, *values: dict[str, str | None], **options: Any) -> int | None:
    adds = [add(f"f{i}", partitionValues=value) for i, value in enumerate(values)]
    write_table(root, adds, **options)
    return count_partitions(DeltaTable(str(root)).snapshot())


def test_partitions_are_counted_by_what_their_values_mean(tmp_path: Path) -> None:
    fields = [
        {"name": name, "type": type_, "nullable": True, "metadata": {}}
        for name, type_ in (("at", "timestamp"), ("n", "integer"), ("id", "long"))
    ]
    same = ["2026-03-01 00:00:00", "2026-03-01T00:00:00.000000Z", "2026-03-01 00:00:00.0"]
    values: list[dict[str, str | None]] = [{"at": at, "n": "1"} for at in same]
    values += [{"at": same[0], "n": "2"}, {"at": None, "n": "2"}, {"at": "", "n": "2"}]
    schema = {"type": "struct", "fields": fields}
    told = {"partition_columns": ["n", "at"], "schema": schema}
    assert partitioned(tmp_path, *values, **told) == 3


def test_without_partition_columns_there_are_no_partitions(tmp_path: Path) -> None:
    assert partitioned(tmp_path, {}, {}) is None


def test_an_empty_table_has_no_partition(tmp_path: Path) -> None:
    assert partitioned(tmp_path, partition_columns=["part"]) == 0


def test_partitions_are_those_of_the_peer(tmp_path: Path) -> None:
    rows = pa.table({"a": [1, 1, 2, None] * 5, "b": ["x", "y"] * 10, "v": range(20)})
    write_deltalake(tmp_path, rows, partition_by=["a", "b"])
    snapshot = DeltaTable(str(tmp_path)).snapshot()
    assert count_partitions(snapshot) == len(Peer(tmp_path).partitions())


def test_rows_are_counted_by_statistics_without_those_that_vectors_delete(tmp_path: Path) -> None:
    counted = {"stats": '{"numRecords":9}'}
    vector = {
        "storageType": "u",
        "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^",
        "offset": 1,
        "sizeInBytes": 40,
        "cardinality": 6,
    }
    files = [add("a", **counted), add("b", **counted, deletionVector=vector)]
    write_table(tmp_path, files, [remove("a"), add("c")])
    table = DeltaTable(str(tmp_path))
    assert profile_by_statistics(table.snapshot(0)) == TableProfile(0, 12, "statistics", 2, None)
    assert profile_by_statistics(table.snapshot(1)) is None

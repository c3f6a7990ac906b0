"""Which files are sorted together, from logs without data files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from airflow_delta.engine import (
    BOOLEAN,
    LONG,
    STRING,
    AddFile,
    ArrayType,
    DeltaTable,
    StructField,
    StructType,
)
from airflow_delta.engine.errors import InvalidArgumentError
from airflow_delta.engine.model.dv_descriptor import DeletionVectorDescriptor

GB = 1 << 30
SCHEMA = StructType(
    (
        StructField("a", LONG),
        StructField("b", STRING),
        StructField("s", StructType((StructField("x.y", LONG),))),
        StructField("ok", BOOLEAN),
        StructField("list", ArrayType(LONG)),
        StructField("p", STRING),
    )
)
STATS = json.dumps(
    {
        "numRecords": 100,
        "minValues": {"a": 1, "b": "a"},
        "maxValues": {"a": 2, "b": "b"},
        "nullCount": {"a": 0, "b": 0},
        "tightBounds": False,
    }
)
File = tuple[str, int, dict[str, Any]]


def table_of(path: Path, files: list[File], **options: Any) -> DeltaTable:
    """A table of files by partition, size and what else the action has."""
    properties = {"delta.enableDeletionVectors": "true", **options.pop("properties", {})}
    table = DeltaTable.create(str(path), SCHEMA, properties=properties, **options)
    if not files:
        return table
    transaction = table.transaction("WRITE")
    for number, (partition, size, other) in enumerate(files):
        values = {"p": partition} if options.get("partition_by") else {}
        name = f"{number}.parquet"
        transaction.add_file(
            AddFile(name, values, size, 1, data_change=True, **{"stats": STATS, **other})
        )
    transaction.commit()
    return table


def cube(name: str, *columns: str, provider: str | None = "liquid") -> dict[str, Any]:
    by = json.dumps(columns or ("a", "b"))
    return {
        "tags": {"ZCUBE_ID": name, "ZCUBE_ZORDER_BY": by},
        "clustering_provider": provider,
    }


def deleted(rows: int) -> dict[str, Any]:
    vector = DeletionVectorDescriptor("u", "ab^-aqEH.-t@S}K{vb[*k^", 4, 40, rows)
    return {"deletion_vector": vector}


def chosen(table: DeltaTable, **options: Any) -> tuple[list[list[int]], int]:
    """The numbers of the files of each bin, and how many bins are sorted."""
    plan = table.optimize(dry_run=True, **options).plan
    bins: dict[int, list[int]] = {}
    for file in plan.files.to_pylist():
        bins.setdefault(file["bin"], []).append(int(file["path"].partition(".")[0]))
    assert (plan.reason is None) == bool(bins)
    return [sorted(each) for each in bins.values()], plan.num_sorted


def clustered(path: Path, files: list[dict[str, Any] | int]) -> DeltaTable:
    """A table that is clustered by a and b, whose files have a gigabyte, unless it is a size in it."""
    listed: list[File] = [
        ("", each * GB, {}) if isinstance(each, int) else ("", each.pop("size", GB), each)
        for each in files
    ]
    return table_of(path, listed, cluster_by=["a", "b"])


def test_files_that_are_not_clustered_join_the_cubes_that_are_not_full(tmp_path: Path) -> None:
    table = clustered(
        tmp_path,
        [
            *(1, cube("one"), cube("full"), {**cube("full"), "size": 99 * GB}, cube("one")),
            *(2, {**cube("full but for deleted rows"), "size": 100 * GB, **deleted(1)}),
        ],
    )
    assert chosen(table) == ([[0, 1, 4, 5, 6]], 1)
    # Bins have up to one and a half times the size of a full cube.
    assert chosen(table, min_cube_size=2 * GB) == ([[0, 5]], 1)
    # The other file of the cube "one" is sorted already, and fits into no bin with others.
    assert chosen(table, min_cube_size=3 * GB) == ([[0, 1, 5]], 1)
    assert chosen(table, full=True)[0] == [[0, 1, 2, 3, 4, 5], [6]]


def test_the_health_of_a_table_has_the_gain_of_clustering(tmp_path: Path) -> None:
    gain = clustered(tmp_path, [{"size": 1000} for _ in range(5)]).health().optimize
    assert (gain.num_files, gain.size_in_bytes) == (4, 5000)
    gain = clustered(tmp_path / "cube", [cube("one"), cube("one")]).health().optimize
    assert (gain.num_files, gain.size_in_bytes) == (0, 0)


def test_a_single_cube_stays(tmp_path: Path) -> None:
    table = clustered(tmp_path, [cube("one"), {**cube("one"), **deleted(5)}])
    assert chosen(table) == ([], 0)
    assert "all files are clustered by a, b" in str(table.optimize().plan.reason)
    assert chosen(table, full=True) == ([[0, 1]], 1)


def test_cubes_of_which_no_two_fit_together_stay(tmp_path: Path) -> None:
    """Each would be sorted into itself again, in every run."""
    files = [("", 80 * GB, cube(name)) for name in "abcd"]
    table = table_of(tmp_path, files, cluster_by=["a", "b"])
    assert chosen(table) == ([], 0)
    assert chosen(table, full=True) == ([[0], [1], [2], [3]], 4)


def test_a_single_file_that_is_not_clustered_is_sorted(tmp_path: Path) -> None:
    assert chosen(clustered(tmp_path, [1])) == ([[0]], 1)


def test_what_others_have_clustered_stays_unless_all_is_sorted(tmp_path: Path) -> None:
    table = clustered(
        tmp_path,
        [
            *(
                cube("one", "b", "a"),
                cube("two", provider="other"),
                {"clustering_provider": "other"},
            ),
            *(cube("three", provider=None), cube("four"), {"clustering_provider": "liquid"}),
        ],
    )
    assert chosen(table) == ([[3, 4, 5]], 1)
    assert chosen(table, full=True) == ([[0, 1, 2, 3, 4, 5]], 1)


def test_cubes_are_known_by_logical_and_by_physical_names(tmp_path: Path) -> None:
    table = table_of(
        tmp_path,
        [],
        cluster_by=["a", ["s", "x.y"]],
        properties={"delta.columnMapping.mode": "name"},
    )
    from airflow_delta.engine.maintenance.optimize.sorting.order import clustering_order

    order = clustering_order(table.snapshot())
    assert order is not None
    assert order.names == ["a", "s.`x.y`"]
    physical = [".".join(f"`{part}`" for part in path) for path in order.physical]
    assert order.is_of_columns(json.dumps(order.names))
    assert order.is_of_columns(json.dumps(physical))
    assert not order.is_of_columns(json.dumps(["a"]))
    assert not order.is_of_columns("{")
    assert not order.is_of_columns(None)


def test_sorted_files_with_many_deleted_rows_are_rewritten_alone(tmp_path: Path) -> None:
    table = clustered(
        tmp_path,
        [
            *({**cube("full"), "size": 200 * GB}, {**cube("full"), **deleted(6)}),
            *({**cube("full"), **deleted(5)}, {**cube("one", "b"), **deleted(50)}),
        ],
    )
    assert chosen(table) == ([[1], [3]], 0)
    assert chosen(table, purge=True) == ([[1], [2], [3]], 0)
    assert chosen(table, max_bytes=GB) == ([[1]], 0)


def test_a_purge_packs_only_what_is_not_sorted(tmp_path: Path) -> None:
    small = {"size": 1000, **deleted(1)}
    files = [{**cube("one"), **small}, small.copy(), small.copy(), {**cube("one"), **small}]
    assert chosen(clustered(tmp_path, [*files]), purge=True) == ([[1, 2], [0], [3]], 0)


def test_a_budget_takes_files_that_are_not_clustered_first(tmp_path: Path) -> None:
    table = clustered(
        tmp_path,
        [
            *(3, 1, 2, {**cube("large"), "size": 5 * GB}, cube("small"), cube("small")),
        ],
    )
    assert chosen(table, max_bytes=4 * GB) == ([[1, 2]], 1)
    assert chosen(table, max_bytes=8 * GB) == ([[0, 1, 2, 4, 5]], 1)
    assert chosen(table, max_bytes=GB - 1) == ([], 0)
    plan = table.optimize(dry_run=True, max_bytes=8 * GB).plan
    assert (plan.num_postponed, plan.size_in_bytes) == (1, 8 * GB)


def test_a_budget_does_not_sort_one_cube_again(tmp_path: Path) -> None:
    table = clustered(tmp_path, [cube("one"), {**cube("two"), "size": 9 * GB}])
    assert chosen(table) == ([[0, 1]], 1)
    assert chosen(table, max_bytes=5 * GB) == ([], 0)


def test_a_table_that_is_clustered_by_no_columns_is_compacted(tmp_path: Path) -> None:
    table = clustered(
        tmp_path, [{**cube("one"), "size": 5}, {**cube("two"), "size": 5}, {"size": 5}]
    )
    table.alter.cluster_by([])
    assert chosen(table) == ([[0, 1, 2]], 0)
    with pytest.raises(InvalidArgumentError, match="has no clustering columns"):
        table.optimize(full=True)


def z_ordered(by: list[str], run: str) -> dict[str, Any]:
    return {"tags": {"Z_ORDER": json.dumps({"by": by, "id": run})}}


def test_each_partition_is_sorted_unless_it_was_at_once(tmp_path: Path) -> None:
    table = table_of(
        tmp_path,
        [
            *(("p", 1, z_ordered(["a", "b"], "1")), ("q", 1, z_ordered(["a", "b"], "1"))),
            *(("p", 1, z_ordered(["a", "b"], "1")), ("q", 1, z_ordered(["a", "b"], "2"))),
            *(("r", 2, {}), ("s", 2, z_ordered(["b", "a"], "1")), ("t", 1, {"tags": {"x": "y"}})),
            ("t", 1, {"tags": {"Z_ORDER": "["}}),
        ],
        partition_by=["p"],
    )
    assert chosen(table, z_order_by=["a", "b"]) == ([[1, 3], [4], [5], [6, 7]], 4)
    assert chosen(table, z_order_by=["a", "b"], where="p = 'q'") == ([[1, 3]], 1)
    assert chosen(table, z_order_by=["a", "b"], full=True)[1] == 5
    # Most files for its bytes.
    assert chosen(table, z_order_by=["a", "b"], max_bytes=2)[0] == [[6, 7]]


def test_a_sorted_partition_keeps_its_order_when_deleted_rows_go(tmp_path: Path) -> None:
    table = table_of(
        tmp_path,
        [("p", 1, {**z_ordered(["a"], "1"), **deleted(20)}), ("p", 1, z_ordered(["a"], "1"))],
        partition_by=["p"],
    )
    assert chosen(table, z_order_by=["a"]) == ([[0]], 0)
    assert chosen(table, z_order_by=["a"], max_deleted_ratio=0.5) == ([], 0)


def test_without_columns_sorted_files_keep_their_order_unless_they_are_small(
    tmp_path: Path,
) -> None:
    is_sorted = {**z_ordered(["a"], "1"), **deleted(20)}
    small = [("", 10, is_sorted), ("", 10, deleted(20))]
    table = table_of(tmp_path, [("", GB, is_sorted), ("", GB, is_sorted), *small])
    assert chosen(table, purge=True, max_file_size=4 * GB) == ([[3], [0], [1], [2]], 0)
    assert chosen(table, max_file_size=GB, min_file_size=100) == ([[2, 3], [0], [1]], 0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"z_order_by": "a"}, r"expected a list of columns, such as \['a'\]"),
        (
            {"z_order_by": ["nope"]},
            "nope is no column of the table, or is a struct; possible columns are a, b",
        ),
        ({"z_order_by": ["s"]}, "s is no column of the table, or is a struct"),
        ({"z_order_by": ["p"]}, "p is a partition column"),
        (
            {"z_order_by": ["ok"]},
            "ok is of the type boolean, which has no least and greatest values",
        ),
        ({"z_order_by": ["list"]}, "list is of the type array"),
        (
            {"z_order_by": [["s", "x.y"]]},
            "s.`x.y` gets no statistics, so no query would skip files by it",
        ),
        ({"z_order_by": ["a", "a"]}, "a is listed twice"),
        ({"z_order_by": [5]}, "z_order_by: 5 is no column's name"),
        ({"z_order_by": ["a"] * 33}, "expected at most 32 columns"),
        ({"z_order_by": ["a"], "purge": True}, "z_order_by and purge exclude each other"),
        ({"full": True}, "no z_order_by is given"),
        (
            {"full": True, "z_order_by": ["a"], "max_bytes": 5},
            "full=True and max_bytes exclude each other",
        ),
        ({"min_cube_size": 0}, "min_cube_size=0: expected a number of bytes"),
    ],
)
def test_wrong_arguments_are_refused(
    tmp_path: Path, arguments: dict[str, Any], message: str
) -> None:
    told = {"delta.dataSkippingNumIndexedCols": "2"}
    table = table_of(tmp_path, [], partition_by=["p"], properties=told)
    with pytest.raises(InvalidArgumentError, match=message):
        table.optimize(**arguments)


def test_a_clustered_table_has_no_z_order(tmp_path: Path) -> None:
    table = clustered(tmp_path, [])
    with pytest.raises(InvalidArgumentError, match="which replaces a Z-order"):
        table.optimize(z_order_by=["a"])
    with pytest.raises(InvalidArgumentError, match="full=True and purge exclude each other"):
        table.optimize(full=True, purge=True)

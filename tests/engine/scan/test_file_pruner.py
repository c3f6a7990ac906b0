"""The front: names, column mapping, errors, many files, and snapshots."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.arrow.statistics.parse import STATS_ROWS
from airflow_delta.engine.errors import InvalidArgumentError, InvalidTableError
from airflow_delta.engine.model.schema_json import parse_schema
from airflow_delta.engine.scan.file_pruner import FilePruner
from tests.engine.scan.rows import adds, kept, schema, stats

COLUMNS = schema(
    a="long", p="string", **{"a.b": "long", ".x": "long"},
    s={"type": "struct", "fields": [{"name": "x", "type": "long", "nullable": True, "metadata": {}}]},
)  # fmt: skip


@pytest.mark.parametrize("predicate", ["a > 5", None, True, ("a", ">", 5), pa.scalar(True)])
def test_a_predicate_is_an_expression(predicate: Any) -> None:
    with pytest.raises(InvalidArgumentError, match=r"expected a pyarrow\.compute\.Expression"):
        kept(predicate, adds(None), COLUMNS)


@pytest.mark.parametrize(
    ("predicate", "column"),
    [
        (pc.field("zz") > 5, "zz"), (pc.field("A") > 5, "A"), (pc.field("s", "y") > 5, "s.y"),
        (pc.field("a", "x") > 5, "a.x"), (pc.field("s.x") > 5, "s.x"),
        ((pc.field("a") > 5) | pc.starts_with(pc.field("zz"), "x"), "zz"),
    ],
)  # fmt: skip
def test_an_unknown_column_is_named(predicate: Any, column: str) -> None:
    with pytest.raises(InvalidArgumentError, match="names the column") as caught:
        kept(predicate, adds(None), COLUMNS)
    assert caught.value.column == column
    assert caught.value.table == "memory://table"
    assert pickle.loads(pickle.dumps(caught.value)).column == column


def test_a_column_by_number_tells_nothing() -> None:
    assert kept(pc.field(0) > 5, adds(stats(high={"a": 1})), COLUMNS) == [0]


@pytest.mark.parametrize("name", ["a.b", ".x"])
def test_names_are_no_paths(name: str) -> None:
    files = adds(stats(high={name: 5}), stats(high={name: 6}))
    assert kept(pc.field(name) > 5, files, COLUMNS) == [1]


def test_only_what_is_needed_is_read() -> None:
    def needed(predicate: Any) -> tuple[str, ...]:
        return FilePruner(
            predicate, schema=COLUMNS, partition_columns=("p",), mapping_mode="none", table="t"
        ).columns

    assert needed(pc.field("p") == "x") == ("partitionValues",)
    assert needed(pc.field("a") > 5) == ("stats",)
    assert needed((pc.field("a") > 5) & (pc.field("p") == "x")) == ("partitionValues", "stats")
    assert needed(pc.field("a") + 1 > 5) == ()
    assert needed(pc.field("s").is_null()) == ()
    assert needed(pc.scalar(True)) == ()


def test_many_files_in_many_chunks() -> None:
    count = 2 * STATS_ROWS + 5
    texts = [stats(low={"a": number}, high={"a": number}) for number in range(count)]
    files = adds(*texts, partitions=[{"p": str(number % 3)} for number in range(count)])
    files = pa.concat_tables([files.slice(0, 0), files.slice(0, 7), files.slice(7)])
    predicate = pc.field("a").isin([0, 6, 7, STATS_ROWS, count - 1]) & (pc.field("p") != "2")
    expected = [n for n in (0, 6, 7, STATS_ROWS, count - 1) if n % 3 != 2]
    assert kept(predicate, files, COLUMNS, partition_columns=("p",)) == expected
    assert kept(predicate, files.slice(0, 0), COLUMNS, partition_columns=("p",)) == []


def test_long_chains_are_no_deep_trees() -> None:
    predicate = pc.field("a") == 0
    for number in range(1, 3000):
        predicate = predicate | (pc.field("a") == number)
    files = adds(stats(low={"a": 2999}, high={"a": 9999}), stats(low={"a": 3000}, high={"a": 9999}))
    assert kept(predicate, files, COLUMNS) == [0]


def mapped() -> Any:
    def field(name: str, physical: str, number: int, type_: Any = "long") -> dict[str, Any]:
        metadata = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": physical}
        return {"name": name, "type": type_, "nullable": True, "metadata": metadata}

    inner = {"type": "struct", "fields": [field("x", "col-4", 4)]}
    fields = [field("a", "col-1", 1), field("p", "col-2", 2), field("s", "col-3", 3, inner)]
    return parse_schema(json.dumps({"type": "struct", "fields": fields}), "test")


@pytest.mark.parametrize("mode", ["name", "id"])
def test_mapped_columns_go_by_their_physical_names(mode: str) -> None:
    files = adds(
        stats(high={"col-1": 5, "col-3": {"col-4": 5}}),
        stats(high={"a": 5, "s": {"x": 5}}),
        partitions=[{"col-2": "1", "p": "2"}, {"col-2": "2", "p": "1"}],
    )

    def chosen(predicate: Any) -> list[int]:
        return kept(predicate, files, mapped(), partition_columns=("p",), mapping_mode=mode)

    assert chosen(pc.field("a") > 5) == [1]
    assert chosen(pc.field("s", "x") > 5) == [1]
    assert chosen(pc.field("p") == 1) == [0]
    with pytest.raises(InvalidTableError, match="physical name"):
        kept(pc.field("a") > 5, files, COLUMNS, mapping_mode=mode)


def test_without_a_mode_left_over_physical_names_mean_nothing() -> None:
    files = adds(stats(high={"col-1": 5}), stats(high={"a": 5}))
    assert kept(pc.field("a") > 5, files, mapped()) == [0]


@pytest.fixture
def table(tmp_path: Path) -> DeltaTable:
    """Four files by another writer: two partitions, two appends."""
    for start in (0, 100):
        rows = pa.table(
            {"p": ["x", "x", "y", "y"], "a": range(start, start + 4), "t": ["a", "b", "c", None]}
        )
        deltalake.write_deltalake(tmp_path, rows, partition_by=["p"], mode="append")
    return DeltaTable(str(tmp_path))


def test_the_files_of_a_snapshot(table: DeltaTable) -> None:
    snapshot = table.snapshot()
    everything = snapshot.files()
    assert everything.num_rows == 4
    some = snapshot.files(predicate=(pc.field("p") == "x") & (pc.field("a") >= 100))
    assert some.schema == everything.schema
    (values,) = some["partitionValues"].to_pylist()
    assert values == [("p", "x")]
    assert '"a":100' in some["stats"][0].as_py()
    columns = ["path", "size"]
    narrow = snapshot.files(columns=columns, predicate=pc.field("a") < 50)
    assert narrow.column_names == columns
    assert narrow.num_rows == 2
    assert snapshot.files(columns=["size"], predicate=pc.field("t") == "z").num_rows == 0


def test_the_locations_of_a_snapshot(table: DeltaTable) -> None:
    snapshot = table.snapshot()
    peer = deltalake.DeltaTable(snapshot.table).file_uris()
    uris = snapshot.file_uris(predicate=pc.field("p") == "y")
    assert sorted(uris) == sorted(uri for uri in peer if "/p=y/" in uri)
    assert len(uris) == 2
    assert len(snapshot.file_uris(pc.field("t").is_null())) == 2


def test_checkpoints_prune_alike(table: DeltaTable) -> None:
    predicate = (pc.field("a") > 2) & (pc.field("a") < 102)
    before = sorted(table.snapshot().file_uris(predicate))
    deltalake.DeltaTable(table.snapshot().table).create_checkpoint()
    assert sorted(table.snapshot().file_uris(predicate)) == before
    assert len(before) == 2


def test_an_unknown_column_of_a_snapshot(table: DeltaTable) -> None:
    with pytest.raises(InvalidArgumentError, match="'zz', which the table doesn't have"):
        table.snapshot().files(predicate=pc.field("zz") == 1)

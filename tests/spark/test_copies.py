from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable as Peer
from deltalake import write_deltalake

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.errors import (
    ConcurrentTransactionError,
    InvalidArgumentError,
    StorageError,
)
from airflow_delta.spark import copies, write, writing
from airflow_delta.spark.copies import MARKER, copy_snapshot
from airflow_delta.spark.copy_rules import CopyRequest
from airflow_delta.spark.hadoop_directories import HadoopDirectories
from tests.spark.conftest import bag, rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def source(spark: SparkSession, tmp_path: Path) -> str:
    """A table of three versions with ids 0, then 0 to 1, then 0 to 2; partitioned by ``p``."""
    table = str(tmp_path / "source")
    for number in range(3):
        row = spark.range(number, number + 1).selectExpr("id", "'x y' AS p")
        write(row.coalesce(1), table, partition_by=["p"])
    return table


def ids(spark: SparkSession, target: Path) -> list[int]:
    return sorted(row["id"] for row in rows_of(spark.read.parquet(str(target))))


def siblings(target: Path) -> list[str]:
    return sorted(path.name for path in target.parent.iterdir())


def delta_ids(target: Path) -> list[int]:
    return sorted(pa.table(Peer(target).to_pyarrow_table())["id"].to_pylist())


def test_a_parquet_copy_holds_the_version_asked_for(
    spark: SparkSession, source: str, tmp_path: Path
) -> None:
    target = tmp_path / "a b%"
    result = copy_snapshot(spark, CopyRequest(source, 1, str(target)))
    assert (result.num_rows, result.num_files) == (2, 2)
    got = rows_of(spark.read.parquet(str(target)))
    assert bag(got) == bag([{"id": 0, "p": "x y"}, {"id": 1, "p": "x y"}])
    marker = json.loads((target / MARKER).read_text())
    assert (marker["table_uri"], marker["version"], marker["num_rows"]) == (source, 1, 2)
    assert siblings(target) == ["a b%", "source"]


def test_a_copy_replaces_an_earlier_one_and_nothing_else(
    spark: SparkSession, source: str, tmp_path: Path
) -> None:
    target = tmp_path / "copy"
    for version in (0, 2, 2):
        copy_snapshot(spark, CopyRequest(source, version, str(target)))
    assert ids(spark, target) == [0, 1, 2]
    with pytest.raises(
        InvalidArgumentError, match="a copy of version 2, which is newer than version 1"
    ):
        copy_snapshot(spark, CopyRequest(source, 1, str(target)))
    assert ids(spark, target) == [0, 1, 2]
    copy_snapshot(spark, CopyRequest(source, 1, str(target), replace_newer=True))
    assert ids(spark, target) == [0, 1]
    assert siblings(target) == ["copy", "source"]


def test_what_is_no_copy_of_the_table_stays(
    spark: SparkSession, source: str, tmp_path: Path
) -> None:
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    # An empty directory is no loss.
    copy_snapshot(spark, CopyRequest(source, 0, str(foreign)))
    write(spark.range(5), str(tmp_path / "other"))
    with pytest.raises(InvalidArgumentError, match="it holds no copy of this table"):
        copy_snapshot(spark, CopyRequest(str(tmp_path / "other"), 0, str(foreign)))
    (foreign / MARKER).write_text("{")
    with pytest.raises(InvalidArgumentError, match=f"its {MARKER} can't be read"):
        copy_snapshot(spark, CopyRequest(source, 1, str(foreign)))
    (foreign / MARKER).unlink()
    with pytest.raises(InvalidArgumentError, match="which no earlier copy has written"):
        copy_snapshot(spark, CopyRequest(source, 1, str(foreign)))
    assert ids(spark, foreign) == [0]


@pytest.mark.parametrize("format_", ["parquet", "delta"])
@pytest.mark.parametrize("place", ["", "/inside", "/..", "/../link"])
def test_table_and_copy_must_lie_apart(
    spark: SparkSession, source: str, tmp_path: Path, format_: str, place: str
) -> None:
    (tmp_path / "link").symlink_to(source)
    before = sorted(Path(source).rglob("*"))
    with pytest.raises(InvalidArgumentError, match="lie inside one another"):
        copy_snapshot(spark, CopyRequest(source, 0, f"{source}{place}", format_))
    assert sorted(Path(source).rglob("*")) == before


def test_a_copy_that_fails_leaves_what_was_there(
    spark: SparkSession, source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "copy"
    copy_snapshot(spark, CopyRequest(source, 0, str(target)))
    rename = HadoopDirectories.rename

    def fails(self: HadoopDirectories, path: str, new_path: str) -> None:
        if ".unfinished-" in path:
            raise StorageError("no")
        rename(self, path, new_path)

    monkeypatch.setattr(HadoopDirectories, "rename", fails)
    with pytest.raises(StorageError, match="no"):
        copy_snapshot(spark, CopyRequest(source, 1, str(target)))
    assert ids(spark, target) == [0]
    assert siblings(target) == ["copy", "source"]


def test_a_newer_copy_that_comes_first_wins(
    spark: SparkSession, source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "copy"
    list_data_files = copies.list_data_files

    def slow(*arguments: Any) -> Any:
        # Another run finishes while this one has written its files.
        monkeypatch.setattr(copies, "list_data_files", list_data_files)
        copy_snapshot(spark, CopyRequest(source, 2, str(target)))
        return list_data_files(*arguments)

    monkeypatch.setattr(copies, "list_data_files", slow)
    with pytest.raises(InvalidArgumentError, match="newer than version 1"):
        copy_snapshot(spark, CopyRequest(source, 1, str(target)))
    assert ids(spark, target) == [0, 1, 2]
    assert siblings(target) == ["copy", "source"]


@pytest.mark.parametrize(
    ("module", "step", "error", "message"),
    [
        # Before the transaction begins: it sees the newer copy.
        (copies, "write_table", InvalidArgumentError, "newer than version 1"),
        # While the rows are written: the commit finds it.
        (writing, "list_data_files", ConcurrentTransactionError, "airflow-delta:copy-of"),
    ],
)
def test_a_newer_delta_copy_that_comes_first_wins(
    spark: SparkSession,
    source: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    module: Any,
    step: str,
    error: type[Exception],
    message: str,
) -> None:
    target = tmp_path / "copy"
    copy_snapshot(spark, CopyRequest(source, 0, str(target), "delta"))
    original = getattr(module, step)

    def slow(*arguments: Any, **named: Any) -> Any:
        monkeypatch.setattr(module, step, original)
        copy_snapshot(spark, CopyRequest(source, 2, str(target), "delta"))
        return original(*arguments, **named)

    monkeypatch.setattr(module, step, slow)
    with pytest.raises(error, match=message):
        copy_snapshot(spark, CopyRequest(source, 1, str(target), "delta"))
    assert delta_ids(target) == [0, 1, 2]


def test_a_parquet_copy_of_no_rows_has_the_columns(
    spark: SparkSession, source: str, tmp_path: Path
) -> None:
    write(spark.sql("SELECT 1 AS id, null AS nothing WHERE 1 = 0"), str(tmp_path / "none"))
    target = tmp_path / "copy"
    assert copy_snapshot(spark, CopyRequest(str(tmp_path / "none"), 0, str(target))).num_rows == 0
    assert spark.read.parquet(str(target)).columns == ["id"]


def test_a_delta_copy_is_a_table_with_a_commit_for_each_copy(
    spark: SparkSession, source: str, tmp_path: Path
) -> None:
    target = tmp_path / "copy"
    first = copy_snapshot(spark, CopyRequest(source, 1, str(target), "delta"))
    assert (first.num_rows, first.committed_version) == (2, 0)
    assert Peer(target).metadata().partition_columns == ["p"]
    second = copy_snapshot(spark, CopyRequest(source, 2, str(target), "delta"))
    assert second.committed_version == 1
    assert delta_ids(target) == [0, 1, 2]
    with pytest.raises(InvalidArgumentError, match="newer than version 0"):
        copy_snapshot(spark, CopyRequest(source, 0, str(target), "delta"))
    third = CopyRequest(source, 0, str(target), "delta", replace_newer=True)
    assert copy_snapshot(spark, third).committed_version == 2
    assert delta_ids(target) == [0]


def test_a_repeated_delta_copy_finds_its_commit(
    spark: SparkSession, source: str, tmp_path: Path
) -> None:
    target = tmp_path / "copy"
    request = CopyRequest(source, 1, str(target), "delta", txn=("dag.task", 5))
    first = copy_snapshot(spark, request)
    later = CopyRequest(source, 2, str(target), "delta", txn=("dag.task", 6))
    assert copy_snapshot(spark, later).committed_version == 1
    # Though a later run has replaced it.
    assert copy_snapshot(spark, request) == first
    assert Peer(target).version() == 1


def test_a_cleared_task_that_copies_another_version_makes_its_copy(
    spark: SparkSession, source: str, tmp_path: Path
) -> None:
    target = tmp_path / "copy"
    first = CopyRequest(source, 1, str(target), "delta", txn=("dag.task", 5))
    copy_snapshot(spark, first)
    cleared = CopyRequest(source, 2, str(target), "delta", txn=("dag.task", 5))
    for committed in (1, 2):  # its own retry can't find it, and makes the same copy again
        result = copy_snapshot(spark, cleared)
        assert (result.num_rows, result.committed_version) == (3, committed)
        assert delta_ids(target) == [0, 1, 2]


@pytest.mark.parametrize(("version", "rows", "committed"), [(1, 2, 0), (2, 3, 1)])
def test_a_delta_copy_that_loses_to_another_try_looks_at_what_that_one_copied(
    spark: SparkSession,
    source: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    version: int,
    rows: int,
    committed: int,
) -> None:
    target = tmp_path / "copy"
    write_table = copies.write_table

    def slow(*arguments: Any, **named: Any) -> Any:
        # Another try, whose version is 1, commits before the transaction of this one begins.
        monkeypatch.setattr(copies, "write_table", write_table)
        copy_snapshot(spark, CopyRequest(source, 1, str(target), "delta", txn=("dag.task", 5)))
        return write_table(*arguments, **named)

    monkeypatch.setattr(copies, "write_table", slow)
    request = CopyRequest(source, version, str(target), "delta", txn=("dag.task", 5))
    result = copy_snapshot(spark, request)
    assert (result.num_rows, result.committed_version) == (rows, committed)
    assert result.num_files == DeltaTable(str(target)).snapshot().num_files
    assert delta_ids(target) == list(range(rows))


def test_rows_that_nobody_has_counted_are_unknown(
    spark: SparkSession, source: str, tmp_path: Path
) -> None:
    target = tmp_path / "copy"
    request = CopyRequest(source, 1, str(target), "delta", txn=("dag.task", 5))
    copy_snapshot(spark, request)
    commit = target / "_delta_log" / f"{0:020}.json"
    actions = [json.loads(line) for line in commit.read_text().splitlines()]
    for action in actions:
        action.get("add", {}).pop("stats", None)
    commit.write_text("".join(json.dumps(action) + "\n" for action in actions))
    found = copy_snapshot(spark, request)
    assert (found.num_rows, found.num_files, found.committed_version) == (None, 2, 0)


def test_a_delta_copy_keeps_its_columns_and_a_parquet_copy_follows(
    spark: SparkSession, source: str, tmp_path: Path
) -> None:
    delta, parquet = tmp_path / "delta", tmp_path / "parquet"
    copy_snapshot(spark, CopyRequest(source, 0, str(delta), "delta"))
    copy_snapshot(spark, CopyRequest(source, 0, str(parquet)))
    row = pa.table({"id": [9], "p": ["z"], "q": ["new"]})
    write_deltalake(source, row, mode="append", schema_mode="merge")
    before = sorted(delta.rglob("*"))
    with pytest.raises(InvalidArgumentError, match=r"lacks \['q'\].*a parquet copy follows any"):
        copy_snapshot(spark, CopyRequest(source, 3, str(delta), "delta"))
    assert sorted(delta.rglob("*")) == before
    copy_snapshot(spark, CopyRequest(source, 3, str(parquet)))
    assert ids(spark, parquet) == [0, 1, 2, 9]
    assert "q" in spark.read.parquet(str(parquet)).columns


def test_a_delta_copy_is_made_where_an_earlier_try_was_killed(
    spark: SparkSession, source: str, tmp_path: Path
) -> None:
    target = tmp_path / "copy"
    write(spark.range(5), str(target))
    shutil.rmtree(target / "_delta_log")  # it comes after the data
    copy_snapshot(spark, CopyRequest(source, 0, str(target), "delta"))
    assert delta_ids(target) == [0]


def test_a_delta_table_that_is_no_copy_stays(
    spark: SparkSession, source: str, tmp_path: Path
) -> None:
    target = tmp_path / "theirs"
    write(spark.range(5), str(target))
    with pytest.raises(InvalidArgumentError, match="it holds no copy of this table"):
        copy_snapshot(spark, CopyRequest(source, 0, str(target), "delta"))
    files = tmp_path / "files"
    spark.range(1).write.parquet(str(files))
    with pytest.raises(InvalidArgumentError, match="which no earlier copy has written"):
        copy_snapshot(spark, CopyRequest(source, 0, str(files), "delta"))
    assert delta_ids(target) == [0, 1, 2, 3, 4]


def test_an_unknown_format_is_refused(spark: SparkSession, source: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="unknown format 'csv'"):
        copy_snapshot(spark, CopyRequest(source, 0, str(tmp_path / "copy"), "csv"))

"""Merges whose source is read from the table itself: never with rows that are out of date."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from airflow_delta.engine import OptimisticTransaction
from airflow_delta.engine.errors import CommitConflictError
from airflow_delta.spark import delete, merge, read_snapshot, update, write
from tests.deep import deep_but_for
from tests.spark.dml.tables import all_files, rows_in

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@pytest.fixture(scope="module")
def written(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The table that each test has a copy of."""
    path = tmp_path_factory.mktemp("written") / "t"
    rows = spark.sql("SELECT * FROM VALUES (1, 'a', 1), (2, 'b', 2) AS t(id, p, v)")
    write(rows, str(path), partition_by=["p"])
    return path


@pytest.fixture
def table(written: Path, tmp_path: Path) -> str:
    return str(shutil.copytree(written, tmp_path / "t"))


def double(spark: SparkSession, table: str, source: DataFrame) -> Any:
    builder = merge(spark, table, source, "target.id = source.id AND target.p = 'a'")
    return builder.when_matched_update({"v": "source.v * 2"}).execute()


def test_the_newest_version_is_merged_into_itself(spark: SparkSession, table: str) -> None:
    rows = read_snapshot(spark, table)
    rows.createOrReplaceTempView("own")
    query = "WITH w AS (SELECT * FROM own) SELECT * FROM w WHERE v < (SELECT max(v) FROM own)"
    assert double(spark, table, spark.sql(query)).num_updated_rows == 1
    assert rows_in(spark, Path(table)) == [(1, "a", 2), (2, "b", 2)]


OWN_ROWS = [
    "SELECT * FROM own",
    "SELECT 1 AS id, (SELECT max(v) FROM own) AS v",
    "WITH w AS (SELECT * FROM own) SELECT one.id, two.v FROM w AS one JOIN w AS two USING (id)",
]


@pytest.mark.parametrize("query", deep_but_for(OWN_ROWS, OWN_ROWS[2]))
def test_rows_of_an_older_version_are_refused(spark: SparkSession, table: str, query: str) -> None:
    read_snapshot(spark, table).createOrReplaceTempView("own")
    source = spark.sql(query)
    update(spark, table, {"v": "7"})
    with pytest.raises(CommitConflictError, match="from version 0 of the table itself") as caught:
        double(spark, table, source)
    assert (caught.value.table, caught.value.version) == (table, 1)
    # Rows of a version that was asked for are meant.
    double(spark, table, read_snapshot(spark, table, 0))
    assert rows_in(spark, Path(table)) == [(1, "a", 2), (2, "b", 7)]


@pytest.mark.parametrize("is_empty", [False, True])
def test_rows_are_the_tables_own_also_if_there_were_none(
    spark: SparkSession, table: str, is_empty: bool
) -> None:
    """No file has such rows, or the table has no file."""
    rows = read_snapshot(spark, table).where("id = 1")
    if is_empty:
        delete(spark, table)
    source = read_snapshot(spark, table, predicate=None if is_empty else "p = 'zz'")
    assert source.schema == rows.schema
    assert source.collect() == []
    write(spark.sql("SELECT 1 AS id, 'zz' AS p, 1 AS v"), table)
    with pytest.raises(CommitConflictError, match="of the table itself"):
        double(spark, table, source)


def test_the_table_is_recognised_by_another_name_of_its_location(
    spark: SparkSession, table: str, tmp_path: Path
) -> None:
    (tmp_path / "link").symlink_to(table)
    source = read_snapshot(spark, str(tmp_path / "link"))
    update(spark, table, {"v": "7"})
    with pytest.raises(CommitConflictError, match="from version 0 of the table itself"):
        double(spark, table, source)


def test_a_lost_race_is_not_made_again_with_old_rows(
    spark: SparkSession, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other change is in a partition that the merge needs for its source alone."""
    commit = OptimisticTransaction.commit
    source = read_snapshot(spark, table).groupBy().sum("v").selectExpr("1 AS id", "`sum(v)` AS v")

    def later(transaction: OptimisticTransaction, **named: Any) -> Any:
        monkeypatch.setattr(OptimisticTransaction, "commit", commit)
        update(spark, table, {"v": "7"}, "p = 'b'")
        files.update(all_files(Path(table)))
        return commit(transaction, **named)

    files: set[str] = set()
    monkeypatch.setattr(OptimisticTransaction, "commit", later)
    with pytest.raises(CommitConflictError):
        double(spark, table, source)
    assert rows_in(spark, Path(table)) == [(1, "a", 1), (2, "b", 7)]
    assert all_files(Path(table)) < files

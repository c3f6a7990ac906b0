"""Rows of many columns are evaluated in a session of our own; users don't notice."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from airflow_delta.spark import merge, read_snapshot, update, write
from airflow_delta.spark.reader.own_sessions import planned_quickly

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLUMNS = 60


def wide(spark: SparkSession, first: int, end: int, text: str) -> DataFrame:
    """Rows with an id, and a text in each of the other columns."""
    columns = [F.concat(F.lit(f"{text}{i} "), F.col("id")).alias(f"c{i}") for i in range(COLUMNS)]
    return spark.range(first, end).select("id", *columns)


def expected(first: int, end: int, text: str) -> dict[int, tuple[str, ...]]:
    return {n: tuple(f"{text}{i} {n}" for i in range(COLUMNS)) for n in range(first, end)}


def rows(spark: SparkSession, table: Path) -> dict[int, tuple[str, ...]]:
    found = read_snapshot(spark, str(table)).collect()
    assert len(found) == len({row.id for row in found})
    return {row.id: tuple(row)[1:] for row in found}


def test_a_merge_of_many_columns_with_functions_and_views_of_the_session(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = tmp_path / "table"
    write(
        wide(spark, 0, 10, "old"),
        str(table),
        properties={
            "delta.enableDeletionVectors": "true",
            "delta.constraints.has_text": "c1 LIKE '_%'",
        },
    )
    spark.udf.register("wide_is_even", lambda number: number % 2 == 0, "boolean")
    wide(spark, 5, 15, "new").createOrReplaceTempView("wide_source")
    setting = "spark.sql.constraintPropagation.enabled"
    assert spark.conf.get(setting) == "true"
    result = (
        merge(spark, str(table), spark.table("wide_source"), "target.id = source.id")
        .when_matched_update_all("wide_is_even(target.id)")
        .when_not_matched_insert_all()
        .execute()
    )
    assert (result.num_updated_rows, result.num_inserted_rows) == (2, 5)
    update(spark, str(table), {"c7": "concat(c7, '!')"}, "id = 0 AND wide_is_even(id)")
    assert spark.conf.get(setting) == "true"
    wanted = expected(0, 10, "old") | expected(10, 15, "new")
    wanted |= {n: expected(5, 10, "new")[n] for n in (6, 8)}
    wanted[0] = tuple("old7 0!" if i == 7 else text for i, text in enumerate(wanted[0]))
    assert rows(spark, table) == wanted


def test_spark_infers_no_filters_for_many_columns(spark: SparkSession, tmp_path: Path) -> None:
    """It would compare each of them with each of the others: 400 columns took minutes."""
    tmp_path.joinpath("texts").write_text("a0 1\na0 5\n")
    source = spark.read.text(str(tmp_path / "texts"))
    many = wide(spark, 0, 10, "a").join(source, F.col("c0") == F.col("value"))
    assert "isnotnull" in _optimized(many)
    quick = planned_quickly(many)
    assert "isnotnull" not in _optimized(quick)
    assert sorted(quick.collect()) == sorted(many.collect())
    assert {row.id for row in quick.collect()} == {1, 5}
    few = spark.range(10)
    assert planned_quickly(few) is few


def _optimized(frame: DataFrame) -> str:
    return str(frame._jdf.queryExecution().optimizedPlan())

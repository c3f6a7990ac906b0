"""Values of identity columns, by the tasks that make them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F  # noqa: N812

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.errors import (
    ConstraintViolationError,
    InvalidArgumentError,
    InvalidTableError,
)
from airflow_delta.engine.model.schema import LONG, StructField, StructType
from airflow_delta.engine.model.schema_json import schema_to_json
from airflow_delta.spark import merge, read_snapshot, update, write
from tests.delta_spark.peer import DeltaSpark
from tests.log_builder import write_table
from tests.spark.dml.tables import rows_in

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BY_DEFAULT = {
    "delta.identity.start": 1,
    "delta.identity.step": 1,
    "delta.identity.allowExplicitInsert": True,
}


def test_more_tasks_than_those_of_the_only_shuffle(spark: SparkSession, tmp_path: Path) -> None:
    identity = {
        "delta.identity.start": 1,
        "delta.identity.step": 1,
        "delta.identity.allowExplicitInsert": False,
    }
    schema = (StructField("id", LONG, metadata=identity), StructField("n", LONG))
    DeltaTable.create(str(tmp_path), StructType(schema))
    few = spark.range(40).groupBy(F.col("id").alias("n")).agg(F.count("*").alias("of"))
    many = spark.range(0, 40, 1, 20).withColumnRenamed("id", "n")
    write(many.join(F.broadcast(few), "n").select("n"), str(tmp_path))
    ids = [row["id"] for row in read_snapshot(spark, str(tmp_path)).select("id").collect()]
    assert len(ids) == len(set(ids)) == 40


def test_steps_from_one_end_to_the_other(spark: SparkSession, tmp_path: Path) -> None:
    step = (1 << 63) - 1
    identity = {
        "delta.identity.start": -(1 << 63),
        "delta.identity.step": step,
        "delta.identity.allowExplicitInsert": False,
    }
    schema = (StructField("id", LONG, metadata=identity), StructField("n", LONG))
    DeltaTable.create(str(tmp_path), StructType(schema))
    rows = spark.range(3).coalesce(1).withColumnRenamed("id", "n")
    write(rows, str(tmp_path))
    ids = [row["id"] for row in read_snapshot(spark, str(tmp_path)).select("id").collect()]
    # A task that is alone uses every value that there is.
    assert sorted(ids) == [-(1 << 63) + number * step for number in range(3)]


@pytest.mark.parametrize(("step", "left"), [(1, 30), (-7, -215)])
def test_no_value_is_beyond_64_bits(
    spark: SparkSession, tmp_path: Path, step: int, left: int
) -> None:
    end = (1 << 63) - 1 if step > 0 else -(1 << 63)
    last = end // step * step
    identity = {
        "delta.identity.start": 0,
        "delta.identity.step": step,
        "delta.identity.allowExplicitInsert": True,
        "delta.identity.highWaterMark": end - left,
    }
    schema = (StructField("id", LONG, metadata=identity), StructField("n", LONG))
    DeltaTable.create(str(tmp_path), StructType(schema))
    rows = spark.range(20).coalesce(1).withColumnRenamed("id", "n")
    assert write(rows, str(tmp_path)).num_rows == 20
    for _ in range(2):
        # The first try has a few values for the rows, and then none.
        with pytest.raises(
            ConstraintViolationError, match="has no value left for some of the rows"
        ) as caught:
            write(rows, str(tmp_path))
        assert caught.value.facts["columns"] == ("id",)
        explicit = spark.createDataFrame([(last, 1)], "id long, n long")
        write(explicit, str(tmp_path))
    ids = [row["id"] for row in read_snapshot(spark, str(tmp_path)).select("id").collect()]
    assert sorted(map(abs, ids))[-2:] == [abs(last)] * 2
    assert len(ids) == 22


def test_columns_that_are_generated_from_identity_values(
    spark: SparkSession, delta_spark: DeltaSpark, tmp_path: Path
) -> None:
    ours, its = tmp_path / "ours", tmp_path / "its"
    expression = {"delta.generationExpression": "10000 DIV (2 * coalesce(id, 0)) + k"}
    columns = (
        StructField("id", LONG, metadata=BY_DEFAULT),
        StructField("k", LONG),
        StructField("g", LONG, metadata=expression),
    )
    for table in (ours, its):
        DeltaTable.create(str(table), StructType(columns), partition_by=["g"])
    for columns_, values in (("k", "(5L), (6L)"), ("id, k", "(700L, 7L)"), ("k", "(8L)")):
        rows = f"SELECT /*+ COALESCE(1) */ * FROM VALUES {values} AS t({columns_})"
        delta_spark.sql(f"INSERT INTO delta.`{its}` ({columns_}) {rows}")
        write(spark.sql(rows), str(ours))
    for table in (ours, its):
        found = rows_in(spark, table)
        assert sorted(k for _, k, _ in found) == [5, 6, 7, 8]
        assert all(g == 10000 // (2 * id_) + k for id_, k, g in found), found
        assert len({id_ for id_, _, _ in found}) == 4
    wrong = spark.sql("SELECT 9L AS k, 77L AS g")
    with pytest.raises(ConstraintViolationError, match="column g than its generation expression"):
        write(wrong, str(ours))


def test_merges_compute_columns_from_identity_values(spark: SparkSession, tmp_path: Path) -> None:
    """Delta Spark refuses such rows: it computes the column before the identity value is made."""
    schema = (
        StructField("id", LONG, metadata=BY_DEFAULT),
        StructField("k", LONG),
        StructField("g", LONG, metadata={"delta.generationExpression": "100 DIV id + k"}),
    )
    properties = {"delta.enableChangeDataFeed": "true"}
    DeltaTable.create(str(tmp_path), StructType(schema), properties=properties)
    write(spark.sql("SELECT 1L AS k"), str(tmp_path))
    ((first, _, _),) = rows_in(spark, tmp_path)
    source = spark.sql("SELECT * FROM VALUES (1L, 10L), (2L, 20L), (3L, 30L), (4L, 40L) AS t(k, v)")
    result = (
        merge(spark, str(tmp_path), source, "target.k = source.k")
        .when_matched_update({"k": "source.v"})
        .when_not_matched_insert({"id": "source.v", "k": "source.k"}, "source.k = 2")
        .when_not_matched_insert(
            {"id": "source.v", "k": "source.k", "g": "100 DIV source.v + source.k"}, "source.k = 3"
        )
        .when_not_matched_insert({"k": "source.k"})
        .execute()
    )
    assert (result.num_updated_rows, result.num_inserted_rows) == (1, 3)
    found = rows_in(spark, tmp_path)
    assert all(g == 100 // id_ + k for id_, k, g in found), found
    ids = {k: id_ for id_, k, _ in found}
    assert ids.keys() == {10, 2, 3, 4}
    assert (ids[10], ids[2], ids[3]) == (first, 20, 30)
    assert ids[4] not in (first, 20, 30)


def test_an_explicit_null_stays_as_in_delta_spark(
    spark: SparkSession, delta_spark: DeltaSpark, tmp_path: Path
) -> None:
    ours, its = tmp_path / "ours", tmp_path / "its"
    schema = StructType((StructField("id", LONG, metadata=BY_DEFAULT), StructField("k", LONG)))
    for table in (ours, its):
        DeltaTable.create(str(table), schema)
    rows = "SELECT CAST(NULL AS BIGINT) AS id, 1L AS k"
    delta_spark.sql(f"INSERT INTO delta.`{its}` (id, k) {rows}")
    write(spark.sql(rows), str(ours))
    source = "SELECT * FROM VALUES (2L), (3L), (4L) AS t(k)"
    delta_spark.sql(
        f"MERGE INTO delta.`{its}` AS target USING ({source}) AS source ON target.k = source.k "
        "WHEN NOT MATCHED AND source.k < 4 THEN INSERT (id, k) VALUES (nullif(source.k, 2), source.k) "
        "WHEN NOT MATCHED THEN INSERT (k) VALUES (source.k)"
    )
    (
        merge(spark, str(ours), spark.sql(source), "target.k = source.k")
        .when_not_matched_insert({"id": "nullif(source.k, 2)", "k": "source.k"}, "source.k < 4")
        .when_not_matched_insert({"k": "source.k"})
        .execute()
    )
    for table in (ours, its):
        ids = {k: id_ for id_, k in rows_in(spark, table)}
        assert (ids[1], ids[2], ids[3]) == (None, None, 3)
        assert ids[4] is not None
        assert ids[4] != 3


def test_values_are_unique_whatever_statistics_the_session_writes(
    spark: SparkSession, tmp_path: Path
) -> None:
    schema = StructType((StructField("id", LONG, metadata=BY_DEFAULT), StructField("n", LONG)))
    DeltaTable.create(str(tmp_path), schema)
    rows = spark.range(3).withColumnRenamed("id", "n")
    setting = "parquet.column.statistics.enabled"
    try:
        spark.conf.set(setting, "false")
        write(rows, str(tmp_path))
        write(rows, str(tmp_path))
        spark.conf.set(f"{setting}#id", "false")
        with pytest.raises(InvalidArgumentError, match=f"column 'id'.*{setting}") as caught:
            write(rows, str(tmp_path))
    finally:
        spark.conf.unset(setting)
        spark.conf.unset(f"{setting}#id")
    assert caught.value.column == "id"
    ids = [row["id"] for row in read_snapshot(spark, str(tmp_path)).collect()]
    assert len(ids) == len(set(ids)) == 6


def made_without_feature(root: Path) -> str:
    """A table with an identity column by its metadata, and the protocol of Delta Spark's oldest tables."""
    columns = (StructField("id", LONG, metadata=BY_DEFAULT), StructField("n", LONG))
    return str(write_table(root, [], schema=json.loads(schema_to_json(StructType(columns)))))


def test_identity_columns_without_the_feature_are_refused_before_the_work(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = made_without_feature(tmp_path)
    rows = spark.sql("SELECT 7L AS n")
    explicit = spark.sql("SELECT 5L AS id, 7L AS n")
    changes = (
        lambda: write(rows, table),
        lambda: write(explicit, table, "overwrite"),
        lambda: (
            merge(spark, table, explicit, "source.n = target.n + 1")
            .when_not_matched_insert_all()
            .execute()
        ),
    )
    for change in changes:
        with pytest.raises(InvalidTableError, match=r"alter\.add_feature\('identityColumns'\)"):
            change()
    assert [path.name for path in tmp_path.iterdir()] == ["_delta_log"]
    DeltaTable(table).alter.add_feature("identityColumns")
    for change in changes:
        change()
    assert rows_in(spark, tmp_path) == [(5, 7), (5, 7)]


def test_other_changes_need_no_feature_of_identity_columns(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = made_without_feature(tmp_path)
    source = spark.sql("SELECT 7L AS n")
    assert not update(spark, table, {"n": "n + 1"}).written
    deletion = merge(spark, table, source, "source.n = target.n").when_matched_delete()
    assert not deletion.execute().written
    write(source, table, "overwrite", overwrite_schema=True)
    assert rows_in(spark, tmp_path) == [(7,)]

"""Merges keep the rules of a table for its rows, and use what its features offer."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.commit.store.memory import MemoryCommitStore
from airflow_delta.engine.commit.store.owner import StoreBackedOwner
from airflow_delta.engine.errors import (
    ConstraintViolationError,
    InvalidArgumentError,
    InvalidTableError,
)
from airflow_delta.engine.model.schema import (
    BOOLEAN,
    DATE,
    LONG,
    STRING,
    TIMESTAMP,
    StructField,
    StructType,
)
from airflow_delta.spark import delete, merge, read_snapshot, update, write
from airflow_delta.spark.reader.snapshot_reader import OWN_PREFIX
from tests.deep import deep_but_for
from tests.spark.dml.tables import all_files, rows_in, stored_bytes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEFAULTS = {"delta.feature.allowColumnDefaults": "supported"}
FEED = {"delta.enableChangeDataFeed": "true"}


def identity(*, explicit: bool) -> dict[str, object]:
    return {
        "delta.identity.start": 100,
        "delta.identity.step": 10,
        "delta.identity.allowExplicitInsert": explicit,
    }


def test_columns_that_the_table_computes(spark: SparkSession, tmp_path: Path) -> None:
    schema = (
        StructField("id", LONG),
        StructField("at", TIMESTAMP),
        StructField("day", DATE, metadata={"delta.generationExpression": "CAST(at AS DATE)"}),
        StructField("twice", LONG, metadata={"delta.generationExpression": "id * 2"}),
        StructField("s", STRING, metadata={"CURRENT_DEFAULT": "'none'"}),
    )
    DeltaTable.create(
        str(tmp_path), StructType(schema), partition_by=["day"], properties={**DEFAULTS, **FEED}
    )
    write(
        spark.sql("SELECT 1L AS id, TIMESTAMP'2024-01-02 10:00:00' AS at, 'x' AS s"), str(tmp_path)
    )
    rows = spark.sql("SELECT id, TIMESTAMP'2025-06-07 23:00:00' AS at FROM VALUES 1L, 2L AS t(id)")
    begun = merge(spark, str(tmp_path), rows, "target.id = source.id")
    (
        begun.when_matched_update({"at": "source.at", "id": "source.id + 10", "s": "DEFAULT"})
        .when_not_matched_insert_all()
        .execute()
    )
    found = read_snapshot(spark, str(tmp_path)).selectExpr(
        "id", "CAST(day AS STRING)", "twice", "s"
    )
    expected = [(2, "2025-06-07", 4, "none"), (11, "2025-06-07", 22, "none")]
    assert sorted(map(tuple, found.collect())) == expected
    before = all_files(tmp_path)
    for values in ({"id": "id", "twice": "id"}, {"id": "5", "at": "at", "day": "DATE'2020-01-01'"}):
        with pytest.raises(ConstraintViolationError, match=r"generation expression.*2 rows break"):
            merge(spark, str(tmp_path), rows, "target.id = source.id + 50").when_not_matched_insert(
                values
            ).execute()
    assert all_files(tmp_path) == before


def test_identity_values(spark: SparkSession, tmp_path: Path) -> None:
    schema = (
        StructField("id", LONG, metadata=identity(explicit=False)),
        StructField("k", LONG),
        StructField("v", STRING),
    )
    table = DeltaTable.create(str(tmp_path), StructType(schema), properties=FEED)
    write(spark.sql("SELECT id AS k, 'old' AS v FROM range(4)"), str(tmp_path))
    old = {row[1]: row[0] for row in rows_in(spark, tmp_path)}
    rows = spark.sql("SELECT id AS k, 'new' AS v FROM range(2, 30, 1, 3)")
    begun = merge(spark, str(tmp_path), rows, "target.k = source.k")
    begun.when_matched_update_all().when_not_matched_insert_all().execute()
    new = {row[1]: row[0] for row in rows_in(spark, tmp_path)}
    assert {k: new[k] for k in old} == old
    assert len(set(new.values())) == len(new) == 30
    assert all(value % 10 == 0 for value in new.values())
    assert min(value for k, value in new.items() if k not in old) > max(old.values())
    column = table.snapshot().schema.field("id")
    assert column is not None
    assert column.metadata["delta.identity.highWaterMark"] == max(new.values())

    before = table.snapshot().metadata
    only_updates = begun.when_matched_update({"v": "'newer'"}).execute()
    assert only_updates.num_updated_rows == 28
    assert table.snapshot().metadata == before
    for builder in (
        begun.when_matched_update({"id": "5"}),
        begun.when_not_matched_insert({"id": "5", "k": "k"}),
    ):
        with pytest.raises(
            ConstraintViolationError, match=r"assigned to the identity columns \['id'\]"
        ):
            builder.execute()
    named = spark.sql("SELECT 1L AS id, 77L AS k, 'x' AS v")
    with pytest.raises(
        ConstraintViolationError, match=r"assigned to the identity columns \['id'\]"
    ):
        merge(spark, str(tmp_path), named, "false").when_not_matched_insert_all().execute()


def test_identity_values_that_some_clauses_give(spark: SparkSession, tmp_path: Path) -> None:
    schema = (
        StructField("id", LONG, metadata=identity(explicit=True)),
        StructField("k", LONG),
    )
    table = DeltaTable.create(str(tmp_path), StructType(schema))
    begun = merge(spark, str(tmp_path), spark.range(4).toDF("k"), "target.k = source.k")
    (
        begun.when_not_matched_insert({"id": "k + 1000", "k": "k"}, "k < 2")
        .when_not_matched_insert({"k": "k"})
        .execute()
    )
    found = {row[1]: row[0] for row in rows_in(spark, tmp_path)}
    assert (found[0], found[1]) == (1000, 1001)
    assert all(found[k] % 10 == 0 for k in (2, 3))
    column = table.snapshot().schema.field("id")
    assert column is not None
    assert column.metadata["delta.identity.highWaterMark"] >= max(found[2], found[3])
    write(spark.range(4, 6).toDF("k"), str(tmp_path))
    assert len({row[0] for row in rows_in(spark, tmp_path)}) == 6


def test_rows_that_would_break_a_rule(spark: SparkSession, tmp_path: Path) -> None:
    varchar = {"__CHAR_VARCHAR_TYPE_STRING": "char(3)"}
    schema = (
        StructField("id", LONG, nullable=False),
        StructField("v", LONG),
        StructField("s", STRING, metadata=varchar),
    )
    rules = {"delta.constraints.positive": "v > 0", **FEED}
    DeltaTable.create(str(tmp_path), StructType(schema), properties=rules)
    write(spark.sql("SELECT id, 1L AS v, 'abc' AS s FROM range(4)").coalesce(1), str(tmp_path))
    before = all_files(tmp_path)
    rows = spark.sql("SELECT id, id AS v, 'abc' AS s FROM VALUES 2L, 3L, 7L, 8L AS t(id)")
    begun = merge(spark, str(tmp_path), rows, "target.id = source.id")
    for builder, message in [
        (begun.when_matched_update({"v": "source.v - 2"}), "constraint positive.*1 row breaks"),
        (begun.when_matched_update({"id": None}), "a null in the column id.*2 rows break"),
        (begun.when_matched_update({"s": "'abcd'"}), "more characters than its type char"),
        (begun.when_not_matched_insert({"v": 1}), "a null in the column id.*2 rows break"),
        (begun.when_not_matched_insert({"id": "id"}), "constraint positive.*2 rows break"),
        (begun.when_not_matched_by_source_update({"v": "v - 1"}), "positive.*2 rows break"),
        (
            begun.when_matched_update({"v": "9"}).when_not_matched_insert(
                {"id": "id", "v": "7 - id"}
            ),
            "constraint positive.*2 rows break",
        ),
        (begun.when_matched_update({"v": "source.s"}), "the column v of the rows is string"),
        (begun.when_matched_update({"v": "1e30"}), "a value in the column v that its type long"),
    ]:
        with pytest.raises(ConstraintViolationError, match=message) as found:
            builder.execute()
        # The row in the message has only columns of the table.
        assert OWN_PREFIX not in str(found.value)
    assert all_files(tmp_path) == before
    assert stored_bytes(spark) == 0


@pytest.mark.parametrize("pads", ["true", "false"])
@pytest.mark.parametrize("properties", [{}, FEED], ids=["plain", "feed"])
def test_char_columns_that_some_clauses_keep(
    spark: SparkSession, tmp_path: Path, properties: Mapping[str, str], pads: str
) -> None:
    schema = (
        StructField("id", LONG),
        StructField("s", STRING, metadata={"__CHAR_VARCHAR_TYPE_STRING": "char(4)"}),
        StructField("n", LONG),
        StructField("is_ab", BOOLEAN, metadata={"delta.generationExpression": "s = 'ab'"}),
    )
    rules = {"delta.constraints.known": "s IN ('ab', 'cd') OR length(s) > 4", **properties}
    table = DeltaTable.create(str(tmp_path), StructType(schema), properties=rules)
    write(spark.sql("SELECT id, 'ab' AS s FROM range(3)").coalesce(1), str(tmp_path))
    rows = spark.sql("SELECT id, 'cd' AS s FROM VALUES 1L, 2L, 7L AS t(id)")
    begun = merge(spark, str(tmp_path), rows, "target.id = source.id")
    spark.conf.set("spark.sql.readSideCharPadding", pads)
    try:
        (
            begun.when_matched_update({"s": "source.s"}, "target.id = 1")
            .when_matched_update({"n": "5"})
            .when_not_matched_insert({"id": "id", "s": "s"})
            .execute()
        )
        with pytest.raises(ConstraintViolationError, match="more characters than its type char"):
            begun.when_matched_update({"s": "'ab   '"}, "target.id = 1").when_matched_update(
                {"n": "6"}
            ).execute()
    finally:
        spark.conf.unset("spark.sql.readSideCharPadding")
    assert rows_in(spark, tmp_path) == [
        (0, "ab  ", None, True),
        (1, "cd  ", None, False),
        (2, "ab  ", 5, True),
        (7, "cd  ", None, False),
    ]
    # New rows are written as by an append.
    assert table.snapshot().to_arrow(["s"], "id = 7")["s"].to_pylist() == ["cd"]


def test_texts_with_a_collation_are_compared_byte_by_byte(
    spark: SparkSession, tmp_path: Path
) -> None:
    is_open = {"delta.generationExpression": "status = 'open'"}
    schema = (
        StructField("id", LONG),
        StructField("status", STRING),
        StructField("is_open", BOOLEAN, metadata=is_open),
    )
    known = {"delta.constraints.known": "status <> 'paid'"}
    DeltaTable.create(str(tmp_path), StructType(schema), properties=known)
    write(spark.sql("SELECT 1L AS id, 'open' AS status"), str(tmp_path))
    rows = spark.sql(
        "SELECT id, status COLLATE UTF8_LCASE AS status FROM VALUES (1L, 'PAID'), (2L, 'OPEN') "
        "AS t(id, status)"
    )
    begun = merge(spark, str(tmp_path), rows, "target.id = source.id")
    begun.when_matched_update_all().when_not_matched_insert_all().execute()
    # In the collation, 'PAID' would break the constraint, and 'OPEN' be 'open'.
    assert rows_in(spark, tmp_path) == [(1, "PAID", False), (2, "OPEN", False)]


def test_an_append_only_table(spark: SparkSession, tmp_path: Path) -> None:
    write(spark.range(3), str(tmp_path), properties={"delta.appendOnly": "true"})
    begun = merge(spark, str(tmp_path), spark.range(2, 5), "target.id = source.id")
    for builder in (begun.when_matched_delete(), begun.when_not_matched_by_source_delete()):
        with pytest.raises(ConstraintViolationError, match="MERGE changes or removes rows"):
            builder.when_not_matched_insert_all().execute()
    assert begun.when_not_matched_insert_all().execute().num_inserted_rows == 2
    assert [row[0] for row in rows_in(spark, tmp_path)] == [0, 1, 2, 3, 4]


FEATURES: dict[str, tuple[Mapping[str, str], dict[str, list[str]]]] = {
    "iceberg 2": (
        {
            "delta.enableIcebergCompatV2": "true",
            "delta.columnMapping.mode": "name",
            "delta.enableChangeDataFeed": "true",
        },
        {"partition_by": ["p"]},
    ),
    "clustering and row ids": (
        {
            "delta.enableRowTracking": "true",
            "delta.enableDeletionVectors": "true",
            "delta.enableInCommitTimestamps": "true",
        },
        {"cluster_by": ["id"]},
    ),
    "few statistics, partition columns in files": (
        {
            "delta.dataSkippingNumIndexedCols": "1",
            "delta.feature.materializePartitionColumns": "supported",
            "delta.enableChangeDataFeed": "true",
        },
        {"partition_by": ["p"]},
    ),
}


@pytest.mark.parametrize("name", deep_but_for(FEATURES, "clustering and row ids"))
def test_features_that_concern_files(spark: SparkSession, tmp_path: Path, name: str) -> None:
    properties, layout = FEATURES[name]
    rows = spark.sql("SELECT id, concat('p', id % 2) AS p, 0 AS v FROM range(8)").repartition(2)
    write(rows, str(tmp_path), properties=properties, **layout)  # type: ignore[arg-type]
    update(spark, str(tmp_path), {"v": 5}, "id IN (1, 2)")
    source = spark.sql(
        "SELECT id, concat('p', id % 2) AS p, 9 AS v FROM VALUES 2L, 3L, 40L AS t(id)"
    )
    begun = merge(spark, str(tmp_path), source, "target.id = source.id AND target.p = source.p")
    begun.when_matched_update_all().when_not_matched_insert_all().execute()
    delete(spark, str(tmp_path), "id IN (0, 3)")
    expected = [
        (1, "p1", 5),
        (2, "p0", 9),
        *((i, f"p{i % 2}", 0) for i in (4, 5, 6, 7)),
        (40, "p0", 9),
    ]
    assert rows_in(spark, tmp_path) == sorted(expected, key=str)
    table = DeltaTable(str(tmp_path))
    snapshot = table.snapshot()
    files = snapshot.files().to_pylist()
    if "delta.enableIcebergCompatV2" in properties:
        assert not any(file["deletionVector"] for file in files)
    assert not snapshot.verify().differences
    assert not [f for f in table.check(depth="files").findings if f.severity == "error"]


def test_a_managed_table(spark: SparkSession, tmp_path: Path) -> None:
    write(spark.sql("SELECT id, 0 AS v FROM range(5)"), str(tmp_path))
    owners = {"memory": StoreBackedOwner(MemoryCommitStore())}
    table = DeltaTable(str(tmp_path), commit_owners=owners)
    table.convert_to_managed("memory", {"backfill": "on-request"})
    version = table.latest_version()
    rows = spark.sql("SELECT id, 9 AS v FROM VALUES 3L, 40L AS t(id)")
    begun = merge(
        spark, str(tmp_path), rows, "target.id = source.id", txn=("task", 1), commit_owners=owners
    )
    builder = begun.when_matched_update_all().when_not_matched_insert_all()
    assert builder.execute().version == builder.execute().version == version + 1
    update(spark, str(tmp_path), {"v": 1}, "id = 0", commit_owners=owners)
    delete(spark, str(tmp_path), "id = 1", commit_owners=owners)
    found = read_snapshot(spark, str(tmp_path), commit_owners=owners).collect()
    assert {row[0]: row[1] for row in found} == {0: 1, 2: 0, 3: 9, 4: 0, 40: 9}
    assert DeltaTable(str(tmp_path), commit_owners=owners).latest_version() == version + 3


def test_columns_that_the_source_lacks(spark: SparkSession, tmp_path: Path) -> None:
    schema = (
        StructField("id", LONG),
        StructField("v", LONG, metadata={"CURRENT_DEFAULT": "7"}),
        StructField("w", LONG),
    )
    DeltaTable.create(str(tmp_path), StructType(schema), properties=DEFAULTS)
    write(spark.sql("SELECT 1L AS id, 1L AS v, 1L AS w"), str(tmp_path))
    rows = spark.sql("SELECT id, 5L AS w, 'ignored' AS extra FROM VALUES 1L, 2L AS t(id)")
    begun = merge(spark, str(tmp_path), rows, "target.id = source.id")
    with pytest.raises(InvalidArgumentError, match=r"the source lacks the columns \['v'\]"):
        begun.when_matched_update_all().execute()
    begun.when_not_matched_insert_all().execute()
    assert rows_in(spark, tmp_path) == [(1, 1, 1), (2, 7, 5)]
    begun = merge(spark, str(tmp_path), rows.drop("w"), "target.id = source.id")
    with pytest.raises(InvalidArgumentError, match=r"the source lacks the columns \['w'\]"):
        begun.when_not_matched_insert_all().execute()


@pytest.mark.parametrize("expression", ["no_such(1)", "1 +", "id", "v"])
def test_a_default_that_spark_cannot_resolve_is_named(
    spark: SparkSession, tmp_path: Path, expression: str
) -> None:
    column = StructField("v", LONG, metadata={"CURRENT_DEFAULT": expression})
    DeltaTable.create(
        str(tmp_path), StructType((StructField("id", LONG), column)), properties=DEFAULTS
    )
    write(spark.sql("SELECT 1L AS id, 1L AS v"), str(tmp_path))
    version = DeltaTable(tmp_path).latest_version()
    rows = spark.sql("SELECT 2L AS id")
    begun = merge(spark, str(tmp_path), rows, "target.id = source.id")
    with pytest.raises(InvalidTableError, match="the table's rule default of v: ") as caught:
        begun.when_not_matched_insert({"id": "source.id"}).execute()
    assert caught.value.facts["rule"] == "default of v"
    assert DeltaTable(tmp_path).latest_version() == version

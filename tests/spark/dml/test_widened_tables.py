"""Changes of rows in tables with files of narrower types, and with all features at once."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.model.schema import (
    DOUBLE,
    INTEGER,
    LONG,
    TIMESTAMP_NTZ,
    DecimalType,
    StructField,
    StructType,
)
from airflow_delta.spark import (
    delete,
    merge,
    optimize,
    read_changes,
    read_snapshot,
    update,
    write,
)
from tests.deep import deep_but_for
from tests.spark.dml.tables import rows_in
from tests.widened_partitions import CHANGES, FIRST, SECOND, make_table, row

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LARGE = 5_000_000_000
VECTORS = "delta.enableDeletionVectors"


@pytest.mark.parametrize("has_vectors", deep_but_for([False, True], True))
def test_a_widened_table(spark: SparkSession, tmp_path: Path, *, has_vectors: bool) -> None:
    properties = {
        "delta.enableTypeWidening": "true",
        "delta.enableChangeDataFeed": "true",
        "delta.enableRowTracking": "true",
        VECTORS: str(has_vectors).lower(),
    }
    rows = "SELECT CAST(id AS INT) AS id, CAST(id AS INT) AS v, CAST(id AS DECIMAL(5, 2)) AS d, "
    rows += "named_struct('x', CAST(id AS FLOAT)) AS s FROM range(8)"
    write(spark.sql(rows).coalesce(1), str(tmp_path), properties=properties)
    table = DeltaTable(str(tmp_path))
    table.alter.change_type("id", LONG)
    table.alter.change_type("v", LONG)
    table.alter.change_type("d", DecimalType(20, 4))
    table.alter.change_type(["s", "x"], DOUBLE)
    first = table.latest_version() + 1
    assert delete(spark, str(tmp_path), "v = 0 OR d > 6.5").num_deleted_rows == 2
    update(spark, str(tmp_path), {"v": f"v + {LARGE}L", "d": "0.0001BD", "s.x": "1e300D"}, "id = 1")
    source = spark.sql(f"SELECT * FROM VALUES (2L, {LARGE}L), ({LARGE}L, 9L) AS t(id, v)")
    (
        merge(spark, str(tmp_path), source, "target.id = source.id")
        .when_matched_update({"v": "source.v"})
        .when_not_matched_insert({"id": "source.id", "v": "source.v", "d": "1.5BD"})
        .when_not_matched_by_source_delete("target.v = 3")
        .execute()
    )
    delete(spark, str(tmp_path), f"v > {LARGE}L OR id = 4")
    found = [(id_, v, str(d), s and s[0]) for id_, v, d, s in rows_in(spark, tmp_path)]
    assert found == [
        (2, LARGE, "2.0000", 2.0),
        (5, 5, "5.0000", 5.0),
        (LARGE, 9, "1.5000", None),
        (6, 6, "6.0000", 6.0),
    ]
    changes = read_changes(spark, str(tmp_path), first, first + 3).select("_change_type", "id", "v")
    assert sorted(map(tuple, changes.collect())) == sorted(
        [
            *(("delete", id_, id_) for id_ in (0, 3, 4, 7)),
            ("update_preimage", 1, 1),
            ("update_postimage", 1, LARGE + 1),
            ("delete", 1, LARGE + 1),
            ("update_preimage", 2, 2),
            ("update_postimage", 2, LARGE),
            ("insert", LARGE, 9),
        ]
    )
    assert not [f for f in table.check(depth="files").findings if f.severity != "info"]


def partitions(spark: SparkSession, path: Path) -> dict[int, list[object]]:
    """The values of the partition columns of each row, by its id."""
    return {id_: values for id_, *values in read_snapshot(spark, str(path)).collect()}


def test_a_table_with_widened_partition_columns(spark: SparkSession, tmp_path: Path) -> None:
    """Files of before keep the texts of the narrower types; each column has to equal its wider value."""
    table = make_table(tmp_path)
    first, second = ([*row(partition).values()] for partition in (FIRST, SECOND))
    assert partitions(spark, tmp_path) == {0: first, 1: first, 2: second, 3: second}
    rows = read_snapshot(spark, str(tmp_path))
    same = rows.where("id = 0").drop("id")
    wanted = " AND ".join(
        f"{name} = TIMESTAMP_NTZ'{value}'" if isinstance(value, datetime) else f"{name} = {value}"
        for name, value in row(FIRST).items()
    )
    found = read_snapshot(spark, str(tmp_path), predicate=wanted).select("id").collect()
    assert {each.id for each in found} == {0, 1}

    all_equal = " AND ".join(f"target.{name} = source.{name}" for name in CHANGES)
    done = merge(spark, str(tmp_path), same, all_equal).when_matched_update(
        {"id": "target.id + 10"}
    )
    assert done.execute().num_updated_rows == 2
    day = "date_timestamp_ntz"
    assert update(spark, str(tmp_path), {"id": "id + 10"}, f"{day} < '1970-01-01'").num_updated_rows
    assert partitions(spark, tmp_path) == {10: first, 11: first, 12: second, 13: second}
    assert not [f for f in table.check(depth="files").findings if f.severity == "error"]


def test_files_of_before_and_after_are_one_partition(spark: SparkSession, tmp_path: Path) -> None:
    table = make_table(tmp_path)
    widened = table.latest_version()
    first, second = ([*row(partition).values()] for partition in (FIRST, SECOND))
    rows = read_snapshot(spark, str(tmp_path), widened)
    new = rows.where("id = 0").selectExpr("id + 20 AS id", *CHANGES)
    done = optimize(spark, str(tmp_path))
    assert (done.num_removed, done.num_added) == (4, 2)
    assert partitions(spark, tmp_path) == {0: first, 1: first, 2: second, 3: second}

    table.restore(widened)
    write(new, str(tmp_path), "overwrite", partition_overwrite="dynamic")
    assert partitions(spark, tmp_path) == {20: first, 2: second, 3: second}
    table.restore(widened)
    condition = "date_timestamp_ntz = TIMESTAMP_NTZ'2024-01-01 00:00:00'"
    write(new, str(tmp_path), "overwrite", replace_where=condition)
    assert partitions(spark, tmp_path) == {20: first, 2: second, 3: second}
    table.restore(widened)
    positive = " AND ".join(f"{name} > 0" for name in CHANGES if not name.startswith("date"))
    assert delete(spark, str(tmp_path), f"{condition} AND {positive}").num_deleted_rows == 2
    assert partitions(spark, tmp_path) == {2: second, 3: second}


IDENTITY = {
    "delta.identity.start": 1,
    "delta.identity.step": 1,
    "delta.identity.allowExplicitInsert": False,
}
COMMON = {
    "delta.appendOnly": "false",
    "delta.checkpointPolicy": "v2",
    "delta.columnMapping.mode": "name",
    "delta.constraints.positive": "v >= 0",
    "delta.enableChangeDataFeed": "true",
    "delta.enableInCommitTimestamps": "true",
    "delta.enableRowTracking": "true",
    "delta.enableTypeWidening": "true",
    "delta.feature.vacuumProtocolCheck": "supported",
    "delta.feature.materializePartitionColumns": "supported",
}


@pytest.mark.parametrize(
    "properties",
    deep_but_for([{VECTORS: "true"}, {"delta.enableIcebergCompatV2": "true"}], {VECTORS: "true"}),
    ids=["deletion vectors", "iceberg"],
)
def test_nothing_is_wrong_with_a_table_of_all_features(
    spark: SparkSession, tmp_path: Path, properties: dict[str, str]
) -> None:
    schema = StructType(
        (
            StructField("id", LONG, metadata=IDENTITY),
            StructField("v", INTEGER, nullable=False),
            StructField("g", LONG, metadata={"delta.generationExpression": "id * 2"}),
            StructField("d", INTEGER, metadata={"CURRENT_DEFAULT": "7"}),
            StructField("at", TIMESTAMP_NTZ),
        )
    )
    table = DeltaTable.create(
        str(tmp_path), schema, properties={**COMMON, **properties}, cluster_by=["v"]
    )
    write(spark.sql("SELECT CAST(id AS INT) AS v FROM range(10)").coalesce(1), str(tmp_path))
    delete(spark, str(tmp_path), "v = 3")
    update(spark, str(tmp_path), {"at": "TIMESTAMP_NTZ'2024-01-02 03:04:05'"}, "v = 4")
    source = spark.sql("SELECT * FROM VALUES (5, 50L), (6, 60L), (70, 70L) AS t(v, extra)")
    (
        merge(spark, str(tmp_path), source, "target.v = source.v", merge_schema=True)
        .when_matched_update({"d": "source.extra"}, "source.v = 5")
        .when_matched_delete()
        .when_not_matched_insert({"v": "source.v", "extra": "source.extra"})
        .execute()
    )
    table.checkpoint()
    found = {v: (d, g == 2 * id_, extra) for id_, v, g, d, _, extra in rows_in(spark, tmp_path)}
    assert found == {
        **dict.fromkeys((0, 1, 2, 4, 7, 8, 9), (7, True, None)),
        5: (50, True, None),
        70: (7, True, 70),
    }
    found_codes = {finding.code for finding in table.check(depth="files").findings}
    assert found_codes <= {"rows-deleted"}, "which is no fault"

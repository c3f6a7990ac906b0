"""For each feature that has rules for rows: the same writes through Delta Spark and through us.

Both engines begin with a table that Delta Spark has made. After each write the tables are alike for
Delta Spark; then each engine goes on with the other one's table.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.errors import ConstraintViolationError
from airflow_delta.engine.features.schema_walk import all_fields
from airflow_delta.engine.model.paths import resolve
from airflow_delta.engine.model.schema import (
    DATE,
    INTEGER,
    LONG,
    STRING,
    TIMESTAMP,
    ArrayType,
    DataType,
    MapType,
    StructField,
    StructType,
)
from airflow_delta.spark import read_snapshot, write
from tests.deep import deep_but_for
from tests.delta_spark.peer import DeltaSpark, DeltaSparkError
from tests.spark.conftest import bag, rows_of_each

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Case:
    """A table, rows to write to it, and rows that it refuses.

    Attributes:
        columns: the columns, in SQL.
        clauses: what follows them.
        rows: of each write the named columns and their values.
        refused: rows that break a rule.
        constraint: a CHECK constraint of the table.
    """

    columns: str
    clauses: str = ""
    rows: Sequence[tuple[str, str]] = ()
    refused: Sequence[tuple[str, str]] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    constraint: str = ""

    def create(self, table: Path) -> str:
        """The statement that makes the table."""
        listed = ", ".join(f"'{name}' = '{value}'" for name, value in self.properties.items())
        properties = f" TBLPROPERTIES ({listed})" if listed else ""
        return (
            f"CREATE TABLE delta.`{table}` ({self.columns}) USING delta {self.clauses}{properties}"
        )


def inserted(columns: str, values: str) -> str:
    """A query for rows with named columns."""
    return f"SELECT * FROM VALUES {values} AS t({columns})"


ROWS = [("id, p", "(1L, 'a'), (2L, NULL), (3L, 'b c/d')"), ("p, id", "('a', 4L), ('', 5L)")]
CASES = {
    "partitions": Case("id BIGINT, p STRING", "PARTITIONED BY (p)", ROWS),
    "casts": Case(
        "id INT, d DECIMAL(10,2), s STRING, day DATE, st STRUCT<a: INT, b: STRING>",
        rows=[
            ("id, d, s", "(1L, 1.239BD, 7), (2L, 5BD, 8)"),
            ("d, s", "(-0.005BD, true)"),
            ("ID, day, st", "(3S, TIMESTAMP'2024-01-02 12:04:05Z', named_struct('a', 1L, 'b', 2))"),
        ],
        refused=[("id", "(3000000000L)"), ("d", "(123456789BD)")],
    ),
    "mapping by name": Case(
        "id BIGINT, p STRING, `a b` STRUCT<`x,y`: INT, z: ARRAY<STRUCT<`q;`: INT>>>",
        "PARTITIONED BY (p)",
        [
            (
                "id, p, `a b`",
                "(1L, 'a', named_struct('x,y', 1, 'z', array(named_struct('q;', 2))))",
            ),
            *ROWS,
        ],
        properties={"delta.columnMapping.mode": "name"},
    ),
    "mapping by id": Case(
        "id BIGINT, p STRING, m MAP<STRING, STRUCT<x: INT>>",
        "PARTITIONED BY (p)",
        [("id, p, m", "(1L, 'a', map('k', named_struct('x', 1)))"), *ROWS],
        properties={"delta.columnMapping.mode": "id"},
    ),
    "not null and check constraints": Case(
        "id BIGINT NOT NULL, s STRUCT<a: INT NOT NULL, b: INT>, p STRING NOT NULL, n INT",
        "PARTITIONED BY (p)",
        [("id, s, p, n", "(1L, named_struct('a', 1, 'b', NULL), 'x', 1)")],
        [
            ("id, s, p, n", "(CAST(NULL AS BIGINT), named_struct('a', 1, 'b', 2), 'x', 1)"),
            ("id, s, p, n", "(1L, named_struct('a', CAST(NULL AS INT), 'b', 2), 'x', 1)"),
            ("id, s, p, n", "(1L, CAST(NULL AS STRUCT<a: INT, b: INT>), 'x', 1)"),
            ("id, s, p, n", "(1L, named_struct('a', 1, 'b', 2), '', 1)"),
            ("id, s, p, n", "(1L, named_struct('a', 1, 'b', 2), 'x', -1)"),
            ("id, s, p, n", "(1L, named_struct('a', 1, 'b', 2), 'x', CAST(NULL AS INT))"),
        ],
        constraint="n > 0",
    ),
    "lengths, defaults and statistics of few columns": Case(
        "c CHAR(3), v VARCHAR(3), a ARRAY<VARCHAR(2)>, s STRING DEFAULT 'none', n INT DEFAULT 1 + 2",
        rows=[
            ("c, v, a", "('ab', 'äöü', array('x', NULL))"),
            ("v, s", "('😀😀😀', CAST(NULL AS STRING))"),
            ("n", "(4)"),
        ],
        refused=[("c", "('abcd')"), ("v", "('abc ')"), ("a", "(array('abc'))")],
        properties={
            "delta.feature.allowColumnDefaults": "supported",
            "delta.dataSkippingNumIndexedCols": "2",
        },
    ),
    "row tracking, deletion vectors, in-commit timestamps, change data feed, clustering": Case(
        "id BIGINT, p STRING",
        "CLUSTER BY (id)",
        ROWS,
        properties={
            "delta.enableRowTracking": "true",
            "delta.enableDeletionVectors": "true",
            "delta.enableInCommitTimestamps": "true",
            "delta.enableChangeDataFeed": "true",
        },
    ),
    "iceberg 1": Case(
        "id BIGINT, p STRING, ts TIMESTAMP",
        "PARTITIONED BY (p)",
        [("id, p, ts", "(1L, 'a', TIMESTAMP'2024-01-02 12:04:05Z')"), *ROWS],
        properties={"delta.enableIcebergCompatV1": "true", "delta.columnMapping.mode": "name"},
    ),
    "iceberg 2": Case(
        "p STRING, id BIGINT, ts TIMESTAMP_NTZ, a ARRAY<STRUCT<x: ARRAY<INT>>>, m MAP<INT, ARRAY<INT>>",
        "PARTITIONED BY (p)",
        [
            ("id, p, ts", "(1L, 'a', TIMESTAMP_NTZ'2024-01-02 03:04:05')"),
            (
                "id, p, a, m",
                "(2L, 'b', array(named_struct('x', array(1))), map(3, array(4, NULL)))",
            ),
            *ROWS,
        ],
        properties={"delta.enableIcebergCompatV2": "true", "delta.columnMapping.mode": "name"},
    ),
}


IN_SHORT = ["not null and check constraints"]
"""Partitions are in them as well; mapped columns in the twins of `tests/spark/dml/test_twins.py`."""


@pytest.mark.parametrize("name", deep_but_for(CASES, *IN_SHORT))
def test_both_engines_write_alike_and_go_on_with_each_others_table(
    spark: SparkSession, delta_spark: DeltaSpark, tmp_path: Path, name: str
) -> None:
    case, ours, its = CASES[name], tmp_path / "ours", tmp_path / "its"
    delta_spark.sql(case.create(its))
    if case.constraint:
        delta_spark.sql(f"ALTER TABLE delta.`{its}` ADD CONSTRAINT pos CHECK ({case.constraint})")
    shutil.copytree(its, ours)
    for mine, theirs in ((ours, its), (its, ours)):
        for columns, values in case.rows:
            rows = inserted(columns, values)
            delta_spark.sql(f"INSERT INTO delta.`{theirs}` ({columns}) {rows}")
            write(spark.sql(rows), str(mine))
        # Each engine refuses them in the table that the other one has written to.
        for columns, values in case.refused if mine == its else ():
            rows = inserted(columns, values)
            version = DeltaTable(str(mine)).latest_version()
            with pytest.raises(DeltaSparkError):
                delta_spark.sql(f"INSERT INTO delta.`{theirs}` ({columns}) {rows}")
            with pytest.raises(ConstraintViolationError):
                write(spark.sql(rows), str(mine))
            assert DeltaTable(str(mine)).latest_version() == version
        assert_alike(spark, delta_spark, ours, its)


GENERATED = StructType(
    (
        StructField("id", LONG),
        StructField("ts", TIMESTAMP),
        StructField("day", DATE, metadata={"delta.generationExpression": "CAST(ts AS DATE)"}),
        StructField("twice", LONG, metadata={"delta.generationExpression": "id * 2"}),
    )
)


def test_generated_columns(spark: SparkSession, delta_spark: DeltaSpark, tmp_path: Path) -> None:
    ours, its = tmp_path / "ours", tmp_path / "its"
    for table in (ours, its):
        DeltaTable.create(str(table), GENERATED, partition_by=["day"])
    steps = [
        ("id, ts", "(1L, TIMESTAMP'2024-01-02 12:04:05Z'), (NULL, NULL)"),
        ("id, ts, twice", "(3L, TIMESTAMP'1969-12-31 12:59:59Z', 6L)"),
        ("id, ts, day", "(4L, TIMESTAMP'2024-07-02 12:04:05Z', DATE'2024-07-02')"),
    ]
    refused = [
        ("id, ts, twice", "(3L, TIMESTAMP'2024-01-02 12:04:05Z', 7L)"),
        ("id, ts, day", "(3L, TIMESTAMP'2024-01-02 12:04:05Z', CAST(NULL AS DATE))"),
    ]
    for mine, theirs in ((ours, its), (its, ours)):
        for columns, values in steps:
            rows = inserted(columns, values)
            delta_spark.sql(f"INSERT INTO delta.`{theirs}` ({columns}) {rows}")
            write(spark.sql(rows), str(mine))
        for columns, values in refused if mine == its else ():
            rows = inserted(columns, values)
            with pytest.raises(DeltaSparkError):
                delta_spark.sql(f"INSERT INTO delta.`{theirs}` ({columns}) {rows}")
            with pytest.raises(ConstraintViolationError, match="1 row breaks this rule"):
                write(spark.sql(rows), str(mine))
        assert_alike(spark, delta_spark, ours, its)


@pytest.mark.parametrize(("start", "step"), [(-1, -3), pytest.param(10, 5, marks=pytest.mark.deep)])
def test_identity_values_are_unique_whoever_makes_them(
    spark: SparkSession, delta_spark: DeltaSpark, tmp_path: Path, start: int, step: int
) -> None:
    identity = {
        "delta.identity.start": start,
        "delta.identity.step": step,
        "delta.identity.allowExplicitInsert": False,
    }
    schema = StructType(
        (
            StructField("id", LONG, metadata=identity),
            StructField("n", INTEGER),
            StructField("s", STRING),
        )
    )
    DeltaTable.create(str(tmp_path), schema)
    for number in range(3):
        numbers = f"range({number * 100}, {number * 100 + 100})"
        rows = f"SELECT CAST(id AS INT) AS n, 'x' AS s FROM {numbers}"
        write(spark.sql(rows).repartition(3), str(tmp_path))
        delta_spark.sql(f"INSERT INTO delta.`{tmp_path}` (n, s) {rows}")
        ids = [row["id"] for row in delta_spark.sql(f"SELECT id FROM delta.`{tmp_path}`")]
        assert len(set(ids)) == len(ids) == 200 * (number + 1)
        assert all((value - start) % step == 0 and (value - start) // step >= 0 for value in ids)
        column = DeltaTable(str(tmp_path)).snapshot().schema.field("id")
        assert column is not None
        furthest = (max if step > 0 else min)(ids)
        assert column.metadata["delta.identity.highWaterMark"] == furthest
    with pytest.raises(ConstraintViolationError, match="GENERATED ALWAYS"):
        write(spark.sql("SELECT 1L AS id, 1 AS n"), str(tmp_path))


def assert_alike(spark: SparkSession, delta_spark: DeltaSpark, ours: Path, its: Path) -> None:
    """Two tables have the same rows and definition, and statistics that hold."""
    for one, other in (
        delta_spark.sql_of_each([f"SELECT * FROM delta.`{table}`" for table in (ours, its)]),
        rows_of_each([read_snapshot(spark, str(table)) for table in (ours, its)]),
    ):
        assert bag(one) == bag(other)
    snapshots = [DeltaTable(str(table)).snapshot() for table in (ours, its)]
    assert snapshots[0].protocol == snapshots[1].protocol
    assert definition(snapshots[0]) == definition(snapshots[1])
    assert partitions(snapshots[0]) == partitions(snapshots[1])
    assert statistics(snapshots[0]) == statistics(snapshots[1])
    if snapshots[0].properties.iceberg_compat_v2_enabled:
        ids = [
            {
                tuple(field_ids(resolve(str(table), path)))
                for path in snapshot.files(["path"])["path"].to_pylist()
            }
            for table, snapshot in zip((ours, its), snapshots, strict=True)
        ]
        assert ids[0] == ids[1]
        assert len(ids[0]) == 1
    for table in (ours, its):
        assert not [
            f for f in DeltaTable(str(table)).check(depth="files").findings if f.severity == "error"
        ]


def field_ids(path: str) -> list[tuple[int, str]]:
    """The ids of the columns in a file, and what they are inside others, in the order of the file."""
    found: list[tuple[int, str]] = []

    def visit(column: pa.Field, name: str) -> None:
        found.append((int(column.metadata[b"PARQUET:field_id"]), name))
        type_ = column.type
        if pa.types.is_map(type_):
            visit(type_.key_field, "key")
            visit(type_.item_field, "value")
        elif pa.types.is_list(type_):
            visit(type_.value_field, "element")
        elif pa.types.is_struct(type_):
            for index in range(type_.num_fields):
                visit(type_.field(index), "")

    for column in pq.ParquetFile(path).schema_arrow:
        visit(column, "")
    return found


def definition(snapshot: Any) -> Any:
    """Schema and properties, without the names that each table makes up."""

    def plain(node: Any) -> Any:
        if isinstance(node, list):
            return [plain(item) for item in node]
        if not isinstance(node, dict):
            return node
        # The ids of elements, keys and values are by physical names.
        return {
            k: sorted(v.values()) if k.endswith("nested.ids") else plain(v)
            for k, v in node.items()
            if not k.endswith("physicalName")
        }

    kept = {
        name: value
        for name, value in snapshot.metadata.configuration.items()
        if "materialized" not in name
    }
    return plain(json.loads(snapshot.metadata.schema_string)), kept


def partitions(snapshot: Any) -> set[tuple[str | None, ...]]:
    """The partition values of the files, in the order of the columns."""
    return {
        tuple(value for _, value in values)
        for values in snapshot.files(columns=["partitionValues"])["partitionValues"].to_pylist()
    }


def statistics(snapshot: Any) -> Any:
    """Which statistics there are, by logical names, and the least and greatest of all files."""
    texts = snapshot.files(columns=["stats"])["stats"].to_pylist()
    found: dict[str, set[str]] = {}
    # Delta Spark counts the nulls of arrays and maps, which a footer doesn't tell from empty ones.
    collections = {
        field.name for _, field in all_fields(snapshot.schema) if is_collection(field.data_type)
    }
    names = physical(json.loads(snapshot.metadata.schema_string)["fields"])

    def visit(kind: str, node: Mapping[str, Any], path: str) -> None:
        for name, value in node.items():
            here = f"{path}.{names.get(name, name)}"
            if names.get(name, name) in collections:
                continue
            if isinstance(value, dict):
                visit(kind, value, here)
            elif kind != "nullCount":
                found.setdefault(f"{kind}{here}", set()).add(str(value))
            else:
                found.setdefault(f"{kind}{here}", set())

    for text in texts:
        for kind in ("minValues", "maxValues", "nullCount"):
            visit(kind, json.loads(text).get(kind, {}), "")
    least = {key: min(values) for key, values in found.items() if values and key.startswith("min")}
    greatest = {
        key: max(values) for key, values in found.items() if values and key.startswith("max")
    }
    return sorted(found), least, greatest


def is_collection(data_type: DataType) -> bool:
    return isinstance(data_type, (ArrayType, MapType))


def physical(fields: Sequence[Any]) -> dict[str, str]:
    """Logical names by physical ones, at any depth of structs."""
    found: dict[str, str] = {}
    for each in fields:
        found[each["metadata"].get("delta.columnMapping.physicalName", each["name"])] = each["name"]
        if isinstance(each["type"], dict) and each["type"]["type"] == "struct":
            found |= physical(each["type"]["fields"])
    return found

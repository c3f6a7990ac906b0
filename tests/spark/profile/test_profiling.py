"""Profiles, against the same figures by pyarrow and by Delta Spark."""

from __future__ import annotations

import datetime as dt
import json
import math
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from airflow_delta.engine import AddFile, DeltaTable
from airflow_delta.engine.errors import InvalidArgumentError, VersionNotFoundError
from airflow_delta.engine.model.schema import DATE, TIMESTAMP, StructField, StructType
from airflow_delta.profiles.profile import (
    MOST_CHARACTERS,
    ColumnProfile,
    TableProfile,
    profile_report,
)
from airflow_delta.spark import profile_snapshot, read_snapshot
from tests.delta_spark.peer import DeltaSpark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def by_name(profile: TableProfile) -> dict[str, ColumnProfile]:
    return {column.name: column for column in profile.columns}


def numbers(values: list[float | None]) -> pa.Array:
    return pa.array(values, pa.float64())


ROWS = pa.table(
    {
        "n": pa.array([5, -3, None, 2**62], pa.int64()),
        "d": numbers([1.5, math.nan, None, -2.25]),
        "i": numbers([math.inf, 1.0, 2.0, None]),
        "f": pa.array([0.1, None, 0.25, math.nan], pa.float32()),
        "m": pa.array(["1.10", "-0.05", None, "7.00"]).cast(pa.decimal128(38, 2)),
        "s": ["é", "", None, "z" * 300],
        "b": [b"abc", b"", None, b"a"],
        "t": pa.array([1, None, -1, 0], pa.timestamp("us", "UTC")),
        "w": pa.array([1_772_937_000_500_000, None, -1, 0], pa.timestamp("us")),
        "day": pa.array([0, 20_000, None, -1], pa.date32()),
        "ok": [True, None, True, True],
        "none": pa.nulls(4, pa.int32()),
        "st": [
            {"x": 1, "in.ner": {"y": "a"}},
            None,
            {"x": None, "in.ner": None},
            {"x": 3, "in.ner": {"y": None}},
        ],
        "l": [[1], None, [], [2, 3]],
        "k": pa.array([[("a", 1)], None, [], [("b", 2)]], pa.map_(pa.string(), pa.int64())),
        "p": ["u v", None, "u v", "é"],
    }
)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Three files in as many partitions."""
    uri = str(tmp_path_factory.mktemp("profiled") / "table")
    write_deltalake(uri, ROWS, partition_by=["p"])
    return uri


@pytest.fixture(scope="module")
def columns(spark: SparkSession, table: str) -> dict[str, ColumnProfile]:
    profile = profile_snapshot(spark, table)
    assert (profile.version, profile.num_rows, profile.counted_by) == (0, 4, "scan")
    assert (profile.num_files, profile.num_partitions) == (3, 3)
    report = profile_report(profile)
    assert json.loads(json.dumps(report, allow_nan=False)) == report
    return by_name(profile)


def test_every_leaf_has_its_nulls(columns: dict[str, ColumnProfile]) -> None:
    flat = {name: ROWS[name] for name in ROWS.column_names if name != "st"}
    flat["st.x"] = pc.struct_field(ROWS["st"], "x")
    flat["st.`in.ner`.y"] = pc.struct_field(pc.struct_field(ROWS["st"], "in.ner"), "y")
    assert {name: column.nulls for name, column in columns.items()} == {
        name: values.null_count for name, values in flat.items()
    }


@pytest.mark.parametrize("name", ["n", "d", "f", "m", "st.x"])
def test_numbers_are_those_of_pyarrow(columns: dict[str, ColumnProfile], name: str) -> None:
    column = columns[name]
    values = pc.struct_field(ROWS["st"], "x") if name == "st.x" else ROWS[name]
    values = pc.drop_null(values)
    if pa.types.is_floating(values.type):
        assert column.nans == pc.sum(pc.is_nan(values)).as_py()
        values = values.filter(pc.invert(pc.is_nan(values)))
    else:
        assert column.nans is None
    assert column.distinct == pc.count_distinct(values).as_py() + (column.nans or 0)
    low, high = pc.min(values).as_py(), pc.max(values).as_py()
    assert (column.min, column.max) == ((f"{low}", f"{high}") if name == "m" else (low, high))
    doubles = values.cast(pa.float64(), safe=False)
    assert column.mean == pytest.approx(pc.mean(doubles).as_py())
    assert column.stddev == pytest.approx(pc.stddev(doubles, ddof=1).as_py())
    assert column.min_length is column.max_length is None


def test_infinite_numbers_are_told_in_json(columns: dict[str, ColumnProfile]) -> None:
    column = columns["i"]
    assert (column.min, column.max, column.mean, column.nans) == (1.0, "Infinity", "Infinity", 0)


def test_texts_and_bytes_have_lengths(columns: dict[str, ColumnProfile]) -> None:
    text, raw = columns["s"], columns["b"]
    assert (text.min, text.max) == ("", "é")
    assert (text.min_length, text.max_length, text.distinct) == (0, 300, 3)
    assert (raw.min, raw.max, raw.min_length, raw.max_length, raw.distinct) == (None, None, 0, 3, 3)


def test_times_are_told_apart_from_the_time_zone_of_the_session(
    columns: dict[str, ColumnProfile],
) -> None:
    """Of which 2026-03-08 02:30 isn't a time."""
    assert (columns["t"].min, columns["t"].max) == (
        "1969-12-31T23:59:59.999999Z",
        "1970-01-01T00:00:00.000001Z",
    )
    assert (columns["w"].min, columns["w"].max) == (
        "1969-12-31T23:59:59.999999",
        "2026-03-08T02:30:00.500000",
    )
    assert (columns["day"].min, columns["day"].max) == ("1969-12-31", "2024-10-04")
    assert (columns["ok"].min, columns["ok"].max, columns["ok"].distinct) == (True, True, 1)


def test_what_has_no_order_is_only_counted(columns: dict[str, ColumnProfile]) -> None:
    assert columns["l"] == ColumnProfile("l", "array<long>", 1)
    assert columns["k"] == ColumnProfile("k", "map<string,long>", 1)
    assert columns["none"] == ColumnProfile("none", "integer", 4, distinct=0)


def test_partition_columns_are_columns(columns: dict[str, ColumnProfile]) -> None:
    column = columns["p"]
    assert (column.nulls, column.distinct, column.min, column.max) == (1, 2, "u v", "é")


def test_long_texts_are_cut(spark: SparkSession, table: str) -> None:
    (column,) = profile_snapshot(spark, table, columns=["s"], predicate="n > 5").columns
    assert column.min == column.max == "z" * MOST_CHARACTERS
    assert column.max_length == 300


def test_a_condition_over_other_columns(spark: SparkSession, table: str) -> None:
    profile = profile_snapshot(spark, table, columns=["n", "st"], predicate="p = 'u v'")
    assert [column.name for column in profile.columns] == ["n", "st.x", "st.`in.ner`.y"]
    assert (profile.num_rows, profile.columns[0].nulls, profile.num_files) == (2, 1, 3)
    profile = profile_snapshot(spark, table, columns=[], predicate="n IS NULL")
    assert (profile.num_rows, profile.counted_by, profile.columns) == (1, "scan", ())


def test_no_rows(spark: SparkSession, table: str) -> None:
    profile = profile_snapshot(spark, table, predicate="false")
    assert profile.num_rows == 0
    assert by_name(profile)["s"] == ColumnProfile("s", "string", 0, distinct=0)


def test_years_that_python_does_not_know(spark: SparkSession, tmp_path: Path) -> None:
    schema = StructType((StructField("day", DATE), StructField("at", TIMESTAMP)))
    delta = DeltaTable.create(str(tmp_path), schema)
    days, times = [-800_000, 4_000_000], [-70_000_000_000_000_000, 300_000_000_000_000_000]
    rows = pa.table(
        {"day": pa.array(days, pa.date32()), "at": pa.array(times, pa.timestamp("us", "UTC"))}
    )
    pq.write_table(rows, tmp_path / "f.parquet")
    write = delta.transaction("WRITE")
    size = (tmp_path / "f.parquet").stat().st_size
    write.add_file(AddFile("f.parquet", {}, size, 1, data_change=True))
    write.commit()
    texts = read_snapshot(spark, str(tmp_path)).selectExpr("string(min(day))", "string(max(day))")
    found = by_name(profile_snapshot(spark, str(tmp_path)))
    assert [found["day"].min, found["day"].max] == [*texts.collect()[0]]
    assert str(found["at"].min).startswith("-0249-")
    assert str(found["at"].max).startswith("+11476-")


def test_rows_alone_are_counted_by_the_log(
    spark: SparkSession, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow_delta.spark.profile import profiling

    monkeypatch.setattr(profiling, "read_snapshot", lambda *_, **__: pytest.fail("was read"))
    assert profile_snapshot(spark, table, columns=[]) == TableProfile(0, 4, "statistics", 3, 3)


def test_rows_are_counted_by_reading_where_the_log_does_not_tell(
    spark: SparkSession, table: str, tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(table, copy)
    commit = copy / "_delta_log" / f"{0:020}.json"
    actions = [json.loads(line) for line in commit.read_text().splitlines()]
    for action in actions:
        action.get("add", {}).pop("stats", None)
    commit.write_text("".join(json.dumps(action) + "\n" for action in actions))
    profile = profile_snapshot(spark, str(copy), columns=[])
    assert (profile.num_rows, profile.counted_by) == (4, "scan")


def test_what_cannot_be_profiled_is_refused(spark: SparkSession, table: str) -> None:
    with pytest.raises(InvalidArgumentError, match=r"unknown columns \['nope'\]"):
        profile_snapshot(spark, table, columns=["nope"])
    with pytest.raises(VersionNotFoundError):
        profile_snapshot(spark, table, 7)
    with pytest.raises(InvalidArgumentError, match="a version or a timestamp, not both"):
        profile_snapshot(spark, table, 0, timestamp=0)


def test_a_version_by_its_time(spark: SparkSession, tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    for number in range(3):
        write_deltalake(uri, pa.table({"id": [number]}), mode="append")
        os.utime(tmp_path / "t" / "_delta_log" / f"{number:020}.json", (1000 + number,) * 2)
    profile = profile_snapshot(spark, uri, timestamp=1_001_500, columns=["id"])
    assert (profile.version, profile.num_rows, profile.columns[0].max) == (1, 2, 1)


INSERT = (
    "INSERT INTO T! SELECT id, CAST(id AS DECIMAL(10,2)) / 4, id / 7, "
    "IF(id % 4 = 0, NULL, concat('é', id)), "
    "named_struct('x', CAST(id AS INT), 'y', IF(id % 3 = 0, NULL, CAST(id AS BYTE))), "
    "timestamp'2026-03-08T06:59:59.123456Z' + make_interval(0,0,0,0,0,0,id), "
    "parse_json(concat('{\"a\":', id, '}')), array(id), CAST(id % 3 AS STRING) FROM range(0, 40, 1, 2)"
)
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)
STEPS = [
    INSERT,
    "DELETE FROM T! WHERE id % 7 = 3",
    "UPDATE T! SET d = double('NaN'), s = 'new' WHERE id BETWEEN 12 AND 22",
    "ALTER TABLE T! RENAME COLUMN st.x TO z",
    "ALTER TABLE T! DROP COLUMN m",
]
TWIN = (
    "SELECT count(*) AS rows, count(s) AS s, min(s) AS low, max(s) AS high, count_if(isnan(d)) AS nans, "
    "min(IF(isnan(d), NULL, d)) AS least, avg(IF(isnan(d), NULL, d)) AS mean, count(st.y) AS ys, "
    "max(st.y) AS y, approx_count_distinct(s) AS about, count(v) AS v, max(length(s)) AS longest, "
    "unix_micros(max(at)) AS last FROM delta.`{table}` VERSION AS OF {version}"
)


def test_profiles_of_a_table_of_delta_sparks(
    spark: SparkSession, delta_spark: DeltaSpark, tmp_path: Path
) -> None:
    """Deletion vectors, column mapping, variants: its own figures of the same version."""
    uri = str(tmp_path / "t")

    def sql(statement: str) -> list[dict[str, Any]]:
        return delta_spark.sql(statement.replace("T!", f"delta.`{uri}`"))

    sql(
        "CREATE TABLE T! (id BIGINT, m DECIMAL(12,4), d DOUBLE, s STRING, st STRUCT<x: INT, y: BYTE>, "
        "at TIMESTAMP, v VARIANT, l ARRAY<BIGINT>, p STRING) USING delta PARTITIONED BY (p) TBLPROPERTIES "
        "('delta.enableDeletionVectors'='true', 'delta.columnMapping.mode'='name')"
    )
    for step in STEPS:
        sql(step)
    newest = DeltaTable(uri).latest_version()
    assert newest == len(STEPS)
    versions = (1, 2, newest)
    queries = [TWIN.format(version=version, table=uri) for version in versions]
    for version, (theirs,) in zip(versions, delta_spark.sql_of_each(queries), strict=True):
        ours = profile_snapshot(spark, uri, version)
        found = by_name(ours)
        assert ours.num_rows == theirs["rows"]
        assert profile_snapshot(spark, uri, version, columns=[]).num_rows == theirs["rows"]
        assert ours.num_rows - found["s"].nulls == theirs["s"]
        assert (found["s"].min, found["s"].max) == (theirs["low"], theirs["high"])
        assert (found["s"].distinct, found["s"].max_length) == (theirs["about"], theirs["longest"])
        assert (found["d"].nans, found["d"].min) == (theirs["nans"], theirs["least"])
        assert found["d"].mean == pytest.approx(theirs["mean"])
        assert (ours.num_rows - found["st.y"].nulls, found["st.y"].max) == (
            theirs["ys"],
            theirs["y"],
        )
        assert ours.num_rows - found["v"].nulls == theirs["v"]
        assert micros(found["at"].max) == theirs["last"]
    assert "m" not in found
    assert "st.z" in found
    assert ours.num_partitions == 3


def micros(text: Any) -> int | None:
    if text is None:
        return None
    return (dt.datetime.fromisoformat(text.replace("Z", "+00:00")) - EPOCH) // dt.timedelta(
        microseconds=1
    )

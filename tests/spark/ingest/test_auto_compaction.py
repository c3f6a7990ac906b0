"""Small files are compacted after a write, where the table asks for it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from airflow_delta.engine import DOUBLE, LONG, STRING, AddFile, DeltaTable, StructField, StructType
from airflow_delta.engine.errors import DeltaWarning
from airflow_delta.engine.model.schema_json import data_type_from_json
from airflow_delta.spark import write
from airflow_delta.spark.ingest.auto_compaction import AutoCompaction, compact_after_write
from tests.engine.maintenance.convert.parquet_folders import write_parquet

COMPACT = {"delta.autoOptimize.autoCompact": "true"}


def table_of(folder: Path, files: dict[str, int], **properties: str) -> DeltaTable:
    """A table with a number of small files in each directory."""
    row = 0
    for directory, number in files.items():
        for name in range(number):
            write_parquet(folder / directory / f"{name:03}.parquet", {"id": [row]})
            row += 1
    columns = {"p": "string"} if any("=" in directory for directory in files) else None
    DeltaTable.convert(folder, columns, properties={**COMPACT, **properties})
    return DeltaTable(folder)


def add_in(p: str | None = None, *, partitioned: bool = True) -> AddFile:
    """A file that a write has added; only its partition counts."""
    return AddFile("x", {"p": p} if partitioned else {}, 1, 1, data_change=True)


def typed_table(
    folder: Path, type_: str, texts: Sequence[str | None]
) -> tuple[DeltaTable, list[AddFile]]:
    """A table partitioned by a column of a type, with a file for each text."""
    columns = StructField("id", LONG), StructField("p", data_type_from_json(type_))
    return table_with_files(folder, StructType(columns), [{"p": text} for text in texts])


def table_with_files(
    folder: Path, schema: StructType, values: Sequence[dict[str, str | None]]
) -> tuple[DeltaTable, list[AddFile]]:
    """A table with a file of one row for each of some partition values; and these files."""
    DeltaTable.create(str(folder), schema, partition_by=list(values[0]), properties=COMPACT)
    table = DeltaTable(folder)
    adds = []
    for number, each in enumerate(values):
        path = folder / f"{number}.parquet"
        write_parquet(path, {"id": [number]})
        adds.append(AddFile(path.name, each, path.stat().st_size, 1, data_change=True))
    transaction = table.transaction("WRITE")
    transaction.add_files(adds)
    transaction.commit()
    return table, adds


def compact(table: DeltaTable, *adds: AddFile) -> AutoCompaction | None:
    return compact_after_write(table, table.snapshot().metadata, adds)


def test_crowded_partitions_that_were_written_to_are_compacted(tmp_path: Path) -> None:
    hive_null = "p=__HIVE_DEFAULT_PARTITION__"
    numbers = {"p=a": 50, "p=b": 49, "p=c": 51, hive_null: 50, "p=a%2Fb%20é": 50}
    table = table_of(tmp_path, numbers)
    ids = sorted(table.snapshot().to_arrow()["id"].to_pylist())
    done = compact(table, *map(add_in, ("a", "b", None, "a/b é", "a")))
    assert done == AutoCompaction(1, 150, 3)
    values = table.snapshot().files(columns=["partitionValues"])["partitionValues"].to_pylist()
    found = [dict(value)["p"] for value in values]
    assert {p: found.count(p) for p in found} == {"a": 1, "b": 49, "c": 51, None: 1, "a/b é": 1}
    assert sorted(table.snapshot().to_arrow()["id"].to_pylist()) == ids
    assert compact(table, add_in("a"), add_in("b")) is None
    assert table.history(1)[0].operation == "OPTIMIZE"


@pytest.mark.parametrize(
    ("type_", "text"),
    [
        ("float", "0.1"),
        ("float", "NaN"),
        ("double", "NaN"),
        ("double", "-0.0"),
        ("double", "-Infinity"),
        ("byte", "-1"),
        ("short", "7"),
        ("integer", "7"),
        ("long", "9223372036854775807"),
        ("decimal(38,10)", "1234567890123456789012345678.0123456789"),
        ("boolean", "false"),
        ("date", "0001-01-01"),
        ("timestamp", "2024-01-03 12:00:00.123456"),
        ("timestamp_ntz", "9999-12-31 23:59:59.999999"),
        ("binary", "b\x01"),
        ("string", "\x01"),
    ],
)
def test_partitions_of_all_types_are_compacted(tmp_path: Path, type_: str, text: str) -> None:
    table, adds = typed_table(tmp_path, type_, [text] * 50 + [None] * 49)
    assert compact(table, adds[0]) == AutoCompaction(2, 50, 1)
    assert table.snapshot().to_arrow().num_rows == 99


@pytest.mark.parametrize(
    ("type_", "texts"),
    [
        ("double", ["1.0", "1.00"]),
        ("double", ["NaN", "nan"]),
        ("decimal(10,2)", ["1", "1.0"]),
        ("integer", ["+5", "5"]),
        ("boolean", ["true", "True"]),
        ("date", ["2026-01-01", "2026-1-1"]),
        ("timestamp", ["2026-01-01T00:00:00Z", "2026-01-01T02:00:00+02:00"]),
        ("integer", ["", None]),
    ],
)
def test_equal_values_are_one_partition_however_they_are_written(
    tmp_path: Path, type_: str, texts: list[str | None]
) -> None:
    table, adds = typed_table(tmp_path, type_, texts * 25)
    assert compact(table, adds[0]) == AutoCompaction(2, 50, 1)
    assert sorted(table.snapshot().to_arrow()["id"].to_pylist()) == list(range(50))


@pytest.mark.parametrize(
    ("type_", "texts"),
    [
        ("double", ["0.0", "-0.0"]),
        ("double", ["NaN", None]),
        ("string", ["NaN", "nan"]),
        ("string", ["a", "a\0"]),
        # Spark reads the first as an empty string.
        ("string", ["", None]),
        # Readers differ in the zone of the first.
        ("timestamp", ["2026-01-01 00:00:00", "2026-01-01T00:00:00Z"]),
    ],
)
def test_different_values_are_several_partitions(
    tmp_path: Path, type_: str, texts: list[str | None]
) -> None:
    table, adds = typed_table(tmp_path, type_, texts * 49)
    assert compact(table, *adds) is None
    assert table.latest_version() == 1


def test_partitions_of_nan_in_one_of_two_columns_are_compacted(tmp_path: Path) -> None:
    pairs = [("NaN", "a")] * 50 + [("NaN", None)] * 49 + [("1.0", "a")] * 49
    schema = StructType(
        (StructField("id", LONG), StructField("p", DOUBLE), StructField("q", STRING))
    )
    values = [{"p": p, "q": q} for p, q in pairs]
    table, adds = table_with_files(tmp_path, schema, values)
    assert compact(table, adds[0], adds[60], adds[-1]) == AutoCompaction(2, 50, 1)
    found = table.snapshot().files(columns=["partitionValues"])["partitionValues"].to_pylist()
    counts = Counter((dict(each)["p"], dict(each)["q"]) for each in found)
    assert counts == {("NaN", "a"): 1, ("NaN", None): 49, ("1.0", "a"): 49}


def test_a_table_without_partitions_is_one(tmp_path: Path) -> None:
    table = table_of(tmp_path, {".": 50})
    assert compact(table, add_in(partitioned=False)) == AutoCompaction(1, 50, 1)


@pytest.mark.parametrize(
    "properties",
    [
        {"delta.autoOptimize.autoCompact": "false"},
        {"delta.autoOptimize.autoCompact": "auto"},
        # Then no file is small.
        {"delta.targetFileSize": "600"},
    ],
)
def test_only_small_files_count_and_only_if_the_table_asks(
    tmp_path: Path, properties: dict[str, str]
) -> None:
    table = table_of(tmp_path, {".": 50}, **properties)
    assert compact(table, add_in(partitioned=False)) is None
    assert compact(table) is None
    assert table.latest_version() == 0


def test_a_clustered_table_is_left_to_an_optimization(tmp_path: Path) -> None:
    table = table_of(tmp_path, {".": 50})
    table.alter.cluster_by(["id"])
    assert compact(table, add_in(partitioned=False)) is None
    assert table.history(1)[0].operation == "CLUSTER BY"


def test_the_older_property_asks_too(tmp_path: Path) -> None:
    older = {"delta.autoOptimize": "true", "delta.autoOptimize.autoCompact": "false"}
    table = table_of(tmp_path, {".": 50}, **older)
    assert compact(table, add_in(partitioned=False)) == AutoCompaction(1, 50, 1)


def test_a_failure_is_reported_and_warned_of(tmp_path: Path) -> None:
    table = table_of(tmp_path, {".": 50})
    (tmp_path / "007.parquet").unlink()
    with pytest.warns(DeltaWarning, match="the rows are written, but the compaction"):
        done = compact(table, add_in(partitioned=False))
    assert done is not None
    assert (done.version, done.num_added_files) == (None, 0)
    assert "007.parquet" in str(done.error)
    assert table.latest_version() == 0


def test_a_write_by_spark_compacts_in_another_commit(spark: SparkSession, tmp_path: Path) -> None:
    table = table_of(tmp_path, {".": 49})
    rows: Any = spark.createDataFrame([(100,)], "id bigint").coalesce(1)
    result = write(rows, str(tmp_path))
    assert (result.version, result.num_files, result.written) == (1, 1, True)
    assert result.compaction == AutoCompaction(2, 50, 1)
    assert [commit.operation for commit in table.history()] == ["OPTIMIZE", "WRITE", "CONVERT"]
    (path,) = table.snapshot().files()["path"].to_pylist()
    assert sorted(pq.read_table(tmp_path / path)["id"].to_pylist()) == [*range(49), 100]
    assert pa.types.is_int64(pq.read_schema(tmp_path / path).field("id").type)
    assert write(rows, str(tmp_path)).compaction is None

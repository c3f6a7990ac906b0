from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable as Peer
from deltalake import write_deltalake
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812

from airflow_delta.engine import AddFile, DeltaTable
from airflow_delta.engine.errors import (
    InvalidArgumentError,
    TableNotFoundError,
    UnsupportedFeatureError,
    VersionNotFoundError,
)
from airflow_delta.engine.model.paths import encode_path
from airflow_delta.engine.model.schema import INTEGER, LONG, STRING, StructField, StructType
from airflow_delta.spark import read_snapshot
from tests.conftest import golden_manifest
from tests.spark.conftest import bag, rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.usefixtures("compiled")

GoldenCase = Callable[[str], Path]

# pyarrow wrote a timestamp of the file in nanoseconds and without UTC, which the protocol doesn't
# allow and Spark doesn't read.
UNREADABLE_COLUMNS = {"derived-cm-id-field-ids-only": "as_timestamp"}
CASES = {
    case["name"]: case for case in golden_manifest() if case.get("expected_content") == "equal"
}

VERSIONED = ["dat-basic_partitioned", "dat-partitioned_with_null"]
# Tables without expected rows: features that the ones with rows lack.
COUNTED = [
    "partitioned-table-with-dv-large",
    "spark-table-with-dv-small",
    "table-with-dv-large",
    "table-with-dv-special-char",
    "table_with_partitioning_mapping",
    "v1-multi-part-partitioned-struct-stats-only",
    "variant-stats-no-checkpoint",
]
# Tables that the peer reads right, too: unusual paths and values.
PEERED = [
    "delta-0.8.0-special-partition",
    "kernel-timestamp-partition-col-ISO8601",
    "partition-type-primitives",
]


@pytest.mark.parametrize("name", CASES)
def test_golden_table_has_its_expected_rows(
    spark: SparkSession, golden_case: GoldenCase, name: str
) -> None:
    table = golden_case(name)
    wanted: list[dict[str, Any]] = []
    for file in sorted((table.parent / "expected").iterdir()):
        wanted += pq.ParquetFile(file).read().to_pylist()
    left_out = UNREADABLE_COLUMNS.get(name)
    columns = [c for c in CASES[name]["schema_field_names"] if c != left_out]
    got = rows_of(read_snapshot(spark, str(table), columns=columns))
    wanted = [{name: row.get(name) for name in columns} for row in wanted]
    assert bag(got) == bag(wanted)


def test_golden_versions_have_their_expected_rows(
    spark: SparkSession, golden_case: GoldenCase
) -> None:
    """Each version of the cases that have rows of versions that went before."""
    for name in VERSIONED:
        table = golden_case(name)
        folders = sorted((table.parent / "expected_versions").iterdir())
        assert folders
        for folder in folders:
            files = (pq.ParquetFile(file).read().to_pylist() for file in folder.iterdir())
            wanted = [row for rows in files for row in rows]
            version = int(folder.name.removeprefix("v"))
            assert bag(rows_of(read_snapshot(spark, str(table), version))) == bag(wanted)


@pytest.mark.parametrize("name", COUNTED)
def test_golden_table_has_as_many_rows_at_each_version(
    spark: SparkSession, golden_case: GoldenCase, name: str
) -> None:
    (case,) = (case for case in golden_manifest() if case["name"] == name)
    counts = {int(version): rows for version, rows in case["per_version_rows"].items()}
    counts[case["latest_version"]] = case["num_rows"]
    table = str(golden_case(name))
    for version in sorted(counts)[-3:]:
        assert read_snapshot(spark, table, version).count() == counts[version]


@pytest.mark.parametrize("name", PEERED)
def test_golden_table_reads_as_by_the_peer(
    spark: SparkSession, golden_case: GoldenCase, name: str
) -> None:
    table = str(golden_case(name))
    peer = pa.table(Peer(table).to_pyarrow_table()).to_pylist()
    assert peer
    assert bag(rows_of(read_snapshot(spark, table))) == bag(peer)


def test_files_of_narrower_types_are_widened(spark: SparkSession, golden_case: GoldenCase) -> None:
    table = str(golden_case("type-widening"))
    # Spark's vectorised reader turns int32 into decimals of at least 10 integer digits, as the
    # feature in its final form wants it; this table is of the preview.
    beyond_spark = {"byte_decimal", "short_decimal"}
    names = [n for n in DeltaTable(table).snapshot().schema.names if n not in beyond_spark]
    (narrow,) = rows_of(read_snapshot(spark, table, 0, columns=names))
    both = rows_of(read_snapshot(spark, table, columns=names))
    widened = next(row for row in both if row["int_long"] == narrow["int_long"])
    assert widened.pop("date_timestamp_ntz").date() == narrow.pop("date_timestamp_ntz")
    assert widened == pytest.approx(narrow)
    with pytest.raises(Exception, match="PARQUET_COLUMN_DATA_TYPE_MISMATCH"):
        read_snapshot(spark, table, columns=["byte_decimal"]).collect()


def test_a_void_column_is_null(spark: SparkSession, golden_case: GoldenCase) -> None:
    rows = rows_of(read_snapshot(spark, str(golden_case("void-column"))))
    assert len(rows) == 3
    assert {row["void_col"] for row in rows} == {None}


ODD_PATHS = [
    "a b/part-0.parquet",
    "a%20b/part-0.parquet",
    "a%2520b/part-0.parquet",
    "a+b/part-0.parquet",
    "a#b?c/part-0.parquet",
    "é😀\u3000/part-0.parquet",
    "{x},[a-c]*/part-?.parquet",
    "_hidden/.hidden/part-0.parquet",
    "k=1/k=2/_odd=x.parquet",
    "c:d/trailing./~part-0.parquet",
]


def add_files(table: str, paths: list[str], **values: str | None) -> None:
    """Commit files that lie below a table, or at absolute paths."""
    transaction = DeltaTable(table).transaction("WRITE")
    for path in paths:
        place = Path(path) if path.startswith("/") else Path(table, path)
        log_path = encode_path(path)
        transaction.add_file(AddFile(log_path, values, place.stat().st_size, 0, data_change=True))
    transaction.commit()


@pytest.mark.parametrize("partitioned", [False, True])
def test_odd_paths_are_read_as_they_are_called(
    spark: SparkSession, tmp_path: Path, partitioned: bool
) -> None:
    table = str(tmp_path / "t a%b")
    columns = (StructField("n", LONG), StructField("p", STRING))
    DeltaTable.create(table, StructType(columns), partition_by=["p"] if partitioned else [])
    absolute = str(tmp_path / "else where%41.parquet")
    for number, path in enumerate([*ODD_PATHS, absolute]):
        file = Path(table, path)
        file.parent.mkdir(parents=True, exist_ok=True)
        # The file's own p must not be looked at where p is a partition column.
        pq.write_table(pa.table({"n": [number], "p": ["of the file"]}), file)
        add_files(table, [path], **({"p": f"of {number}"} if partitioned else {}))
    frame = read_snapshot(spark, table, allowed_outside=[str(tmp_path)])
    got = {row["n"]: row["p"] for row in rows_of(frame)}
    want = range(len(ODD_PATHS) + 1)
    assert got == {n: f"of {n}" if partitioned else "of the file" for n in want}


def test_a_file_that_spark_would_skip_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    DeltaTable.create(str(tmp_path), StructType((StructField("n", LONG),)))
    pq.write_table(pa.table({"n": [1]}), tmp_path / "_part.parquet")
    add_files(str(tmp_path), ["_part.parquet"])
    with pytest.raises(UnsupportedFeatureError, match="begins with '_' or"):
        read_snapshot(spark, str(tmp_path))


def test_a_missing_file_stops_the_query(spark: SparkSession, tmp_path: Path) -> None:
    write_deltalake(tmp_path, pa.table({"n": [1]}))
    (file,) = tmp_path.glob("*.parquet")
    file.unlink()
    spark.conf.set("spark.sql.files.ignoreMissingFiles", "true")
    try:
        with pytest.raises(Exception, match=r"FILE_NOT_EXIST|does not exist"):
            read_snapshot(spark, str(tmp_path)).collect()
    finally:
        spark.conf.unset("spark.sql.files.ignoreMissingFiles")


def test_columns_that_a_file_lacks_are_null_and_others_not_seen(
    spark: SparkSession, tmp_path: Path
) -> None:
    inner = StructType((StructField("a", INTEGER), StructField("new", STRING)))
    columns = (StructField("late", STRING), StructField("n", LONG), StructField("s", inner))
    DeltaTable.create(str(tmp_path), StructType(columns))
    s = pa.array([{"a": 1, "dropped": 2}], pa.struct([("a", pa.int32()), ("dropped", pa.int32())]))
    pq.write_table(pa.table({"_change_type": ["insert"], "n": [1], "s": s}), tmp_path / "f.parquet")
    add_files(str(tmp_path), ["f.parquet"])
    rows = rows_of(read_snapshot(spark, str(tmp_path)))
    assert rows == [{"late": None, "n": 1, "s": {"a": 1, "new": None}}]


def test_columns_with_our_own_names(spark: SparkSession, tmp_path: Path) -> None:
    row = {
        "_metadata": 1,
        "data": 2,
        "file": 3,
        "number": 4,
        "row_index": 5,
        "a.b`c": 6,
        "uri": "p",
    }
    write_deltalake(tmp_path, pa.table({k: [v] for k, v in row.items()}), partition_by=["uri"])
    assert rows_of(read_snapshot(spark, str(tmp_path))) == [row]
    some = read_snapshot(spark, str(tmp_path), columns=["a.b`c", "uri"])
    assert rows_of(some) == [{"a.b`c": 6, "uri": "p"}]


def test_versions_timestamps_columns_and_predicates(spark: SparkSession, tmp_path: Path) -> None:
    table = str(tmp_path)
    for start in (0, 10):
        data = pa.table({"id": [start, start + 1], "p": ["x", "y"]})
        write_deltalake(table, data, mode="append", partition_by=["p"])
    first = DeltaTable(table).snapshot(version=0).timestamp_ms
    for frame in (read_snapshot(spark, table, 0), read_snapshot(spark, table, timestamp=first)):
        assert sorted(row["id"] for row in rows_of(frame)) == [0, 1]
    found = read_snapshot(spark, table, columns=["id"], predicate=F.col("p") == "y")
    assert bag(rows_of(found)) == bag([{"id": 1}, {"id": 11}])
    assert read_snapshot(spark, table, predicate="p = 'y' AND id > 5").count() == 1


def test_a_predicate_reaches_the_parquet_reader(spark: SparkSession, tmp_path: Path) -> None:
    write_deltalake(tmp_path, pa.table({"id": [1, 2], "p": ["x", "y"]}), partition_by=["p"])
    frame = read_snapshot(spark, str(tmp_path), predicate="id > 1", columns=["id"])
    plan = frame._jdf.queryExecution().executedPlan().toString()
    assert "GreaterThan(" in plan
    assert "Batched: true" in plan


def test_a_table_without_files_has_its_columns(spark: SparkSession, tmp_path: Path) -> None:
    columns = (StructField("n", LONG, nullable=False), StructField("p", STRING))
    DeltaTable.create(str(tmp_path), StructType(columns), partition_by=["p"])
    frame = read_snapshot(spark, str(tmp_path))
    # As of a table with files: Spark's file sources promise nothing about nulls.
    assert frame.schema == T.StructType().add("n", "long").add("p", "string")
    assert rows_of(frame) == []


def test_what_cannot_be_read_is_said(spark: SparkSession, tmp_path: Path) -> None:
    write_deltalake(tmp_path / "t", pa.table({"id": [1]}))
    table = str(tmp_path / "t")
    with pytest.raises(TableNotFoundError, match="nowhere"):
        read_snapshot(spark, str(tmp_path / "nowhere"))
    with pytest.raises(VersionNotFoundError, match="version 5"):
        read_snapshot(spark, table, 5)
    with pytest.raises(InvalidArgumentError, match="not both"):
        read_snapshot(spark, table, 0, timestamp=0)
    with pytest.raises(InvalidArgumentError, match=r"unknown columns \['ID'\]: the table has id"):
        read_snapshot(spark, table, columns=["ID"])
    with pytest.raises(InvalidArgumentError, match="columns='id': expected a list"):
        read_snapshot(spark, table, columns="id")


def test_memory_is_no_place_for_spark(spark: SparkSession) -> None:
    DeltaTable.create("memory://spark-test/t", StructType((StructField("n", LONG),)))
    DeltaTable("memory://spark-test/t").storage.create("f.parquet", b"x")
    transaction = DeltaTable("memory://spark-test/t").transaction("WRITE")
    transaction.add_file(AddFile("f.parquet", {}, 1, 0, data_change=True))
    transaction.commit()
    with pytest.raises(InvalidArgumentError, match="Spark can't see the memory of this process"):
        read_snapshot(spark, "memory://spark-test/t")

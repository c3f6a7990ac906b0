"""The rows of files with what is known of them: rows beside Arrow's reckoning, and Spark's plans."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyroaring import BitMap64
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812

from airflow_delta.engine import AddFile, DeltaTable
from airflow_delta.engine.deletion_vectors import roaring, z85
from airflow_delta.engine.features.column_mapping import physical_name
from airflow_delta.engine.model.dv_descriptor import DeletionVectorDescriptor
from airflow_delta.engine.model.schema import LONG, STRING, StructField, StructType
from airflow_delta.spark import read_snapshot
from airflow_delta.spark.reader.file_list import scan_files
from airflow_delta.spark.reader.file_rows import file_rows, stored_column, with_facts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.usefixtures("compiled")

ROWS, FILES = 300, 4
DELETED = {1: [0, 150, 299], 2: [*range(100, 200)]}
PREDICATE = "n >= 120 AND n % 7 <> 0"


@dataclass(frozen=True)
class Given:
    """A table, and the rows that it has by Arrow's own reckoning."""

    uri: str
    rows: pa.Table


def given(folder: Path, *, partitioned: bool, vectors: bool, mapped: bool) -> Given:
    fields = (StructField("n", LONG), StructField("of file", STRING), StructField("part", STRING))
    properties = {"delta.enableDeletionVectors": "true"}
    properties |= {"delta.columnMapping.mode": "name"} if mapped else {}
    fields = fields if mapped else tuple(f for f in fields if " " not in f.name)
    columns = ["part"] if partitioned else []
    table = DeltaTable(str(folder))
    DeltaTable.create(str(folder), StructType(fields), partition_by=columns, properties=properties)
    snapshot, mode = table.snapshot(), "name" if mapped else "none"
    physical = {field.name: physical_name(field, mode) for field in snapshot.schema}
    transaction, wanted = table.transaction("WRITE"), []
    for number in range(FILES):
        part = None if number == 3 else f"part {number % 2}"
        rows = pa.table(
            {"n": range(ROWS), "of file": [f"row of {number}"] * ROWS, "part": [part] * ROWS},
            pa.schema([("n", pa.int64()), ("of file", pa.string()), ("part", pa.string())]),
        ).select([field.name for field in fields])
        stored = rows.drop_columns(columns)
        path = f"{number}.parquet"
        pq.write_table(
            stored.rename_columns([physical[name] for name in stored.column_names]),
            folder / path,
            row_group_size=100,
        )
        deleted = DELETED.get(number, []) if vectors else []
        transaction.add_file(
            AddFile(
                path,
                {physical["part"]: part} if partitioned else {},
                (folder / path).stat().st_size,
                0,
                data_change=True,
                stats=f'{{"numRecords":{ROWS}}}',
                deletion_vector=vector(deleted) if deleted else None,
            )
        )
        wanted.append(rows.filter(pc.invert(pc.is_in(rows["n"], pa.array(deleted, pa.int64())))))
    transaction.commit()
    return Given(str(folder), pa.concat_tables(wanted))


def vector(places: list[int]) -> DeletionVectorDescriptor:
    data = roaring.serialize(BitMap64(places))
    return DeletionVectorDescriptor(
        "i", z85.encode(data + bytes(-len(data) % 4)), None, len(data), len(places)
    )


def plan_of(frame: DataFrame) -> str:
    """The physical plan, with all that it says of its scans."""
    return str(frame._jdf.queryExecution().executedPlan().treeString())


@pytest.mark.parametrize(
    ("partitioned", "vectors", "mapped"), list(itertools.product([False, True], repeat=3))
)
def test_rows_and_plans_of_all_kinds_of_tables(
    spark: SparkSession, tmp_path: Path, *, partitioned: bool, vectors: bool, mapped: bool
) -> None:
    table = given(tmp_path / "table", partitioned=partitioned, vectors=vectors, mapped=mapped)
    everything = [(name, "ascending") for name in table.rows.column_names]
    whole = read_snapshot(spark, table.uri)
    assert whole.toArrow().sort_by(everything).equals(table.rows.sort_by(everything))
    some = read_snapshot(spark, table.uri, predicate=PREDICATE)
    plan = plan_of(some)
    numbers = table.rows["n"].to_numpy()
    wanted = table.rows.filter(pa.array((numbers >= 120) & (numbers % 7 != 0)))
    assert some.toArrow().sort_by(everything).equals(wanted.sort_by(everything))

    # Files with vectors have a scan of their own, and join one table with all that is known of files.
    assert plan.count("FileScan") == 1 + vectors
    assert plan.count("BroadcastHashJoin") == (1 + vectors if partitioned else vectors)
    assert plan.count("Batched: true") == plan.count("FileScan")
    assert plan.count("GreaterThanOrEqual(") == plan.count("FileScan")
    assert "struct(" not in plan.replace("named_struct(", "")


def test_rows_whose_file_spark_does_not_tell_stop_the_query(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = given(tmp_path / "table", partitioned=True, vectors=False, mapped=False)

    def with_other_times(*arguments: Any, **named: Any) -> DataFrame:
        count = len(named["modified_ms"])
        return scan_files(*arguments, **{**named, "modified_ms": pa.array(range(1, count + 1))})

    monkeypatch.setattr("airflow_delta.spark.reader.file_rows.scan_files", with_other_times)
    with pytest.raises(PySparkException, match=r"not in the list of files: file:.*3\.parquet"):
        read_snapshot(spark, table.uri).collect()


def test_a_scan_reads_only_the_columns_that_are_used(spark: SparkSession, tmp_path: Path) -> None:
    table = given(tmp_path / "table", partitioned=True, vectors=True, mapped=True)
    narrow = plan_of(read_snapshot(spark, table.uri).groupBy("part").agg(F.sum("n")))
    assert narrow.count("FileScan") == 2
    # What is read of a file is `n`, and where vectors need it the rows' places.
    schemas = [part.partition(">")[0] for part in narrow.split("ReadSchema: struct<")[1:]]
    assert sorted(len(schema.split(",")) for schema in schemas) == [1, 2]


def test_modification_times_are_those_of_the_log(spark: SparkSession, tmp_path: Path) -> None:
    table = given(tmp_path / "table", partitioned=True, vectors=True, mapped=False)
    found = read_snapshot(spark, table.uri, metadata_columns=["_file_modification_time"])
    times = found.select(F.unix_millis("_file_modification_time")).distinct().collect()
    assert [tuple(row) for row in times] == [(0,)]


def test_entries_take_or_leave_out_rows(spark: SparkSession, tmp_path: Path) -> None:
    """A file may have several entries, or none."""
    for number in range(3):
        pq.write_table(pa.table({"n": [number * 10 + i for i in range(5)]}), tmp_path / f"{number}")
    rows = file_rows(
        spark,
        pa.array([f"file:{tmp_path}/{number}" for number in range(3)]),
        sizes=pa.array([(tmp_path / str(number)).stat().st_size for number in range(3)]),
        schema=T.StructType([T.StructField("n", T.LongType())]),
        table="/t",
    )
    facts = {
        "kind": (T.StringType(), pa.array(["all", "these", "others"])),
        "selects": (T.BooleanType(), pa.array([False, True, False])),
    }
    joined = with_facts(
        spark,
        rows,
        pa.array([0, 0, 2], pa.int64()),
        facts,
        vectors={1: BitMap64([1, 3]), 2: BitMap64([0, 4])},
        selects=F.col("selects"),
    )
    found = joined.select("kind", stored_column("n")).collect()
    assert sorted(map(tuple, found)) == [
        *(("all", n) for n in range(5)),
        *(("others", n) for n in (21, 22, 23)),
        *(("these", n) for n in (1, 3)),
    ]

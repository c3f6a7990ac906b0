"""Directories that become tables here, and as the peers convert them: the same schema, values and rows."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_delta.engine import DeltaTable
from tests.delta_spark.peer import DeltaSpark, DeltaSparkError
from tests.engine.maintenance.convert.parquet_folders import actions_of, adds_of, write_parquet
from tests.row_tables import bag

DIRECTORY = (
    "SELECT CAST(id AS INT) AS id, IF(id % 3 = 0, NULL, concat('é', id)) AS s, "
    "IF(id = 4, CAST('NaN' AS DOUBLE), id / 7) AS d, CAST(id AS DECIMAL(10,2)) / 4 AS price, "
    "CAST(id AS TINYINT) AS tiny, named_struct('x', id, 'y', array(id)) AS st, "
    "timestamp'2026-03-08T06:59:59.123456Z' + make_interval(0,0,0,0,0,0,id) AS at, "
    "timestamp_ntz'1900-01-01 00:00:00.5' + make_interval(0,0,0,id) AS wall, "
    "date_add(date'1969-12-30', CAST(id AS INT)) AS day, map('k', id) AS m, "
    "CASE id % 3 WHEN 0 THEN NULL WHEN 1 THEN 'a%20=b/c' ELSE 'é ' END AS p, "
    "CAST(id % 2 AS INT) AS q FROM range(0, 12, 1, 2)"
)
STATISTICS = ("numRecords", "minValues", "maxValues", "nullCount")


def rows_by_spark(delta_spark: DeltaSpark, table: Path) -> list[dict[str, Any]]:
    return delta_spark.sql(f"SELECT * FROM delta.`{table}`")


def schema_of(table: Path) -> Any:
    (metadata,) = [action["metaData"] for action in actions_of(table) if "metaData" in action]
    return json.loads(metadata["schemaString"]), metadata["partitionColumns"]


def scalar_statistics(add: dict[str, Any]) -> dict[str, Any]:
    """The statistics without those that footers lack: of arrays and maps, bounds of INT96, and NaN."""
    found: dict[str, Any] = {name: add["stats"][name] for name in STATISTICS}
    found["nullCount"] = {name: count for name, count in found["nullCount"].items() if name != "m"}
    found["nullCount"]["st"] = {"x": found["nullCount"]["st"]["x"]}
    for name in ("minValues", "maxValues"):
        bounds = found[name].items()
        found[name] = {
            column: bound for column, bound in bounds if column != "at" and bound != "NaN"
        }
    return found


def test_it_is_the_table_that_delta_spark_makes(delta_spark: DeltaSpark, tmp_path: Path) -> None:
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    delta_spark.sql(
        f"CREATE TABLE to_convert USING parquet PARTITIONED BY (p, q) LOCATION '{theirs}' AS {DIRECTORY}"
    )
    delta_spark.sql("DROP TABLE to_convert")
    shutil.copytree(theirs, ours)
    delta_spark.sql(f"CONVERT TO DELTA parquet.`{theirs}` PARTITIONED BY (p STRING, q INT)")
    DeltaTable.convert(ours, {"p": "string", "q": "integer"})
    assert schema_of(ours) == schema_of(theirs)
    our_adds, their_adds = adds_of(ours), adds_of(theirs)
    assert our_adds.keys() == their_adds.keys()
    for path, add in our_adds.items():
        assert add["partitionValues"] == their_adds[path]["partitionValues"], path
        assert add["size"] == their_adds[path]["size"], path
        assert scalar_statistics(add) == scalar_statistics(their_adds[path]), path
    rows = rows_by_spark(delta_spark, theirs)
    assert len(rows) == 12
    assert bag(rows_by_spark(delta_spark, ours)) == bag(rows)
    info, their_info = (actions_of(table)[0]["commitInfo"] for table in (ours, theirs))
    assert info["operation"] == their_info["operation"]
    for name in ("numFiles", "partitionedBy", "collectStats"):
        value = their_info["operationParameters"][name]
        text = value if isinstance(value, str) else json.dumps(value)
        assert info["operationParameters"][name] == text
    assert info["operationMetrics"] == their_info["operationMetrics"]


@pytest.mark.deep
def test_it_refuses_what_delta_spark_refuses(delta_spark: DeltaSpark, tmp_path: Path) -> None:
    folders: dict[str, list[dict[str, pa.Array]]] = {
        "long and string": [{"c": pa.array([1])}, {"c": pa.array(["x"])}],
        "integer and long": [{"c": pa.array([1], pa.int32())}, {"c": pa.array([1])}],
        "decimals": [
            {"c": pa.array([1], pa.decimal128(5, 1))},
            {"c": pa.array([1], pa.decimal128(6, 1))},
        ],
        "nanoseconds": [{"c": pa.array([1], pa.timestamp("ns"))}],
        "time": [{"c": pa.array([1], pa.time64("ns"))}],
    }
    refused = []
    for name, files in folders.items():
        root = tmp_path / name.replace(" ", "-")
        for number, columns in enumerate(files):
            write_parquet(root / f"{number}.parquet", columns)
        with pytest.raises(Exception, match=r"\.parquet'"):
            DeltaTable.convert(root)
        try:
            delta_spark.sql(f"CONVERT TO DELTA parquet.`{root}`")
        except DeltaSparkError:
            refused.append(name)
    assert refused == [*folders]


@pytest.mark.deep
def test_it_merges_what_delta_spark_merges(delta_spark: DeltaSpark, tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    struct = pa.struct([("x", pa.int64())])
    wider = pa.struct([("x", pa.int64()), ("y", pa.string())])
    for name, columns in {
        "a": {"id": pa.array([1], pa.int8()), "s": pa.array([{"x": 1}], struct)},
        "b": {"s": pa.array([{"x": 2, "y": "b"}], wider), "id": pa.array([None], pa.int16())},
        "c": {"new": pa.array(["c"]), "id": pa.array([70_000], pa.int32())},
    }.items():
        write_parquet(theirs / f"{name}.parquet", columns)
    ours = Path(shutil.copytree(theirs, tmp_path / "ours"))
    delta_spark.sql(f"CONVERT TO DELTA parquet.`{theirs}`")
    DeltaTable.convert(ours)
    found, expected = schema_of(ours)[0]["fields"], schema_of(theirs)[0]["fields"]
    assert sorted(found, key=str) == sorted(expected, key=str)
    rows = [delta_spark.sql(f"SELECT id, s, new FROM delta.`{table}`") for table in (ours, theirs)]
    assert bag(rows[0]) == bag(rows[1])


def test_it_is_the_table_that_deltalake_makes(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    rows = pa.table(
        {
            "id": pa.array([1, 2, None, 4]),
            "s": ["a", None, "é" * 50, "d"],
            "day": ["2026-01-31", "2026-01-31", "2026-02-01", None],
        }
    )
    pq.write_to_dataset(rows, theirs, partition_cols=["day"])
    ours = Path(shutil.copytree(theirs, tmp_path / "ours"))
    deltalake.convert_to_deltalake(
        str(theirs),
        partition_by=deltalake.Schema.from_arrow(pa.schema([("day", pa.date32())])),
        partition_strategy="hive",
    )
    DeltaTable.convert(ours, {"day": "date"})
    tables = [deltalake.DeltaTable(str(table)) for table in (ours, theirs)]
    assert tables[0].schema() == tables[1].schema()
    assert tables[0].metadata().partition_columns == tables[1].metadata().partition_columns
    read = [pa.table(table.scan().read_all()).to_pylist() for table in tables]
    assert len(read[0]) == 4
    assert bag(read[0]) == bag(read[1])
    for path, add in adds_of(ours).items():
        their_add = adds_of(theirs)[path]
        assert add["partitionValues"] == their_add["partitionValues"], path
        for name in ("numRecords", "nullCount"):
            assert add["stats"][name] == their_add["stats"][name], path

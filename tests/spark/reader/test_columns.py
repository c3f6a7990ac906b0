from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import types as T  # noqa: N812

from airflow_delta.engine import AddFile, DeltaTable
from airflow_delta.engine.errors import InvalidTableError
from airflow_delta.engine.model.schema import (
    INTEGER,
    STRING,
    VOID,
    ArrayType,
    MapType,
    StructField,
    StructType,
)
from airflow_delta.spark import read_snapshot
from airflow_delta.spark.reader.columns import file_schema, quoted
from tests.spark.conftest import rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def mapped(name: str, data_type: Any, number: int) -> StructField:
    metadata = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": f"c{number}"}
    return StructField(name, data_type, metadata=metadata)


def inner_type(base: int) -> StructType:
    """A struct whose columns have the ids after ``base``."""
    columns = (("x", INTEGER), ("nothing", VOID), ("y", STRING))
    return StructType(tuple(mapped(n, t, base + i) for i, (n, t) in enumerate(columns, start=1)))


SCHEMA = StructType(
    (
        mapped("plain", INTEGER, 4),
        mapped("struct", inner_type(50), 5),
        mapped("array", ArrayType(inner_type(60)), 6),
        mapped("map", MapType(STRING, inner_type(70)), 7),
        mapped("voids", StructType((mapped("v", VOID, 8),)), 9),
        mapped("part", STRING, 10),
    )
)


def field(name: str, type_: pa.DataType, number: int) -> pa.Field:
    return pa.field(name, type_, metadata={"PARQUET:field_id": str(number)})


def arrow_schema(prefix: str) -> pa.Schema:
    """What a file may look like: its columns in another order, called by prefix and id."""

    def inner(base: int) -> pa.DataType:
        types = ((pa.string(), base + 3), (pa.int32(), base + 1))
        return pa.struct([field(f"{prefix}{number}", type_, number) for type_, number in types])

    types = (pa.map_(pa.string(), inner(70)), pa.list_(inner(60)), inner(50), pa.int32())
    numbers = (7, 6, 5, 4)
    return pa.schema([field(f"{prefix}{n}", t, n) for t, n in zip(types, numbers, strict=True)])


@pytest.mark.parametrize(("mode", "prefix"), [("name", "c"), ("id", "c"), ("id", "other")])
def test_mapped_columns_at_every_depth(
    spark: SparkSession, tmp_path: Path, mode: str, prefix: str
) -> None:
    properties = {"delta.columnMapping.mode": mode}
    table = str(tmp_path)
    DeltaTable.create(table, SCHEMA, partition_by=["part"], properties=properties)

    def inner(base: int) -> dict[str, Any]:
        return {f"{prefix}{base + 1}": 1, f"{prefix}{base + 3}": "y"}

    rows = [
        {
            f"{prefix}4": 1,
            f"{prefix}5": inner(50),
            f"{prefix}6": [inner(60), None],
            f"{prefix}7": [("k", inner(70))],
        },
        dict.fromkeys(f"{prefix}{number}" for number in range(4, 8)),
    ]
    file = tmp_path / "f.parquet"
    pq.write_table(pa.Table.from_pylist(rows, arrow_schema(prefix)), file)
    transaction = DeltaTable(table).transaction("WRITE")
    size = file.stat().st_size
    transaction.add_file(AddFile("f.parquet", {"c10": "p"}, size, 0, data_change=True))
    transaction.commit()
    value = {"x": 1, "nothing": None, "y": "y"}
    assert rows_of(read_snapshot(spark, table)) == [
        {
            "plain": 1,
            "struct": value,
            "array": [value, None],
            "map": [("k", value)],
            "voids": None,
            "part": "p",
        },
        {"plain": None, "struct": None, "array": None, "map": None, "voids": None, "part": "p"},
    ]


def test_what_is_read_from_files() -> None:
    inner = T.StructType().add("c51", "integer").add("c53", "string")
    assert file_schema(SCHEMA, mode="name", without=["part", "array", "map", "voids"]) == (
        T.StructType().add("c4", "integer").add("c5", inner)
    )


def test_left_over_mapping_means_nothing_without_a_mode() -> None:
    schema = StructType((mapped("plain", INTEGER, 4),))
    assert file_schema(schema, mode="none") == T.StructType().add("plain", "integer")


def test_a_column_without_its_mapping_is_refused() -> None:
    schema = StructType((StructField("plain", INTEGER),))
    with pytest.raises(InvalidTableError, match="physical name"):
        file_schema(schema, mode="name")
    named = replace(schema.fields[0], metadata={"delta.columnMapping.physicalName": "c"})
    with pytest.raises(InvalidTableError, match="id"):
        file_schema(StructType((named,)), mode="id")


def test_quoted_names_are_literal(spark: SparkSession) -> None:
    name = "a.b`c`` d"
    frame = spark.createDataFrame([(1,)], T.StructType().add(name, "integer"))
    assert frame.select(quoted(name)).columns == [name]

"""Partition values from the names of directories."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_delta.engine import LONG, ArrayType, DeltaTable, StructField, StructType
from airflow_delta.engine.errors import InvalidArgumentError
from airflow_delta.engine.maintenance.convert.partition_paths import (
    PartitionPaths,
    as_partition_schema,
)
from tests.engine.maintenance.convert.parquet_folders import write_parquet


def values(path: str, **types: str) -> tuple[str | None, ...]:
    schema = as_partition_schema(types, table="/t")
    return PartitionPaths(schema, table="/t").values_of(path)


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        ("integer", "007", "7"),
        ("long", "-5", "-5"),
        ("decimal(5,2)", "1.5", "1.50"),
        ("date", "2026-1-3", "2026-01-03"),
        ("boolean", "TRUE", "true"),
        ("string", "007", "007"),
        ("string", "a%3Db%2Fc", "a=b/c"),
        ("string", "100%", "100%"),
        ("string", "x=y", "x=y"),
        ("string", "%E2%82%AC", "€"),
        ("timestamp_ntz", "2026-01-31 10%3A00%3A00", "2026-01-31 10:00:00"),
        ("date", "__HIVE_DEFAULT_PARTITION__", None),
        ("string", "__HIVE_DEFAULT_PARTITION__", None),
    ],
)
def test_a_value_is_that_of_its_type(kind: str, text: str, expected: str | None) -> None:
    assert values(f"p={text}/0.parquet", p=kind) == (expected,)


def test_columns_are_found_by_name_in_any_order_of_directories() -> None:
    assert values("b=2/plain/a=1/0=9.parquet", a="integer", b="string") == ("1", "2")
    assert values("we%3Aird=1/0.parquet", **{"we:ird": "integer"}) == ("1",)
    assert values("0.parquet") == ()


@pytest.mark.parametrize(
    ("path", "types", "problem"),
    [
        ("0.parquet", {"p": "date"}, "has the partition columns none, and partition_schema has p"),
        ("q=1/0.parquet", {"p": "date"}, "columns q, and partition_schema has p"),
        ("p=1/q=1/0.parquet", {"p": "long"}, "columns p, q, and partition_schema has p"),
        ("p=1/0.parquet", {}, "columns p, and partition_schema has none"),
        ("P=1/0.parquet", {"p": "long"}, "columns P, and partition_schema has p"),
        ("p=1/p=1/0.parquet", {"p": "long"}, "the partition column 'p' twice"),
        ("p=/0.parquet", {"p": "long"}, "the value of 'p' is empty"),
        ("p=x/0.parquet", {"p": "long"}, "partition value 'x' is no long"),
        ("p=2026-02-30/0.parquet", {"p": "date"}, "partition value '2026-02-30' is no date"),
        ("p=%FF/0.parquet", {"p": "string"}, "don't decode to UTF-8"),
    ],
)
def test_what_is_not_as_declared_is_refused(path: str, types: dict[str, str], problem: str) -> None:
    with pytest.raises(InvalidArgumentError, match=problem) as failed:
        values(path, **types)
    assert failed.value.path == path


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ("day", "expected a StructType"),
        ({"day": "dat"}, "partition_schema: 'day': \"dat\" is no type"),
        ({"day": 1}, "partition_schema: 'day'"),
        ({"day": "variant"}, "a variant can't partition a table"),
        ({"a": "long", "A": "long"}, "are the same to engines"),
        (StructType((StructField("x", ArrayType(LONG)),)), "can't partition a table"),
    ],
)
def test_a_schema_that_cannot_partition(tmp_path: Path, schema: object, problem: str) -> None:
    write_parquet(tmp_path / "day=1" / "0.parquet", {"id": [1]})
    with pytest.raises(InvalidArgumentError, match=problem):
        DeltaTable.convert(tmp_path, schema)  # type: ignore[arg-type]


def test_a_table_needs_a_column_besides_its_partitions(tmp_path: Path) -> None:
    write_parquet(tmp_path / "day=1" / "0.parquet", {"day": [1]})
    with pytest.raises(InvalidArgumentError, match="at least one other column"):
        DeltaTable.convert(tmp_path, {"day": "long"})

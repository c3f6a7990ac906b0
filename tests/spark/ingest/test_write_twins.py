"""Tables that `write` has written, as Delta Spark reads, filters and changes them."""

from __future__ import annotations

import random
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable as Peer

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.errors import ConstraintViolationError
from airflow_delta.spark import read_snapshot, write
from tests.delta_spark.peer import DeltaSpark, DeltaSparkError
from tests.engine.maintenance import test_rounded_statistics as rounding
from tests.spark.conftest import bag, rows_of, rows_of_each

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def test_binary_partition_values_are_the_bytes_of_their_text(
    spark: SparkSession, delta_spark: DeltaSpark, tmp_path: Path
) -> None:
    values = [b"a", "Österreich".encode(), "😀".encode(), None]
    rows = spark.createDataFrame(list(enumerate(values)), "id int, p binary")
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    write(rows, str(ours), partition_by=["p"])
    delta_spark.sql(
        f"CREATE TABLE delta.`{theirs}` USING delta PARTITIONED BY (p) AS "
        "SELECT * FROM VALUES (0, CAST('a' AS BINARY)), (1, CAST('Österreich' AS BINARY)), "
        "(2, CAST('😀' AS BINARY)), (3, NULL) AS t(id, p)"
    )
    for table in (ours, theirs):
        # As text, since the peer's answers are JSON.
        answer = delta_spark.sql(f"SELECT id, hex(p) AS p FROM delta.`{table}`")
        told: dict[int, Any] = {row["id"]: row["p"] and bytes.fromhex(row["p"]) for row in answer}
        assert told == dict(enumerate(values))
        assert bag(rows_of(read_snapshot(spark, str(table)))) == bag(rows_of(rows))
        assert bag(Peer(str(table)).to_pyarrow_table().to_pylist()) == bag(rows_of(rows))
        for value in values[:-1]:
            files = DeltaTable(str(table)).snapshot().files(predicate=pc.field("p") == value)
            assert files.num_rows == 1
        conditions = [f"p = X'{(value or b'').hex()}'" for value in values[:-1]]
        expected = [[number] for number in range(len(conditions))]
        for found in (
            delta_spark.sql_of_each(
                [f"SELECT id FROM delta.`{table}` WHERE {c}" for c in conditions]
            ),
            rows_of_each([read_snapshot(spark, str(table), predicate=c) for c in conditions]),
        ):
            assert [[row["id"] for row in rows] for rows in found] == expected


PRECISIONS = [(38, 0), (38, 10), (38, 38), (30, 2), (29, 29), (28, 5)]


@pytest.mark.deep
def test_delta_spark_finds_the_least_and_the_greatest_decimal_of_each_file(
    spark: SparkSession, delta_spark: DeltaSpark, tmp_path: Path
) -> None:
    """A bound that was rounded inwards has a reader skip the file that the row is in."""
    rng = random.Random(7)
    rows: list[tuple[Any, ...]] = []
    for number in range(30):
        unscaled = [rng.randint(-(10**p) + 1, 10**p - 1) for p, _ in PRECISIONS]
        if number == 0:
            unscaled = [10**p - 1 for p, _ in PRECISIONS]
        exact = [
            Decimal(f"{value}e-{scale}")
            for value, (_, scale) in zip(unscaled, PRECISIONS, strict=True)
        ]
        rows.append((number, *exact))
    names = [f"d{index}" for index in range(len(PRECISIONS))]
    ddl = ", ".join(f"{n} decimal({p},{s})" for n, (p, s) in zip(names, PRECISIONS, strict=True))
    frame = spark.createDataFrame(rows, f"id int, {ddl}")
    write(frame.repartitionByRange(6, "id"), str(tmp_path))
    for index, name in enumerate(names, start=1):
        values = ", ".join(f"{row[index]:f}BD" for row in rows)
        conditions = [f"IN ({values})"]
        for bound, sign in ((min, "<="), (max, ">=")):
            value = bound(row[index] for row in rows)
            conditions += [f"= {value:f}BD", f"{sign} {value:f}BD"]
        found = delta_spark.sql_of_each(
            [f"SELECT id FROM delta.`{tmp_path}` WHERE {name} {c}" for c in conditions]
        )
        assert [len(rows) for rows in found] == [len(rows), 1, 1, 1, 1], name


def test_delta_spark_loses_rows_by_rounded_bounds_until_they_are_repaired(
    delta_spark: DeltaSpark, tmp_path: Path
) -> None:
    table = DeltaTable.create(str(tmp_path), rounding.SCHEMA)
    rounding.add(tmp_path, "f.parquet", [rounding.HIGH, rounding.LOW], rounding.rounded)
    query = f"SELECT count(*) AS n FROM delta.`{tmp_path}` WHERE d = {{:f}}BD"
    for found in (0, 1):
        for value in (rounding.LOW, rounding.HIGH):
            assert delta_spark.sql(query.format(value)) == [{"n": found}]
        table.repair_statistics()


LENGTHS = (
    "id INT, c CHAR(5), v VARCHAR(5), s STRUCT<c: CHAR(3), n: INT>, a ARRAY<VARCHAR(2)>, "
    "m MAP<CHAR(2), STRUCT<x: VARCHAR(2)>>, p VARCHAR(4)"
)
TOO_LONG = {
    "c": "'abcdef'",
    "v": "'abcde '",
    "s": "named_struct('c', '😀😀😀😀', 'n', 1)",
    "a": "array('ab', NULL, 'abc')",
    "m": "map('a', named_struct('x', 'abc'))",
    "p": "'abcde'",
}
FITS = {
    "c": "'a  '",
    "v": "'😀äöüß'",
    "s": "named_struct('c', 'abc', 'n', 1)",
    "a": "array('ab', NULL, '')",
    "m": "map('ab', named_struct('x', 'ab'), 'c', NULL)",
    "p": "'abcd'",
}


@pytest.mark.deep
def test_texts_are_as_long_as_delta_spark_lets_them_be(
    spark: SparkSession, delta_spark: DeltaSpark, tmp_path: Path
) -> None:
    """What we let pass Delta Spark can copy, as its UPDATE does, and what we refuse it refuses."""
    table = f"delta.`{tmp_path}`"
    delta_spark.sql(f"CREATE TABLE {table} ({LENGTHS}) USING delta PARTITIONED BY (p)")
    types = {
        field.name: field.dataType.simpleString()
        for field in read_snapshot(spark, str(tmp_path)).schema
    }

    def rows(values: dict[str, str]) -> DataFrame:
        texts = (f"CAST({values.get(n, 'NULL')} AS {types[n]}) AS {n}" for n in FITS)
        return spark.sql(f"SELECT 1 AS id, {', '.join(texts)}")

    write(rows(FITS), str(tmp_path))
    for name, value in TOO_LONG.items():
        with pytest.raises(DeltaSparkError, match="DELTA_EXCEED_CHAR_VARCHAR_LIMIT"):
            delta_spark.sql(f"INSERT INTO {table} (id, {name}) VALUES (1, {value})")
        with pytest.raises(ConstraintViolationError, match=f"in the column {name}[. ]") as caught:
            write(rows({name: value}), str(tmp_path))
        assert caught.value.table == str(tmp_path)
    assert DeltaTable(str(tmp_path)).latest_version() == 1
    delta_spark.sql(f"UPDATE {table} SET id = 2")
    raw = delta_spark.sql(f"SELECT id, v, p, rtrim(c) AS c FROM {table}")
    assert raw == [{"id": 2, "v": "😀äöüß", "p": "abcd", "c": "a"}]

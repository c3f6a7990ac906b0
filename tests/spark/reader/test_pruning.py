from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.model.nullable import nullable
from airflow_delta.spark import read_snapshot
from airflow_delta.spark.reader.catalyst import analyzed_condition
from airflow_delta.spark.reader.columns import spark_schema
from airflow_delta.spark.reader.pruning import pruning_expression, unmatched_expression
from tests.spark.conftest import SETTINGS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILES = 6
TEN = ", ".join(map(str, range(900, 911)))

# Conditions, and how many of the six files can hold a row of them. File k holds the ids 10k to 10k+9,
# and the other columns follow them; file 4 has nulls, and file 5 has nothing but nulls but for id and p.
CONDITIONS = {
    "id > 35": 3,
    "ID >= 10 AND Id < 20": 1,
    "35 < id": 3,
    "id > 35L OR id = 5": 4,
    "NOT (id > 5 OR p = 'q1')": 1,
    "id BETWEEN 9 AND 10": 2,
    "id = 17.0 OR small < 0.5D": 2,
    "id IN (1, 2, 58)": 2,
    f"id IN (25, {TEN})": 1,
    f"id IN (25, NULL, {TEN})": 1,
    f"word IN ('w03', 'x', '{TEN.replace(', ', chr(39) + ', ' + chr(39))}')": 1,
    "p = 'q1'": 2,
    "p IN ('q0', 'q2') AND id < 20": 1,
    "p = 'Q1'": 0,
    "small = 3": 1,
    "small > 2.5": 2,
    "half < 3.4F": 3,
    "price > 30": 2,
    "price = 20.25": 1,
    "day > '2024-03-01'": 2,
    "day = date'2024-02-01'": 1,
    # By the session's zone, New York.
    "day < timestamp'2024-01-01 05:00:00'": 1,
    "at >= timestamp'2024-03-01 00:00:00Z'": 3,
    "at < '2024-01-01 00:00:00 Europe/Berlin'": 0,
    # Of what writers tell of booleans the engine uses the nulls.
    "flag": 5,
    "NOT flag": 5,
    "word LIKE 'w03%'": 1,
    "startswith(word, 'w0')": 5,
    "word = 'w03'": 1,
    "word IS NULL": 2,
    "word IS NOT NULL": 5,
    "word <=> NULL": 2,
    "NOT (word <=> 'w03')": 5,
    "inner.n = 30": 1,
    "id = inner.n AND id > 35": 2,
    "1 = 0": 0,
    "word = NULL": 0,
    "id > 35 AND year(day) = 2024": 2,
    "id > 35 AND rand() >= 0": 3,
    "id > 35 AND (SELECT true)": 3,
    # What the optimizer adds counts too: a null is no day, nor a text.
    "year(day) = 2024": 5,
    "upper(word) = 'W03'": 5,
    "id > 35 OR upper(word) = 'W03'": 6,
    "at < current_timestamp()": 6,
    "number = id OR true": 6,
    # Statistics don't tell of NaN, which Spark takes for equal to itself and greater than all else.
    "number > 100": 5,
    "number = 'NaN'": 5,
    "number <> 3": 5,
    "number < 1.5": 2,
}

# Conditions, and how many of the six files have only rows of them, as far as the log shows it.
WHOLE = {
    "id > 35": 2,
    "NOT (id > 35)": 3,
    "id < 10 OR id BETWEEN 30L AND 45L": 2,
    "id BETWEEN 30 AND 39": 0,
    "id < 10 OR (id >= 30 AND (id < 40 OR p = 'q1'))": 3,
    "(id < 10 OR p = 'q1') AND id < 40": 2,
    "NOT (id >= 10 AND p <> 'q1')": 3,
    "small = 3 OR id > 49": 2,
    "small = 4": 0,
    "small = 4 OR small IS NULL": 1,
    "word > 'w0' OR id < 0": 4,
    "id > 35 OR upper(word) = 'W03'": 2,
    "id > 35 OR rand() < 0": 2,
    "id > 35 AND rand() < 2": 0,
    "id < 10 OR NULL": 1,
    "id < 10 AND NULL": 0,
    "number > 1 OR id < 0": 2,
    "number < 9 OR id < 0": 0,
    "id = 1 OR true": 6,
    "id <> 17": 5,
}

# Spark converts the operands of these to one type, and then compares them.
CONVERTED = (
    "5 BETWEEN 1.5 AND id",
    "5 BETWEEN '1' AND id",
    "5 BETWEEN 6L AND id",
    "small BETWEEN 1 AND 3L",
    "day BETWEEN '2024-01-01' AND '2024-03-31'",
    "date'2024-01-05' BETWEEN '2024-01-01' AND day",
    "timestamp'2024-01-01 00:00:00' BETWEEN timestamp_ntz'2024-01-01 03:00:00' AND at",
    "'b' BETWEEN 'C' COLLATE UTF8_LCASE AND word",
)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Six files of ten rows."""
    path = tmp_path_factory.mktemp("pruning") / "table"
    for number in range(FILES):
        write_deltalake(path, rows_of_file(number), mode="append", partition_by=["p"])
    assert DeltaTable(path).snapshot().num_files == FILES
    return str(path)


def rows_of_file(number: int) -> pa.Table:
    utc = dt.timezone.utc
    values = {
        "small": pa.array([number] * 10, pa.int16()),
        "half": pa.array([number + 0.5] * 10, pa.float32()),
        "number": pa.array([float(number)] * 9 + [float("nan")]),
        "price": pa.array([Decimal(f"{number}0.25")] * 10, pa.decimal128(10, 2)),
        "day": pa.array([dt.date(2024, number + 1, 1)] * 10),
        "at": pa.array(
            [dt.datetime(2024, number + 1, 1, tzinfo=utc)] * 10, pa.timestamp("us", "UTC")
        ),
        "flag": pa.array([number % 2 == 0] * 10),
        "word": pa.array([f"w0{number}"] * 10),
        "inner": pa.array([{"n": number * 10}] * 10),
    }
    if number >= 4:
        kept = pa.array([number == 4 and row % 2 == 0 for row in range(10)])
        values = {
            name: pa.compute.if_else(kept, column, pa.scalar(None, column.type))
            for name, column in values.items()
        }
    ids = pa.array(range(10 * number, 10 * number + 10), pa.int64())
    return pa.table({"id": ids, "p": [f"q{number % 3}"] * 10, **values})


def files_of(frame: DataFrame) -> set[str]:
    return set(frame.inputFiles())


def test_the_files_that_are_left(spark: SparkSession, table: str) -> None:
    """No file of a matching row is left out, says Spark over all rows, and as many others as can be."""
    data = pa.concat_tables(rows_of_file(number) for number in range(FILES))
    answers = [F.expr(c).alias(str(i)) for i, c in enumerate(CONDITIONS) if "SELECT" not in c]
    # In memory, where Spark answers without a job.
    found = spark.createDataFrame(data).select("id", *answers).toArrow()
    snapshot = DeltaTable(table).snapshot()
    schema = spark_schema(nullable(snapshot.schema))
    counts = {}
    for index, condition in enumerate(CONDITIONS):
        expression = pruning_expression(spark, schema, condition)
        stats = snapshot.files(columns=["stats"], predicate=expression)["stats"].to_pylist()
        left = {json.loads(text)["minValues"]["id"] // 10 for text in stats}
        counts[condition] = len(left)
        if str(index) in found.column_names:
            matching = found.filter(found[str(index)])["id"].to_pylist()
            assert {number // 10 for number in matching} <= left, condition
    assert {condition: counts[condition] for condition in CONDITIONS} == CONDITIONS


def test_the_files_of_which_all_rows_match(spark: SparkSession, table: str) -> None:
    data = spark.createDataFrame(pa.concat_tables(rows_of_file(number) for number in range(FILES)))
    conditions = [*CONDITIONS, *WHOLE, *CONVERTED]
    answers = [F.expr(c).alias(str(i)) for i, c in enumerate(conditions) if "SELECT" not in c]
    found = data.select("id", *answers).toArrow()
    snapshot = DeltaTable(table).snapshot()
    schema = spark_schema(nullable(snapshot.schema))
    counts = {}
    for index, condition in enumerate(conditions):
        expression = unmatched_expression(
            spark, schema, analyzed_condition(spark, schema, condition)
        )
        stats = snapshot.files(columns=["stats"], predicate=expression)["stats"].to_pylist()
        whole = {*range(FILES)} - {json.loads(text)["minValues"]["id"] // 10 for text in stats}
        counts[condition] = len(whole)
        if str(index) in found.column_names:
            # The others are false, or null.
            matching = found.filter(found[str(index)])["id"].to_pylist()
            assert {id_ for number in whole for id_ in range(number * 10, number * 10 + 10)} <= {
                *matching
            }, condition
    assert {condition: counts[condition] for condition in WHOLE} == WHOLE


def test_columns_are_conditions_too(spark: SparkSession, table: str) -> None:
    def count(condition: Column) -> int:
        return len(files_of(read_snapshot(spark, table, predicate=condition)))

    assert count((F.col("id") > 35) & (F.col("p") != "q0")) == 2
    assert count(F.col("id").isin([1, 2, 58])) == 2
    # Python's functions may give another answer each time; the rest of the condition counts.
    is_odd = F.udf(lambda number: number % 2 == 1, "boolean")
    assert count(is_odd(F.col("id")) & (F.col("id") > 35)) == 3
    assert count(is_odd(F.col("id"))) == FILES
    assert read_snapshot(spark, table, predicate=is_odd("id") & (F.col("id") > 35)).count() == 12


def test_conditions_over_other_columns_keep_files(spark: SparkSession, table: str) -> None:
    frame = read_snapshot(
        spark,
        table,
        predicate="_row_index = 3 AND id > 35",
        columns=["id"],
        metadata_columns=["_row_index"],
    )
    assert len(files_of(frame)) == 3
    assert sorted(tuple(row) for row in frame.collect()) == [(43, 3), (53, 3)]


def test_a_long_condition(spark: SparkSession) -> None:
    schema = T.StructType().add("a", "long").add("b", "long")
    long = " OR ".join(f"(a = {n} AND b = {n})" for n in range(200))
    found = str(pruning_expression(spark, schema, long))
    assert found.count("(a == ") == found.count("(b == ") == 200


@pytest.mark.parametrize(
    ("prefix", "bound"), [("a\U0010ffff", "b"), ("a\ud7ff", "a\ue000"), ("\U0010ffff", None)]
)
def test_the_end_of_a_prefix(spark: SparkSession, prefix: str, bound: str | None) -> None:
    schema = T.StructType().add("s", "string")
    found = pruning_expression(spark, schema, F.col("s").startswith(prefix))
    texts = pa.table({"s": [prefix, f"{prefix}\U0010ffff", *([bound] if bound else []), "\x01"]})
    assert texts.filter(found)["s"].to_pylist() == [prefix, f"{prefix}\U0010ffff"]


def test_texts_with_a_collation_have_an_order_of_their_own(spark: SparkSession) -> None:
    schema = T.StructType().add("s", T.StringType("UTF8_LCASE"))
    for condition in ("s = 'X'", "s > 'X'", "s IN ('X', 'Y')", "s LIKE 'X%'", "s = s"):
        assert str(pruning_expression(spark, schema, condition)) in ("is_valid(s)", "None")


def test_conditions_that_make_no_sense_are_refused(spark: SparkSession, table: str) -> None:
    with pytest.raises(AnalysisException, match="UNRESOLVED_COLUMN"):
        read_snapshot(spark, table, predicate="nothing > 1")
    with pytest.raises(AnalysisException, match="FILTER_NOT_BOOLEAN"):
        read_snapshot(spark, table, predicate="id + 1")


def test_the_session_zone_is_that_of_the_tests() -> None:
    """Conditions above depend on it."""
    assert SETTINGS["spark.sql.session.timeZone"] == "America/New_York"


def test_a_condition_reaches_the_parquet_reader(spark: SparkSession, table: str) -> None:
    frame = read_snapshot(spark, table, predicate="id > 35 AND inner.n = 40", columns=["word"])
    plan = frame._jdf.queryExecution().executedPlan().toString()
    assert (
        "PushedFilters: [IsNotNull(id), IsNotNull(inner.n), GreaterThan(id,35), EqualTo(inner.n,40)]"
        in plan
    )
    assert "ReadSchema: struct<id:bigint,word:string,inner:struct<n:bigint>>" in plan

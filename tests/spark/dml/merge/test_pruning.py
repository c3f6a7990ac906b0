"""Which files a merge reads: all that have a match, and as few others as the source's keys allow."""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.errors import InvalidArgumentError
from airflow_delta.engine.model.schema import STRING, StructField, StructType
from airflow_delta.spark import read_snapshot, write
from airflow_delta.spark.dml.merge import keys
from airflow_delta.spark.dml.merge.pruning import matching_files_expression
from airflow_delta.spark.dml.merge.source import MergeSource, store_source
from airflow_delta.spark.dml.row_store import RowStore
from airflow_delta.spark.writer.target import WriteTarget, target_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = """
SELECT id, id + 0.5BD AS d, id * 1e0 AS x, printf('k%02d', id) AS s,
    IF(id < 30, id, NULL) AS n, date_add(DATE'2024-01-01', CAST(id AS INT)) AS day,
    TIMESTAMP'2024-01-01 12:00:00' + make_interval(0, 0, 0, CAST(id AS INT)) AS at,
    named_struct('a', id) AS st, concat('p', id DIV 10) AS p
FROM range(0, 40, 1, 1)
"""
"""Ten rows in each partition, which is one file."""


@pytest.fixture(scope="module")
def table(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pruned")
    write(spark.sql(ROWS), str(path), partition_by=["p"], optimize_write=False)
    assert DeltaTable(str(path)).snapshot().num_files == 4
    return path


@pytest.fixture(scope="module")
def rows(spark: SparkSession, table: Path) -> Iterator[DataFrame]:
    """The rows of the table, without pruning."""
    with RowStore(str(table)) as store:
        yield store.store(read_snapshot(spark, str(table))).alias("target")


@pytest.fixture
def store(table: Path) -> Iterator[RowStore]:
    with RowStore(str(table)) as rows:
        yield rows


def stored(spark: SparkSession, store: RowStore, rows: str) -> MergeSource:
    return store_source(spark, spark.sql(rows), store, DeltaTable(store.table))


def target(table: Path) -> WriteTarget:
    return target_of(DeltaTable(str(table)).transaction("MERGE"))


def partitions(table: Path, source: MergeSource, on: Column | str) -> str:
    """The numbers of the partitions whose files may have a match."""
    found, _ = matching_files_expression(source, target(table), on, ("target", "source"))
    files = DeltaTable(str(table)).snapshot().files(predicate=found)
    return "".join(sorted(dict(p)["p"][1:] for p in files["partitionValues"].to_pylist()))


def matched(rows: DataFrame, source: MergeSource, on: Column | str) -> DataFrame:
    """The partitions of the rows with a match, as Spark finds them without help."""
    joined = rows.join(source.rows.alias("source"), F.expr(on) if isinstance(on, str) else on)
    return joined.select("target.p")


CASES: dict[str, tuple[str, Column | str, str]] = {
    "a key": ("(3L), (15L)", "target.id = source.k", "01"),
    "names without an alias": ("(3L), (15L)", "k = id", "01"),
    "a column": ("(3L), (15L)", "Column", "01"),
    "nulls equal nothing": ("(NULL), (15L)", "target.n = source.k", "1"),
    "null equals null": ("(NULL), (15L)", "target.n <=> source.k", "13"),
    "null alone": ("(CAST(NULL AS BIGINT))", "target.n <=> source.k", "3"),
    "no null": ("(15L)", "target.n <=> source.k", "1"),
    "no key but null": ("(CAST(NULL AS BIGINT))", "target.id = source.k", ""),
    "texts in another order than their numbers": ("('9'), ('10')", "target.id = source.k", "01"),
    "numbers as texts": ("('9'), ('10')", "CAST(target.id AS STRING) = source.k", "0123"),
    "what a cast cuts off the table": ("(19)", "CAST(target.d AS INT) = source.k", "0123"),
    "what a cast cuts off the source": ("(19.9BD)", "target.id = CAST(source.k AS INT)", "1"),
    "a wider type": ("(CAST(12 AS TINYINT))", "target.id = source.k", "1"),
    "decimals": ("(12.5BD), (12.75BD)", "target.d = source.k", "1"),
    "an integer and decimals": ("(12.5BD), (13.0BD)", "target.id = source.k", "1"),
    "floating point": ("(12e0)", "target.x = source.k", "0123"),
    "an expression of the source": ("(3L)", "target.id = source.k * 10", "3"),
    "an expression of the table": ("(33L)", "target.id + 1 = source.k", "0123"),
    "texts": ("('k25'), ('k26')", "target.s = source.k", "2"),
    "texts with a collation": ("('K25')", "target.s = source.k COLLATE UTF8_LCASE", "0123"),
    "texts that are no UTF-8": ("(CAST(X'FF' AS STRING)), ('k25')", "target.s = source.k", "0123"),
    "days": ("(DATE'2024-01-25')", "target.day = source.k", "2"),
    "days of times, in the session's zone": (
        "(TIMESTAMP'2024-01-11 03:00:00Z')",
        "target.day = CAST(source.k AS DATE)",
        "0",
    ),
    "times": ("(TIMESTAMP'2024-01-11 12:00:00')", "target.at = source.k", "0123"),
    "a day and a time": ("(TIMESTAMP'2024-01-11 00:00:00')", "target.day = source.k", "0123"),
    "a member": ("(25L)", "target.st.a = source.k", "2"),
    "each partition by itself": ("('p0'), ('p3')", "target.p = source.k", "03"),
    "one of two": ("(25L)", "target.id = source.k OR target.id = source.k + 10", "0123"),
    "a range": ("(25L)", "target.id > source.k", "0123"),
    "the table alone": ("(25L)", "target.id > source.k AND target.day > DATE'2024-01-25'", "23"),
    "the source alone": ("(5L), (25L)", "target.id = source.k AND source.k > 9", "2"),
    "no row of the source": ("(5L), (25L)", "target.id > source.k AND source.k > 99", ""),
    "nothing": ("(5L)", "target.id > source.k AND 1 = 0", ""),
    "all": ("(5L)", "true", "0123"),
    "what the source must be for a cast": (
        "('x'), ('25')",
        "source.k RLIKE '^[0-9]+$' AND target.id = CAST(source.k AS BIGINT)",
        "2",
    ),
}


@pytest.mark.deep
def test_files_that_are_read(
    spark: SparkSession, table: Path, rows: DataFrame, store: RowStore
) -> None:
    found: dict[str, str] = {}
    matches = []
    for name, (values, on, expected) in CASES.items():
        if on == "Column":
            on = F.col("target.id") == F.col("source.k")
        source = stored(spark, store, f"SELECT * FROM VALUES {values} AS t(k)")
        found[name] = partitions(table, source, on)
        assert found[name] == expected, name
        matches.append(matched(rows, source, on).withColumn("name", F.lit(name)))
    # In one query: most of a join of so few rows is its start.
    pairs = {(row["name"], row["p"]) for row in reduce(DataFrame.unionAll, matches).collect()}
    assert len({name for name, _ in pairs}) > len(CASES) / 2
    for name, partition in pairs:
        assert partition[1:] in found[name], name


def test_a_source_without_rows(spark: SparkSession, table: Path, store: RowStore) -> None:
    source = stored(spark, store, "SELECT * FROM range(0)")
    for on in ("target.id = source.id", "target.id > source.id"):
        assert partitions(table, source, on) == ""


def test_more_partitions_than_are_listed(
    spark: SparkSession, table: Path, store: RowStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keys, "_MOST_PARTITIONS", 1)
    source = stored(spark, store, "SELECT * FROM VALUES ('p0'), ('p2') AS t(k)")
    assert partitions(table, source, "target.p = source.k") == "012"


def test_padded_texts(spark: SparkSession, store: RowStore, tmp_path: Path) -> None:
    """Statistics are those of texts without the spaces that readers see."""
    char = {"__CHAR_VARCHAR_TYPE_STRING": "char(5)"}
    DeltaTable.create(str(tmp_path), StructType((StructField("c", STRING, metadata=char),)))
    write(spark.sql("SELECT 'ab' AS c"), str(tmp_path))
    source = stored(spark, store, "SELECT 'ab' AS k")
    found, _ = matching_files_expression(
        source, target(tmp_path), "target.c = source.k", ("target", "source")
    )
    assert DeltaTable(str(tmp_path)).snapshot().files(predicate=found).num_rows == 1


@pytest.mark.parametrize(
    ("on", "reason"),
    [
        ("target.nope = source.id", "can't resolve the condition .*UNRESOLVED_COLUMN"),
        ("target.id = = 1", "PARSE_SYNTAX_ERROR"),
        ("target.id + 1", "can't resolve the condition"),
        ("target.id = source.id AND rand() < 2", "expects a deterministic expression"),
        ("target.id IN (SELECT 1)", "has a subquery"),
        ("xxhash64(target.*) = xxhash64(source.*)", "can't resolve the condition"),
        ("id = 1", "AMBIGUOUS_REFERENCE"),
    ],
)
def test_conditions_that_are_refused(
    spark: SparkSession, table: Path, store: RowStore, on: str, reason: str
) -> None:
    source = stored(spark, store, "SELECT 1L AS id")
    with pytest.raises(InvalidArgumentError, match=reason):
        partitions(table, source, on)

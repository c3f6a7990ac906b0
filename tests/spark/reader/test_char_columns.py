"""``CHAR`` columns are padded as Delta Spark pads them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from airflow_delta.spark import read_changes, read_snapshot
from airflow_delta.spark.reader.char_columns import has_char
from tests.deep import deep_but_for
from tests.delta_spark.peer import DeltaSpark
from tests.spark.conftest import bag, rows_of, rows_of_each

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLUMNS = (
    "id INT, c CHAR(5), v VARCHAR(5), s STRUCT<c: CHAR(3), n: INT>, a ARRAY<CHAR(2)>, "
    "m MAP<CHAR(2), STRUCT<x: CHAR(2)>>, p CHAR(4)"
)
ROWS = (
    "(1, 'a', 'a', named_struct('c', 'x', 'n', 1), array('i', NULL), "
    "map('k', named_struct('x', 'y')), 'x'), "
    "(2, 'bb', 'bb ', NULL, NULL, NULL, 'yy'), "
    "(3, NULL, NULL, named_struct('c', NULL, 'n', 2), array(), map(), NULL), "
    "(4, 'äöü ', 'c', named_struct('c', 'xyz', 'n', 3), array('ij'), map('kk', NULL), 'zzzz')"
)
CONDITIONS = ("c = 'a'", "c = 'a    '", "c IN ('a', 'bb')", "p = 'x'", "s.c = 'x'")


@pytest.fixture(scope="module")
def table(delta_spark: DeltaSpark, tmp_path_factory: pytest.TempPathFactory) -> str:
    root = tmp_path_factory.mktemp("char") / "t"
    name, on = f"delta.`{root}`", "'delta.enableChangeDataFeed' = 'true'"
    delta_spark.sql(
        f"CREATE TABLE {name} ({COLUMNS}) USING delta PARTITIONED BY (p) TBLPROPERTIES ({on})"
    )
    delta_spark.sql(f"INSERT INTO {name} VALUES {ROWS}")
    return str(root)


@pytest.fixture(params=deep_but_for(["true", "false"], "true"))
def pads(
    request: pytest.FixtureRequest, spark: SparkSession, delta_spark: DeltaSpark
) -> Iterator[Any]:
    """The setting of both sessions."""
    setting = "spark.sql.readSideCharPadding"
    spark.conf.set(setting, request.param)
    delta_spark.sql("SELECT 1", settings={setting: request.param})
    yield request.param
    spark.conf.unset(setting)
    delta_spark.sql("SELECT 1", settings={setting: "true"})


def test_values_and_comparisons_are_padded_as_by_the_peer(
    spark: SparkSession, delta_spark: DeltaSpark, table: str, pads: str
) -> None:
    query = f"SELECT * FROM delta.`{table}`"
    frame = read_snapshot(spark, table)
    all_wanted, *wanted = delta_spark.sql_of_each(
        [query, *(f"{query} WHERE {condition}" for condition in CONDITIONS)]
    )
    number = len(CONDITIONS)
    found = rows_of_each(
        [
            frame,
            *(frame.where(condition) for condition in CONDITIONS),
            *(read_snapshot(spark, table, predicate=condition) for condition in CONDITIONS),
        ]
    )
    assert bag(found[0]) == bag(all_wanted)
    later, before, expected = (
        [sorted(row["id"] for row in rows) for rows in each]
        for each in (found[1 : number + 1], found[number + 1 :], wanted)
    )
    assert later == before == expected
    changes = read_changes(spark, table, 1).drop("_commit_timestamp")
    wanted_changes = f"SELECT {', '.join(changes.columns)} FROM table_changes_by_path('{table}', 1)"
    assert bag(rows_of(changes)) == bag(delta_spark.sql(wanted_changes))


def test_the_session_that_reads_says_whether_it_pads(spark: SparkSession, table: str) -> None:
    other = spark.newSession()
    other.conf.set("spark.sql.readSideCharPadding", "false")
    # The last one made is the active one.
    lengths = {
        session: read_snapshot(session, table, predicate="id = 1").selectExpr("length(c)").first()
        for session in (spark, other)
    }
    assert lengths == {spark: (5,), other: (1,)}


@pytest.mark.parametrize(
    ("declared", "expected"),
    [
        ("char(5)", True),
        ("varchar(5)", False),
        ("struct<v:varchar(2),c:char(2)>", True),
        (None, False),
    ],
)
def test_what_was_declared_as_char(declared: str | None, expected: bool) -> None:
    metadata = {"__CHAR_VARCHAR_TYPE_STRING": declared} if declared else {"comment": "char(5)"}
    assert has_char(metadata) is expected

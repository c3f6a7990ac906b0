"""Random writes and deletions beside a model that is a list of rows.

At every version the rows are those of the model, and the change feed, where there is one, leads from each
version to the next.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest
from pyspark.sql import DataFrame
from pyspark.sql.functions import lit

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.errors import DeltaWarning
from airflow_delta.spark import delete, read_changes, read_snapshot, write
from tests.deep import deep_but_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.usefixtures("interpreted")

Row: TypeAlias = "tuple[int, str | None, int | None, str]"

DDL = "id long, p string, v int, t string"
CONDITIONS: list[tuple[str, Callable[[Row], bool]]] = [
    ("v > 10", lambda row: row[2] is not None and row[2] > 10),
    ("NOT v > 10", lambda row: row[2] is not None and not row[2] > 10),
    ("p = 'a'", lambda row: row[1] == "a"),
    ("p IS NULL OR p > 'b'", lambda row: row[1] is None or row[1] > "b"),
    ("id BETWEEN 10 AND 19", lambda row: 10 <= row[0] < 20),
    ("p IS NULL AND v < 5", lambda row: row[1] is None and row[2] is not None and row[2] < 5),
    ("t = 't1' OR v = 3", lambda row: row[3] == "t1" or row[2] == 3),
    ("v IS NULL", lambda row: row[2] is None),
    ("id < 0", lambda row: False),
    ("id >= 0", lambda row: True),
    ("v + id > 40", lambda row: row[2] is not None and row[2] + row[0] > 40),
]
TABLES: dict[str, Mapping[str, str]] = {
    "plain": {},
    "vectors": {"delta.enableDeletionVectors": "true"},
    "feed": {"delta.enableChangeDataFeed": "true"},
    "vectors, feed, mapping, row ids": {
        "delta.enableDeletionVectors": "true",
        "delta.enableChangeDataFeed": "true",
        "delta.columnMapping.mode": "name",
        "delta.enableRowTracking": "true",
    },
    "feed, mapping by id, row ids": {
        "delta.enableChangeDataFeed": "true",
        "delta.columnMapping.mode": "id",
        "delta.enableRowTracking": "true",
    },
}


def some_rows(rng: random.Random, number: int) -> list[Row]:
    return [
        (
            rng.randrange(60),
            rng.choice(["a", "b", "c d/é", None]),
            rng.choice([None, *range(20)]),
            f"t{rng.randrange(5)}",
        )
        for _ in range(number)
    ]


def rows_at(spark: SparkSession, table: Path, versions: Iterable[int]) -> dict[int, Counter[Row]]:
    """The rows of each version, all read at once: most of a read is its start."""
    frames = [
        read_snapshot(spark, str(table), version).select(lit(version), "id", "p", "v", "t")
        for version in versions
    ]
    found = {version: Counter[Row]() for version in versions}
    for version, *row in reduce(DataFrame.union, frames).collect():
        found[version][tuple(row)] += 1
    return found


class Model:
    """A table and the rows that it should have."""

    def __init__(
        self, spark: SparkSession, table: Path, rng: random.Random, partition_by: list[str]
    ) -> None:
        self.spark, self.table, self.rng, self.partition_by = spark, table, rng, partition_by
        self.rows: list[Row] = []
        self.versions: dict[int, Counter[Row]] = {}

    def write(self, rows: list[Row], **arguments: Any) -> None:
        frame = self.spark.createDataFrame(rows, DDL).repartition(2)
        result = write(frame, str(self.table), **arguments)
        self.versions[result.version] = Counter(self.rows)

    def append(self) -> None:
        rows = some_rows(self.rng, 20)
        self.rows = self.rows + rows
        self.write(rows)

    def replace(self) -> None:
        condition, matches = self.rng.choice(CONDITIONS)
        rows = [row for row in some_rows(self.rng, 30) if matches(row)]
        self.rows = [row for row in self.rows if not matches(row)] + rows
        self.write(rows, mode="overwrite", replace_where=condition)

    def replace_partitions(self) -> None:
        rows = some_rows(self.rng, 3)
        places = {row[1] for row in rows} if self.partition_by else {row[1] for row in self.rows}
        self.rows = [row for row in self.rows if row[1] not in places] + rows
        expected = (
            nullcontext() if self.partition_by else pytest.warns(DeltaWarning, match="all rows")
        )
        with expected:
            self.write(rows, mode="overwrite", partition_overwrite="dynamic")

    def overwrite(self) -> None:
        self.rows = some_rows(self.rng, 20)
        self.write(self.rows, mode="overwrite")

    def delete(self) -> None:
        condition, matches = self.rng.choice(CONDITIONS)
        gone = sum(map(matches, self.rows))
        self.rows = [row for row in self.rows if not matches(row)]
        result = delete(self.spark, str(self.table), condition)
        assert (result.num_deleted_rows, result.written) == (gone, gone > 0)
        self.versions[result.version] = Counter(self.rows)


def check_feed(spark: SparkSession, table: Path, versions: Mapping[int, Counter[Row]]) -> None:
    first, *others = versions
    rows = {version: versions[version - 1].copy() for version in others}
    for change in read_changes(spark, str(table), first + 1).collect():
        row = (change["id"], change["p"], change["v"], change["t"])
        rows[change["_commit_version"]][row] += {"insert": 1, "delete": -1}[change["_change_type"]]
    for version, found in rows.items():
        assert {row: n for row, n in found.items() if n} == versions[version], version


# Partitioned or not by turns: both of each kind would find no more.
RUNS = {
    f"{kind}, {'partitioned' if number % 2 else 'unpartitioned'}": (
        properties,
        ["p"] * (number % 2),
    )
    for number, (kind, properties) in enumerate(TABLES.items())
}


@pytest.mark.parametrize(
    "run",
    deep_but_for(RUNS, "vectors, partitioned", "feed, mapping by id, row ids, unpartitioned"),
)
def test_rows_are_those_of_the_model_at_every_version(
    spark: SparkSession, tmp_path: Path, run: str
) -> None:
    properties, partition_by = RUNS[run]
    rng = random.Random(f"{sorted(properties)} {partition_by}")
    model = Model(spark, tmp_path, rng, partition_by)
    model.rows = some_rows(rng, 60)
    model.write(model.rows, partition_by=partition_by, properties=properties)
    steps = [model.append, model.replace, model.replace_partitions, model.delete, model.delete]
    for _ in range(8):
        rng.choice(steps)()
    if rng.random() < 0.5:
        model.overwrite()
    for version, rows in rows_at(spark, tmp_path, model.versions).items():
        assert rows == model.versions[version], version
    table = DeltaTable(str(tmp_path))
    assert not table.snapshot().verify().differences
    findings = table.check(depth="files").findings
    assert not [finding for finding in findings if finding.severity != "info"]
    if "delta.enableChangeDataFeed" in properties:
        check_feed(spark, tmp_path, dict(sorted(model.versions.items())))

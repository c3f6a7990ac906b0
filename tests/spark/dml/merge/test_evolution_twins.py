"""Merges that add columns to the table or widen types: the same ones through Delta Spark and through us.

Both engines begin with a table that Delta Spark has made. Afterwards the tables have the same columns and
rows for both engines, and the same change feed.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.errors import DeltaError
from airflow_delta.spark import merge, read_changes, read_snapshot
from tests.deep import deep_but_for
from tests.delta_spark.peer import DeltaSpark, DeltaSparkError
from tests.spark.conftest import bag, rows_of_each

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Clause: TypeAlias = "tuple[str, Mapping[str, str] | None]"
"""What a clause does, and its values; None: all columns of the source."""

UPDATE: Clause = ("WHEN MATCHED THEN UPDATE SET", None)
INSERT: Clause = ("WHEN NOT MATCHED THEN INSERT", None)
BY_SOURCE = "WHEN NOT MATCHED BY SOURCE THEN UPDATE SET"


@dataclass(frozen=True)
class Case:
    """A table, and a merge.

    Attributes:
        columns: the columns of the table beside ``id``, in SQL.
        rows: its rows, as a query.
        source: the source, as a query.
        clauses: the clauses.
        properties: the properties of the table.
    """

    columns: str
    rows: str
    source: str
    clauses: Sequence[Clause] = (UPDATE, INSERT)
    properties: Mapping[str, str] = field(default_factory=dict)


FEED = {"delta.enableChangeDataFeed": "true"}
WIDENING = {"delta.enableTypeWidening": "true"}
DEEP = "s STRUCT<a: INT, n: STRUCT<x: INT, y: INT>>"
DEEP_ROWS = (
    "SELECT * FROM VALUES (1, named_struct('a', 1, 'n', named_struct('x', 1, 'y', 2))), (2, NULL), "
    "(3, named_struct('a', 3, 'n', NULL)) AS t(id, s)"
)
CASES = {
    "new columns": Case(
        "v INT",
        "SELECT * FROM VALUES (1, 1), (2, 2) AS t(id, v)",
        "SELECT * FROM VALUES ('x', 1, 5, 1.5BD), ('y', 3, 6, NULL) AS t(Name, ID, v, price)",
        properties=FEED,
    ),
    "new columns, and rows that the source lacks": Case(
        "v INT, p STRING",
        "SELECT * FROM VALUES (1, 1, 'a'), (2, 2, 'b'), (3, 3, NULL) AS t(id, v, p)",
        "SELECT * FROM VALUES (1, 'x'), (4, 'y') AS t(id, name)",
        [UPDATE, INSERT, (BY_SOURCE, {"v": "target.v + 10"})],
        {
            **FEED,
            "delta.enableDeletionVectors": "true",
            "delta.columnMapping.mode": "name",
            "delta.enableRowTracking": "true",
        },
    ),
    "a new column of one clause": Case(
        "v INT",
        "SELECT 1, 1",
        "SELECT * FROM VALUES (1, 5, 7), (2, 6, 8) AS t(id, extra, other)",
        [(UPDATE[0], {"extra": "source.extra"}), (INSERT[0], {"id": "source.id"})],
    ),
    "a new member of one clause": Case(
        "s STRUCT<a: INT, b: INT>",
        "SELECT * FROM VALUES (1, named_struct('a', 1, 'b', 2)), (2, NULL) AS t(id, s)",
        "SELECT id, named_struct('a', 9, 'c', 3) AS s FROM VALUES (1), (2) AS t(id)",
        [(UPDATE[0], {"s.c": "source.s.c"})],
    ),
    "a struct of one clause": Case(
        "s STRUCT<a: INT, b: INT>",
        "SELECT 1, named_struct('a', 1, 'b', 2)",
        "SELECT 1 AS id, named_struct('c', 3, 'a', 9) AS s",
        [(UPDATE[0], {"s": "source.s"})],
    ),
    "new and missing members": Case(
        DEEP,
        DEEP_ROWS,
        "SELECT id, named_struct('n', named_struct('z', 'z', 'x', 7), 'b', 8L) AS s "
        "FROM VALUES (1), (2), (3), (4) AS t(id)",
        properties=FEED,
    ),
    "null structs that lack members": Case(
        DEEP,
        DEEP_ROWS,
        "SELECT id, CAST(NULL AS STRUCT<a: INT, n: STRUCT<x: INT>>) AS s "
        "FROM VALUES (1), (2), (3), (4) AS t(id)",
    ),
    "null structs that lack a struct": Case(
        DEEP,
        DEEP_ROWS,
        "SELECT id, CAST(NULL AS STRUCT<a: INT>) AS s FROM VALUES (1), (2), (3), (4) AS t(id)",
    ),
    "null structs with new members": Case(
        DEEP,
        DEEP_ROWS,
        "SELECT id, CAST(NULL AS STRUCT<n: STRUCT<x: INT, z: INT>>) AS s "
        "FROM VALUES (1), (2), (3), (4) AS t(id)",
    ),
    "null structs with all members": Case(
        DEEP,
        DEEP_ROWS,
        "SELECT id, CAST(NULL AS STRUCT<n: STRUCT<y: INT, x: INT>, a: INT, b: INT>) AS s "
        "FROM VALUES (1), (2), (3), (4) AS t(id)",
    ),
    "null structs inside structs": Case(
        DEEP,
        DEEP_ROWS,
        "SELECT id, named_struct('a', 7, 'n', CAST(NULL AS STRUCT<x: INT>)) AS s "
        "FROM VALUES (1), (2), (3), (4) AS t(id)",
    ),
    "three levels of null structs": Case(
        "s STRUCT<n: STRUCT<o: STRUCT<x: INT, y: INT>>>",
        "SELECT 1, named_struct('n', named_struct('o', named_struct('x', 1, 'y', 2)))",
        "SELECT 1 AS id, CAST(NULL AS STRUCT<n: STRUCT<o: STRUCT<x: INT>>>) AS s",
    ),
    "arrays and maps of structs": Case(
        "l ARRAY<STRUCT<a: INT, b: INT>>, m MAP<STRING, STRUCT<x: INT>>",
        "SELECT * FROM VALUES (1, array(named_struct('a', 1, 'b', 2)), map('k', named_struct('x', 1))), "
        "(2, array(NULL), NULL) AS t(id, l, m)",
        "SELECT id, array(named_struct('c', 5, 'a', 7), NULL) AS l, map('k', named_struct('y', 1)) AS m "
        "FROM VALUES (1), (2), (3) AS t(id)",
        properties=FEED,
    ),
    "arrays of structs that lack members": Case(
        "l ARRAY<STRUCT<a: INT, n: STRUCT<x: INT, y: INT>>>",
        "SELECT 1, array(named_struct('a', 1, 'n', named_struct('x', 1, 'y', 2)))",
        "SELECT id, array(named_struct('n', named_struct('x', 9))) AS l FROM VALUES (1), (2) AS t(id)",
    ),
    "a source without columns of the table": Case(
        "v INT, d INT DEFAULT 7, w INT",
        "SELECT 1, 1, 1, 1",
        "SELECT * FROM VALUES (1, 5), (2, 6) AS t(id, w)",
        properties={"delta.feature.allowColumnDefaults": "supported"},
    ),
    "wider types": Case(
        "v INT, d DECIMAL(5,2), s STRUCT<a: SHORT, b: FLOAT>",
        "SELECT * FROM VALUES (1, 1, 1.25BD, named_struct('a', 1S, 'b', 1.5F)), (2, 2, NULL, NULL) "
        "AS t(id, v, d, s)",
        "SELECT id, 5000000000L AS v, 123456.125BD AS d, named_struct('a', 70000, 'b', 2.5D) AS s "
        "FROM VALUES (1), (3) AS t(id)",
        properties={**WIDENING, **FEED},
    ),
    "wider elements": Case(
        "l ARRAY<INT>, m MAP<INT, STRUCT<a: BYTE>>",
        "SELECT 1, array(1, NULL), map(1, named_struct('a', 1Y))",
        "SELECT id, array(5000000000L) AS l, map(5000000000L, named_struct('a', 300S)) AS m "
        "FROM VALUES (1), (2) AS t(id)",
        properties={**WIDENING, "delta.enableDeletionVectors": "true"},
    ),
    "narrower types": Case(
        "v BIGINT, s STRING",
        "SELECT 1, 5000000000L, 'x'",
        "SELECT id, 5 AS v, 7 AS s FROM VALUES (1), (2) AS t(id)",
        properties=WIDENING,
    ),
    "wider types without widening": Case(
        "v INT",
        "SELECT 1, 1",
        "SELECT id, 5L AS v FROM VALUES (1), (2) AS t(id)",
    ),
    "values too large for a type that isn't widened": Case(
        "v INT",
        "SELECT 1, 1",
        "SELECT 1 AS id, 5000000000L AS v",
    ),
}
IN_SHORT = ["null structs that lack members"]


@pytest.mark.parametrize("name", deep_but_for(CASES, *IN_SHORT))
def test_both_engines_evolve_tables_alike(
    spark: SparkSession, delta_spark: DeltaSpark, tmp_path: Path, name: str
) -> None:
    case, ours, its = CASES[name], tmp_path / "ours", tmp_path / "its"
    listed = ", ".join(f"'{name}' = '{value}'" for name, value in case.properties.items())
    properties = f" TBLPROPERTIES ({listed})" if listed else ""
    delta_spark.sql(f"CREATE TABLE delta.`{its}` (id INT, {case.columns}) USING delta{properties}")
    delta_spark.sql(f"INSERT INTO delta.`{its}` {case.rows}")
    shutil.copytree(its, ours)
    refusals: list[Exception] = []
    try:
        delta_spark.sql(
            f"MERGE WITH SCHEMA EVOLUTION INTO delta.`{its}` AS target USING ({case.source}) AS source "
            f"ON target.id = source.id {' '.join(_statement(*clause) for clause in case.clauses)}"
        )
    except DeltaSparkError as error:
        refusals.append(error)
    try:
        _merge(spark, ours, case)
    except DeltaError as error:
        refusals.append(error)
    assert len(refusals) in (0, 2), refusals
    assert_alike(
        spark, delta_spark, ours, its, feed="delta.enableChangeDataFeed" in case.properties
    )


def _statement(action: str, values: Mapping[str, str] | None) -> str:
    if values is None:
        return f"{action} *"
    if action == INSERT[0]:
        return f"{action} ({', '.join(values)}) VALUES ({', '.join(values.values())})"
    return f"{action} {', '.join(f'{name} = {value}' for name, value in values.items())}"


def _merge(spark: SparkSession, table: Path, case: Case) -> None:
    begun = merge(
        spark, str(table), spark.sql(case.source), "target.id = source.id", merge_schema=True
    )
    for action, values in case.clauses:
        if action == BY_SOURCE:
            assert values is not None
            begun = begun.when_not_matched_by_source_update(values)
        elif action == INSERT[0]:
            begun = (
                begun.when_not_matched_insert(values)
                if values
                else begun.when_not_matched_insert_all()
            )
        else:
            begun = begun.when_matched_update(values) if values else begun.when_matched_update_all()
    begun.execute()


def assert_alike(
    spark: SparkSession, delta_spark: DeltaSpark, ours: Path, its: Path, *, feed: bool
) -> None:
    tables = (ours, its)
    snapshots = [DeltaTable(str(table)).snapshot() for table in tables]
    assert snapshots[0].version == snapshots[1].version
    assert snapshots[0].protocol == snapshots[1].protocol
    assert _columns(snapshots[0]) == _columns(snapshots[1])
    queries = [f"SELECT * FROM delta.`{table}`" for table in tables]
    one, other = delta_spark.sql_of_each(queries)
    assert bag(one) == bag(other)
    one, other = rows_of_each([read_snapshot(spark, str(table)) for table in tables])
    assert bag(one) == bag(other)
    if feed and snapshots[0].version > 1:
        changes = [read_changes(spark, str(table), 2, 2) for table in tables]
        one, other = rows_of_each([rows.drop("_commit_timestamp") for rows in changes])
        assert bag(one) == bag(other)
    for table in tables:
        findings = DeltaTable(str(table)).check(depth="files").findings
        assert not [finding for finding in findings if finding.severity != "info"]


def _columns(snapshot: Any) -> Any:
    """The columns with their metadata, without the names that each table makes up."""

    def plain(node: Any) -> Any:
        if isinstance(node, list):
            return [plain(item) for item in node]
        if not isinstance(node, dict):
            return node
        return {
            key: plain(value) for key, value in node.items() if not key.endswith("physicalName")
        }

    return plain(json.loads(snapshot.metadata.schema_string))

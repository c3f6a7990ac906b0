"""Alterations of tables with data, beside twins that Delta Spark alters in the same way.

A CHECK constraint is added after a scan of the rows; row tracking is enabled with commits that give row ids
to files. Both engines come to the same protocol, metadata and actions, and each goes on writing the other's
table.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.commit.registry import CommitOwners
from airflow_delta.engine.errors import ConstraintViolationError
from airflow_delta.engine.maintenance.row_tracking.execution import enable_row_tracking
from airflow_delta.spark import add_constraint, set_not_null
from tests.delta_spark.peer import DeltaSpark, DeltaSparkError
from tests.interop.test_altered_tables import begun, both, plain, state
from tests.log_builder import commit_path
from tests.spark.conftest import spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["spark"]


def actions(root: Path, version: int) -> dict[str, list[Any]]:
    """The actions of a commit by kind, as JSON, without what is left to chance."""
    found: dict[str, list[Any]] = {}
    for line in commit_path(root, version).read_text(encoding="utf-8").splitlines():
        for kind, action in json.loads(line).items():
            found.setdefault(kind, []).append(plain(action))
    return found


def told(root: Path, version: int) -> dict[str, Any]:
    (info,) = actions(root, version)["commitInfo"]
    names = ("operation", "operationParameters", "readVersion", "isolationLevel", "isBlindAppend")
    return {name: info.get(name) for name in names}


@pytest.mark.deep
@pytest.mark.parametrize(
    "clauses",
    [
        "",
        (
            "PARTITIONED BY (part) TBLPROPERTIES ('delta.columnMapping.mode' = 'name',"
            " 'delta.enableDeletionVectors' = 'true')"
        ),
    ],
    ids=["plain", "mapped, partitioned, with deletion vectors"],
)
def test_constraints(
    tmp_path: Path, delta_spark: DeltaSpark, spark: SparkSession, clauses: str
) -> None:
    its, ours = tmp_path / "its", tmp_path / "ours"
    columns = "(id INT, s STRUCT<x: INT>, part STRING)"
    rows = "(1, named_struct('x', 1), 'a'), (-2, named_struct('x', 2), 'a'), (NULL, NULL, NULL)"
    create = f"CREATE TABLE T! {columns} USING delta {clauses}"
    begun([create, f"INSERT INTO T! VALUES {rows}"], its, ours, delta_spark)
    with pytest.raises(DeltaSparkError, match=r"2 rows in .* violate"):
        delta_spark.sql(f"ALTER TABLE delta.`{its}` ADD CONSTRAINT Some CHECK (ID > 0)")
    with pytest.raises(ConstraintViolationError, match="2 rows break this rule"):
        add_constraint(spark, str(ours), "Some", "ID > 0")
    both("DELETE FROM T! WHERE id IS NULL OR id < 0", its, ours, delta_spark)
    delta_spark.sql(f"ALTER TABLE delta.`{its}` ADD CONSTRAINT Some CHECK (ID > 0)")
    version = add_constraint(spark, str(ours), "Some", "ID > 0").version
    assert state(ours) == state(its)
    assert told(ours, version) == told(its, version)
    assert actions(ours, version).keys() == actions(its, version).keys()
    for root in (its, ours):
        with pytest.raises(DeltaSparkError, match=r"CHECK constraint some .* violated"):
            delta_spark.sql(f"INSERT INTO delta.`{root}` VALUES (0, named_struct('x', 1), 'b')")
    # Delta Spark has no SET NOT NULL for tables with data; it enforces ours.
    set_not_null(spark, str(ours), ["s", "x"])
    delta_spark.sql(f"INSERT INTO delta.`{ours}` VALUES (3, named_struct('x', 1), 'b')")
    with pytest.raises(DeltaSparkError, match=r"NOT NULL constraint violated for column: s\.x"):
        delta_spark.sql(f"INSERT INTO delta.`{ours}` VALUES (4, NULL, 'b')")


@pytest.mark.deep
def test_row_tracking(tmp_path: Path, delta_spark: DeltaSpark) -> None:
    its, ours = tmp_path / "its", tmp_path / "ours"
    properties = "TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')"
    statements = [
        f"CREATE TABLE T! (id INT) USING delta {properties}",
        "INSERT INTO T! VALUES (1), (2), (3)",
        "INSERT INTO T! VALUES (4), (5)",
        "DELETE FROM T! WHERE id = 2",
    ]
    begun(statements, its, ours, delta_spark)
    batches = {"spark.databricks.delta.rowTracking.backfill.maxNumFiles": "1"}
    enable = "SET TBLPROPERTIES ('delta.enableRowTracking' = 'true')"
    delta_spark.sql(f"ALTER TABLE delta.`{its}` {enable}", settings=batches)
    table = DeltaTable(str(ours))
    result = enable_row_tracking(table.storage, CommitOwners(), batch=1)
    assert result.enabled
    assert without_hidden_columns(state(ours)) == without_hidden_columns(state(its))
    versions = range(result.version - result.num_commits + 1, result.version + 1)
    for version in versions:
        mine, other = told(ours, version), told(its, version)
        if mine["operation"] == "UPGRADE PROTOCOL":
            for info in (mine, other):
                protocol = info["operationParameters"]["newProtocol"]
                protocol["writerFeatures"].sort()
        assert mine == other
    # The batches may have the files in another order.
    added, expected = (
        [add for version in versions for add in actions(root, version).get("add", [])]
        for root in (ours, its)
    )
    assert sorted(map(of_rows, added)) == sorted(map(of_rows, expected))
    (info,) = actions(ours, result.version)["commitInfo"]
    (peer,) = actions(its, result.version)["commitInfo"]
    assert peer["tags"] == {"rowTrackingEnablementOnly": True}
    assert info["tags"].items() >= peer["tags"].items()
    # Each row has one id, whichever engine asks, and Delta Spark goes on from ours.
    both("INSERT INTO T! VALUES (6)", its, ours, delta_spark)
    both("UPDATE T! SET id = 10 WHERE id = 1", its, ours, delta_spark)
    for root in (its, ours):
        rows = delta_spark.sql(f"SELECT id, _metadata.row_id AS row FROM delta.`{root}`")
        assert len({row["row"] for row in rows}) == len(rows) == 5


def without_hidden_columns(found: dict[str, Any]) -> dict[str, Any]:
    properties = {
        name: re.sub(r"-col-[0-9a-f-]{36}", "-col-…", value)
        for name, value in found["properties"].items()
    }
    domains = {name: json.loads(text) for name, text in found["domains"].items()}
    for domain in domains.values():
        domain.pop("domainName", None)
    return {**found, "properties": properties, "domains": domains}


def of_rows(add: dict[str, Any]) -> tuple[Any, ...]:
    """What an add says of its rows, apart from ids, which depend on the order of the files."""
    return json.dumps(add["stats"], sort_keys=True), add["dataChange"], "deletionVector" in add

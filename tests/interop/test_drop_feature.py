"""Features that we drop, as Delta Spark and deltalake see the table; and features that Delta Spark drops.

Delta Spark makes the tables, and the rows that it reads of each version before are what it must read
afterwards, on both sides of the drop. It also is who writes data files anew.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable as PeerTable

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.commit.registry import CommitOwners
from airflow_delta.engine.features.protocol import supported_features
from airflow_delta.engine.maintenance.drop_feature.execution import drop_feature
from airflow_delta.engine.maintenance.drop_feature.rewrite import Rewrite
from tests.deep import deep_but_for
from tests.delta_spark.peer import DeltaSpark, DeltaSparkError
from tests.rewritten_files import rewrite_files

PROTECTION = "checkpointProtection"
BOUNDARY = "delta.requireCheckpointProtectionBeforeVersion"

COLUMNS = "(id BIGINT, part STRING) USING delta"

# By feature: the columns and clauses of the table, and what happens to it before the feature is dropped.
CASES: dict[str, tuple[str, list[str]]] = {
    "deletionVectors": (
        "(id BIGINT, part STRING) USING delta TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')",
        [
            "INSERT INTO T! SELECT id, 'a' FROM range(0, 9, 1, 1)",
            "DELETE FROM T! WHERE id = 3",
            "INSERT INTO T! SELECT id, 'b' FROM range(20, 25, 1, 1)",
            "DELETE FROM T! WHERE id IN (4, 21)",
        ],
    ),
    "v2Checkpoint": (
        f"{COLUMNS} TBLPROPERTIES ('delta.checkpointPolicy' = 'v2', 'delta.checkpointInterval' = '2')",
        [f"INSERT INTO T! VALUES ({number}, 'a')" for number in range(3)],
    ),
    "vacuumProtocolCheck": (
        f"{COLUMNS} TBLPROPERTIES ('delta.feature.vacuumProtocolCheck' = 'supported')",
        ["INSERT INTO T! VALUES (1, 'a')"],
    ),
    "typeWidening": (
        "(id INT, part STRING) USING delta TBLPROPERTIES ('delta.enableTypeWidening' = 'true')",
        [
            "INSERT INTO T! VALUES (1, 'a'), (2, 'b')",
            "ALTER TABLE T! ALTER COLUMN id TYPE BIGINT",
            "INSERT INTO T! VALUES (5000000000, 'c')",
        ],
    ),
    "columnMapping": (
        "(id BIGINT, part STRING) USING delta TBLPROPERTIES ('delta.columnMapping.mode' = 'name')",
        [
            "INSERT INTO T! VALUES (1, 'a'), (2, 'b')",
            "ALTER TABLE T! RENAME COLUMN part TO other",
            "INSERT INTO T! VALUES (3, 'c')",
        ],
    ),
    "rowTracking": (
        "(id BIGINT, part STRING) USING delta TBLPROPERTIES ('delta.enableRowTracking' = 'true')",
        ["INSERT INTO T! VALUES (1, 'a')", "INSERT INTO T! VALUES (2, 'b')"],
    ),
    "inCommitTimestamp": (
        f"{COLUMNS} TBLPROPERTIES ('delta.enableInCommitTimestamps' = 'true')",
        ["INSERT INTO T! VALUES (1, 'a')", "INSERT INTO T! VALUES (2, 'b')"],
    ),
}

HIDDEN = [
    name for name in CASES if name in ("deletionVectors", "v2Checkpoint", "vacuumProtocolCheck")
]
HIDDEN += ["typeWidening", "columnMapping"]


def sql(spark: DeltaSpark, table: Path, statement: str) -> list[dict[str, Any]]:
    return spark.sql(statement.replace("T!", f"delta.`{table}`"))


def rows(spark: DeltaSpark, table: Path, version: int) -> list[str]:
    """The rows of a version, whatever the columns are called."""
    return rows_of_each(spark, table, [version])[0]


def rows_of_each(spark: DeltaSpark, table: Path, versions: Sequence[int]) -> list[list[str]]:
    """The rows of versions, in one query."""
    row = "to_json(struct(*), map('ignoreNullFields', 'false')) AS row"
    queries = [f"SELECT {v} AS version, {row} FROM T! VERSION AS OF {v}" for v in versions]
    found: dict[int, list[str]] = {version: [] for version in versions}
    for answer in sql(spark, table, " UNION ALL ".join(queries)):
        found[answer["version"]].append(json.dumps([*json.loads(answer["row"]).values()]))
    return [sorted(found[version]) for version in versions]


def made(spark: DeltaSpark, table: Path, feature: str) -> list[list[str]]:
    """A table with a feature; the rows of each of its versions."""
    clauses, statements = CASES[feature]
    sql(spark, table, f"CREATE TABLE T! {clauses}")
    for statement in statements:
        sql(spark, table, statement)
    return rows_of_each(spark, table, range(DeltaTable(table).latest_version() + 1))


def purge(spark: DeltaSpark) -> Callable[[str, Rewrite], None]:
    """Has Delta Spark write files with deletion vectors anew; we do so with others."""

    def _rewrite(uri: str, rewrite: Rewrite) -> None:
        if rewrite.feature != "deletionVectors":
            rewrite_files(uri, rewrite)
            return
        # It does, and what it says of that can't be put into Arrow.
        with pytest.raises(DeltaSparkError, match="nulls in input cannot be viewed"):
            spark.sql(f"REORG TABLE delta.`{uri}` APPLY (PURGE)")

    return _rewrite


def moved(table: Path, name: str) -> Path:
    """The table at another place, of which the peer has kept nothing in memory."""
    return Path(shutil.copytree(table, table.with_name(name)))


@pytest.mark.parametrize("feature", deep_but_for(CASES, "deletionVectors"))
def test_delta_spark_reads_both_sides_of_a_drop(
    delta_spark: DeltaSpark, tmp_path: Path, feature: str
) -> None:
    table = tmp_path / "table"
    before = made(delta_spark, table, feature)
    ours = DeltaTable(table)
    result = ours.drop_feature(feature, rewriter=purge(delta_spark))
    assert (result.status, result.version) == ("dropped", ours.latest_version())
    snapshot = ours.snapshot()
    supported = supported_features(snapshot.protocol)
    assert feature not in supported
    assert (PROTECTION in supported) == (feature in HIDDEN)
    boundary = str(result.version) if feature in HIDDEN else None
    assert snapshot.metadata.configuration.get(BOUNDARY) == boundary
    copy = moved(table, "copy")
    assert rows_of_each(delta_spark, copy, range(len(before))) == before
    after = sorted({len(before), result.version - 1, result.version})
    assert rows_of_each(delta_spark, copy, after) == [before[-1]] * len(after)
    # It writes on, and reads that.
    sql(delta_spark, copy, "INSERT INTO T! VALUES (7, 'z')")
    assert rows(delta_spark, copy, result.version + 1) == sorted([*before[-1], '[7, "z"]'])
    # Who knows none of the features reads the table from the drop on.
    peer = PeerTable(str(copy))
    assert peer.version() == result.version + 1
    newest = [result.version, result.version + 1]
    for version, expected in zip(newest, rows_of_each(delta_spark, copy, newest), strict=True):
        peer.load_as_version(version)
        batch = peer.to_pyarrow_table().to_pylist()
        assert sorted(json.dumps([*row.values()]) for row in batch) == expected


@pytest.mark.deep
def test_delta_spark_goes_on_from_our_drop(delta_spark: DeltaSpark, tmp_path: Path) -> None:
    """It sees the boundary, moves it by a drop of its own, and keeps what it protects."""
    table = tmp_path / "table"
    before = made(delta_spark, table, "v2Checkpoint")
    first = DeltaTable(table).drop_feature("v2Checkpoint").version
    copy = moved(table, "copy")
    with pytest.raises(DeltaSparkError, match="WAIT_FOR_RETENTION_PERIOD"):
        sql(delta_spark, copy, f"ALTER TABLE T! DROP FEATURE {PROTECTION} TRUNCATE HISTORY")
    vacuum = "SET TBLPROPERTIES ('delta.feature.vacuumProtocolCheck' = 'supported')"
    sql(delta_spark, copy, f"ALTER TABLE T! {vacuum}")
    sql(delta_spark, copy, "ALTER TABLE T! DROP FEATURE vacuumProtocolCheck")
    ours = DeltaTable(copy)
    second = ours.snapshot().properties.require_checkpoint_protection_before_version
    assert second == ours.latest_version() > first
    again = moved(copy, "again")
    assert rows_of_each(delta_spark, again, range(len(before))) == before
    assert rows(delta_spark, again, second) == before[-1]


@pytest.mark.deep
@pytest.mark.parametrize(
    "feature",
    ["deletionVectors", "columnMapping", "typeWidening"],
)
def test_we_go_on_from_a_drop_by_delta_spark(
    delta_spark: DeltaSpark, tmp_path: Path, feature: str
) -> None:
    table = tmp_path / "table"
    before = made(delta_spark, table, feature)
    sql(delta_spark, table, f"ALTER TABLE T! DROP FEATURE {feature}")
    ours = DeltaTable(table)
    boundary = ours.snapshot().properties.require_checkpoint_protection_before_version
    assert boundary == ours.latest_version()
    # It is dropped already, by a version that has its checkpoint.
    checkpoints = sorted((table / "_delta_log").glob("*.checkpoint*.parquet"))
    again = ours.drop_feature(feature)
    assert (again.status, again.version, again.num_commits) == ("dropped", boundary, 0)
    assert sorted((table / "_delta_log").glob("*.checkpoint*.parquet")) == checkpoints
    # A checkpoint of ours counts the files, whatever the peer has removed.
    sql(delta_spark, table, "INSERT INTO T! VALUES (7, 'z')")
    assert ours.checkpoint().written
    assert ours.snapshot().num_files == len(ours.snapshot().file_uris())
    told = ours.snapshot().verify()
    assert told.checked
    assert told.differences == ()
    copy = moved(table, "copy")
    assert rows(delta_spark, copy, boundary + 1) == sorted([*before[-1], '[7, "z"]'])
    # What is protected goes at once, when it is old enough.
    day_ms = 24 * 60 * 60 * 1000
    later = ours.snapshot().timestamp_ms + 2 * day_ms
    result = drop_feature(
        ours.file_access, CommitOwners(), PROTECTION, truncate_history=True, clock=lambda: later
    )
    assert result.status == "dropped"
    assert PROTECTION not in supported_features(ours.snapshot().protocol)
    assert min((table / "_delta_log").glob("*.json")).name >= f"{boundary:020}"
    other = moved(table, "other")
    assert rows(delta_spark, other, result.version) == sorted([*before[-1], '[7, "z"]'])
    sql(delta_spark, other, "INSERT INTO T! VALUES (8, 'z')")

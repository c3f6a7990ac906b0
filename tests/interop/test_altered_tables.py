"""Tables that we alter, beside twins that Delta Spark alters in the same way.

Both come to the same metadata and protocol, step by step, and the commits say the same of themselves.
Delta Spark writes rows between the steps, to our table as to its own, and both give the same rows in
the end, to deltalake as well.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any

import deltalake
import pytest

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.errors import DeltaError
from airflow_delta.engine.features.protocol import supported_features
from airflow_delta.engine.model.schema import (
    DOUBLE,
    INTEGER,
    LONG,
    STRING,
    TIMESTAMP_NTZ,
    DecimalType,
    MapType,
    StructField,
    StructType,
)
from airflow_delta.engine.transaction.alter.table import TableAlteration
from tests.deep import deep_but_for
from tests.delta_spark.peer import DeltaSpark, DeltaSparkError
from tests.log_builder import commit_path

MAPPED = "TBLPROPERTIES ('delta.columnMapping.mode' = 'name')"
WIDENING = "TBLPROPERTIES ('delta.enableTypeWidening' = 'true')"

# What Delta Spark does, after ``ALTER TABLE``, and what we do; a text alone is a statement for both, in
# which T! stands for the table.
Step = str | tuple[str, Callable[[TableAlteration], Any]]

# The columns, the clauses behind them, and the steps.
CASES: dict[str, tuple[str, str, list[Step]]] = {
    "columns": (
        "(id BIGINT, part STRING, s STRUCT<x: INT, y: ARRAY<STRUCT<z: INT>>>)",
        MAPPED,
        [
            "INSERT INTO T! SELECT 1L, 'a', named_struct('x', 2, 'y', array(named_struct('z', 3)))",
            (
                "ADD COLUMNS (a INT COMMENT 'c' FIRST, m MAP<STRING, STRUCT<v: INT>> AFTER a)",
                lambda alter: alter.add_columns(
                    [
                        StructField("a", INTEGER, metadata={"comment": "c"}),
                        StructField("m", MapType(STRING, StructType((StructField("v", INTEGER),)))),
                    ],
                    first=True,
                ),
            ),
            (
                "ADD COLUMNS (s.y.element.w INT AFTER z)",
                lambda alter: alter.add_columns(
                    [StructField("w", INTEGER)], inside=["s", "y", "element"], after="z"
                ),
            ),
            (
                "SET TBLPROPERTIES ('delta.dataSkippingStatsColumns' = 'id,s.x')",
                lambda alter: alter.set_properties({"delta.dataSkippingStatsColumns": "id,s.x"}),
            ),
            (
                "RENAME COLUMN s.y.element.z TO z2",
                lambda alter: alter.rename_column(["s", "y", "element", "z"], "z2"),
            ),
            ("RENAME COLUMN s TO t", lambda alter: alter.rename_column("s", "t")),
            ("RENAME COLUMN id TO `a.b c`", lambda alter: alter.rename_column("id", "a.b c")),
            (
                "ALTER COLUMN part COMMENT 'the part'",
                lambda alter: alter.set_comment("part", "the part"),
            ),
            ("ALTER COLUMN part FIRST", lambda alter: alter.move_column("part", first=True)),
            ("ALTER COLUMN t.x AFTER y", lambda alter: alter.move_column(["t", "x"], after="y")),
            (
                "INSERT INTO T! SELECT 'b', 4, map('k', named_struct('v', 5)), 6L,"
                " named_struct('y', array(named_struct('z2', 7, 'w', 8)), 'x', 9)"
            ),
            ("DROP COLUMN t.x", lambda alter: alter.drop_columns([["t", "x"]])),
            ("DROP COLUMNS (a, `a.b c`)", lambda alter: alter.drop_columns(["a", "a.b c"])),
            ("ADD COLUMNS (a STRING)", lambda alter: alter.add_columns([StructField("a", STRING)])),
        ],
    ),
    "properties, constraints and defaults": (
        "(id BIGINT NOT NULL, part STRING)",
        "",
        [
            (
                "ADD CONSTRAINT Few CHECK (id < 9)",
                lambda alter: alter.add_constraint("Few", "id < 9"),
            ),
            (
                "SET TBLPROPERTIES ('delta.appendOnly' = 'true', 'team' = 'us')",
                lambda alter: alter.set_properties({"delta.appendOnly": "true", "team": "us"}),
            ),
            "INSERT INTO T! SELECT 1L, 'x'",
            (
                "UNSET TBLPROPERTIES ('team')",
                lambda alter: alter.unset_properties(["team"], if_exists=True),
            ),
            ("SET TBLPROPERTIES ('comment' = 'd')", lambda alter: alter.set_description("d")),
            (
                "SET TBLPROPERTIES ('delta.feature.allowcolumndefaults' = 'supported')",
                lambda alter: alter.set_properties(
                    {"delta.feature.allowcolumndefaults": "supported"}
                ),
            ),
            (
                "ALTER COLUMN part SET DEFAULT 'none'",
                lambda alter: alter.set_default("part", "'none'"),
            ),
            "INSERT INTO T! (id) SELECT 2L",
            ("ALTER COLUMN part DROP DEFAULT", lambda alter: alter.drop_default("part")),
            ("ALTER COLUMN id DROP NOT NULL", lambda alter: alter.set_nullable("id")),
            ("DROP CONSTRAINT fEW", lambda alter: alter.drop_constraint("fEW")),
            (
                "DROP CONSTRAINT IF EXISTS few",
                lambda alter: alter.drop_constraint("few", if_exists=True),
            ),
            (
                "SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')",
                lambda alter: alter.set_properties({"delta.columnMapping.mode": "name"}),
            ),
            (
                "SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')",
                lambda alter: alter.set_properties({"delta.enableDeletionVectors": "true"}),
            ),
            "INSERT INTO T! SELECT NULL, 'y'",
        ],
    ),
    "types": (
        "(id TINYINT, b ARRAY<SMALLINT>, m MAP<TINYINT, FLOAT>, n DECIMAL(5, 2), part INT)",
        f"PARTITIONED BY (part) {WIDENING}",
        [
            "INSERT INTO T! SELECT 1Y, array(2S), map(3Y, CAST(4 AS FLOAT)), 1.25, 1",
            ("ALTER COLUMN id TYPE INT", lambda alter: alter.change_type("id", INTEGER)),
            (
                "ALTER COLUMN b.element TYPE INT",
                lambda alter: alter.change_type(["b", "element"], INTEGER),
            ),
            (
                "ALTER COLUMN m.key TYPE INT",
                lambda alter: alter.change_type(["m", "key"], INTEGER),
            ),
            (
                "ALTER COLUMN m.value TYPE DOUBLE",
                lambda alter: alter.change_type(["m", "value"], DOUBLE),
            ),
            (
                "ALTER COLUMN n TYPE DECIMAL(8, 3)",
                lambda alter: alter.change_type("n", DecimalType(8, 3)),
            ),
            ("ALTER COLUMN part TYPE BIGINT", lambda alter: alter.change_type("part", LONG)),
            "INSERT INTO T! SELECT 70000, array(70000), map(70000, 1.5D), 12345.125, 1L << 40",
            (
                "ALTER COLUMN id TYPE DECIMAL(12, 2)",
                lambda alter: alter.change_type("id", DecimalType(12, 2)),
            ),
        ],
    ),
    "widened partitions": (
        "(id BIGINT, day DATE, n INT)",
        f"PARTITIONED BY (day, n) {WIDENING}",
        [
            "INSERT INTO T! SELECT 1L, date'2026-01-31', 1",
            (
                "SET TBLPROPERTIES ('delta.feature.timestampntz' = 'supported')",
                lambda alter: alter.set_properties({"delta.feature.timestampntz": "supported"}),
            ),
            (
                "ALTER COLUMN day TYPE TIMESTAMP_NTZ",
                lambda alter: alter.change_type("day", TIMESTAMP_NTZ),
            ),
            (
                "ALTER COLUMN n TYPE DECIMAL(12, 2)",
                lambda alter: alter.change_type("n", DecimalType(12, 2)),
            ),
            "INSERT INTO T! SELECT 2L, timestamp_ntz'2026-01-31 00:00:00', 1.00",
        ],
    ),
    "clustering": (
        "(id BIGINT, s STRUCT<x: INT>)",
        "",
        [
            "INSERT INTO T! SELECT 1L, named_struct('x', 2)",
            ("CLUSTER BY (id)", lambda alter: alter.cluster_by(["id"])),
            ("CLUSTER BY (s.x, id)", lambda alter: alter.cluster_by([["s", "x"], "id"])),
            "INSERT INTO T! SELECT 3L, named_struct('x', 4)",
            ("CLUSTER BY NONE", lambda alter: alter.cluster_by([])),
        ],
    ),
    "partition column": (
        "(id BIGINT, part STRING)",
        f"PARTITIONED BY (part) {MAPPED}",
        [
            "INSERT INTO T! SELECT 1L, 'a'",
            ("RENAME COLUMN part TO dept", lambda alter: alter.rename_column("part", "dept")),
            "INSERT INTO T! SELECT 2L, 'b'",
        ],
    ),
}

# It refuses the reader feature.
UNREAD_BY_DELTALAKE = {"types"}
# It reads no date as a timestamp_ntz.
NOT_OPENED_BY_DELTALAKE = {"widened partitions"}


def begun(statements: Sequence[str], its: Path, ours: Path, delta_spark: DeltaSpark) -> None:
    """Have Delta Spark make a table, and make a copy of it."""
    for statement in statements:
        delta_spark.sql(statement.replace("T!", f"delta.`{its}`"))
    shutil.copytree(its, ours)


def both(statement: str, its: Path, ours: Path, delta_spark: DeltaSpark) -> None:
    for root in (its, ours):
        delta_spark.sql(statement.replace("T!", f"delta.`{root}`"))


def plain(value: Any) -> Any:
    """A value with what is in JSON texts taken out of them, and without what is left to chance.

    Delta Spark tells a changed column with the type changes that it had before.
    """
    if isinstance(value, str):
        try:
            return plain(json.loads(value))
        except ValueError:
            return re.sub(r"col-[0-9a-f-]{36}", "col-…", value)
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return value


def told(root: Path) -> tuple[Any, Any]:
    """What the newest commit calls itself."""
    version = DeltaTable(str(root)).latest_version()
    lines = commit_path(root, version).read_text(encoding="utf-8").splitlines()
    (info,) = (
        action["commitInfo"] for line in lines if "commitInfo" in (action := json.loads(line))
    )
    parameters = plain(info["operationParameters"])
    if info["operation"] == "CHANGE COLUMN":
        parameters["column"]["metadata"].pop("delta.typeChanges", None)
    return info["operation"], parameters


def state(root: Path) -> dict[str, Any]:
    """What a table is, but for its rows and for what is left to chance."""
    snapshot = DeltaTable(str(root)).snapshot()
    metadata, protocol = snapshot.metadata, snapshot.protocol
    return {
        "version": snapshot.version,
        "schema": plain(metadata.schema_string),
        "partitioned by": metadata.partition_columns,
        "properties": metadata.configuration,
        "description": metadata.description,
        "domains": {name: domain.configuration for name, domain in snapshot.domains.items()},
        "features": supported_features(protocol),
        "versions": (protocol.min_reader_version, protocol.min_writer_version),
    }


@pytest.mark.parametrize("case", deep_but_for(CASES, "types"))
def test_what_we_do_is_what_delta_spark_does(
    tmp_path: Path, case: str, delta_spark: DeltaSpark
) -> None:
    columns, clauses, steps = CASES[case]
    its, ours = tmp_path / "its", tmp_path / "ours"
    first = [*takewhile(lambda step: isinstance(step, str), steps)]
    create = f"CREATE TABLE T! {columns} USING delta {clauses}"
    begun([create, *map(str, first)], its, ours, delta_spark)
    table = DeltaTable(str(ours))
    for step in steps[len(first) :]:
        if isinstance(step, str):
            both(step, its, ours, delta_spark)
            continue
        clause, alter = step
        delta_spark.sql(f"ALTER TABLE delta.`{its}` {clause}")
        alter(table.alter)
        assert state(ours) == state(its), clause
        assert told(ours) == told(its)

    rows, expected = (
        sorted(delta_spark.sql(f"SELECT * FROM delta.`{root}`"), key=str) for root in (ours, its)
    )
    assert rows == expected
    assert len(rows) == sum(isinstance(step, str) for step in steps)
    assert table.snapshot().to_arrow().num_rows == len(rows)
    if case in NOT_OPENED_BY_DELTALAKE:
        return
    peer = deltalake.DeltaTable(str(ours))
    assert json.loads(peer.schema().to_json()) == json.loads(
        table.snapshot().metadata.schema_string or ""
    )
    if case not in UNREAD_BY_DELTALAKE:
        query = deltalake.QueryBuilder().register("t", peer).execute("SELECT * FROM t")
        assert query.read_all().num_rows == len(rows)


REFUSED: list[tuple[str, Callable[[TableAlteration], Any]]] = [
    ("RENAME COLUMN id TO PART", lambda alter: alter.rename_column("id", "PART")),
    ("RENAME COLUMN id TO other", lambda alter: alter.rename_column("id", "other")),
    ("RENAME COLUMN few TO other", lambda alter: alter.rename_column("few", "other")),
    ("DROP COLUMN part", lambda alter: alter.drop_columns(["part"])),
    ("DROP COLUMN id", lambda alter: alter.drop_columns(["id"])),
    ("DROP COLUMN s.x", lambda alter: alter.drop_columns([["s", "x"]])),
    ("DROP COLUMN nope", lambda alter: alter.drop_columns(["nope"])),
    ("ALTER COLUMN few TYPE BIGINT", lambda alter: alter.change_type("few", LONG)),
    ("ALTER COLUMN id TYPE INT", lambda alter: alter.change_type("id", INTEGER)),
    ("ALTER COLUMN id TYPE DOUBLE", lambda alter: alter.change_type("id", DOUBLE)),
    (
        "ALTER COLUMN tiny TYPE DECIMAL(9, 0)",
        lambda alter: alter.change_type("tiny", DecimalType(9, 0)),
    ),
    ("ALTER COLUMN tiny SET DEFAULT id + 1", lambda alter: alter.set_default("tiny", "id + 1")),
    (
        "ADD COLUMNS (n INT NOT NULL)",
        lambda alter: alter.add_columns([StructField("n", INTEGER, nullable=False)]),
    ),
    (
        "ADD COLUMNS (n INT DEFAULT 1)",
        lambda alter: alter.add_columns(
            [StructField("n", INTEGER, metadata={"CURRENT_DEFAULT": "1"})]
        ),
    ),
    ("ADD COLUMNS (ID INT)", lambda alter: alter.add_columns([StructField("ID", INTEGER)])),
    ("ADD CONSTRAINT Some CHECK (id > 0)", lambda alter: alter.add_constraint("Some", "id > 0")),
    ("DROP CONSTRAINT other", lambda alter: alter.drop_constraint("other")),
    ("CLUSTER BY (id)", lambda alter: alter.cluster_by(["id"])),
    (
        "SET TBLPROPERTIES ('delta.constraints.c' = 'id > 0')",
        lambda alter: alter.set_properties({"delta.constraints.c": "id > 0"}),
    ),
]


def test_what_we_refuse_delta_spark_refuses(tmp_path: Path, delta_spark: DeltaSpark) -> None:
    name = f"delta.`{tmp_path}`"
    delta_spark.sql(
        f"CREATE TABLE {name} (id BIGINT, made BIGINT GENERATED ALWAYS AS (id + 1), few INT,"
        " tiny TINYINT, part STRING, s STRUCT<x: INT>) USING delta PARTITIONED BY (part)"
        " TBLPROPERTIES ('delta.columnMapping.mode' = 'name', 'delta.enableTypeWidening' = 'true',"
        " 'delta.feature.allowColumnDefaults' = 'supported')"
    )
    table = DeltaTable(str(tmp_path))
    table.alter.add_constraint("Some", "few < 9")
    for clause, alter in REFUSED:
        with pytest.raises(DeltaSparkError):
            delta_spark.sql(f"ALTER TABLE {name} {clause}")
        with pytest.raises(DeltaError):
            alter(table.alter)
    assert table.latest_version() == 1

"""Tables that we create, with each feature: Delta Spark writes to them, then we, and the peers read.

Delta Spark changes a table's protocol and metadata where its features need more than is there. So a
write of its own that leaves both as they are says that we left nothing out.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from deltalake.exceptions import DeltaError

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.features.protocol import supported_features
from airflow_delta.engine.model.schema import (
    INTEGER,
    LONG,
    STRING,
    TIMESTAMP_NTZ,
    ArrayType,
    MapType,
    StructField,
    StructType,
)
from tests.deep import deep_but_for
from tests.delta_spark.peer import DeltaSpark, DeltaSparkError
from tests.interop.data_files import row_of, write_row
from tests.log_builder import commit_path

PLAIN = StructType((StructField("id", LONG), StructField("part", STRING)))
NESTED = StructType(
    (
        StructField("id", LONG),
        StructField("a b", ArrayType(ArrayType(INTEGER))),
        StructField("m", MapType(STRING, StructType((StructField("x", ArrayType(INTEGER)),)))),
    )
)
INSERT = "SELECT 1L, 'x' UNION ALL SELECT 2L, NULL"
INSERT_NESTED = "SELECT 1L, array(array(1)), map('k', named_struct('x', array(2)))"


def one(metadata: dict[str, Any], *more: StructField, nullable: bool = True) -> StructType:
    return StructType((StructField("id", LONG, nullable, metadata), *more))


# Schema, arguments of `create`, and the rows that Delta Spark then inserts.
CASES: dict[str, tuple[StructType, dict[str, Any], str]] = {
    "plain": (PLAIN, {"name": "n", "description": "d"}, INSERT),
    "partitioned": (PLAIN, {"partition_by": ["part"]}, INSERT),
    "clustered": (PLAIN, {"cluster_by": ["id", "part"]}, INSERT),
    "appendOnly": (PLAIN, {"properties": {"delta.appendOnly": "true"}}, INSERT),
    "not null": (one({}, nullable=False), {}, "SELECT 1L"),
    "invariants": (
        one({"delta.invariants": '{"expression":{"expression":"id > 0"}}'}),
        {},
        "SELECT 1L",
    ),
    "checkConstraints": (PLAIN, {"properties": {"delta.constraints.few": "id < 9"}}, INSERT),
    "changeDataFeed": (PLAIN, {"properties": {"delta.enableChangeDataFeed": "true"}}, INSERT),
    "generatedColumns": (
        one({}, StructField("next", LONG, metadata={"delta.generationExpression": "id + 1"})),
        {},
        "SELECT 1L, 2L",
    ),
    "identityColumns": (
        one(
            {
                "delta.identity.start": 5,
                "delta.identity.step": 2,
                "delta.identity.allowExplicitInsert": False,
            },
            StructField("part", STRING),
        ),
        {},
        "(part) SELECT 'x'",
    ),
    "allowColumnDefaults": (
        one({}, StructField("part", STRING, metadata={"CURRENT_DEFAULT": "'y'"})),
        {},
        "(id) SELECT 1L",
    ),
    "column mapping by name": (
        NESTED,
        {"properties": {"delta.columnMapping.mode": "name"}},
        INSERT_NESTED,
    ),
    "column mapping by id, clustered": (
        NESTED,
        {"properties": {"delta.columnMapping.mode": "id"}, "cluster_by": ["id"]},
        INSERT_NESTED,
    ),
    "deletionVectors": (PLAIN, {"properties": {"delta.enableDeletionVectors": "true"}}, INSERT),
    "rowTracking": (PLAIN, {"properties": {"delta.enableRowTracking": "true"}}, INSERT),
    "timestampNtz": (
        one({}, StructField("at", TIMESTAMP_NTZ)),
        {},
        "SELECT 1L, timestamp_ntz'2026-01-01 00:00:00'",
    ),
    "domainMetadata": (
        PLAIN,
        {"properties": {"delta.feature.domainMetadata": "supported"}},
        INSERT,
    ),
    "v2Checkpoint": (PLAIN, {"properties": {"delta.checkpointPolicy": "v2"}}, INSERT),
    "icebergCompatV1": (
        PLAIN,
        {"properties": {"delta.enableIcebergCompatV1": "true"}, "partition_by": ["part"]},
        INSERT,
    ),
    "icebergCompatV2": (
        NESTED,
        {"properties": {"delta.enableIcebergCompatV2": "true"}},
        INSERT_NESTED,
    ),
    "inCommitTimestamp": (
        PLAIN,
        {"properties": {"delta.enableInCommitTimestamps": "true"}},
        INSERT,
    ),
    "typeWidening": (PLAIN, {"properties": {"delta.enableTypeWidening": "true"}}, INSERT),
    "vacuumProtocolCheck": (
        PLAIN,
        {"properties": {"delta.feature.vacuumProtocolCheck": "supported"}},
        INSERT,
    ),
    "everything at once": (
        PLAIN,
        {
            "cluster_by": ["part"],
            "properties": {
                "delta.appendOnly": "true",
                "delta.checkpointPolicy": "v2",
                "delta.columnMapping.mode": "name",
                "delta.constraints.few": "id < 9",
                "delta.enableChangeDataFeed": "true",
                "delta.enableDeletionVectors": "true",
                "delta.enableInCommitTimestamps": "true",
                "delta.enableRowTracking": "true",
            },
        },
        INSERT,
    ),
}

# Whoever writes rows raises identity marks in the metadata.
CHANGE_METADATA = {"identityColumns"}

# Rules about rows and files, to which `write_row` keeps.
ENFORCED = {
    "allowColumnDefaults",
    "checkConstraints",
    "generatedColumns",
    "icebergCompatV1",
    "icebergCompatV2",
    "identityColumns",
    "invariants",
}

# Reader features that deltalake knows by name only.
UNREAD_BY_DELTALAKE = {"typeWidening", "vacuumProtocolCheck"}


IN_SHORT = [
    "plain",
    "generatedColumns",
    "identityColumns",
    "allowColumnDefaults",
    "column mapping by id, clustered",
    "icebergCompatV2",
    "everything at once",
]
"""The last one has most of the other features."""


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def create(root: Path, case: str) -> DeltaTable:
    schema, arguments, _ = CASES[case]
    return DeltaTable.create(str(root), schema, **arguments)


def append(root: Path, case: str) -> int:
    """Append a row as a writer of ours does; the version it makes."""
    transaction = DeltaTable(str(root)).transaction("WRITE", enforces=ENFORCED)
    transaction.add_file(write_row(root, transaction.base))
    if case == "identityColumns":
        transaction.use_identity_values("id", 7)
    return transaction.commit().version


def by_deltalake(root: Path) -> pa.Table:
    """The rows, by its query engine: the reader that it makes of pyarrow knows no reader features."""
    query = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(str(root)))
    return pa.table(query.execute("SELECT * FROM t").read_all())


def kinds(root: Path, version: int) -> set[str]:
    lines = commit_path(root, version).read_text(encoding="utf-8").splitlines()
    return {kind for line in lines for kind in json.loads(line)}


@pytest.mark.parametrize("case", deep_but_for(CASES, *IN_SHORT))
def test_delta_spark_sees_what_was_made_and_adds_only_rows_and_so_do_we_after_it(
    tmp_path: Path, case: str, delta_spark: DeltaSpark
) -> None:
    table = create(tmp_path, case)
    made = table.snapshot()
    name = f"delta.`{tmp_path}`"
    (detail,) = delta_spark.sql(f"DESCRIBE DETAIL {name}")
    assert {*detail["tableFeatures"]} == supported_features(made.protocol)
    assert detail["minReaderVersion"] == made.protocol.min_reader_version
    assert detail["minWriterVersion"] == made.protocol.min_writer_version
    arguments = CASES[case][1]
    assert detail["partitionColumns"] == list(arguments.get("partition_by", []))
    assert detail["clusteringColumns"] == list(arguments.get("cluster_by", []))
    assert (detail["name"], detail["description"]) == (
        arguments.get("name"),
        arguments.get("description"),
    )

    delta_spark.sql(f"INSERT INTO {name} {CASES[case][2]}")
    written = DeltaTable(str(tmp_path)).snapshot()
    assert written.version == 1
    assert written.num_rows
    assert all(status.can_read for status in written.features if status.supported)

    assert append(tmp_path, case) == 2
    for version in (1, 2):
        changed = kinds(tmp_path, version) & {"protocol", "metaData"}
        assert changed == ({"metaData"} if case in CHANGE_METADATA else set())
    rows = delta_spark.sql(f"SELECT * FROM {name}")
    assert json.loads(json.dumps(row_of(made.schema), default=str)) in rows
    assert len(rows) == DeltaTable(str(tmp_path)).snapshot().num_rows == written.num_rows + 1
    if case not in UNREAD_BY_DELTALAKE:
        ids = by_deltalake(tmp_path)["id"].to_pylist()
        assert sorted(ids) == sorted(row["id"] for row in rows)


def test_the_rules_of_our_tables_bind_delta_spark(tmp_path: Path, delta_spark: DeltaSpark) -> None:
    create(tmp_path, "everything at once")
    name = f"delta.`{tmp_path}`"
    with pytest.raises(DeltaSparkError, match="few"):
        delta_spark.sql(f"INSERT INTO {name} SELECT 9L, 'x'")
    delta_spark.sql(f"INSERT INTO {name} SELECT 8L, 'x'")
    with pytest.raises(DeltaSparkError, match="append"):
        delta_spark.sql(f"DELETE FROM {name}")
    (row,) = delta_spark.sql(
        f"SELECT _metadata.row_id AS id, _metadata.row_commit_version AS version FROM {name}"
    )
    assert row == {"id": 0, "version": 1}
    assert DeltaTable(str(tmp_path)).latest_version() == 1


def test_deltalake_sees_what_was_made(tmp_path: Path, case: str) -> None:
    made = create(tmp_path, case).snapshot()
    peer = deltalake.DeltaTable(str(tmp_path))
    assert peer.version() == 0
    assert json.loads(peer.schema().to_json()) == json.loads(made.metadata.schema_string or "")
    assert peer.metadata().configuration == made.metadata.configuration
    assert peer.metadata().partition_columns == list(made.metadata.partition_columns)
    protocol = peer.protocol()
    assert (protocol.min_reader_version, protocol.min_writer_version) == (
        made.protocol.min_reader_version,
        made.protocol.min_writer_version,
    )
    assert {*(protocol.writer_features or ())} == (made.protocol.writer_features or frozenset())
    assert {*(protocol.reader_features or ())} == (made.protocol.reader_features or frozenset())
    if case in UNREAD_BY_DELTALAKE:
        with pytest.raises(DeltaError, match=r"(?i)unsupported"):
            by_deltalake(tmp_path)
    else:
        assert by_deltalake(tmp_path).num_rows == 0

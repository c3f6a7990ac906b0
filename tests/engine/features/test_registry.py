from __future__ import annotations

import pytest

from airflow_delta.engine.features.feature import Feature, Kind, Support
from airflow_delta.engine.features.registry import FEATURES
from airflow_delta.engine.model.properties import TableProperties
from airflow_delta.engine.model.schema import (
    INTEGER,
    TIMESTAMP_NTZ,
    ArrayType,
    StructField,
    StructType,
)

# PROTOCOL.md, "Valid Feature Names in Table Features", and the writer features of the RFCs.
READERS_AND_WRITERS = {"columnMapping", "deletionVectors", "timestampNtz", "v2Checkpoint"}
WRITERS_ONLY = {
    "appendOnly",
    "invariants",
    "checkConstraints",
    "generatedColumns",
    "allowColumnDefaults",
    "changeDataFeed",
    "identityColumns",
    "rowTracking",
    "domainMetadata",
    "icebergCompatV1",
    "icebergCompatV2",
    "clustering",
    "inCommitTimestamp",
    "managedCommit",
    "checkpointProtection",
}


def test_the_specification_is_covered_with_the_right_kinds() -> None:
    of_specification = {name: row.kind for name, row in FEATURES.items() if row.spec}
    assert of_specification == {
        **dict.fromkeys(READERS_AND_WRITERS, Kind.READER_WRITER),
        **dict.fromkeys(WRITERS_ONLY, Kind.WRITER),
    }


@pytest.mark.parametrize("row", FEATURES.values(), ids=lambda row: row.name)
def test_each_row_is_consistent(row: Feature) -> None:
    assert row.requires <= FEATURES.keys()
    assert row.note
    if row.kind is Kind.WRITER:
        assert row.read is Support.YES, "readers needn't know writer features"
        assert row.reader_version is None
    if row.read is Support.NO:
        assert row.append is row.checkpoint is Support.NO, "who writes must read first"
    if row.concurrent:
        assert row.append is not Support.NO, "what can't be committed to can't be followed"
    assert row.checkpoint is not Support.IF_ENFORCED, "a checkpoint has no rows of its own"


EMPTY = StructType()


def with_key(key: str) -> StructType:
    inner = StructType((StructField("x", INTEGER, metadata={key: "1"}),))
    return StructType((StructField("a", ArrayType(inner)),))


@pytest.mark.parametrize(
    ("name", "properties", "schema"),
    [
        ("appendOnly", {"delta.appendOnly": "true"}, EMPTY),
        ("invariants", {}, with_key("delta.invariants")),
        ("checkConstraints", {"delta.constraints.positive": "x > 0"}, EMPTY),
        ("changeDataFeed", {"delta.enableChangeDataFeed": "TRUE"}, EMPTY),
        ("generatedColumns", {}, with_key("delta.generationExpression")),
        ("columnMapping", {"delta.columnMapping.mode": "name"}, EMPTY),
        ("columnMapping", {"delta.columnMapping.mode": "id"}, EMPTY),
        ("identityColumns", {}, with_key("delta.identity.start")),
        ("deletionVectors", {"delta.enableDeletionVectors": "true"}, EMPTY),
        ("rowTracking", {"delta.enableRowTracking": "true"}, EMPTY),
        (
            "timestampNtz",
            {},
            StructType((StructField("a", ArrayType(TIMESTAMP_NTZ)),)),
        ),
        ("v2Checkpoint", {"delta.checkpointPolicy": "v2"}, EMPTY),
        ("icebergCompatV1", {"delta.enableIcebergCompatV1": "true"}, EMPTY),
        ("icebergCompatV2", {"delta.enableIcebergCompatV2": "true"}, EMPTY),
        ("icebergCompatV3", {"delta.enableIcebergCompatV3": "true"}, EMPTY),
        ("allowColumnDefaults", {}, with_key("CURRENT_DEFAULT")),
        ("inCommitTimestamp", {"delta.enableInCommitTimestamps": "true"}, EMPTY),
        ("managedCommit", {"delta.managedCommit.commitOwner": "owner"}, EMPTY),
        ("checkpointProtection", {"delta.requireCheckpointProtectionBeforeVersion": "1"}, EMPTY),
        ("typeWidening", {"delta.enableTypeWidening": "true"}, EMPTY),
        ("typeWidening-preview", {"delta.enableTypeWidening": "true"}, EMPTY),
    ],
)
def test_metadata_activates_a_feature(
    name: str, properties: dict[str, str], schema: StructType
) -> None:
    active = FEATURES[name].active
    assert active is not None
    assert active(TableProperties(properties, "t"), schema)
    assert not active(TableProperties({}, "t"), EMPTY)


@pytest.mark.parametrize(
    ("name", "properties"),
    [
        ("columnMapping", {"delta.columnMapping.mode": "none"}),
        ("v2Checkpoint", {"delta.checkpointPolicy": "classic"}),
        ("checkpointProtection", {"delta.requireCheckpointProtectionBeforeVersion": "0"}),
        ("deletionVectors", {"delta.enableDeletionVectors": "false"}),
    ],
)
def test_a_property_that_says_no_activates_nothing(name: str, properties: dict[str, str]) -> None:
    active = FEATURES[name].active
    assert active is not None
    assert not active(TableProperties(properties, "t"), EMPTY)


@pytest.mark.parametrize("name", ["domainMetadata", "clustering", "vacuumProtocolCheck"])
def test_some_features_are_active_once_supported(name: str) -> None:
    assert FEATURES[name].active is None

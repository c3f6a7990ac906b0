from __future__ import annotations

import pytest

from airflow_delta.engine.errors import (
    InvalidArgumentError,
    InvalidTableError,
    UnsupportedFeatureError,
)
from airflow_delta.engine.features.column_mapping import assign_mapping
from airflow_delta.engine.features.new_table import protocol_for_new_table
from airflow_delta.engine.features.protocol import supported_features
from airflow_delta.engine.model.actions import Protocol
from airflow_delta.engine.model.schema import (
    INTEGER,
    TIMESTAMP_NTZ,
    ArrayType,
    StructField,
    StructType,
)

SCHEMA = StructType((StructField("a", INTEGER),))
MAPPED, _ = assign_mapping(SCHEMA, new_name=lambda: "col-1")


def new(properties: dict[str, str] | None = None, schema: StructType = SCHEMA) -> Protocol:
    protocol, stored = protocol_for_new_table(schema, properties or {}, table="tbl")
    assert not any(key.startswith(("delta.feature.", "delta.min")) for key in stored)
    return protocol


def listed(*names: str, readers: tuple[str, ...] | None = None) -> Protocol:
    if readers is None:
        return Protocol(1, 7, None, frozenset(names))
    return Protocol(3, 7, frozenset(readers), frozenset((*names, *readers)))


def test_a_plain_table_has_the_versions_that_everyone_starts_with() -> None:
    assert new() == Protocol(1, 2)


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ({"delta.appendOnly": "true"}, Protocol(1, 2)),
        ({"delta.enableChangeDataFeed": "true"}, Protocol(1, 4)),
        ({"delta.enableChangeDataFeed": "false"}, Protocol(1, 2)),
        ({"delta.enableInCommitTimestamps": "true"}, listed("inCommitTimestamp")),
        ({"delta.enableDeletionVectors": "true"}, listed(readers=("deletionVectors",))),
        ({"delta.checkpointPolicy": "v2"}, listed(readers=("v2Checkpoint",))),
        ({"delta.enableTypeWidening": "true"}, listed(readers=("typeWidening",))),
        (
            {"delta.enableTypeWidening": "true", "delta.feature.typeWidening-preview": "supported"},
            listed(readers=("typeWidening-preview",)),
        ),
        (
            {"delta.enableDeletionVectors": "true", "delta.enableChangeDataFeed": "true"},
            listed("changeDataFeed", readers=("deletionVectors",)),
        ),
    ],
)
def test_properties_bring_the_features_they_use(
    properties: dict[str, str], expected: Protocol
) -> None:
    assert new(properties) == expected


def test_a_column_brings_the_feature_of_its_type_from_any_depth() -> None:
    schema = StructType((StructField("a", ArrayType(TIMESTAMP_NTZ)),))
    assert new(schema=schema) == listed(readers=("timestampNtz",))


def test_column_mapping_needs_versions_2_and_5() -> None:
    assert new({"delta.columnMapping.mode": "name"}, MAPPED) == Protocol(2, 5)


def test_column_mapping_beside_a_writer_feature_keeps_reader_version_2() -> None:
    both = {"delta.columnMapping.mode": "name", "delta.enableInCommitTimestamps": "true"}
    assert new(both, MAPPED) == Protocol(
        2, 7, None, frozenset({"columnMapping", "inCommitTimestamp"})
    )


def test_column_mapping_beside_a_reader_feature_is_listed_for_both() -> None:
    both = {"delta.columnMapping.mode": "id", "delta.enableDeletionVectors": "true"}
    assert new(both, MAPPED) == listed(readers=("columnMapping", "deletionVectors"))


def test_column_mapping_of_a_schema_without_ids_is_refused() -> None:
    with pytest.raises(InvalidTableError, match="column 'a' has the physical name None"):
        new({"delta.columnMapping.mode": "name"})


def test_features_can_be_asked_for_by_name_in_any_case() -> None:
    asked = {
        "delta.feature.DELETIONVECTORS": "Supported",
        "delta.feature.domainMetadata": "enabled",
    }
    assert new(asked) == listed("domainMetadata", readers=("deletionVectors",))


def test_what_a_feature_requires_comes_along() -> None:
    assert new({"delta.feature.clustering": "supported"}) == listed("clustering", "domainMetadata")


def test_a_legacy_feature_by_name_needs_no_list() -> None:
    assert new({"delta.feature.checkConstraints": "supported"}) == Protocol(1, 3)


@pytest.mark.parametrize(
    ("versions", "expected"),
    [
        ((None, "4"), Protocol(1, 4)),
        (("2", "5"), Protocol(2, 5)),
        (("1", "1"), Protocol(1, 1)),
        ((None, "7"), Protocol(1, 7, None, frozenset())),
        (("3", "7"), Protocol(3, 7, frozenset(), frozenset())),
        (("3", None), Protocol(3, 7, frozenset(), frozenset())),
    ],
)
def test_versions_that_are_asked_for(
    versions: tuple[str | None, str | None], expected: Protocol
) -> None:
    keys = ("delta.minReaderVersion", "delta.minWriterVersion")
    asked = {key: value for key, value in zip(keys, versions, strict=True) if value is not None}
    assert new(asked) == expected


def test_lists_keep_what_a_version_that_is_asked_for_promises() -> None:
    protocol = new({"delta.minWriterVersion": "3", "delta.enableInCommitTimestamps": "true"})
    assert protocol == listed("appendOnly", "invariants", "checkConstraints", "inCommitTimestamp")
    protocol = new({"delta.minReaderVersion": "2", "delta.minWriterVersion": "7"})
    assert protocol == Protocol(2, 7, None, frozenset({"columnMapping"}))
    assert supported_features(protocol) == {"columnMapping"}


def test_properties_about_the_protocol_are_consumed_and_others_kept() -> None:
    _, stored = protocol_for_new_table(
        SCHEMA,
        {
            "delta.feature.domainMetadata": "supported",
            "delta.minReaderVersion": "1",
            "delta.minWriterVersion": "7",
            "delta.ignoreProtocolDefaults": "true",
            "delta.appendOnly": "true",
            "owner": "me",
        },
        table="tbl",
    )
    assert stored == {"delta.appendOnly": "true", "owner": "me"}


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"delta.feature.deletionVectors": "yes"}, "is 'yes': expected 'supported'"),
        ({"delta.minReaderVersion": "two"}, "is 'two': expected a number from 1 to 3"),
        ({"delta.minWriterVersion": "0"}, "is '0': expected a number from 1 to 7"),
        ({"delta.minWriterVersion": "\N{SUPERSCRIPT TWO}"}, "expected a number"),
    ],
)
def test_nonsense_is_refused(properties: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        new(properties)


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"delta.feature.shinyNew": "supported"}, "doesn't know the feature 'shinyNew'"),
        ({"delta.minReaderVersion": "4"}, "asks for version 4, the engine has 3"),
        ({"delta.minWriterVersion": "8"}, "asks for version 8, the engine has 7"),
        ({"delta.enableRowTracking": "true"}, "rowTracking"),
        ({"delta.constraints.c": "a > 0"}, "checkConstraints"),
        ({"delta.managedCommit.commitOwner": "x"}, "managedCommit"),
        ({"delta.feature.catalogManaged": "supported"}, "catalogManaged"),
    ],
)
def test_what_the_engine_can_not_write_it_does_not_create(
    properties: dict[str, str], message: str
) -> None:
    with pytest.raises(UnsupportedFeatureError, match=message):
        new(properties)


def test_a_property_with_an_impossible_value_is_refused() -> None:
    with pytest.raises(InvalidTableError, match=r"delta\.enableDeletionVectors\b.*'maybe'"):
        new({"delta.enableDeletionVectors": "maybe"})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("delta.logRetentionDuration", "a while"),
        ("delta.checkpointInterval", "0"),
        ("delta.appendOnly", "perhaps"),
        ("delta.columnMapping.mode", "by name"),
        ("delta.dataSkippingNumIndexedCols", "-2"),
        ("delta.isolationLevel", "None"),
    ],
)
def test_a_malformed_property_is_refused_whatever_it_is_for(key: str, value: str) -> None:
    with pytest.raises(InvalidTableError, match=f"{key}: .*{value}"):
        new({key: value})


@pytest.mark.parametrize("name", ["Version", "Timestamp"])
def test_where_in_commit_timestamps_begin_is_not_for_users_to_say(name: str) -> None:
    key = f"delta.inCommitTimestampEnablement{name}"
    with pytest.raises(InvalidArgumentError, match=f"{key}.*leave them out"):
        new({"delta.enableInCommitTimestamps": "true", key: "5"})

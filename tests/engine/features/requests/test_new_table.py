from __future__ import annotations

import itertools
import json
import re
from typing import Any

import pytest

from airflow_delta.engine.errors import (
    InvalidArgumentError,
    InvalidTableError,
    UnsupportedFeatureError,
)
from airflow_delta.engine.features.column_mapping import field_id, physical_name
from airflow_delta.engine.features.protocol import supported_features
from airflow_delta.engine.features.requests.new_table import NewTable, new_table
from airflow_delta.engine.model.actions import Protocol
from airflow_delta.engine.model.schema import (
    INTEGER,
    LONG,
    TIMESTAMP_NTZ,
    ArrayType,
    MapType,
    StructField,
    StructType,
)
from airflow_delta.engine.model.schema_json import parse_schema

SCHEMA = StructType((StructField("a", INTEGER),))


def made(
    properties: dict[str, str] | None = None, schema: StructType = SCHEMA, **more: Any
) -> NewTable:
    counter = itertools.count(1)
    return new_table(
        schema, properties or {}, unique=lambda: f"u{next(counter)}", table="tbl", **more
    )


def new(properties: dict[str, str] | None = None, schema: StructType = SCHEMA) -> Protocol:
    table = made(properties, schema)
    assert not any(key.startswith(("delta.feature.", "delta.min")) for key in table.configuration)
    return table.protocol


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
    assert new({"delta.columnMapping.mode": "name"}) == Protocol(2, 5)


def test_column_mapping_beside_a_writer_feature_keeps_reader_version_2() -> None:
    both = {"delta.columnMapping.mode": "name", "delta.enableInCommitTimestamps": "true"}
    assert new(both) == Protocol(2, 7, None, frozenset({"columnMapping", "inCommitTimestamp"}))


def test_column_mapping_beside_a_reader_feature_is_listed_for_both() -> None:
    both = {"delta.columnMapping.mode": "id", "delta.enableDeletionVectors": "true"}
    assert new(both) == listed(readers=("columnMapping", "deletionVectors"))


def test_features_can_be_requested_by_name_in_any_case() -> None:
    requested = {
        "delta.feature.DELETIONVECTORS": "Supported",
        "delta.feature.domainMetadata": "enabled",
    }
    assert new(requested) == listed("domainMetadata", readers=("deletionVectors",))


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
def test_requested_versions(versions: tuple[str | None, str | None], expected: Protocol) -> None:
    keys = ("delta.minReaderVersion", "delta.minWriterVersion")
    requested = {key: value for key, value in zip(keys, versions, strict=True) if value is not None}
    assert new(requested) == expected


def test_lists_keep_what_a_requested_version_implies() -> None:
    protocol = new({"delta.minWriterVersion": "3", "delta.enableInCommitTimestamps": "true"})
    assert protocol == listed("appendOnly", "invariants", "checkConstraints", "inCommitTimestamp")
    protocol = new({"delta.minReaderVersion": "2", "delta.minWriterVersion": "7"})
    assert protocol == Protocol(2, 7, None, frozenset({"columnMapping"}))
    assert supported_features(protocol) == {"columnMapping"}


def test_properties_about_the_protocol_are_consumed_and_others_kept() -> None:
    stored = made(
        {
            "delta.feature.domainMetadata": "supported",
            "delta.minReaderVersion": "1",
            "delta.minWriterVersion": "7",
            "delta.ignoreProtocolDefaults": "true",
            "delta.appendOnly": "true",
            "owner": "me",
        }
    ).configuration
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
        ({"delta.minReaderVersion": "4"}, "requests version 4, but the engine has 3"),
        ({"delta.minWriterVersion": "8"}, "requests version 8, but the engine has 7"),
        ({"delta.enableIcebergCompatV3": "true"}, "icebergCompatV3"),
        ({"delta.enableVariantShredding": "true"}, "variantShredding"),
        ({"delta.feature.catalogManaged": "supported"}, "catalogManaged"),
    ],
)
def test_what_the_engine_can_not_write_it_does_not_create(
    properties: dict[str, str], message: str
) -> None:
    with pytest.raises(UnsupportedFeatureError, match=message):
        new(properties)


def test_a_property_with_an_impossible_value_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match=r"delta\.enableDeletionVectors\b.*'maybe'"):
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
    with pytest.raises(InvalidArgumentError, match=f"{key}: .*{value}"):
        new({key: value})


@pytest.mark.parametrize("name", ["Version", "Timestamp"])
def test_where_in_commit_timestamps_begin_is_not_for_users_to_say(name: str) -> None:
    key = f"delta.inCommitTimestampEnablement{name}"
    with pytest.raises(InvalidArgumentError, match=f"{key}.*omit it"):
        new({"delta.enableInCommitTimestamps": "true", key: "5"})


@pytest.mark.parametrize(
    "key",
    [
        "delta.columnMapping.maxColumnId",
        "delta.rowTracking.materializedRowIdColumnName",
        "DELTA.REQUIRECHECKPOINTPROTECTIONBEFOREVERSION",
        "delta.coordinatedCommits.commitCoordinator-preview",
        "delta.enableChangeDataCapture",
    ],
)
def test_what_only_commits_write_is_refused(key: str) -> None:
    with pytest.raises(InvalidArgumentError, match=rf"(?i){key} can't be set"):
        new({key: "5"})


def test_an_unknown_property_of_the_protocol_is_refused_and_a_user_s_own_kept() -> None:
    with pytest.raises(InvalidArgumentError, match=r"do you mean delta\.appendOnly\?"):
        new({"delta.apendOnly": "true"})
    assert made({"apendOnly": "true"}).configuration == {"apendOnly": "true"}


def test_names_are_stored_in_the_case_of_the_protocol() -> None:
    table = made({"Delta.AppendOnly": "true", "DELTA.Constraints.Few": "a < 9"})
    assert table.configuration == {"delta.appendOnly": "true", "delta.constraints.Few": "a < 9"}
    with pytest.raises(InvalidArgumentError, match="given twice"):
        new({"delta.appendOnly": "true", "delta.APPENDONLY": "true"})


def test_words_are_stored_as_the_protocol_writes_them() -> None:
    """Some implementations know them in no other case."""
    given = {
        "delta.appendOnly": "TRUE",
        "delta.enableExpiredLogCleanup": "False",
        "delta.checkpointPolicy": "V2",
        "delta.columnMapping.mode": "NAME",
        "delta.isolationLevel": "writeserializable",
        "delta.constraints.Few": "A < 9",
        "owner": "TRUE",
    }
    table = made(given, StructType((StructField("A", INTEGER),)))
    assert table.configuration == {
        "delta.appendOnly": "true",
        "delta.enableExpiredLogCleanup": "false",
        "delta.checkpointPolicy": "v2",
        "delta.columnMapping.mode": "name",
        "delta.columnMapping.maxColumnId": "1",
        "delta.isolationLevel": "WriteSerializable",
        "delta.constraints.Few": "A < 9",
        "owner": "TRUE",
    }


def test_two_commits_must_not_miss_what_the_other_one_adds() -> None:
    assert made({"delta.isolationLevel": "WriteSerializable"}).configuration
    with pytest.raises(InvalidArgumentError, match="set to SnapshotIsolation: two commits"):
        made({"delta.isolationLevel": "snapshotIsolation"})


def test_ids_and_names_of_another_table_are_left_out_without_column_mapping() -> None:
    by_name = made({"delta.columnMapping.mode": "name"}, NESTED).schema
    for properties in ({}, {"delta.columnMapping.mode": "none"}):
        assert made(properties, by_name).schema == NESTED
    # Under it they are kept: a table may be made for files that are there.
    assert made({"delta.columnMapping.mode": "id"}, by_name).schema == by_name
    nested = made({"delta.enableIcebergCompatV2": "true"}, NESTED).schema
    assert made({}, nested).schema == NESTED


@pytest.mark.parametrize("mode", ["none", "name"])
def test_columns_without_a_name_are_refused_at_any_depth(mode: str) -> None:
    nameless = StructType((StructField("", INTEGER),))
    nested = StructType((*SCHEMA, StructField("l", ArrayType(nameless))))
    for schema, path in ((nameless, ("",)), (nested, ("l", "element", ""))):
        with pytest.raises(
            InvalidTableError, match=re.escape(f"the column at {path} has an empty name")
        ):
            made({"delta.columnMapping.mode": mode}, schema)


def test_a_table_may_get_its_columns_later() -> None:
    assert made(schema=StructType()).schema == StructType()


# What the reference implementation gives a table of these columns: the ids of columns first, parents
# before children, then those of elements, keys and values; nested names begin with physical ones.
NESTED = StructType(
    (
        StructField("id", INTEGER),
        StructField("a", ArrayType(ArrayType(INTEGER))),
        StructField("m", MapType(INTEGER, StructType((StructField("x", ArrayType(INTEGER)),)))),
    )
)


def test_column_mapping_gives_every_column_an_id_and_a_name() -> None:
    table = made({"delta.columnMapping.mode": "name"}, NESTED)
    assert [field_id(field) for field in table.schema] == [1, 2, 3]
    assert [physical_name(field, "name") for field in table.schema] == [
        "col-u1",
        "col-u2",
        "col-u3",
    ]
    assert table.configuration["delta.columnMapping.maxColumnId"] == "4"
    assert table.schema.names == NESTED.names


def test_iceberg_compatibility_brings_column_mapping_and_nested_ids() -> None:
    table = made({"delta.enableIcebergCompatV2": "true"}, NESTED)
    assert table.configuration == {
        "delta.columnMapping.mode": "name",
        "delta.enableIcebergCompatV2": "true",
        "delta.columnMapping.maxColumnId": "9",
    }
    assert table.protocol == Protocol(2, 7, None, frozenset({"columnMapping", "icebergCompatV2"}))
    key = "delta.columnMapping.nested.ids"
    found = {field.name: field.metadata.get(key) for field in table.schema}
    assert found == {
        "id": None,
        "a": {"col-u2.element": 5, "col-u2.element.element": 6},
        "m": {"col-u3.key": 7, "col-u3.value": 8},
    }
    inner = table.schema.fields[2].data_type.value_type.fields[0]  # type: ignore[union-attr]
    assert inner.metadata[key] == {"col-u4.element": 9}


@pytest.mark.parametrize(
    ("properties", "problem"),
    [
        (
            {"delta.enableIcebergCompatV1": "true", "delta.enableDeletionVectors": "true"},
            "icebergCompatV1 is in force.*deletionVectors dropped",
        ),
        (
            {"delta.enableIcebergCompatV1": "true", "delta.feature.deletionVectors": "supported"},
            "supports deletion vectors",
        ),
        (
            {"delta.enableIcebergCompatV2": "true", "delta.enableDeletionVectors": "true"},
            "deletion vectors are enabled",
        ),
        (
            {"delta.enableIcebergCompatV1": "true", "delta.enableIcebergCompatV2": "true"},
            "V1 is in force as well",
        ),
        (
            {"delta.enableIcebergCompatV2": "true", "delta.columnMapping.mode": "none"},
            "needs column mapping",
        ),
        (
            {"delta.enableRowTracking": "true", "delta.rowTrackingSuspended": "true"},
            "both true",
        ),
    ],
)
def test_contradictions_are_refused(properties: dict[str, str], problem: str) -> None:
    with pytest.raises(InvalidTableError, match=problem):
        new(properties)


def test_v2_beside_deletion_vectors_that_are_supported_and_off() -> None:
    properties = {
        "delta.enableIcebergCompatV2": "true",
        "delta.feature.deletionVectors": "supported",
    }
    assert supported_features(new(properties)) >= {"deletionVectors", "icebergCompatV2"}


def test_v1_has_no_arrays() -> None:
    with pytest.raises(InvalidTableError, match="V1 has no arrays"):
        new({"delta.enableIcebergCompatV1": "true"}, NESTED)


def test_row_tracking_names_its_hidden_columns() -> None:
    table = made({"delta.enableRowTracking": "true"})
    assert table.protocol == listed("rowTracking", "domainMetadata")
    names = [
        table.configuration[f"delta.rowTracking.materialized{what}ColumnName"]
        for what in ("RowId", "RowCommitVersion")
    ]
    assert len({*names}) == 2
    assert not {*names} & {*SCHEMA.names}
    # Ids are given out with the first file; a table without any has no high water mark.
    assert table.domains == ()


def test_row_tracking_that_is_supported_only_needs_no_hidden_columns() -> None:
    table = made({"delta.feature.rowTracking": "supported"})
    assert table.protocol == listed("rowTracking", "domainMetadata")
    assert table.configuration == {}


def test_in_commit_timestamps_of_a_new_table_begin_with_version_0() -> None:
    on = {"delta.enableInCommitTimestamps": "true"}
    assert made(on).configuration == on


def test_constraints_and_rules_of_columns_bring_their_features() -> None:
    assert new({"delta.constraints.c": "a > 0"}) == Protocol(1, 3)
    identity = {"delta.identity.start": 1, "delta.identity.step": 2}
    for metadata, expected in [
        ({"delta.invariants": '{"expression":{"expression":"a > 3"}}'}, Protocol(1, 2)),
        ({"delta.generationExpression": "b + 1"}, Protocol(1, 4)),
        (identity, Protocol(1, 6)),
        ({"CURRENT_DEFAULT": "4"}, listed("allowColumnDefaults")),
    ]:
        field = StructField("a", LONG, metadata=metadata)
        assert new(schema=StructType((field, StructField("b", LONG)))) == expected


def test_not_null_counts_as_an_invariant_as_for_the_reference() -> None:
    schema = StructType((StructField("a", INTEGER, nullable=False),))
    assert new({"delta.minWriterVersion": "1"}, schema) == Protocol(1, 2)
    assert new({"delta.enableInCommitTimestamps": "true"}, schema) == listed(
        "inCommitTimestamp", "invariants"
    )


@pytest.mark.parametrize(
    ("field", "more", "problem"),
    [
        (StructField("a", INTEGER), {}, "isn't of the type long"),
        (StructField("a", LONG), {"partition_by": ["a"]}, "is a partition column"),
        (
            StructField("a", LONG, metadata={"delta.generationExpression": "b"}),
            {},
            "also has a generation expression",
        ),
        (StructField("a", LONG, metadata={"delta.identity.step": 0}), {}, "step other than 0"),
    ],
)
def test_columns_that_can_be_no_identity_columns(
    field: StructField, more: dict[str, Any], problem: str
) -> None:
    identity = {"delta.identity.start": 1, "delta.identity.step": 1, **field.metadata}
    schema = StructType(
        (StructField("a", field.data_type, metadata=identity), StructField("b", LONG))
    )
    with pytest.raises(InvalidTableError, match=problem):
        made(schema=schema, **more)


def test_clustering_columns_are_listed_by_their_physical_paths() -> None:
    inner = StructType((StructField("x", INTEGER),))
    schema = StructType((StructField("id", INTEGER), StructField("s", inner)))
    table = made({"delta.columnMapping.mode": "name"}, schema, cluster_by=["id", ("s", "x")])
    (domain,) = table.domains
    assert domain.domain == "delta.clustering"
    assert json.loads(domain.configuration)["clusteringColumns"] == [
        ["col-u1"],
        ["col-u2", "col-u3"],
    ]
    assert table.protocol == Protocol(
        2, 7, None, frozenset({"columnMapping", "clustering", "domainMetadata"})
    )


def test_a_table_is_clustered_or_partitioned() -> None:
    schema = StructType((StructField("a", INTEGER), StructField("b", INTEGER)))
    with pytest.raises(InvalidArgumentError, match="only one of the two"):
        made(schema=schema, partition_by=["a"], cluster_by=["b"])
    with pytest.raises(InvalidTableError, match="can't be clustered as well"):
        made({"delta.feature.clustering": "supported"}, schema, partition_by=["a"])


def test_odd_characters_in_names_need_column_mapping() -> None:
    odd = StructType((StructField("a", StructType((StructField("b c", INTEGER),))),))
    with pytest.raises(InvalidTableError, match=r"\['a\.b c'\] have a character of"):
        new(schema=odd)
    assert new({"delta.columnMapping.mode": "name"}, odd) == Protocol(2, 5)
    partitioned = StructType((*SCHEMA, StructField("b c", INTEGER)))
    assert made(schema=partitioned, partition_by=["b c"]).partition_columns == ("b c",)


def test_the_metadata_hold_what_was_made() -> None:
    table = made(
        {"owner": "me"}, StructType((*SCHEMA, StructField("p", INTEGER))), partition_by=["p"]
    )
    metadata = table.metadata(id="i", name="n", description="d", created_time=5)
    assert parse_schema(metadata.schema_string, "t") == table.schema
    assert (metadata.id, metadata.name, metadata.description) == ("i", "n", "d")
    assert (metadata.partition_columns, metadata.created_time) == (("p",), 5)
    assert metadata.configuration == {"owner": "me"}


def test_a_table_with_a_commit_owner_gets_what_that_needs() -> None:
    owner, conf = "delta.managedCommit.commitOwner", "delta.managedCommit.commitOwnerConf"
    table = made({owner.lower(): "sql", conf: '{"backfill": "10"}'})
    assert table.protocol == listed("inCommitTimestamp", "managedCommit")
    stored = json.loads(table.configuration.pop(conf))
    assert stored.pop("tableId")
    assert stored == {"backfill": "10"}
    assert table.configuration == {owner: "sql", "delta.enableInCommitTimestamps": "true"}


def test_a_table_with_a_commit_owner_can_not_bring_an_id() -> None:
    owner, conf = "delta.managedCommit.commitOwner", "delta.managedCommit.commitOwnerConf"
    with pytest.raises(InvalidArgumentError, match="contains tableId='x'"):
        made({owner: "sql", conf: '{"tableId": "x"}'})

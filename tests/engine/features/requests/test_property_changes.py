from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import replace

import pytest

from airflow_delta.engine.errors import (
    InvalidArgumentError,
    UnsupportedFeatureError,
)
from airflow_delta.engine.features.column_mapping import field_id, mapping_mode, physical_name
from airflow_delta.engine.features.requests.property_changes import change_properties
from airflow_delta.engine.model.actions import Metadata, Protocol
from airflow_delta.engine.model.schema import INTEGER, ArrayType, StructField, StructType
from airflow_delta.engine.model.schema_json import parse_schema, schema_to_json

SCHEMA = StructType(
    (
        StructField("a", INTEGER, metadata={"comment": "kept"}),
        StructField("s", ArrayType(StructType((StructField("x", INTEGER),)))),
    )
)


UP_TO_2 = ("appendOnly", "invariants")


def listed(*writers: str, readers: Iterable[str] | None = None) -> Protocol:
    if readers is None:
        return Protocol(1, 7, None, frozenset(writers))
    return Protocol(3, 7, frozenset(readers), frozenset((*writers, *readers)))


ROW_TRACKING = listed(*UP_TO_2, "rowTracking", "domainMetadata")


def versions(reader: int | None, writer: int | None) -> dict[str, str]:
    requested = {"delta.minReaderVersion": reader, "delta.minWriterVersion": writer}
    return {key: str(value) for key, value in requested.items() if value is not None}


def metadata(
    configuration: Mapping[str, str] | None = None, schema: StructType = SCHEMA
) -> Metadata:
    return Metadata(id="x", schema_string=schema_to_json(schema), configuration=configuration or {})


def change(
    table: Metadata,
    properties: Mapping[str, str] | None = None,
    unset: Iterable[str] = (),
    *,
    if_exists: bool = False,
    protocol: Protocol = Protocol(1, 2),  # noqa: B008 - frozen
) -> tuple[Metadata, Protocol]:
    counter = itertools.count(1)
    after, changed = change_properties(
        protocol,
        table,
        set=properties,
        unset=unset,
        if_exists=if_exists,
        unique=lambda: f"u{next(counter)}",
        table="tbl",
    )
    return changed, after


def test_properties_come_and_go_and_nothing_else_changes() -> None:
    table = metadata({"delta.appendOnly": "true", "owner": "me", "old": "1"})
    changed, protocol = change(table, {"owner": "you", "new": "2"}, ["old"])
    assert changed.configuration == {"delta.appendOnly": "true", "owner": "you", "new": "2"}
    assert changed.schema_string == table.schema_string
    assert protocol == Protocol(1, 2)
    assert table.configuration == {"delta.appendOnly": "true", "owner": "me", "old": "1"}


@pytest.mark.parametrize(
    ("listed", "problem"),
    [
        ("nope", "'nope' is no column of the table; possible columns are a, s"),
        ("a.b", "'a.b' is no column"),
        ("a, s", "'s' is of the type array<.*>, which has no least and greatest values"),
        ("a,A", "'A' is listed twice"),
    ],
)
def test_statistics_are_kept_of_columns_that_are_there(listed: str, problem: str) -> None:
    key = "delta.dataSkippingStatsColumns"
    with pytest.raises(InvalidArgumentError, match=problem):
        change(metadata(), {key: listed})
    # What is there already doesn't stop other changes.
    changed, _ = change(metadata({key: listed}), {"mine": "1"})
    assert changed.configuration == {key: listed, "mine": "1"}
    for fine in ("A", ""):
        assert change(metadata(), {key: fine})[0].configuration == {key: fine}


def test_names_and_words_are_found_in_any_case() -> None:
    changed, _ = change(metadata(), {"DELTA.appendONLY": "TRUE"})
    assert changed.configuration == {"delta.appendOnly": "true"}
    changed, _ = change(changed, unset=["Delta.AppendOnly"])
    assert changed.configuration == {}
    # Those of users are theirs.
    with pytest.raises(InvalidArgumentError, match=r"no properties \['Owner'\]"):
        change(metadata({"owner": "me"}), unset=["Owner"])


def test_a_property_that_is_not_there_is_passed_over_if_so_wished() -> None:
    with pytest.raises(
        InvalidArgumentError, match=r"no properties \['x'\] to unset; it has \['y'\]"
    ):
        change(metadata({"y": "1"}), unset=["x"])
    assert change(metadata({"y": "1"}), unset=["x"], if_exists=True)[0] == metadata({"y": "1"})


def test_a_name_that_nobody_knows_can_be_taken_away_and_not_set() -> None:
    table = metadata({"delta.ofTheFuture": "1", "delta.universalFormat.enabledFormats": "iceberg"})
    assert change(table, unset=table.configuration)[0].configuration == {}
    for name in table.configuration:
        with pytest.raises(InvalidArgumentError, match=name):
            change(table, {name: "2"})


@pytest.mark.parametrize(
    "name",
    [
        "delta.columnMapping.maxColumnId",
        "delta.inCommitTimestampEnablementVersion",
        "delta.rowTracking.materializedRowCommitVersionColumnName",
        "delta.requireCheckpointProtectionBeforeVersion",
        "delta.managedCommit.commitOwner",
        "delta.constraints.few",
    ],
)
def test_what_users_can_neither_set_nor_unset(name: str) -> None:
    with pytest.raises(InvalidArgumentError, match=f"{name} can't be set"):
        change(metadata(), {name: "1"})
    with pytest.raises(InvalidArgumentError, match=f"{name} can't be set or unset"):
        change(metadata({name: "1"}), unset=[name])


def test_a_property_is_set_or_unset() -> None:
    with pytest.raises(InvalidArgumentError, match="both set and unset"):
        change(
            metadata({"delta.appendOnly": "true"}), {"delta.appendOnly": "x"}, ["delta.appendonly"]
        )


def test_a_value_that_a_property_can_not_have_is_refused_and_an_old_one_no_obstacle() -> None:
    with pytest.raises(InvalidArgumentError, match=r"delta\.appendOnly: .*'maybe'"):
        change(metadata(), {"delta.appendOnly": "maybe"})
    broken = metadata({"delta.logRetentionDuration": "a while"})
    assert change(broken, {"owner": "me"})[0].configuration["owner"] == "me"
    with pytest.raises(InvalidArgumentError, match="is 5: expected a text"):
        change(metadata(), {"owner": 5})  # type: ignore[dict-item]


@pytest.mark.parametrize(
    ("before", "properties", "after"),
    [
        (
            Protocol(1, 2),
            {"delta.feature.DELETIONVECTORS": "Supported"},
            listed(*UP_TO_2, readers=["deletionVectors"]),
        ),
        (Protocol(1, 2), versions(None, 3), Protocol(1, 3)),
        (Protocol(1, 2), versions(2, None), Protocol(2, 5)),
        (Protocol(1, 2), versions(1, 1), Protocol(1, 2)),
        (Protocol(1, 2), {"delta.ignoreProtocolDefaults": "true"}, Protocol(1, 2)),
        # The versions of the lists stand for nothing but them.
        (Protocol(1, 2), versions(None, 7), listed(*UP_TO_2)),
        (Protocol(1, 2), versions(3, None), listed(*UP_TO_2, readers=[])),
        (Protocol(1, 2), versions(3, 7), listed(*UP_TO_2, readers=[])),
        (
            Protocol(1, 2),
            {**versions(3, 7), "delta.feature.timestampNtz": "supported"},
            listed(*UP_TO_2, readers=["timestampNtz"]),
        ),
        (
            Protocol(1, 2),
            {**versions(1, 7), "delta.feature.inCommitTimestamp": "supported"},
            listed(*UP_TO_2, "inCommitTimestamp"),
        ),
        (
            Protocol(1, 2),
            versions(2, 7),
            Protocol(2, 7, None, frozenset({*UP_TO_2, "columnMapping"})),
        ),
        # What lower ones imply is listed where there are lists.
        (listed("rowTracking", "domainMetadata"), versions(1, 2), ROW_TRACKING),
        (listed(readers=["timestampNtz"]), versions(1, 7), listed(readers=["timestampNtz"])),
    ],
)
def test_what_speaks_of_the_protocol_becomes_a_part_of_it_and_is_not_stored(
    before: Protocol, properties: dict[str, str], after: Protocol
) -> None:
    assert change(metadata(), properties, protocol=before) == (metadata(), after)


def test_a_protocol_that_says_enough_stays_the_same_object() -> None:
    before = Protocol(2, 5)
    assert change(metadata(), versions(1, 4), protocol=before)[1] is before


def test_nonsense_about_the_protocol_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="expected 'supported'"):
        change(metadata(), {"delta.feature.rowTracking": "yes"})
    with pytest.raises(UnsupportedFeatureError, match="doesn't know the feature 'shinyNew'"):
        change(metadata(), {"delta.feature.shinyNew": "supported"})
    with pytest.raises(UnsupportedFeatureError, match="requests version 8"):
        change(metadata(), {"delta.minWriterVersion": "8"})


def test_column_mapping_turned_on_later_keeps_the_names_that_files_have() -> None:
    changed, protocol = change(metadata(), {"delta.columnMapping.mode": "name"})
    schema = parse_schema(changed.schema_string, "tbl")
    inner = schema.fields[1].data_type.element_type.fields[0]  # type: ignore[union-attr]
    fields = (*schema.fields, inner)
    assert [field_id(field) for field in fields] == [1, 2, 3]
    assert [physical_name(field, "name") for field in fields] == ["a", "s", "x"]
    assert schema.fields[0].metadata["comment"] == "kept"
    assert changed.configuration == {
        "delta.columnMapping.mode": "name",
        "delta.columnMapping.maxColumnId": "3",
    }
    assert protocol == Protocol(2, 5)


def test_names_left_over_from_elsewhere_are_not_taken_for_those_of_the_files() -> None:
    left_over = {"delta.columnMapping.id": 9, "delta.columnMapping.physicalName": "col-9"}
    table = metadata(
        {"delta.columnMapping.maxColumnId": "20"},
        StructType((StructField("a", INTEGER, metadata=left_over),)),
    )
    changed, _ = change(table, {"delta.columnMapping.mode": "name"})
    (field,) = parse_schema(changed.schema_string, "tbl")
    assert (field_id(field), physical_name(field, "name")) == (21, "a")
    assert changed.configuration["delta.columnMapping.maxColumnId"] == "21"
    # Without column mapping they are nobody's business.
    assert change(table, {"owner": "me"})[0].schema_string == table.schema_string


def test_a_mapped_schema_stays_as_it_is() -> None:
    mapped, _ = change(metadata(), {"delta.columnMapping.mode": "name"})
    again, _ = change(mapped, {**BY_NAME, "delta.appendOnly": "true"}, protocol=Protocol(2, 5))
    assert again.schema_string == mapped.schema_string
    assert again.configuration == {**mapped.configuration, "delta.appendOnly": "true"}


@pytest.mark.parametrize("mode", ["id", "none"])
def test_column_mapping_can_not_be_changed_otherwise(mode: str) -> None:
    mapped, _ = change(metadata(), {"delta.columnMapping.mode": "name"})
    with pytest.raises(InvalidArgumentError, match="can't be changed from 'name'"):
        change(mapped, {"delta.columnMapping.mode": mode}, protocol=Protocol(2, 5))
    with pytest.raises(InvalidArgumentError, match="from 'name' to 'none'"):
        change(mapped, unset=["delta.columnMapping.mode"], protocol=Protocol(2, 5))


MAPPED = {"delta.columnMapping.id": 9, "delta.columnMapping.physicalName": "col-9"}
BY_NAME = {"delta.columnMapping.mode": "name"}
IGNORED = metadata(
    {**BY_NAME, "delta.columnMapping.maxColumnId": "20"},
    StructType((StructField("a", INTEGER, metadata=MAPPED),)),
)
"""Under a protocol without column mapping: the files of the table call the column ``a``."""


@pytest.mark.parametrize(
    ("properties", "after"),
    [
        ({"owner": "me"}, Protocol(1, 2)),
        ({"delta.appendOnly": "true"}, Protocol(1, 2)),
        ({"delta.enableInCommitTimestamps": "true"}, listed(*UP_TO_2, "inCommitTimestamp")),
        (
            {"delta.enableDeletionVectors": "true"},
            listed(*UP_TO_2, readers=["deletionVectors"]),
        ),
        (versions(None, 6), Protocol(1, 6)),
        ({"delta.columnMapping.mode": "none"}, Protocol(1, 2)),
    ],
)
def test_a_mode_that_nobody_had_to_heed_does_not_come_into_force_by_the_way(
    properties: dict[str, str], after: Protocol
) -> None:
    changed, protocol = change(IGNORED, properties)
    assert protocol == after
    assert changed.schema_string == IGNORED.schema_string
    stored = {key: value for key, value in properties.items() if "Version" not in key}
    assert changed.configuration == {**IGNORED.configuration, **stored}


def test_a_mode_that_nobody_had_to_heed_can_be_taken_away() -> None:
    changed, protocol = change(IGNORED, unset=BY_NAME)
    assert protocol == Protocol(1, 2)
    assert changed.configuration == {"delta.columnMapping.maxColumnId": "20"}


@pytest.mark.parametrize(
    "properties",
    [
        BY_NAME,
        {"delta.feature.columnMapping": "supported"},
        versions(2, None),
        versions(2, 5),
        {"delta.enableIcebergCompatV1": "true"},
    ],
)
def test_what_needs_column_mapping_turns_such_a_mode_on_by_the_names_that_files_have(
    properties: dict[str, str],
) -> None:
    changed, protocol = change(IGNORED, properties)
    assert mapping_mode(protocol, changed, table="tbl") == "name"
    (field,) = parse_schema(changed.schema_string, "tbl")
    assert (field_id(field), physical_name(field, "name")) == (21, "a")
    by_id = replace(IGNORED, configuration={"delta.columnMapping.mode": "id"})
    if properties != BY_NAME:
        with pytest.raises(InvalidArgumentError, match="from 'none' to 'id'"):
            change(by_id, properties)


def test_iceberg_compatibility_gets_its_nested_ids() -> None:
    mapped, _ = change(metadata(), {"delta.columnMapping.mode": "name"})
    changed, protocol = change(
        mapped, {"delta.enableIcebergCompatV2": "true"}, protocol=Protocol(2, 5)
    )
    column = parse_schema(changed.schema_string, "tbl").fields[1]
    assert column.metadata["delta.columnMapping.nested.ids"] == {"s.element": 4}
    assert changed.configuration["delta.columnMapping.maxColumnId"] == "4"
    assert protocol.writer_features is not None
    assert "icebergCompatV2" in protocol.writer_features


def test_row_tracking_gets_its_hidden_columns_once() -> None:
    changed, _ = change(metadata(), {"delta.enableRowTracking": "true"})
    names = {key: value for key, value in changed.configuration.items() if "materialized" in key}
    assert len({*names.values()}) == 2
    off, _ = change(changed, {"delta.enableRowTracking": "false"})
    on, _ = change(off, {"delta.enableRowTracking": "true"})
    assert names.items() <= on.configuration.items()

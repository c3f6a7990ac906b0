"""What is left of protocol and metadata when features are dropped. The cases are those of Delta Spark."""

from __future__ import annotations

import json

import pytest

from airflow_delta.engine.errors import InvalidArgumentError
from airflow_delta.engine.features.column_mapping import metadata_without_mapping
from airflow_delta.engine.features.dropping import (
    disable_feature,
    find_feature,
    find_metadata_uses,
    protocol_without,
    without_recorded_types,
)
from airflow_delta.engine.features.feature import Drop
from airflow_delta.engine.features.negotiation.upgrade import check_no_shrinking
from airflow_delta.engine.features.protocol_lists import legacy_features
from airflow_delta.engine.features.registry import FEATURES
from airflow_delta.engine.model.actions import Metadata, Protocol
from tests.log_builder import metadata

UP_TO_2 = frozenset({"appendOnly", "invariants"})


def listed(*writers: str, readers: tuple[str, ...] = ()) -> Protocol:
    if readers:
        return Protocol(3, 7, frozenset(readers), frozenset({*writers, *readers}))
    return Protocol(1, 7, None, frozenset(writers))


@pytest.mark.parametrize(
    ("dropped", "before", "added", "after"),
    [
        ("checkConstraints", Protocol(1, 3), "", Protocol(1, 2)),
        ("domainMetadata", listed("domainMetadata", *UP_TO_2), "", Protocol(1, 2)),
        ("domainMetadata", listed("domainMetadata"), "", Protocol(1, 1)),
        ("rowTracking", listed("rowTracking", "domainMetadata"), "", listed("domainMetadata")),
        ("columnMapping", Protocol(2, 5), "", Protocol(1, 4)),
        (
            "columnMapping",
            Protocol(2, 5),
            "checkpointProtection",
            listed("checkpointProtection", *legacy_features(1, 4)),
        ),
        (
            "v2Checkpoint",
            listed(*UP_TO_2, readers=("v2Checkpoint",)),
            "checkpointProtection",
            listed("checkpointProtection", *UP_TO_2),
        ),
        (
            "v2Checkpoint",
            listed(readers=("v2Checkpoint", "columnMapping")),
            "",
            Protocol(2, 7, None, frozenset({"columnMapping"})),
        ),
        (
            "v2Checkpoint",
            listed(readers=("v2Checkpoint", "timestampNtz")),
            "",
            listed(readers=("timestampNtz",)),
        ),
    ],
)
def test_the_protocol_is_the_lowest_for_just_what_is_left(
    dropped: str, before: Protocol, added: str, after: Protocol
) -> None:
    more = frozenset({added} - {""})
    assert protocol_without(frozenset({dropped}), before, added=more) == after


def test_a_protocol_shrinks_by_nothing_else() -> None:
    old, new = listed("domainMetadata", "rowTracking"), listed("domainMetadata")
    check_no_shrinking(old, new, dropped=frozenset({"rowTracking"}), table="t")
    with pytest.raises(Exception, match=r"lacks the features \['rowTracking'\]"):
        check_no_shrinking(old, new, dropped=frozenset({"domainMetadata"}), table="t")


def test_names_are_found_in_any_case() -> None:
    for name in FEATURES:
        assert find_feature(name.swapcase(), table="t") == name
    with pytest.raises(InvalidArgumentError, match="no table feature 'rowTracking '"):
        find_feature("rowTracking ", table="t")


def of(configuration: dict[str, str], **column: object) -> Metadata:
    field = {"name": "id", "type": "long", "nullable": True, "metadata": column}
    schema = {"type": "struct", "fields": [field]}
    return Metadata.from_json(metadata(configuration=configuration, schema=schema)["metaData"], "")


@pytest.mark.parametrize(
    ("feature", "traced", "off"),
    [
        ("deletionVectors", {"delta.enableDeletionVectors": "true"}, {}),
        ("typeWidening", {"delta.enableTypeWidening": "true"}, {}),
        (
            "v2Checkpoint",
            {"delta.checkpointPolicy": "v2"},
            {"delta.checkpointPolicy": "classic"},
        ),
        (
            "rowTracking",
            {"delta.enableRowTracking": "true"},
            {"delta.enableRowTracking": "false", "delta.rowTrackingSuspended": "true"},
        ),
    ],
)
def test_what_is_turned_off_leaves_no_traces(
    feature: str, traced: dict[str, str], off: dict[str, str]
) -> None:
    before = of({**traced, "mine": "stays"})
    (trace,) = find_metadata_uses(feature, before, table="t")
    assert trace == f"{next(iter(traced))} is {next(iter(traced.values()))!r}"
    after = disable_feature(feature, before)
    assert after.configuration == {**off, "mine": "stays"}
    assert find_metadata_uses(feature, after, table="t") == ()
    assert disable_feature(feature, after) is after


def test_recorded_types_are_a_trace() -> None:
    changes = [{"fromType": "integer", "toType": "long"}]
    before = of({}, **{"delta.typeChanges": changes, "comment": "c"})
    assert find_metadata_uses("typeWidening", before, table="t") == (
        "changes of type are recorded for the columns id",
    )
    after = without_recorded_types(before, table="t")
    assert find_metadata_uses("typeWidening", after, table="t") == ()
    assert json.loads(after.schema_string or "")["fields"][0]["metadata"] == {"comment": "c"}


def test_columns_without_mapping_keep_the_rest() -> None:
    before = of(
        {"delta.columnMapping.mode": "id", "delta.columnMapping.maxColumnId": "1", "mine": "x"},
        **{"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": "p", "comment": "c"},
    )
    after = metadata_without_mapping(before, table="t")
    assert after.configuration == {"mine": "x"}
    assert json.loads(after.schema_string or "")["fields"][0]["metadata"] == {"comment": "c"}


def test_the_registry_knows_the_features_that_delta_spark_drops() -> None:
    """As release 4.4 does, and `managedCommit`, which it doesn't have; not what only it can take back."""
    assert {name for name, row in FEATURES.items() if isinstance(row.drop, Drop)} == {
        "checkConstraints",
        "columnMapping",
        "deletionVectors",
        "rowTracking",
        "domainMetadata",
        "v2Checkpoint",
        "inCommitTimestamp",
        "typeWidening",
        "typeWidening-preview",
        "vacuumProtocolCheck",
        "checkpointProtection",
        "materializePartitionColumns",
        "managedCommit",
    }

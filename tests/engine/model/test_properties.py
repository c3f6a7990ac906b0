"""Defaults as in the specification and the reference implementation; refusals with messages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from airflow_delta.engine.errors import InvalidTableError
from airflow_delta.engine.model.properties import TableProperties

DAY = 24 * 60 * 60 * 1000


def properties(raw: Mapping[str, str]) -> TableProperties:
    return TableProperties(raw, "s3://bucket/table")


@pytest.mark.parametrize(
    ("attribute", "default"),
    [
        ("checkpoint_interval", 10),
        ("checkpoint_policy", "classic"),
        ("write_stats_as_json", True),
        ("write_stats_as_struct", False),
        ("log_retention_ms", 30 * DAY),
        ("enable_expired_log_cleanup", True),
        ("deleted_file_retention_ms", 7 * DAY),
        ("set_transaction_retention_ms", None),
        ("drop_feature_truncate_history_retention_ms", DAY),
        ("require_checkpoint_protection_before_version", 0),
        ("in_commit_timestamps_enabled", False),
        ("in_commit_timestamp_enablement", None),
        ("commit_owner", None),
        ("commit_owner_conf", {}),
        ("append_only", False),
        ("isolation_level", "Serializable"),
        ("constraints", {}),
        ("data_skipping_num_indexed_cols", 32),
        ("data_skipping_stats_columns", None),
        ("column_mapping_mode", "none"),
        ("column_mapping_max_column_id", None),
        ("deletion_vectors_enabled", False),
        ("change_data_feed_enabled", False),
        ("row_tracking_enabled", False),
        ("row_id_column_name", None),
        ("row_commit_version_column_name", None),
        ("type_widening_enabled", False),
        ("iceberg_compat_v1_enabled", False),
        ("iceberg_compat_v2_enabled", False),
    ],
)
def test_an_unset_property_has_its_default(attribute: str, default: Any) -> None:
    # A key without the prefix, or in other case, is another key.
    raw = {"appendOnly": "true", "DELTA.appendOnly": "true", "checkpointInterval": "3"}
    value = getattr(properties(raw), attribute)
    assert value == default
    assert type(value) is type(default)


@pytest.mark.parametrize(
    ("attribute", "key", "text", "value"),
    [
        ("checkpoint_interval", "delta.checkpointInterval", "100", 100),
        ("checkpoint_interval", "delta.checkpointInterval", "2147483647", 2**31 - 1),
        ("checkpoint_policy", "delta.checkpointPolicy", "v2", "v2"),
        ("write_stats_as_json", "delta.checkpoint.writeStatsAsJson", "false", False),
        ("write_stats_as_struct", "delta.checkpoint.writeStatsAsStruct", "true", True),
        ("log_retention_ms", "delta.logRetentionDuration", "interval 2 days", 2 * DAY),
        ("enable_expired_log_cleanup", "delta.enableExpiredLogCleanup", "False", False),
        ("deleted_file_retention_ms", "delta.deletedFileRetentionDuration", "1 week", 7 * DAY),
        ("set_transaction_retention_ms", "delta.setTransactionRetentionDuration", "1 day", DAY),
        (
            "drop_feature_truncate_history_retention_ms",
            "delta.dropFeatureTruncateHistory.retentionDuration",
            "interval 2 days",
            2 * DAY,
        ),
        (
            "require_checkpoint_protection_before_version",
            "delta.requireCheckpointProtectionBeforeVersion",
            "42",
            42,
        ),
        ("in_commit_timestamps_enabled", "delta.enableInCommitTimestamps", "TRUE", True),
        ("commit_owner", "delta.managedCommit.commitOwner", "sql", "sql"),
        ("commit_owner_conf", "delta.managedCommit.commitOwnerConf", '{"a":"b"}', {"a": "b"}),
        ("append_only", "delta.appendOnly", "true", True),
        ("isolation_level", "delta.isolationLevel", "writeserializable", "WriteSerializable"),
        (
            "constraints",
            "delta.constraints.birthDateCheck",
            "d > '1'",
            {"birthDateCheck": "d > '1'"},
        ),
        ("data_skipping_num_indexed_cols", "delta.dataSkippingNumIndexedCols", "-1", -1),
        (
            "data_skipping_stats_columns",
            "delta.dataSkippingStatsColumns",
            "a,b.c",
            [("a",), ("b", "c")],
        ),
        ("column_mapping_mode", "delta.columnMapping.mode", "id", "id"),
        ("column_mapping_max_column_id", "delta.columnMapping.maxColumnId", "9", 9),
        ("deletion_vectors_enabled", "delta.enableDeletionVectors", "true", True),
        ("change_data_feed_enabled", "delta.enableChangeDataFeed", "true", True),
        ("row_tracking_enabled", "delta.enableRowTracking", "true", True),
        ("row_id_column_name", "delta.rowTracking.materializedRowIdColumnName", "r", "r"),
        (
            "row_commit_version_column_name",
            "delta.rowTracking.materializedRowCommitVersionColumnName",
            "v",
            "v",
        ),
        ("type_widening_enabled", "delta.enableTypeWidening", "true", True),
        ("iceberg_compat_v1_enabled", "delta.enableIcebergCompatV1", "true", True),
        ("iceberg_compat_v2_enabled", "delta.enableIcebergCompatV2", "true", True),
    ],
)
def test_a_property_is_read_as_its_type(attribute: str, key: str, text: str, value: Any) -> None:
    assert getattr(properties({key: text}), attribute) == value


@pytest.mark.parametrize(
    ("attribute", "key", "text", "expected"),
    [
        ("append_only", "delta.appendOnly", "yes", "'true' or 'false'"),
        ("append_only", "delta.appendOnly", "", "'true' or 'false'"),
        ("checkpoint_interval", "delta.checkpointInterval", "0", "an integer of at least 1"),
        ("checkpoint_interval", "delta.checkpointInterval", "1_0", "an integer of at least 1"),
        ("checkpoint_interval", "delta.checkpointInterval", "ten", "an integer of at least 1"),
        ("checkpoint_interval", "delta.checkpointInterval", "9" * 19, "an integer"),
        ("checkpoint_interval", "delta.checkpointInterval", "2147483648", "most 2147483647"),
        (
            "data_skipping_num_indexed_cols",
            "delta.dataSkippingNumIndexedCols",
            "3000000000",
            "most 2147483647",
        ),
        (
            "data_skipping_stats_columns",
            "delta.dataSkippingStatsColumns",
            "a,",
            "no list of column",
        ),
        ("data_skipping_num_indexed_cols", "delta.dataSkippingNumIndexedCols", "-2", "least -1"),
        ("checkpoint_policy", "delta.checkpointPolicy", "v3", "one of classic, v2"),
        ("column_mapping_mode", "delta.columnMapping.mode", "", "one of none, name, id"),
        ("log_retention_ms", "delta.logRetentionDuration", "1 month", "depends on the date"),
        ("deleted_file_retention_ms", "delta.deletedFileRetentionDuration", "7", "whole number"),
        ("commit_owner_conf", "delta.managedCommit.commitOwnerConf", "{", "JSON object of strings"),
        ("commit_owner_conf", "delta.managedCommit.commitOwnerConf", '{"a":1}', "JSON object"),
        ("commit_owner_conf", "delta.managedCommit.commitOwnerConf", "[" * 100_000, "JSON object"),
    ],
)
def test_a_malformed_property_is_refused_by_name(
    attribute: str, key: str, text: str, expected: str
) -> None:
    table = properties({key: text})
    with pytest.raises(InvalidTableError, match=f"s3://bucket/table: .*{key}: .*{expected}") as e:
        getattr(table, attribute)
    assert (e.value.table, e.value.property, e.value.value) == ("s3://bucket/table", key, text)


def test_a_malformed_value_bothers_nobody_else() -> None:
    assert properties({"delta.checkpointInterval": "x", "delta.appendOnly": "true"}).append_only


VERSION_KEY = "delta.inCommitTimestampEnablementVersion"
TIMESTAMP_KEY = "delta.inCommitTimestampEnablementTimestamp"


def test_in_commit_timestamp_enablement() -> None:
    raw = {VERSION_KEY: "2", TIMESTAMP_KEY: "1603723970833"}
    assert properties(raw).in_commit_timestamp_enablement == (2, 1603723970833)
    zero = {VERSION_KEY: "0", TIMESTAMP_KEY: "0"}
    assert properties(zero).in_commit_timestamp_enablement == (0, 0)


@pytest.mark.parametrize(
    ("there", "missing"), [(VERSION_KEY, TIMESTAMP_KEY), (TIMESTAMP_KEY, VERSION_KEY)]
)
def test_one_enablement_property_is_not_enough(there: str, missing: str) -> None:
    with pytest.raises(InvalidTableError, match=f"{there} is set but {missing} is not") as caught:
        _ = properties({there: "5"}).in_commit_timestamp_enablement
    assert caught.value.property == missing


def test_constraints_keep_dots_in_their_names() -> None:
    raw = {"delta.constraints.a.b": "x > 0", "delta.constraint.c": "y > 0"}
    assert properties(raw).constraints == {"a.b": "x > 0"}


def test_flags_by_name() -> None:
    assert properties({"delta.enableX": "true"}).flag("delta.enableX")
    assert not properties({}).flag("delta.enableX")
    with pytest.raises(InvalidTableError, match=r"delta\.enableX: expected 'true' or 'false'"):
        properties({"delta.enableX": "1"}).flag("delta.enableX")

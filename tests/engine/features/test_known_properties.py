from __future__ import annotations

from collections import UserDict

import pytest

from airflow_delta.engine.errors import InvalidArgumentError
from airflow_delta.engine.features.known_properties import (
    KNOWN,
    canonical_name,
    canonical_value,
    check_removable,
    check_settable,
    check_values,
)
from airflow_delta.engine.features.registry import FEATURES
from airflow_delta.engine.model.properties import TableProperties


class Asked(UserDict):  # type: ignore[type-arg]
    """An empty configuration that records which properties are read."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def get(self, key: str, default: object = None) -> object:
        self.names.add(key)
        return default


def test_every_property_that_the_engine_reads_is_known() -> None:
    asked = Asked()
    check_values(TableProperties(asked, "tbl"))  # type: ignore[arg-type]
    assert len(asked.names) > 30
    assert asked.names <= {*KNOWN.values()}


def test_every_property_that_turns_a_feature_on_is_known() -> None:
    names = {row.table_property for row in FEATURES.values() if row.table_property}
    assert names <= {*KNOWN.values()}


# Of DeltaConfigs in Delta Spark 4.4: what a user of it may set, or meet in a table.
OF_THE_REFERENCE = """
    appendOnly autoOptimize autoOptimize.autoCompact autoOptimize.optimizeWrite castIcebergTimeType
    checkpoint.writeStatsAsJson checkpoint.writeStatsAsStruct checkpointInterval checkpointPolicy
    checkpointRetentionDuration columnMapping.maxColumnId columnMapping.mode
    dataSkippingNumIndexedCols dataSkippingStatsColumns dataSkippingStringPrefixLength
    deletedFileRetentionDuration dropFeatureTruncateHistory.retentionDuration
    enableChangeDataCapture enableChangeDataFeed enableDeletionVectors enableExpiredLogCleanup
    enableFullRetentionRollback enableIcebergCompatV1 enableIcebergCompatV2 enableIcebergCompatV3
    enableInCommitTimestamps enableRowTracking enableTypeWidening enableVariantShredding
    ignoreProtocolDefaults inCommitTimestampEnablementTimestamp inCommitTimestampEnablementVersion
    isolationLevel logRetentionDuration minReaderVersion minWriterVersion parquet.format.version
    randomPrefixLength randomizeFilePrefixes requireCheckpointProtectionBeforeVersion
    rowTrackingSuspended sampleRetentionDuration setTransactionRetentionDuration
    universalFormat.enabledFormats writePartitionColumnsToParquet
"""


def test_the_properties_of_the_reference_are_known() -> None:
    assert {f"delta.{name}" for name in OF_THE_REFERENCE.split()} <= {*KNOWN.values()}


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("DELTA.APPENDONLY", "delta.appendOnly"),
        ("Delta.Constraints.Few", "delta.constraints.Few"),
        ("delta.FEATURE.rowTracking", "delta.feature.rowTracking"),
        ("Owner", "Owner"),
        ("deltaic", "deltaic"),
    ],
)
def test_the_name_that_a_property_is_stored_by(key: str, name: str) -> None:
    assert canonical_name(key, table="tbl") == name


@pytest.mark.parametrize("key", ["delta.nope", "delta.", "delta.constraints.", "DELTA.x.y"])
def test_a_name_of_the_protocol_that_there_is_not(key: str) -> None:
    with pytest.raises(InvalidArgumentError, match="there is no table property") as caught:
        canonical_name(key, table="tbl")
    assert caught.value.property == key


def test_what_is_recorded_by_commits_stays_and_what_is_unwanted_can_go() -> None:
    check_settable("delta.appendOnly", table="tbl")
    for name in ("delta.columnMapping.maxColumnId", "delta.enableChangeDataCapture"):
        with pytest.raises(InvalidArgumentError, match=f"{name} can't be set"):
            check_settable(name, table="tbl")
    check_removable("delta.enableChangeDataCapture", table="tbl")
    with pytest.raises(InvalidArgumentError, match="can't be set or unset"):
        check_removable("delta.columnMapping.maxColumnId", table="tbl")


def test_flags_that_no_module_reads_are_judged_as_well() -> None:
    with pytest.raises(InvalidArgumentError, match="'true' or 'false'"):
        check_values(TableProperties({"delta.enableFullRetentionRollback": "yes"}, "tbl"))


@pytest.mark.parametrize("name", sorted(KNOWN.values()))
def test_the_case_of_words_is_the_protocol_s_wherever_it_does_not_matter(name: str) -> None:
    """What says of a value that it may be one of a few words takes them in any case."""
    properties = TableProperties({name: "?"}, "tbl")
    words: list[str] = []
    try:
        check_values(properties)
    except InvalidArgumentError as error:
        if "'true' or 'false'" in error.message:
            words = ["true", "false"]
        elif "expected one of " in error.message:
            words = error.message.split("expected one of ")[1].split(", found")[0].split(", ")
    for word in words or ["Text"]:
        assert canonical_value(name, word) == word
        stored = canonical_value(name, word.upper())
        assert stored == (word if words else word.upper())
    assert canonical_value(name, "?") == "?"


def test_the_words_are_known_at_all() -> None:
    assert canonical_value("delta.appendOnly", "TRUE") == "true"
    assert canonical_value("delta.checkpointPolicy", "V2") == "v2"
    assert canonical_value("delta.isolationLevel", "SERIALIZABLE") == "Serializable"

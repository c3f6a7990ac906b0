from __future__ import annotations

import pytest

from airflow_delta.engine.errors import InvalidTableError
from airflow_delta.engine.features.in_commit_timestamps import (
    TimestampSource,
    is_enabled,
    next_in_commit_timestamp,
    record_enablement,
    timestamp_source,
    versions_to_search,
)
from airflow_delta.engine.model.actions import Metadata, Protocol

SUPPORTED = Protocol(1, 7, None, frozenset({"inCommitTimestamp"}))
ON = {"delta.enableInCommitTimestamps": "true"}
VERSION = "delta.inCommitTimestampEnablementVersion"
TIMESTAMP = "delta.inCommitTimestampEnablementTimestamp"
LATE = {**ON, VERSION: "2", TIMESTAMP: "5000"}


def table(configuration: dict[str, str]) -> Metadata:
    return Metadata(id="x", configuration=configuration)


@pytest.mark.parametrize(
    ("now", "previous", "expected"), [(100, 50, 100), (100, 99, 100), (100, 100, 101), (1, 9, 10)]
)
def test_a_timestamp_is_the_larger_of_the_clock_and_the_previous_one_plus_1(
    now: int, previous: int, expected: int
) -> None:
    assert next_in_commit_timestamp(now, previous) == expected


def test_it_takes_feature_and_property_to_be_enabled() -> None:
    assert is_enabled(SUPPORTED, table(ON), table="tbl")
    assert not is_enabled(SUPPORTED, table({}), table="tbl")
    assert not is_enabled(Protocol(1, 2), table(ON), table="tbl")
    # The plural is a slip in the text of the RFC, not the feature's name.
    plural = Protocol(1, 7, None, frozenset({"inCommitTimestamps"}))
    assert not is_enabled(plural, table(ON), table="tbl")


@pytest.mark.parametrize(
    ("configuration", "version", "source"),
    [
        ({}, 3, TimestampSource.MODIFICATION_TIME),
        (ON, 0, TimestampSource.COMMIT_INFO),
        (ON, 9, TimestampSource.COMMIT_INFO),
        (LATE, 1, TimestampSource.MODIFICATION_TIME),
        (LATE, 2, TimestampSource.COMMIT_INFO),
        ({**LATE, "delta.enableInCommitTimestamps": "false"}, 2, TimestampSource.MODIFICATION_TIME),
    ],
)
def test_where_the_timestamp_of_a_version_is(
    configuration: dict[str, str], version: int, source: TimestampSource
) -> None:
    assert timestamp_source(version, SUPPORTED, table(configuration), table="tbl") is source


@pytest.mark.parametrize(
    ("configuration", "timestamp", "versions"),
    [
        ({}, 4999, range(10)),
        (ON, 0, range(10)),
        (LATE, 4999, range(2)),
        (LATE, 5000, range(2, 10)),
        (LATE, 10**15, range(2, 10)),
    ],
)
def test_the_enablement_divides_the_versions_that_time_travel_searches(
    configuration: dict[str, str], timestamp: int, versions: range
) -> None:
    found = versions_to_search(timestamp, SUPPORTED, table(configuration), latest=9, table="tbl")
    assert found == versions


@pytest.mark.parametrize("missing", [VERSION, TIMESTAMP])
def test_one_enablement_property_without_the_other_is_refused(missing: str) -> None:
    half = {key: value for key, value in LATE.items() if key != missing}
    with pytest.raises(InvalidTableError, match=f"{missing} is not"):
        timestamp_source(3, SUPPORTED, table(half), table="tbl")


OFF = {"delta.enableInCommitTimestamps": "false"}
HERE = {VERSION: "7", TIMESTAMP: "9000"}
BOUNDARY = {VERSION: "2", TIMESTAMP: "5000"}


@pytest.mark.parametrize(
    ("before", "after", "recorded"),
    [
        # A new table's history isn't divided.
        (None, ON, ON),
        (None, {}, {}),
        (None, {**ON, **BOUNDARY}, ON),
        # Turned on.
        ({}, ON, {**ON, **HERE}),
        (OFF, ON, {**ON, **HERE}),
        (OFF, {**ON, **BOUNDARY}, {**ON, **HERE}),
        # Still on.
        (ON, {**ON, "mine": "1"}, {**ON, "mine": "1"}),
        ({**ON, **BOUNDARY}, ON, {**ON, **BOUNDARY}),
        ({**ON, **BOUNDARY}, {**ON, **HERE}, {**ON, **BOUNDARY}),
        (ON, {**ON, **BOUNDARY}, ON),
        # Turned off.
        ({**ON, **BOUNDARY}, {**OFF, **BOUNDARY}, OFF),
        ({**ON, **BOUNDARY}, BOUNDARY, {}),
        # Still off.
        (OFF, {**OFF, **BOUNDARY}, {**OFF, **BOUNDARY}),
    ],
)
def test_a_commit_records_where_they_begin(
    before: dict[str, str] | None, after: dict[str, str], recorded: dict[str, str]
) -> None:
    metadata = table(after)
    made = record_enablement(
        SUPPORTED,
        metadata,
        before=None if before is None else (SUPPORTED, table(before)),
        version=7,
        timestamp_ms=9000,
        table="tbl",
    )
    assert made.configuration == recorded
    assert (made is metadata) == (after == recorded)


def test_they_are_turned_on_by_the_feature_too() -> None:
    made = record_enablement(
        SUPPORTED,
        table(ON),
        before=(Protocol(1, 2), table(ON)),
        version=7,
        timestamp_ms=9000,
        table="tbl",
    )
    assert made.configuration == {**ON, **HERE}

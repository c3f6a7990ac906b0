"""Checks of what a table says of itself, of its commit owner, and of how it is kept in shape."""

from __future__ import annotations

import json
import uuid
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import pytest

from airflow_delta.engine import DeltaTable, StructField, StructType
from airflow_delta.engine.commit.owner import ManagedTable, OwnerStatus, Standing
from airflow_delta.engine.commit.store.memory import MemoryCommitStore
from airflow_delta.engine.commit.store.owner import StoreBackedOwner
from airflow_delta.engine.errors import CommitOwnerError, CommitOwnerUnavailableError, DeltaError
from airflow_delta.engine.maintenance.check.findings import CheckReport
from airflow_delta.engine.model.schema import LONG
from tests.checked_tables import HISTORY, NOW_MS, checked, codes, file, healthy, only
from tests.log_builder import metadata
from tests.table_builder import (
    Action,
    Files,
    classic_checkpoint,
    commit_file,
    commits,
    lines,
    states,
)

DAY_MS = 24 * 60 * 60 * 1000
NOTHING: Action = {"commitInfo": {"operation": "NOTHING"}}


def table(
    properties: Mapping[str, str] | None = None,
    *,
    features: Collection[str] = (),
    reader: Collection[str] = (),
    history: int = 1,
) -> Files:
    """A table with some properties and features, and a few commits."""
    first: list[Action] = [
        {
            "protocol": {
                "minReaderVersion": 3,
                "minWriterVersion": 7,
                "readerFeatures": sorted(reader),
                "writerFeatures": sorted({*features, *reader}),
            }
        },
        metadata(configuration=dict(properties or {})),
    ]
    return commits([first, *([NOTHING] for _ in range(history - 1))])


def found(files: Files, **options: Any) -> dict[str, str]:
    return codes(checked(files, depth="quick", **options))


def test_unknown_features() -> None:
    assert found(table(features=["novelty"])) == {"protocol-unwritable": "warning"}
    report = checked(table(reader=["novelty"]))
    assert codes(report) == {"protocol-unreadable": "error"}
    assert "novelty" in only(report, "protocol-unreadable").message


def test_protocols_that_contradict_themselves() -> None:
    files = table()
    files[commit_file(0)] = lines(
        [{"protocol": {"minReaderVersion": 3, "minWriterVersion": 7}}, metadata()]
    )
    assert found(files).keys() & {"protocol-invalid", "version-unreadable"}


def test_metadata_without_a_schema() -> None:
    lacking = json.loads(json.dumps(HISTORY[0][1]))
    del lacking["metaData"]["schemaString"]
    files = {commit_file(0): lines([HISTORY[0][0], lacking])}
    for depth in ("quick", "log", "files"):
        assert codes(checked(files, depth=depth)) == {"schema-missing": "warning"}


def test_a_schema_that_cant_be_read() -> None:
    broken = json.loads(json.dumps(HISTORY[0][1]))
    broken["metaData"]["schemaString"] = "{"
    files = {commit_file(0): lines([HISTORY[0][0], broken])}
    assert codes(checked(files))["schema-unreadable"] == "error"


def test_features_that_lack_what_they_require() -> None:
    report = checked(table(features=["rowTracking"]), depth="quick")
    assert codes(report) == {"protocol-invalid": "warning"}
    assert "domainMetadata" in only(report, "protocol-invalid").message


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("delta.enableDeletionVectors", "true"),
        ("delta.enableInCommitTimestamps", "true"),
        ("delta.checkpointPolicy", "v2"),
        ("delta.appendOnly", "true"),
    ],
)
def test_properties_without_their_feature(name: str, value: str) -> None:
    report = checked(table({name: value}), depth="quick")
    assert codes(report) == {"property-without-feature": "warning"}
    assert name in only(report, "property-without-feature").message


@pytest.mark.parametrize("feature", ["typeWidening", "typeWidening-preview"])
def test_a_feature_and_its_preview_count_as_one(feature: str) -> None:
    files = table({"delta.enableTypeWidening": "true"}, reader=[feature])
    assert "property-without-feature" not in found(files)


def test_a_missing_feature_is_reported_without_its_preview() -> None:
    report = checked(table({"delta.enableTypeWidening": "true"}), depth="quick")
    assert "lacks the feature typeWidening:" in only(report, "property-without-feature").message


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("delta.logRetentionDuration", "a month"),
        ("delta.checkpointInterval", "0"),
        ("delta.deletedFileRetentionDuration", "7"),
        ("delta.checkpointPolicy", "v3"),
    ],
)
def test_properties_with_values_that_they_cant_have(name: str, value: str) -> None:
    report = checked(table({name: value}, history=11))
    assert codes(report)["property-malformed"] == "error"
    assert name in only(report, "property-malformed").message


def test_unknown_properties() -> None:
    report = checked(table({"delta.logRetentionDurations": "x", "mine": "y"}), depth="quick")
    assert codes(report) == {"property-unknown": "info"}
    assert "mine" not in only(report, "property-unknown").message


def test_retentions_that_dont_fit() -> None:
    log = {"delta.logRetentionDuration": "interval 3 days"}
    files = {"delta.deletedFileRetentionDuration": "interval 1 hour"}
    assert found(table(log)) == {"retention-of-log-short": "warning"}
    assert found(table(files)) == {"retention-short": "warning"}
    assert found(table(log | files)) == {"retention-short": "warning"}


def protected(*, checkpoint: int | None, boundary: int = 2) -> Files:
    history = [
        [
            {"protocol": {"minReaderVersion": 1, "minWriterVersion": 7,
                          "writerFeatures": ["checkpointProtection"]}},
            metadata(configuration={
                "delta.requireCheckpointProtectionBeforeVersion": str(boundary)}),
        ],
        [file("a")], [file("b")], [file("c")],
    ]  # fmt: skip
    files = commits(history)
    if checkpoint is not None:
        files |= classic_checkpoint(states(history)[checkpoint], checkpoint)
    return files


def test_the_boundary_of_protection_needs_its_checkpoint() -> None:
    for checkpoint in (None, 1, 3):
        report = checked(protected(checkpoint=checkpoint), depth="quick")
        assert only(report, "boundary-without-checkpoint").severity == "error"
        assert "version=2" in only(report, "boundary-without-checkpoint").remedy
    assert "boundary-without-checkpoint" not in found(protected(checkpoint=2))
    # Where the log begins there, nobody meets what is older.
    begun = protected(checkpoint=3)
    for version in range(3):
        del begun[commit_file(version)]
    assert "boundary-without-checkpoint" not in found(begun)


# How the table is kept in shape.


def later(days: float) -> int:
    return NOW_MS + int(days * DAY_MS)


def test_cleanups_that_are_due() -> None:
    files = healthy()
    assert checked(files, now_ms=later(29)).findings == ()
    report = checked(files, depth="log", now_ms=later(40))
    assert codes(report) == {"cleanup-due": "info"}
    assert "3 files in the log, 3 commits" in only(report, "cleanup-due").message


def test_cleanups_that_are_overdue() -> None:
    history = [*HISTORY, *([NOTHING] for _ in range(110))]
    files = healthy() | commits(history) | classic_checkpoint(states(history)[105], 105)
    but = ["checksum-behind", "hint-behind", "checkpoint-due"]
    assert codes(checked(files, depth="log", now_ms=later(40)), but) == {"cleanup-due": "info"}
    assert codes(checked(files, depth="log", now_ms=later(90)), but) == {
        "cleanup-overdue": "warning"
    }


def test_cleanups_that_lack_a_checkpoint() -> None:
    history = [*HISTORY, *([NOTHING] for _ in range(10))]
    files = healthy(checkpoint=None) | commits(history)
    report = checked(files, depth="log", now_ms=later(40))
    assert codes(report)["cleanup-blocked"] == "warning"
    assert "checkpoint(version=15)" in only(report, "cleanup-blocked").remedy


def test_cleanups_that_are_switched_off() -> None:
    files = table({"delta.enableExpiredLogCleanup": "false"}, history=3)
    assert codes(checked(files, now_ms=later(90))) == {"cleanup-disabled": "info"}


def test_files_that_dead_writers_have_left() -> None:
    left = {"_delta_log/_commit_0b.json.tmp": b"12", "_delta_log/.x.json.0b.tmp": b"3"}
    files = healthy() | left
    assert checked(files, depth="quick").findings == ()
    report = checked(files, depth="quick", now_ms=later(3))
    assert codes(report) == {"files-abandoned": "info"}
    assert "2 files of 3 bytes" in only(report, "files-abandoned").message


# Managed tables.


class Owner(StoreBackedOwner):
    """An owner that fails, or reports another standing, if the test sets so."""

    error: DeltaError | None = None
    standing: Standing | None = None

    def status(self, table: ManagedTable) -> OwnerStatus:
        if self.error is not None:
            raise self.error
        status = super().status(table)
        return status if self.standing is None else replace(status, standing=self.standing)


class Managed:
    """A managed table with some commits that aren't backfilled."""

    def __init__(self, commits: int = 2) -> None:
        self.owner = Owner(MemoryCommitStore())
        self.table = DeltaTable(f"memory://{uuid.uuid4()}/t", commit_owners={"ours": self.owner})
        created = DeltaTable.create(self.table.uri, StructType((StructField("id", LONG),)))
        assert created.latest_version() == 0
        self.table.convert_to_managed("ours", {"backfill": "on-request"})
        for number in range(commits):
            self.table.alter.set_properties({"n": str(number)})

    def check(self) -> CheckReport:
        return self.table.check()


def test_commits_that_arent_backfilled() -> None:
    managed = Managed()
    report = managed.check()
    assert codes(report) == {"backfill-due": "info"}
    assert "2 versions up to 3" in only(report, "backfill-due").message
    assert report.version == 3
    managed.table.backfill()
    assert codes(managed.check(), but=["checksum-behind"]) == {}


def test_many_commits_that_arent_backfilled(monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow_delta.engine.maintenance.check import managed as module

    monkeypatch.setattr(module, "_LONG_LAG", 2)
    assert codes(Managed().check()) == {"backfill-overdue": "warning"}


def test_an_owner_that_isnt_known_here() -> None:
    managed = Managed()
    report = DeltaTable(managed.table.uri).check()
    assert codes(report) == {"owner-unavailable": "warning"}
    assert report.version == 1


@pytest.mark.parametrize(
    ("failure", "expected"),
    [
        (CommitOwnerUnavailableError("down"), {"owner-unavailable": "warning"}),
        (CommitOwnerError("no such table"), {"owner-refuses": "error"}),
    ],
)
def test_an_owner_that_fails(failure: DeltaError, expected: dict[str, str]) -> None:
    managed = Managed()
    managed.owner.error = failure
    assert codes(managed.check()) == expected


@pytest.mark.parametrize("standing", [Standing.RELEASED, Standing.PROPOSED])
def test_a_conversion_that_was_broken_off(standing: Standing) -> None:
    managed = Managed(commits=0)
    managed.owner.standing = standing
    report = managed.check()
    assert codes(report) == {"conversion-unfinished": "error"}
    assert standing.value in only(report, "conversion-unfinished").message


def test_a_ratified_commit_that_is_lost() -> None:
    managed = Managed()
    storage = managed.table.storage
    storage.delete([info.path for info in storage.list("_delta_log/_commits")][:1])
    assert codes(managed.check())["ratified-commit-lost"] == "error"


def test_a_commit_past_the_owner() -> None:
    managed = Managed()
    managed.table.storage.create(commit_file(2), lines([{"commitInfo": {"inCommitTimestamp": 1}}]))
    report = managed.check()
    assert codes(report)["ratified-commit-differs"] == "error"
    assert commit_file(2) in only(report, "ratified-commit-differs").message


def test_commits_proposed_without_an_owner() -> None:
    name = "_delta_log/_commits/{:020}.3a0d65cd-4056-49b8-937b-95f9e3ee90e5.json"
    assert found(healthy() | {name.format(6): b"{}"}) == {"proposed-commits": "warning"}
    assert found(healthy() | {name.format(5): b"{}"}) == {"proposed-commits": "info"}

"""Checks of the log: its names, and what its commits say."""

from __future__ import annotations

import pytest

from airflow_delta.engine.maintenance.check.findings import Depth
from tests.checked_tables import (
    HISTORY,
    LAST,
    MIDDLE,
    STATES,
    checked,
    codes,
    file,
    healthy,
    only,
    removed,
)
from tests.log_builder import metadata
from tests.table_builder import Files, classic_checkpoint, commit_file, commits


@pytest.mark.parametrize("depth", ["quick", "log", "files"])
@pytest.mark.parametrize("checkpoint", [None, 0, MIDDLE, LAST])
def test_a_healthy_table_has_nothing(depth: Depth, checkpoint: int | None) -> None:
    report = checked(healthy(checkpoint=checkpoint), depth=depth)
    assert report.findings == ()
    assert (report.version, report.depth, report.ok) == (LAST, depth, True)


@pytest.mark.parametrize("depth", ["quick", "files"])
def test_a_gap_after_the_checkpoint_is_an_error(depth: Depth) -> None:
    files = healthy()
    del files[commit_file(4)]
    report = checked(files, depth=depth)
    assert codes(report, but=["checksum-behind"]) == {
        "commit-missing": "error",
        "version-unreadable": "error",
    }
    assert "commit 4 is missing" in only(report, "commit-missing").message
    assert report.version == LAST


def test_a_gap_before_the_checkpoint_is_a_warning() -> None:
    files = healthy()
    del files[commit_file(1)]
    report = checked(files)
    assert codes(report) == {"commit-missing": "warning"}
    assert "versions from 1 " in only(report, "commit-missing").message


def test_a_missing_commit_that_a_checkpoint_makes_up_for() -> None:
    files = healthy() | classic_checkpoint(STATES[1], 1)
    del files[commit_file(1)]
    report = checked(files)
    assert codes(report) == {"commit-missing": "warning"}
    assert "commit 1 is missing, and only a checkpoint" in only(report, "commit-missing").message


def test_a_checkpoint_without_the_commits_before_it_is_no_gap() -> None:
    files = healthy()
    for version in range(MIDDLE):
        del files[commit_file(version)]
    assert checked(files).findings == ()


def test_protected_checkpoints_without_commits_are_no_gap() -> None:
    files = healthy() | classic_checkpoint(STATES[1], 1)
    for version in range(MIDDLE):
        del files[commit_file(version)]
    assert checked(files).findings == ()


def test_commits_left_by_a_cleanup_are_reported() -> None:
    files = healthy()
    del files[commit_file(0)]
    report = checked(files)
    assert codes(report) == {"commits-unreachable": "info"}
    assert "2 commits from version 1 on" in only(report, "commits-unreachable").message


def test_a_log_without_its_beginning_is_unreadable() -> None:
    files = healthy(checkpoint=None)
    del files[commit_file(0)]
    assert codes(checked(files))["version-unreadable"] == "error"


@pytest.mark.parametrize(("version", "severity"), [(1, "warning"), (4, "error"), (5, "error")])
def test_commits_of_zero_bytes(version: int, severity: str) -> None:
    report = checked(healthy() | {commit_file(version): b""})
    assert codes(report)["commit-empty"] == severity
    assert f"({version})" in only(report, "commit-empty").message
    assert ("version-unreadable" in codes(report)) == (severity == "error")


def test_names_that_engines_interpret_differently() -> None:
    report = checked(healthy() | {"_delta_log/7.json": b"{}"}, depth="quick")
    assert codes(report) == {"name-ambiguous": "warning"}
    assert "7.json" in only(report, "name-ambiguous").message


@pytest.mark.parametrize("garbage", [b"{\n", b"\xff\xfe\n", b'{"add":{"path":7}}\n', b"[1]\n"])
@pytest.mark.parametrize(("version", "severity"), [(1, "warning"), (4, "error")])
def test_commits_that_cant_be_read(garbage: bytes, version: int, severity: str) -> None:
    files = healthy()
    files[commit_file(version)] += garbage
    report = checked(files)
    assert codes(report) == {"commit-unreadable": severity}
    assert str(version) in only(report, "commit-unreadable").message


@pytest.mark.parametrize("depth", ["quick", "log", "files"])
def test_a_commit_that_keeps_the_table_from_opening_is_reported_once(depth: Depth) -> None:
    files = healthy(checkpoint=None)
    files[commit_file(0)] += b'{"metaData":\n'
    report = checked(files, depth=depth)
    code = "version-unreadable" if depth == "quick" else "commit-unreadable"
    assert codes(report, but=["checksum-behind"]) == {code: "error"}
    assert "not valid JSON" in only(report, code).message


def test_all_commits_that_cant_be_read_are_counted() -> None:
    files = healthy(checkpoint=LAST) | {commit_file(v): b"{" for v in (0, 2, 4)}
    message = only(checked(files, depth="log"), "commit-unreadable").message
    assert message.startswith("3 commits")


def test_commits_that_contradict_themselves() -> None:
    history = [*HISTORY, [file("x"), removed("x")], [file("y")]]
    files = healthy() | commits(history)
    report = checked(files, depth="log")
    assert codes(report, but=["checksum-behind"]) == {"commit-contradictory": "warning"}
    assert "1 commit (6)" in only(report, "commit-contradictory").message


TIMED = {
    "protocol": {
        "minReaderVersion": 1,
        "minWriterVersion": 7,
        "writerFeatures": ["inCommitTimestamp"],
    }
}


def timed(*times: int | None) -> Files:
    """A table with in-commit timestamps, and those of each version."""
    first = [TIMED, metadata(configuration={"delta.enableInCommitTimestamps": "true"})]
    infos = [{} if time is None else {"inCommitTimestamp": time} for time in times]
    history = [
        [{"commitInfo": {"timestamp": 1, **info}}, *(first if version == 0 else [])]
        for version, info in enumerate(infos)
    ]
    return commits(history)


def test_in_commit_timestamps_that_are_missing() -> None:
    report = checked(timed(10, None, 30, None), depth="log")
    assert "2 commits (1, 3)" in only(report, "timestamp-missing").message
    assert only(report, "timestamp-missing").severity == "error"


def test_descending_in_commit_timestamps() -> None:
    report = checked(timed(10, 20, 20, 30), depth="log")
    assert codes(report) == {"timestamp-not-ascending": "warning"}
    assert "1 commit (2)" in only(report, "timestamp-not-ascending").message
    assert checked(timed(10, 20, 21, 30), depth="log").findings == ()

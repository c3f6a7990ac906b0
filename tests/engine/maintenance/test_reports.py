"""Reports of maintenance: small JSON values that agree with the plans."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.maintenance.reports import format_report
from airflow_delta.engine.snapshot.timestamps import utc_text
from tests.log_builder import add, remove, write_table


@pytest.fixture
def table(tmp_path: Path) -> DeltaTable:
    """Three versions of long ago, a checkpoint of the newest, and twenty files that nobody needs."""
    write_table(tmp_path, [add("a", size=10)], [remove("a"), add("b", size=4)], [add("c", size=5)])
    for name in ("b", "c", *(f"orphan-{number:02}" for number in range(20))):
        (tmp_path / name).write_bytes(b"123")
        os.utime(tmp_path / name, (0, 0))
    found = DeltaTable(tmp_path)
    found.checkpoint()
    return found


def pick(report: dict[str, Any], *names: str) -> list[Any]:
    assert json.loads(json.dumps(report)) == report, "XCom carries JSON"
    return [report[name] for name in names]


def test_a_cleanup_reports_what_is_deleted_and_what_remains_readable(table: DeltaTable) -> None:
    commits = sorted((Path(table.uri) / "_delta_log").glob("*.json"))[:2]
    size = sum(file.stat().st_size for file in commits)
    for dry_run, deleted in ((True, 0), (False, 2)):
        report = table.cleanup_metadata(dry_run=dry_run).to_dict()
        facts = pick(report, "version", "cutoff_version", "checkpoint", "earliest_version")
        assert facts == [2, 2, 2, 2]
        assert pick(report, "files", "bytes", "num_deleted") == [2, size, deleted]
        assert report["deletes"] == [
            {"kind": "commits", "files": 2, "bytes": size, "first_version": 0, "last_version": 1}
        ]
    assert [file.exists() for file in commits] == [False, False]
    report = table.cleanup_metadata().to_dict()
    assert pick(report, "files", "num_deleted", "deletes") == [0, 0, []]
    assert "already begins at version 2" in report["reason"]


def test_a_vacuum_reports_numbers_and_a_few_paths(table: DeltaTable) -> None:
    for dry_run, deleted in ((True, 0), (False, 20)):
        report = table.vacuum(dry_run=dry_run).to_dict()
        assert pick(report, "version", "mode", "retention_hours") == [2, "full", 168.0]
        assert pick(report, "files", "bytes", "num_deleted", "bytes_deleted") == [
            *(20, 60, deleted),
            3 * deleted,
        ]
        assert report["by_kind"]["data"] == {"files": 20, "bytes": 60}
        assert len(report["examples"]) == 5
        assert all(path.startswith("orphan-") for path in report["examples"])
        assert report["kept"] == {"referenced": 2, "young": 0, "hidden": 0, "other_tables": 0}
        # Version 0 needs ``a``, which was never there.
        assert pick(report, "oldest_restorable", "reason") == [1, None]


def test_a_restore_reports_what_is_added_and_removed(table: DeltaTable) -> None:
    report = table.restore(1, dry_run=True).to_dict()
    assert pick(report, "version", "restored_version", "committed") == [2, 1, False]
    report = table.restore(1, once=("app", 1)).to_dict()
    expected = {
        "version": 3,
        "restored_version": 1,
        "committed": True,
        "repeated": False,
        "files_restored": 0,
        "files_removed": 1,
        "bytes_restored": 0,
        "bytes_removed": 5,
        "files": 1,
        "bytes": 4,
        "files_missing": [],
    }
    assert report == expected
    assert table.restore(1, once=("app", 1)).to_dict() == {
        **expected,
        "repeated": True,
        "files_missing": None,
    }


def test_a_drop_reports_how_far_it_has_come(table: DeltaTable) -> None:
    table.alter.add_feature("v2Checkpoint")
    arguments: dict[str, Any] = {"truncate_history": True}
    before = table.drop_feature("v2Checkpoint", **arguments, dry_run=True).to_dict()
    assert pick(before, "feature", "way", "status") == ["v2Checkpoint", "truncated", "planned"]
    assert before["steps"][-1] == "take v2Checkpoint out of the protocol"
    # Nobody has used it, and the checkpoint from before is a classic one.
    done = table.drop_feature("v2Checkpoint", **arguments).to_dict()
    assert pick(done, "status", "version", "steps", "ready_at", "num_commits") == [
        *("dropped", 4, [], None, 1)
    ]
    assert set(done) == set(before)


def test_a_report_for_people_has_a_line_for_each_fact() -> None:
    report = {
        "version": 3,
        "done": True,
        "by_kind": {"change data": {"files": 2, "bytes": 5}, "data": {"files": 1, "bytes": None}},
        "deletes": [{"kind": "commits", "files": 2}, {"kind": "checksums", "files": 1}],
        "keeps": [],
        "reason": None,
    }
    assert format_report(report) == [
        "version  3",
        "done     yes",
        "by kind  change data: files 2, bytes 5 bytes",
        "         data: files 1",
        "deletes  kind commits, files 2",
        "         kind checksums, files 1",
        "keeps    -",
        "reason   -",
    ]
    assert format_report({}) == []


def test_times_that_no_calendar_has_are_numbers() -> None:
    assert utc_text(1_769_860_800_123) == "2026-01-31T12:00:00.123Z"
    assert utc_text(-1) == "1969-12-31T23:59:59.999Z"
    assert utc_text(10**18) == "1000000000000000000"

"""Which files in ``_commits`` nobody needs any more; and how far back a log is to be kept."""

from __future__ import annotations

import json
import re
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.errors import UnsupportedFeatureError
from airflow_delta.engine.maintenance.backfilled import open_backfilled
from airflow_delta.engine.maintenance.cleanup_cutoff import CleanupCutoff, cleanup_cutoff
from airflow_delta.engine.maintenance.commit_file_cleanup import (
    CommitFileCleanupPlan,
    execute_commit_file_cleanup,
    plan_commit_file_cleanup,
)
from tests.log_builder import add, metadata, write_commit

DAY = timedelta(days=1)
START = datetime(2024, 3, 1, 12, tzinfo=timezone.utc)
"""Version n was made n days after this, at noon."""

MANAGED = {
    "delta.managedCommit.commitOwner": "books",
    "delta.managedCommit.commitOwnerConf": '{"tableId":"t-1"}',
    "delta.enableInCommitTimestamps": "true",
    "delta.logRetentionDuration": "interval 2 days",
}
UUIDS = ("3a0d65cd-4056-49b8-937b-95f9e3ee90e5", "7d17ac10-5cc3-401b-bd1a-9c82dd2ea032")


def epoch_ms(moment: datetime) -> int:
    return int(moment.timestamp()) * 1000


def table_of(root: Path, *, checkpoints: tuple[int, ...] = (), **changes: Any) -> DeltaTable:
    """A managed table, versions 0 to 9 backfilled, and two files in ``_commits`` for 1 to 11 each."""
    features = changes.pop("features", ["inCommitTimestamp", "managedCommit"])
    configuration = {**MANAGED, **changes}
    for version in range(10):
        at = epoch_ms(START + version * DAY)
        info = {"commitInfo": {"inCommitTimestamp": at, "timestamp": at}}
        protocol = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": features}
        first = [{"protocol": protocol}, metadata(configuration=configuration)]
        actions = first if version == 0 else [add(f"f{version}")]
        # What the files' own times are doesn't matter.
        write_commit(root, version, info, *actions, modified_ms=1_000_000)
    directory = root / "_delta_log" / "_commits"
    directory.mkdir()
    for version in range(1, 12):
        for uuid in UUIDS:
            (directory / f"{version:020}.{uuid}.json").write_text("{}\n")
    table = DeltaTable(str(root))
    for version in checkpoints:
        assert table.checkpoint(version).written
    return table


def left(root: Path) -> list[int]:
    """The versions of the files that are left in ``_commits``."""
    return sorted(int(path.name[:20]) for path in (root / "_delta_log" / "_commits").iterdir())


def others(root: Path) -> set[Path]:
    return {path for path in root.rglob("*") if path.parent.name != "_commits"}


def planned(table: DeltaTable, now: datetime) -> CommitFileCleanupPlan:
    snapshot = open_backfilled(table.storage)
    return plan_commit_file_cleanup(table.storage, snapshot, now_ms=epoch_ms(now))


def cutoff_of(table: DeltaTable, now: datetime) -> CleanupCutoff:
    return cleanup_cutoff(open_backfilled(table.storage), now_ms=epoch_ms(now))


@pytest.mark.parametrize(
    ("now", "commit", "checkpoint"),
    [
        # Two days back, and then midnight: 7 March, when version 5 (6 March, noon) was the newest.
        (START + 8 * DAY, 5, 3),
        (START + 8 * DAY + timedelta(hours=11), 5, 3),
        (START + 8 * DAY + timedelta(hours=12), 6, 6),
        (START + 9 * DAY, 6, 6),
        (START + 5 * DAY, 2, None),
        (START + 3 * DAY, 0, None),
        (START + 2 * DAY, None, None),
        (START + 400 * DAY, 9, 6),
    ],
)
def test_a_log_is_kept_from_the_checkpoint_before_the_day_that_retention_begins(
    tmp_path: Path, now: datetime, commit: int | None, checkpoint: int | None
) -> None:
    table = table_of(tmp_path, checkpoints=(3, 6))
    cutoff = cutoff_of(table, now)
    assert (cutoff.commit, cutoff.checkpoint) == (commit, checkpoint)
    assert (cutoff.reason is None) == (checkpoint is not None)
    midnight = datetime.fromtimestamp(cutoff.time_ms / 1000, tz=timezone.utc)
    assert (midnight.hour, midnight.minute, midnight.second) == (0, 0, 0)
    assert timedelta() <= now - 2 * DAY - midnight < DAY


def test_a_commit_of_exactly_midnight_is_an_acceptable_cut_off(tmp_path: Path) -> None:
    midnight = datetime(2024, 3, 7, tzinfo=timezone.utc)
    table = table_of(tmp_path, checkpoints=(6,))
    version_6 = tmp_path / "_delta_log" / f"{6:020}.json"
    for at, commit in ((epoch_ms(midnight), 6), (epoch_ms(midnight) + 1, 5)):
        info = {"commitInfo": {"inCommitTimestamp": at, "timestamp": at}}
        version_6.write_text(json.dumps(info) + "\n" + json.dumps(add("f6")) + "\n")
        assert cutoff_of(table, midnight + 2 * DAY).commit == commit


@pytest.mark.parametrize(
    ("now", "last"), [(START + 8 * DAY, 3), (START + 9 * DAY, 6), (START + 400 * DAY, 6)]
)
def test_what_is_not_newer_than_the_checkpoint_is_deleted(
    tmp_path: Path, now: datetime, last: int
) -> None:
    table = table_of(tmp_path, checkpoints=(3, 6))
    rest = others(tmp_path)
    plan = planned(table, now)
    assert {file.version for file in plan.files} == {*range(1, last + 1)}
    assert (plan.size_in_bytes, plan.reason) == (2 * last * 3, None)
    assert left(tmp_path) == sorted([*range(1, 12)] * 2)
    result = execute_commit_file_cleanup(table.storage, plan)
    assert result.num_deleted == 2 * last
    assert left(tmp_path) == sorted([*range(last + 1, 12)] * 2)
    assert others(tmp_path) == rest
    again = planned(table, now)
    assert again.files == ()
    assert again.reason == f"there are no un-backfilled commits up to version {last}"
    assert execute_commit_file_cleanup(table.storage, again).num_deleted == 0


@pytest.mark.parametrize(
    ("checkpoints", "changes", "now", "reason"),
    [
        ((3, 6), {}, START + 2 * DAY, "no commit is as old as 2024-03-01 00:00 UTC"),
        ((3, 6), {}, START + 4 * DAY, "no complete checkpoint of version 1"),
        ((), {}, START + 400 * DAY, "no complete checkpoint of version 9"),
        (
            (3, 6),
            {"delta.enableExpiredLogCleanup": "false"},
            START + 400 * DAY,
            r"delta\.enableExpiredLogCleanup is false",
        ),
        (
            (3, 6),
            {"delta.logRetentionDuration": "interval 500 days"},
            START + 400 * DAY,
            "no commit is as old",
        ),
    ],
)
def test_where_nothing_is_to_go_it_is_said_why(
    tmp_path: Path,
    checkpoints: tuple[int, ...],
    changes: dict[str, str],
    now: datetime,
    reason: str,
) -> None:
    table = table_of(tmp_path, checkpoints=checkpoints, **changes)
    plan = planned(table, now)
    assert plan.files == ()
    assert re.search(reason, plan.reason or "")
    assert execute_commit_file_cleanup(table.storage, plan).num_deleted == 0
    assert left(tmp_path) == sorted([*range(1, 12)] * 2)


@pytest.mark.parametrize("kind", ["zero bytes", "a part missing"])
def test_a_checkpoint_that_is_not_whole_is_none(tmp_path: Path, kind: str) -> None:
    table = table_of(tmp_path, checkpoints=(3,))
    name = "checkpoint.parquet" if kind == "zero bytes" else f"checkpoint.{1:010}.{2:010}.parquet"
    content = b"" if kind == "zero bytes" else b"part"
    (tmp_path / "_delta_log" / f"{6:020}.{name}").write_bytes(content)
    assert cutoff_of(table, START + 400 * DAY).checkpoint == 3


def test_other_names_are_left_alone(tmp_path: Path) -> None:
    table = table_of(tmp_path, checkpoints=(6,))
    directory = tmp_path / "_delta_log" / "_commits"
    names = [
        f"{1:020}.json",
        f"{1:020}.{UUIDS[0]}.json.tmp",
        f"{1:019}.{UUIDS[0]}.json",
        f".{1:020}.{UUIDS[0]}.json",
        f"{2:020}.{UUIDS[0]}.crc",
        "notes",
    ]
    for name in names:
        (directory / name).write_text("{}")
    execute_commit_file_cleanup(table.storage, planned(table, START + 400 * DAY))
    kept = {path.name for path in directory.iterdir()}
    assert kept & {*names} == {*names}
    assert len(kept) == len(names) + 2 * (11 - 6)


def test_the_method_goes_by_the_clock_and_a_dry_run_deletes_nothing(tmp_path: Path) -> None:
    table = table_of(tmp_path, checkpoints=(6,))
    dry = table.cleanup_commit_files(dry_run=True)
    assert (len(dry.plan.files), dry.num_deleted) == (12, 0)
    assert len(left(tmp_path)) == 22
    assert table.cleanup_commit_files().num_deleted == 12
    assert {*left(tmp_path)} == {*range(7, 12)}


def test_remains_of_a_table_that_was_taken_back_are_cleaned_up_too(tmp_path: Path) -> None:
    table = table_of(tmp_path, checkpoints=(6,))
    at = epoch_ms(START + 10 * DAY)
    kept = {name: value for name, value in MANAGED.items() if "managedCommit" not in name}
    write_commit(
        tmp_path,
        10,
        {"commitInfo": {"inCommitTimestamp": at}},
        {
            "protocol": {
                "minReaderVersion": 1,
                "minWriterVersion": 7,
                "writerFeatures": ["inCommitTimestamp"],
            }
        },
        metadata(configuration=kept),
    )
    assert table.cleanup_commit_files().num_deleted == 12


def test_a_table_that_can_not_be_written_is_not_cleaned_up(tmp_path: Path) -> None:
    features = ["inCommitTimestamp", "managedCommit", "novelty"]
    table = table_of(tmp_path, features=features)
    with pytest.raises(UnsupportedFeatureError, match="novelty"):
        table.cleanup_commit_files()
    assert len(left(tmp_path)) == 22

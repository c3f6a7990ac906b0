"""How far back a log is kept, where it begins afterwards, and what the plan says of it.

The grid of logs is in ``tests/matrix/test_cleanup.py``, crashes in ``tests/faults``, company in
``tests/races``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.errors import (
    CommitOwnerUnavailableError,
    InvalidArgumentError,
    ObjectNotFoundError,
    RetentionError,
    StorageError,
    UnsupportedFeatureError,
)
from airflow_delta.engine.log.last_checkpoint import read_last_checkpoint
from airflow_delta.engine.maintenance.backfill.backfilled import open_backfilled
from airflow_delta.engine.maintenance.metadata_cleanup.cutoff import CleanupCutoff, choose_cutoff
from airflow_delta.engine.maintenance.metadata_cleanup.execution import execute_metadata_cleanup
from airflow_delta.engine.maintenance.metadata_cleanup.plan import plan_metadata_cleanup
from tests.cleanup_tables import (
    CUTOFF,
    DAY,
    LAST,
    NOW,
    START,
    UUIDS,
    Log,
    check_versions,
    clean_up,
    epoch_ms,
    made,
    planned,
)
from tests.faulty_storage import Fault, FaultyStorage, How
from tests.log_builder import add, metadata, write_commit
from tests.scripted_owner import ScriptedOwner, tracked
from tests.table_builder import (
    Files,
    MemoryTable,
    checksum,
    classic_checkpoint,
    commit_file,
    hint,
    states,
    v2_checkpoint,
)

MANAGED = {
    "delta.managedCommit.commitOwner": "owner-db",
    "delta.managedCommit.commitOwnerConf": '{"tableId":"t-1"}',
    "delta.enableInCommitTimestamps": "true",
    "delta.logRetentionDuration": "interval 2 days",
}


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
    table = DeltaTable(str(root), commit_owners={"owner-db": ScriptedOwner(latest=9)})
    for version in checkpoints:
        assert table.checkpoint(version).written
    return table


def left(root: Path) -> tuple[list[int], list[int]]:
    """The versions of the commits that are left, and of the files in ``_commits``."""
    log = root / "_delta_log"
    return (
        sorted(int(path.stem) for path in log.glob("*[0-9].json")),
        sorted(int(path.name[:20]) for path in (log / "_commits").iterdir()),
    )


def cutoff_of(table: DeltaTable, now: datetime, **options: Any) -> CleanupCutoff:
    return choose_cutoff(open_backfilled(table.storage), now_ms=epoch_ms(now), **options)


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
    plan = planned(table, now=now)
    assert (plan.cutoff.commit, plan.checkpoint) == (commit, checkpoint)
    assert (plan.reason is None) == (checkpoint is not None)
    midnight = datetime.fromtimestamp(plan.cutoff.time_ms / 1000, tz=timezone.utc)
    assert (midnight.hour, midnight.minute, midnight.second) == (0, 0, 0)
    assert timedelta() <= now - 2 * DAY - midnight < DAY
    assert plan.cutoff.time == midnight.strftime("%Y-%m-%dT00:00:00.000Z")


def test_a_commit_of_exactly_midnight_is_an_acceptable_cut_off(tmp_path: Path) -> None:
    midnight = datetime(2024, 3, 7, tzinfo=timezone.utc)
    table = table_of(tmp_path, checkpoints=(6,))
    version_6 = tmp_path / "_delta_log" / f"{6:020}.json"
    for at, commit in ((epoch_ms(midnight), 6), (epoch_ms(midnight) + 1, 5)):
        info = {"commitInfo": {"inCommitTimestamp": at, "timestamp": at}}
        version_6.write_text(json.dumps(info) + "\n" + json.dumps(add("f6")) + "\n")
        assert cutoff_of(table, midnight + 2 * DAY).commit == commit


@pytest.mark.parametrize(
    ("now", "start"), [(START + 8 * DAY, 3), (START + 9 * DAY, 6), (START + 400 * DAY, 6)]
)
def test_a_managed_table_keeps_its_newest_backfilled_commits_and_all_proposals_after_the_checkpoint(
    tmp_path: Path, now: datetime, start: int
) -> None:
    table = table_of(tmp_path, checkpoints=(3, 6))
    plan = planned(table, now=now)
    groups = [(group.kind, group.first_version, group.last_version) for group in plan.deletes]
    checkpoints = [("checkpoints", 3, 3)] if start > 3 else []
    checksums = [("checksums", 3, 3)] if start > 3 else []
    assert groups == [
        ("commits", 0, start - 1),
        *checksums,
        *checkpoints,
        ("un-backfilled commits", 1, start),
    ]
    assert left(tmp_path) == ([*range(10)], sorted([*range(1, 12)] * 2))
    result = execute_metadata_cleanup(table.storage, plan)
    assert left(tmp_path) == ([*range(start, 10)], sorted([*range(start + 1, 12)] * 2))
    assert result.num_deleted == plan.num_files == start + 2 * start + 2 * (start > 3)
    again = planned(table, now=now)
    assert not again.needed
    assert (
        again.reason == f"the log already begins at version {start}, and nothing else is left over"
    )
    assert execute_metadata_cleanup(table.storage, again).num_deleted == 0


@pytest.mark.parametrize(
    ("checkpoints", "changes", "now", "reason"),
    [
        (
            (3, 6),
            {},
            START + 2 * DAY,
            "all commits that can be rebuilt are newer than 2024-03-01T00:00:00.000Z",
        ),
        (
            (3, 6),
            {},
            START + 4 * DAY,
            r"no complete checkpoint of version 1.*checkpoint\(version=1\)",
        ),
        (
            (),
            {},
            START + 400 * DAY,
            r"no complete checkpoint of version 9.*checkpoint\(version=9\)",
        ),
        (
            (3, 6),
            {"delta.enableExpiredLogCleanup": "false"},
            START + 400 * DAY,
            r"delta\.enableExpiredLogCleanup is false; force=True",
        ),
        (
            (3, 6),
            {"delta.logRetentionDuration": "interval 500 days"},
            START + 400 * DAY,
            "all commits that can be rebuilt are newer",
        ),
    ],
)
def test_a_plan_says_why_it_deletes_nothing(
    tmp_path: Path,
    checkpoints: tuple[int, ...],
    changes: dict[str, str],
    now: datetime,
    reason: str,
) -> None:
    table = table_of(tmp_path, checkpoints=checkpoints, **changes)
    plan = planned(table, now=now)
    assert (plan.deletes, plan.checkpoint, plan.earliest_version) == ((), None, 0)
    assert re.search(reason, plan.reason or "")
    assert execute_metadata_cleanup(table.storage, plan).num_deleted == 0
    assert left(tmp_path) == ([*range(10)], sorted([*range(1, 12)] * 2))


def test_the_wanted_checkpoint_lets_the_cleanup_continue() -> None:
    with made(Log(checkpoints=())) as table:
        plan = planned(table.delta())
        assert (plan.needed, plan.wanted_checkpoint) == (False, CUTOFF)
        assert table.delta().checkpoint(plan.wanted_checkpoint).written
        assert planned(table.delta()).count("commits") == CUTOFF


def test_a_table_that_is_not_to_be_cleaned_up_is_if_forced(tmp_path: Path) -> None:
    table = table_of(tmp_path, checkpoints=(6,), **{"delta.enableExpiredLogCleanup": "false"})
    assert not table.cleanup_metadata().plan.needed
    assert table.cleanup_metadata(force=True).plan.checkpoint == 6
    assert left(tmp_path)[0] == [6, 7, 8, 9]


def test_less_than_the_table_keeps_is_kept_only_if_forced(tmp_path: Path) -> None:
    table = table_of(tmp_path, checkpoints=(3, 6))
    with pytest.raises(RetentionError, match=r"2 days \(delta.logRetentionDuration\)") as e:
        table.cleanup_metadata(older_than=DAY)
    assert (e.value.older_than_ms, e.value.retention_ms) == (86_400_000, 172_800_000)
    snapshot, now_ms = open_backfilled(table.storage), epoch_ms(START + 8 * DAY)
    for older_than, force, commit in ((DAY, True, 6), (2 * DAY, False, 5), (5 * DAY, False, 2)):
        plan = plan_metadata_cleanup(
            table.storage, snapshot, older_than=older_than, force=force, now_ms=now_ms
        )
        assert plan.cutoff.commit == commit
    with pytest.raises(InvalidArgumentError, match="older_than: expected a timedelta, found"):
        table.cleanup_metadata(older_than=3)  # type: ignore[arg-type]


def test_without_any_retention_the_newest_checkpoint_stays_with_its_commit(tmp_path: Path) -> None:
    table = table_of(tmp_path, checkpoints=(3, 6))
    result = table.cleanup_metadata(older_than=timedelta(), force=True)
    assert (result.plan.cutoff.commit, result.earliest_version) == (9, 6)
    assert left(tmp_path)[0] == [6, 7, 8, 9]
    assert table.storage.head(f"_delta_log/{6:020}.checkpoint.parquet").size


def test_a_dry_run_deletes_nothing(tmp_path: Path) -> None:
    table = table_of(tmp_path, checkpoints=(6,))
    before = sorted(tmp_path.rglob("*"))
    dry = table.cleanup_metadata(dry_run=True)
    assert (dry.plan.num_files, dry.num_deleted, dry.hint_renewed) == (6 + 12, 0, False)
    assert dry.earliest_version == 6
    assert sorted(tmp_path.rglob("*")) == before
    assert table.cleanup_metadata().num_deleted == 6 + 12


def test_proposed_commits_of_a_former_owner_are_cleaned_up_too(tmp_path: Path) -> None:
    table = table_of(tmp_path, checkpoints=(6,))
    kept = {name: value for name, value in MANAGED.items() if "managedCommit" not in name}
    protocol = {
        "minReaderVersion": 1,
        "minWriterVersion": 7,
        "writerFeatures": ["inCommitTimestamp"],
    }
    info = {"commitInfo": {"inCommitTimestamp": epoch_ms(START + 10 * DAY)}}
    write_commit(tmp_path, 10, info, {"protocol": protocol}, metadata(configuration=kept))
    assert table.cleanup_metadata().plan.count("un-backfilled commits") == 12


def test_a_table_that_can_not_be_written_is_not_cleaned_up(tmp_path: Path) -> None:
    table = table_of(tmp_path, features=["inCommitTimestamp", "managedCommit", "novelty"])
    with pytest.raises(UnsupportedFeatureError, match="novelty"):
        table.cleanup_metadata()
    assert len(left(tmp_path)[0]) == 10


# What the newest version of a managed table says, which isn't backfilled


def with_ratified(table: DeltaTable, root: Path, *actions: Any) -> DeltaTable:
    """Version 10, as its owner knows it."""
    at = epoch_ms(START + 10 * DAY)
    name = f"{10:020}.{UUIDS[0]}.json"
    lines = [{"commitInfo": {"inCommitTimestamp": at, "timestamp": at}}, *actions]
    text = "".join(json.dumps(action) + "\n" for action in lines)
    (root / "_delta_log" / "_commits" / name).write_text(text)
    owner = ScriptedOwner([tracked(root, name)], 10)
    newer = DeltaTable(str(root), commit_owners={"owner-db": owner})
    assert newer.snapshot().version == 10
    return newer


def writer_features(*names: str) -> dict[str, Any]:
    features = ["inCommitTimestamp", "managedCommit", *names]
    return {"protocol": {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": features}}


def test_a_feature_that_only_the_owner_knows_of_forbids_the_cleanup(tmp_path: Path) -> None:
    table = with_ratified(
        table_of(tmp_path, checkpoints=(6,)), tmp_path, writer_features("novelty")
    )
    with pytest.raises(UnsupportedFeatureError, match="novelty"):
        table.cleanup_metadata()
    assert left(tmp_path)[0] == [*range(10)]


@pytest.mark.parametrize(
    ("properties", "reason"),
    [
        ({"delta.enableExpiredLogCleanup": "false"}, "delta.enableExpiredLogCleanup is false"),
        ({"delta.logRetentionDuration": "interval 9999 weeks"}, "all commits .* are newer than"),
    ],
)
def test_properties_that_only_the_owner_knows_of_count(
    tmp_path: Path, properties: dict[str, str], reason: str
) -> None:
    newer = metadata(configuration={**MANAGED, **properties})
    table = with_ratified(table_of(tmp_path, checkpoints=(6,)), tmp_path, newer)
    plan = table.cleanup_metadata().plan
    assert (plan.needed, plan.version) == (False, 9)
    assert re.search(reason, plan.reason or "")
    assert left(tmp_path)[0] == [*range(10)]


def test_a_retention_that_only_the_owner_knows_of_is_not_fallen_short_of(tmp_path: Path) -> None:
    newer = metadata(configuration={**MANAGED, "delta.logRetentionDuration": "interval 30 days"})
    table = with_ratified(table_of(tmp_path, checkpoints=(6,)), tmp_path, newer)
    with pytest.raises(RetentionError, match="30 days"):
        table.cleanup_metadata(older_than=3 * DAY)


def test_checkpoints_are_protected_as_soon_as_the_owner_says_so(tmp_path: Path) -> None:
    boundary = {"delta.requireCheckpointProtectionBeforeVersion": "10"}
    table = with_ratified(
        table_of(tmp_path, checkpoints=(3, 6)),
        tmp_path,
        writer_features("checkpointProtection"),
        metadata(configuration={**MANAGED, **boundary}),
    )
    result = table.cleanup_metadata()
    assert (result.earliest_version, result.plan.protected_versions) == (6, (3,))
    assert left(tmp_path)[0] == [6, 7, 8, 9]
    assert table.snapshot(3).num_files == 3


def test_what_is_not_backfilled_stays_however_old_it_is(tmp_path: Path) -> None:
    table = with_ratified(table_of(tmp_path, checkpoints=(6, 9)), tmp_path, add("f10"))
    result = table.cleanup_metadata(older_than=timedelta(), force=True)
    assert (result.plan.cutoff.commit, result.earliest_version) == (9, 9)
    assert left(tmp_path) == ([9], [10, 10, 11, 11])
    assert table.snapshot().version == 10


def test_without_an_answer_of_the_owner_nothing_is_deleted(tmp_path: Path) -> None:
    table_of(tmp_path, checkpoints=(6,))
    silent = ScriptedOwner(error=CommitOwnerUnavailableError("it is out"))
    for owners in ({}, {"owner-db": silent}):
        table = DeltaTable(str(tmp_path), commit_owners=owners)
        with pytest.raises(CommitOwnerUnavailableError, match=r"isn't known here|it is out"):
            table.cleanup_metadata()
    assert left(tmp_path)[0] == [*range(10)]


# Long ago


@pytest.mark.parametrize("interval", ["interval 800000 days", "interval 999999 weeks"])
def test_a_cut_off_before_our_calendar_is_none_that_a_commit_reaches(
    tmp_path: Path, interval: str
) -> None:
    table = table_of(tmp_path, checkpoints=(6,), **{"delta.logRetentionDuration": interval})
    plan = table.cleanup_metadata().plan
    assert not plan.needed
    assert "are newer than a time before the year 1, the cut-off" in (plan.reason or "")
    assert not table.cleanup_metadata(older_than=timedelta.max).plan.needed


def test_an_age_below_zero_is_refused(tmp_path: Path) -> None:
    table = table_of(tmp_path, checkpoints=(6,))
    with pytest.raises(
        InvalidArgumentError, match="older_than: expected a duration of at least zero"
    ):
        table.cleanup_metadata(older_than=timedelta(microseconds=-1), force=True)
    assert left(tmp_path)[0] == [*range(10)]


# Checkpoints that aren't what they promise


def without_bytes(path: str) -> Files:
    return {path: b""}


def cut_off(path: str) -> Files:
    return {path: classic_checkpoint(states(Log().history)[5], 5)[path][:-20]}


def without_metadata(path: str) -> Files:
    state = states(Log().history)[5]
    broken = classic_checkpoint(type(state)(state.files, protocol=state.protocol, metadata={
        **(state.metadata or {}), "id": None}), 5)  # fmt: skip
    return {path: broken[path]}


def of_another_version(path: str) -> Files:
    """Whole, but with the files of another version; only the checksum contradicts it."""
    found = states(Log().history)
    short = classic_checkpoint(found[3], 3)[f"_delta_log/{3:020}.checkpoint.parquet"]
    return {path: short, **checksum(found[5], 5)}


@pytest.mark.parametrize("damage", [cut_off, without_metadata, of_another_version])
@pytest.mark.parametrize(("checkpoints", "start"), [((3, 5, 7), 3), ((5, 7), None)])
def test_the_checkpoint_is_read_before_its_commits_are_deleted(
    damage: Callable[[str], Files], checkpoints: tuple[int, ...], start: int | None
) -> None:
    path = f"_delta_log/{5:020}.checkpoint.parquet"
    with made(Log(checkpoints)) as table:
        table.put(damage(path))
        plan = planned(table.delta())
        assert plan.checkpoint == start
        assert plan.wanted_checkpoint == CUTOFF
        assert re.search(rf"{path}.*can't be relied on", plan.reason or "")
        execute_metadata_cleanup(table.storage, plan)
        assert path in table.files()
        assert table.files().keys() >= {commit_file(v) for v in range(start or 0, LAST + 1)}


def test_a_checkpoint_without_bytes_is_none() -> None:
    with made(Log((3, 5))) as table:
        table.put(without_bytes(f"_delta_log/{5:020}.checkpoint.parquet"))
        plan = planned(table.delta())
        assert plan.checkpoint == 3
        assert [(kept.kind, kept.count) for kept in plan.keeps] == [
            ("commits", 2),
            ("checkpoints", 1),
        ]
        clean_up(table.delta())
        check_versions(table.delta, Log((3, 5)), plan, versions=range(LAST + 1))


def test_a_damaged_checksum_is_no_witness() -> None:
    with made(Log((5,))) as table:
        table.put({f"_delta_log/{5:020}.crc": b"{"})
        assert planned(table.delta()).checkpoint == 5


# Times


def test_the_times_of_versions_after_the_cut_off_stay() -> None:
    """Version 3 seems to be of the sixth day; so 4 to 6 come right after it, until 7 has its own time."""
    with made(Log((1, 4, 5))) as table:
        late = epoch_ms(START + 6 * DAY)
        table.storage.set_modified(commit_file(3), late)
        before = table.delta().snapshot().timeline
        times = [before.timestamp_ms(version) for version in range(LAST + 1)]
        assert times[3:7] == [late, late + 1, late + 2, late + 3]
        # The cut-off falls between 2 and 3; then, a day later, between 6 and 7.
        plan = planned(table.delta())
        assert (plan.cutoff.commit, plan.checkpoint) == (2, 1)
        # One that is between the times of 4 and 5, as only drop feature has it.
        cutoff = CleanupCutoff(late + 1, 4)
        plan = plan_metadata_cleanup(table.storage, open_backfilled(table.storage), cutoff=cutoff)
        assert plan.checkpoint == 1
        assert re.search(
            r"began at version 4, the versions after 4 would seem older", plan.reason or ""
        )
        execute_metadata_cleanup(table.storage, plan)
        after = table.delta().snapshot().timeline
        assert [after.timestamp_ms(version) for version in range(1, LAST + 1)] == times[1:]
        plan = planned(table.delta(), now=NOW + DAY)
        assert (plan.cutoff.commit, plan.checkpoint) == (6, 5)
        execute_metadata_cleanup(table.storage, plan)
        after = table.delta().snapshot().timeline
        assert [after.timestamp_ms(version) for version in range(7, LAST + 1)] == times[7:]


# The hint


@pytest.mark.parametrize("pointed_to", [0, 3, 5, 7])
def test_the_hint_never_points_to_a_deleted_checkpoint(pointed_to: int) -> None:
    with made(Log((0, 3, 5, 7))) as table:
        table.put(hint(pointed_to))
        result = clean_up(table.delta())
        assert result.hint_renewed == (pointed_to < CUTOFF)
        found = read_last_checkpoint(table.storage)
        assert found is not None
        assert found.version == (7 if pointed_to < CUTOFF else pointed_to)


def test_the_hint_has_the_number_of_parts() -> None:
    with made(Log((3, 5), form="parts")) as table:
        assert clean_up(table.delta()).hint_renewed
        found = read_last_checkpoint(table.storage)
        assert found is not None
        assert (found.version, found.parts) == (5, 2)


def test_a_log_without_a_hint_gets_none() -> None:
    with made(Log((3, 5))) as table:
        table.storage.delete(["_delta_log/_last_checkpoint"])
        assert not clean_up(table.delta()).hint_renewed
        assert "_delta_log/_last_checkpoint" not in table.files()


def test_if_the_hint_cannot_be_written_nothing_is_deleted() -> None:
    with made(Log((3, 5))) as table:
        plan, before = planned(table.delta()), table.files()
        broken = FaultyStorage(table.storage, Fault("replace", how=How.FAIL))
        with pytest.raises(StorageError, match="the connection broke"):
            execute_metadata_cleanup(broken, plan)
        assert table.files() == before


# The plan and the world


def test_if_the_checkpoint_is_gone_nothing_is_deleted() -> None:
    with made(Log((3, 5))) as table:
        plan = planned(table.delta())
        table.storage.delete([f"_delta_log/{5:020}.checkpoint.parquet"])
        before = table.files()
        with pytest.raises(ObjectNotFoundError, match=r"version 5, .*plan the cleanup again") as e:
            execute_metadata_cleanup(table.storage, plan)
        assert e.value.version == 5
        assert table.files() == before


def test_if_the_checkpoint_was_replaced_nothing_is_deleted() -> None:
    """It may be damaged, for nobody has read it."""
    path = f"_delta_log/{5:020}.checkpoint.parquet"
    with made(Log((3, 5))) as table:
        plan, content = planned(table.delta()), table.files()[path]
        table.put({path: content[:-20]})
        before = table.files()
        with pytest.raises(ObjectNotFoundError, match=r"was replaced .*plan the cleanup again"):
            execute_metadata_cleanup(table.storage, plan)
        assert table.files() == before


def test_a_second_checkpoint_of_its_version_does_no_harm() -> None:
    with made(Log((3, 5))) as table:
        plan = planned(table.delta())
        table.put(v2_checkpoint(states(Log().history)[5], 5, form="json", sidecars=1))
        assert execute_metadata_cleanup(table.storage, plan).num_deleted == plan.num_files


def test_a_plan_lists_what_stays_with_the_reason() -> None:
    with made(Log((2, 3), "v2 json", extras=True)) as table:
        plan = planned(table.delta())
        assert [(kept.kind, kept.count) for kept in plan.keeps] == [
            ("commits", 2),
            ("checkpoints", 2),
            ("sidecars", 2),
        ]
        assert (
            "version 5 is rebuilt from them and the checkpoint of version 3" in plan.keeps[0].reason
        )
        assert [group.kind for group in plan.deletes] == [
            "commits",
            "checksums",
            "compactions",
            "checkpoints",
            "un-backfilled commits",
            "sidecars",
            "Hadoop checksums",
        ]


def test_a_long_log_takes_few_requests_and_is_deleted_in_batches_commits_first() -> None:
    count, day = 2500, epoch_ms(START)
    with MemoryTable({}) as table:
        history = Log((), protected=None).history
        first = {commit_file(0): b"".join(json.dumps(a).encode() + b"\n" for a in history[0])}
        rest = {commit_file(v): b'{"commitInfo":{}}\n' for v in range(1, count)}
        crcs = {f"_delta_log/{v:020}.crc": b"{}" for v in range(count)}
        table.put({**first, **rest, **classic_checkpoint(states(history)[0], 0)})
        assert table.delta().checkpoint(2400).written
        table.put(crcs)
        for path in table.files():
            table.storage.set_modified(path, day)
        for version in range(count):
            table.storage.set_modified(commit_file(version), day + version)
        storage = FaultyStorage(table.storage)
        now_ms = epoch_ms(START + 30 * DAY)
        snapshot = open_backfilled(storage)
        storage.calls.clear()
        plan = plan_metadata_cleanup(storage, snapshot, now_ms=now_ms)
        assert plan.checkpoint == 2400
        assert {call.operation for call in storage.calls} == {"list", "open", "head", "read"}
        # The log twice, and its directories once; what is read is the checkpoint, and its checksum.
        assert storage.count("list") == 6
        assert storage.count("read") == 1
        before = len(storage.calls)
        assert execute_metadata_cleanup(storage, plan).num_deleted == plan.num_files == 4801
        deletes = [c.path.split(",") for c in storage.calls[before:] if c.operation == "delete"]
        assert [len(paths) for paths in deletes] == [1000, 1000, 400] * 2 + [1]
        flat = [path for paths in deletes for path in paths]
        assert flat[:2400] == [commit_file(version) for version in range(2400)]
        assert flat[-1] == f"_delta_log/{0:020}.checkpoint.parquet"

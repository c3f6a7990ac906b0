"""Which checkpoint is planned: of which kind, under which name, from what, and when none is due."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import deltalake
import pytest

from airflow_delta.engine.checkpoint.read import open_checkpoint
from airflow_delta.engine.errors import (
    DeltaWarning,
    InvalidArgumentError,
    StorageError,
    UnsupportedFeatureError,
)
from airflow_delta.engine.log.files import (
    ClassicCheckpoint,
    V2Checkpoint,
    checkpoint_path,
    v2_checkpoint_path,
)
from airflow_delta.engine.log.last_checkpoint import LastCheckpointHint, read_last_checkpoint
from airflow_delta.engine.log.listing import Listing, list_log
from airflow_delta.engine.maintenance.checkpoint import base as checkpoint_base
from airflow_delta.engine.maintenance.checkpoint import execution as checkpointing
from airflow_delta.engine.maintenance.checkpoint import hint as checkpoint_hint
from airflow_delta.engine.maintenance.checkpoint.execution import (
    CheckpointResult,
    execute_checkpoint,
)
from airflow_delta.engine.maintenance.checkpoint.plan import (
    CheckpointPlan,
    needs_classic_name,
    plan_checkpoint,
)
from tests.faulty_storage import Fault, FaultyStorage, How
from tests.laws.histories import protocol
from tests.log_builder import PROTOCOL, add, metadata
from tests.table_builder import (
    Action,
    Files,
    MemoryTable,
    classic_checkpoint,
    commit_file,
    hint,
    lines,
    multipart_checkpoint,
    state_of,
    states,
    v2_checkpoint,
)

UUID = "80a083e8-7026-4e79-81be-64bd76c43a11"
DAY_MS = 86_400_000


@pytest.fixture
def table() -> Iterator[MemoryTable]:
    with MemoryTable({}) as table:
        yield table


def history(
    versions: int, *, feature: bool = True, policy: str | None = "v2", interval: int = 2
) -> list[list[Action]]:
    configuration = {"delta.checkpointInterval": str(interval)}
    if policy:
        configuration["delta.checkpointPolicy"] = policy
    first = [
        protocol({"v2Checkpoint"}) if feature else PROTOCOL,
        metadata(configuration=configuration),
        add("first"),
    ]
    return [first, *([add(f"f{version}")] for version in range(1, versions))]


def put(table: MemoryTable, commits: list[list[Action]], start: int = 0) -> None:
    table.put({commit_file(v): lines(c) for v, c in enumerate(commits) if v >= start})


def planned(table: MemoryTable, version: int | None = None, **options: Any) -> CheckpointPlan:
    return plan_checkpoint(table.delta().snapshot(version=version), **options)


def written(table: MemoryTable, version: int | None = None, **options: Any) -> CheckpointResult:
    delta = table.delta()
    snapshot = delta.snapshot(version=version)
    return execute_checkpoint(delta.storage, snapshot, plan_checkpoint(snapshot, **options))


@pytest.mark.parametrize(
    ("feature", "set_to", "policy", "kind"),
    [
        (False, None, None, "classic"),
        (False, "v2", None, "classic"),  # the property needs what the protocol doesn't allow
        (False, "v2", "classic", "classic"),
        (True, None, None, "classic"),
        (True, "classic", None, "classic"),
        (True, "v2", None, "v2"),
        (True, "v2", "classic", "classic"),
        (True, "classic", "v2", "v2"),
    ],
)
def test_the_kind_follows_property_feature_and_argument(
    table: MemoryTable, feature: bool, set_to: str | None, policy: Any, kind: str
) -> None:
    put(table, history(1, feature=feature, policy=set_to))
    assert planned(table, policy=policy).kind == kind
    result = written(table, policy=policy)
    assert result.kind == kind
    (checkpoint,) = list_log(table.storage).checkpoints
    found = open_checkpoint(table.storage, checkpoint, table=table.uri).metadata
    assert (found is not None) == (kind == "v2")


def test_v2_without_the_feature_is_refused(table: MemoryTable) -> None:
    put(table, history(1, feature=False))
    with pytest.raises(UnsupportedFeatureError, match=r"'v2Checkpoint'.*version 0 lacks"):
        planned(table, policy="v2")


def test_an_unknown_policy_is_refused(table: MemoryTable) -> None:
    put(table, history(1))
    with pytest.raises(InvalidArgumentError, match="'V2': expected 'classic' or 'v2'"):
        planned(table, policy="V2")


def test_if_needed_waits_for_the_interval(table: MemoryTable) -> None:
    commits = history(6, interval=3)
    put(table, commits[:2])
    plan = planned(table, if_needed=True)
    assert not plan.needed
    assert plan.reason.startswith(
        "2 commits have been made since the last checkpoint, and one is due after 3"
    )
    assert planned(table).needed
    assert not written(table, if_needed=True).written
    put(table, commits[:3])
    assert written(table, if_needed=True).written
    put(table, commits[:5])
    plan = planned(table, if_needed=True)
    assert (plan.needed, plan.commits_since) == (False, 2)
    put(table, commits)
    assert written(table, if_needed=True).written


def test_if_needed_costs_no_reading_of_a_checkpoint_that_is_there(table: MemoryTable) -> None:
    put(table, history(1))
    written(table)
    for path in [p for p in table.files() if "_sidecars" in p]:
        table.put({path: b"unreadable"})
    plan = planned(table, if_needed=True)
    assert (plan.needed, plan.commits_since) == (False, 0)


@pytest.mark.parametrize("policy", ["classic", "v2"])
def test_a_checkpoint_that_is_there_is_kept(table: MemoryTable, policy: Any) -> None:
    put(table, history(1))
    first = written(table, policy=policy)
    before = table.files()
    for requested in ("classic", "v2"):
        again = written(table, policy=requested)
        assert (again.written, again.kind, again.path) == (False, policy, first.path)
        reason = "version 0 already has a complete checkpoint"
        if requested != policy:
            reason += (
                f", of kind {policy} instead of {requested}: both have the same content, and one is enough "
                f"for all readers that can read the table; choose a later version for {requested}"
            )
        assert again.plan.reason == reason
    assert table.files() == before


def test_the_classic_name_comes_again_after_ten_intervals(table: MemoryTable) -> None:
    commits = history(30, interval=2)
    classic = []
    for version in range(30):
        put(table, commits[: version + 1], start=version)
        path = written(table).path
        if path == checkpoint_path(version):
            classic.append(version)
        else:
            assert path.startswith(f"_delta_log/{version:020}.checkpoint.")
            assert path.endswith(".json")
    assert classic == [0, 20]
    assert state_of(table.delta().snapshot()) == states(commits)[-1].visible()


@pytest.mark.parametrize(
    ("name", "version", "age_days", "needed"),
    [
        ("classic", 81, 1, False),
        ("classic", 80, 1, True),  # too far to go
        ("classic", 99, 15, False),
        ("classic", 99, 16, True),  # cleanup may take it before there is another one
        ("classic", 101, 1, True),  # of a later version, which serves who reads that
        ("uuid", 99, 1, True),
    ],
)
def test_when_the_classic_name_is_needed(
    name: str, version: int, age_days: int, needed: bool
) -> None:
    now = 1_700_000_000_000
    modified = now - age_days * DAY_MS
    checkpoint = (
        ClassicCheckpoint(version, checkpoint_path(version), 1, modified)
        if name == "classic"
        else V2Checkpoint(
            version, UUID, "json", v2_checkpoint_path(version, UUID, "json"), 1, modified
        )
    )
    found = needs_classic_name(
        Listing((), (checkpoint,), (), ()),
        version=100,
        interval=2,
        retention_ms=30 * DAY_MS,
        now_ms=now,
    )
    assert found == needed


def test_an_incremental_checkpoint_needs_a_base_with_sidecars(table: MemoryTable) -> None:
    commits = history(4)
    put(table, commits[:1])
    assert not planned(table).incremental
    written(table, policy="classic")
    put(table, commits[:2])
    assert not planned(table).incremental
    written(table)
    put(table, commits[:3])
    assert planned(table).incremental
    assert not planned(table, policy="classic").incremental  # nothing of it is in one file
    without_sidecars = v2_checkpoint(states(commits)[2], 2, form="json", sidecars=0)
    put(table, commits)
    table.put(without_sidecars)
    assert not planned(table).incremental


def test_a_classic_checkpoint_is_made_from_one_in_a_file(
    table: MemoryTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    commits = history(2, policy=None)
    put(table, commits[:1])
    assert not planned(table).incremental
    written(table)
    put(table, commits)
    assert planned(table).incremental
    size = table.storage.head(commit_file(1)).size
    monkeypatch.setattr(checkpoint_base, "_COMMITS_BYTES", size - 1)
    assert not planned(table).incremental


def test_planning_outlives_a_base_that_vanishes(table: MemoryTable) -> None:
    """A cleanup takes it after the table was opened."""
    put(table, history(3))
    written(table, 0)
    written(table, 1)
    snapshot = table.delta().snapshot()
    base = snapshot.segment.checkpoint
    assert base is not None
    assert base.version == 1
    snapshot.state.segment = replace(snapshot.segment, checkpoint_actions=None)
    table.storage.delete([base.path])
    assert plan_checkpoint(snapshot).incremental
    assert snapshot.segment.checkpoint is not None
    assert snapshot.segment.checkpoint.version == 0


def test_a_checkpoint_that_vanishes_is_due_again(table: MemoryTable) -> None:
    put(table, history(3))
    written(table, 0)
    written(table, 2)
    snapshot = table.delta().snapshot()
    base = snapshot.segment.checkpoint
    assert base is not None
    assert base.version == 2
    snapshot.state.segment = replace(snapshot.segment, checkpoint_actions=None)
    table.storage.delete([base.path])
    plan = plan_checkpoint(snapshot, if_needed=True)
    assert (plan.needed, plan.commits_since) == (True, 2)


@pytest.mark.parametrize("form", ["json", "parquet"])
def test_a_new_top_level_is_of_the_form_of_the_newest_one(table: MemoryTable, form: str) -> None:
    commits = history(4)
    put(table, commits)
    table.put(classic_checkpoint(states(commits)[0], 0))
    table.put(v2_checkpoint(states(commits)[1], 1, form=form, sidecars=2))
    table.put(classic_checkpoint(states(commits)[2], 2))
    result = written(table)
    assert result.path.endswith(f".{form}")
    assert result.path != checkpoint_path(3)
    assert state_of(table.delta().snapshot()) == states(commits)[3].visible()


def test_a_checkpoint_that_another_writer_has_finished_is_not_written_over(
    table: MemoryTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the hint of the one may be to sidecars that the other's checkpoint doesn't name."""
    put(table, history(2))
    written(table, 0)
    first, second = table.delta(), table.delta()
    opened = second.snapshot()
    late: list[LastCheckpointHint] = []
    with monkeypatch.context() as patch:
        patch.setattr(checkpointing, "write_hint", lambda _, hint: late.append(hint))
        one = first.checkpoint()
    plan = plan_checkpoint(opened)
    assert plan.path != one.path
    other = execute_checkpoint(second.storage, opened, plan)
    for written_hint in late:
        checkpoint_hint.write_hint(table.storage, written_hint)
    assert one.written
    assert other.written
    check_hint(table)


def check_hint(table: MemoryTable) -> None:
    """What the hint repeats of a top level is what that says itself."""
    hint = read_last_checkpoint(table.storage)
    assert hint is not None
    listed = list_log(table.storage).checkpoints
    assert hint.version in {found.version for found in listed}
    if hint.v2_checkpoint is None:
        return
    (found,) = [found for found in listed if found.path.endswith(hint.v2_checkpoint["path"])]
    named = open_checkpoint(table.storage, found, table=table.uri).sidecars
    sidecars = hint.v2_checkpoint.get("sidecarFiles")
    assert sidecars is None or sidecars == [sidecar.to_json() for sidecar in named]


def test_two_who_write_a_damaged_checkpoint_anew(
    table: MemoryTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    commits = history(2)
    put(table, commits)
    table.put(classic_checkpoint(states(commits)[0], 0))
    damaged = v2_checkpoint(states(commits)[1], 1, form="json", sidecars=2)
    table.put(damaged)
    table.storage.delete([path for path in damaged if "_sidecars" in path][:1])
    late: list[LastCheckpointHint] = []
    opened = [table.delta().snapshot() for _ in range(2)]
    with pytest.warns(DeltaWarning, match="is missing"):
        plans = [plan_checkpoint(snapshot) for snapshot in opened]
    assert {plan.path for plan in plans} <= damaged.keys()
    with monkeypatch.context() as patch:
        patch.setattr(checkpointing, "write_hint", lambda _, hint: late.append(hint))
        for snapshot, plan in zip(opened, plans, strict=True):
            execute_checkpoint(snapshot.storage, snapshot, plan)
    for written_hint in reversed(late):
        checkpoint_hint.write_hint(table.storage, written_hint)
        check_hint(table)
    assert state_of(table.delta().snapshot()) == states(commits)[1].visible()


def test_only_the_newest_checkpoint_is_a_base(table: MemoryTable) -> None:
    """Another one may be cleaned up meanwhile, and its sidecars with it."""
    put(table, history(4))
    written(table, 0)
    assert planned(table, 2).incremental
    written(table, 3)
    assert not planned(table, 2).incremental
    assert written(table, 2).written
    assert table.delta().snapshot(version=2).num_files == 3


@pytest.mark.parametrize("form", ["json", "parquet"])
@pytest.mark.parametrize("policy", ["classic", "v2"])
def test_a_damaged_checkpoint_with_a_uuid_is_written_anew_under_its_name(
    table: MemoryTable, form: str, policy: Any
) -> None:
    """Readers prefer it to one of the classic name, so another one beside it wouldn't help."""
    commits = history(3)
    put(table, commits)
    table.put(classic_checkpoint(states(commits)[0], 0))
    damaged = v2_checkpoint(states(commits)[2], 2, form=form, sidecars=2)
    table.put(damaged)
    sidecar = next(path for path in damaged if "_sidecars" in path)
    table.storage.delete([sidecar])
    with pytest.warns(DeltaWarning, match=sidecar):
        result = written(table, policy=policy)
    (top,) = set(damaged) - {path for path in damaged if "_sidecars" in path}
    assert (result.written, result.kind, result.path) == (True, "v2", top)
    assert result.plan.reason == f"the checkpoint {top} is damaged"
    assert state_of(table.delta().snapshot()) == states(commits)[2].visible()
    assert not written(table).written


@pytest.mark.parametrize("form", ["json", "parquet"])
@pytest.mark.parametrize("policy", ["classic", "v2"])
def test_a_top_level_that_is_damaged_is_written_anew_too(
    table: MemoryTable, form: str, policy: Any
) -> None:
    """That is found out when the table is opened, before anything is planned."""
    commits = history(3)
    put(table, commits)
    damaged = v2_checkpoint(states(commits)[2], 2, form=form, sidecars=2)
    (top,) = (path for path in damaged if "_sidecars" not in path)
    table.put(damaged)
    table.put({top: damaged[top][: len(damaged[top]) // 2]})
    with pytest.warns(DeltaWarning, match=top):
        result = written(table, policy=policy)
    assert (result.written, result.kind, result.path) == (True, "v2", top)
    assert result.plan.reason == f"the checkpoint {top} is damaged"
    assert state_of(table.delta().snapshot()) == states(commits)[2].visible()
    assert not written(table).written


def cut(table: MemoryTable, files: Files) -> list[str]:
    """Put a checkpoint whose last file is only half there."""
    last = max(files)
    table.put({**files, last: files[last][: len(files[last]) // 2]})
    return sorted(files)


@pytest.mark.parametrize("policy", ["classic", "v2"])
def test_parts_that_are_damaged_are_deleted_when_there_is_something_whole(
    table: MemoryTable, tmp_path: Path, policy: Any
) -> None:
    """Many readers prefer them to one file, and fail."""
    commits = history(3)
    put(table, commits)
    parts = cut(table, multipart_checkpoint(states(commits)[2], 2, parts=2))
    table.put(hint(2, parts=2))
    before = table.files()
    with pytest.warns(DeltaWarning, match=parts[0]):
        dry = table.delta().checkpoint(policy=policy, dry_run=True)
    assert table.files() == before
    assert dry.plan.deletes == tuple(parts)
    assert dry.plan.reason == (
        f"the checkpoint {parts[0]} is damaged; once a new one is written, {parts[0]}, {parts[1]} "
        "will be deleted as damaged"
    )
    with pytest.warns(DeltaWarning, match=parts[0]):
        assert written(table, policy=policy).written
    assert not table.files().keys() & set(parts)
    assert state_of(table.delta().snapshot()) == states(commits)[2].visible()
    assert not written(table).written
    check_hint(table)
    for path, content in table.files().items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(content)
    assert len(deltalake.DeltaTable(tmp_path).file_uris()) == 3


def test_other_parts_than_the_damaged_stay(table: MemoryTable) -> None:
    commits = history(3)
    put(table, commits)
    whole = multipart_checkpoint(states(commits)[2], 2, parts=2)
    table.put(whole)
    older = multipart_checkpoint(states(commits)[1], 1, parts=3)
    table.put(older)
    damaged = cut(table, multipart_checkpoint(states(commits)[2], 2, parts=3))
    with pytest.warns(DeltaWarning, match=damaged[0]):
        result = written(table, policy="classic")
    assert (result.written, result.path) == (True, checkpoint_path(2))
    assert not table.files().keys() & set(damaged)
    assert {**whole, **older}.items() <= table.files().items()


def test_nothing_is_deleted_where_nothing_was_written(table: MemoryTable) -> None:
    commits = history(3)
    put(table, commits)
    cut(table, multipart_checkpoint(states(commits)[2], 2, parts=2))
    before = table.files()
    delta = table.delta()
    delta.__dict__["storage"] = FaultyStorage(table.storage, Fault("writer", 0, How.FAIL))
    with pytest.warns(DeltaWarning), pytest.raises(StorageError):
        delta.checkpoint(policy="classic")
    assert table.files() == before


def test_a_store_that_does_not_delete_is_a_warning(table: MemoryTable) -> None:
    commits = history(3)
    put(table, commits)
    parts = cut(table, multipart_checkpoint(states(commits)[2], 2, parts=2))
    delta = table.delta()
    delta.__dict__["storage"] = FaultyStorage(table.storage, Fault("delete", 0, How.FAIL))
    with (
        pytest.warns(DeltaWarning, match="can't be used"),
        pytest.warns(DeltaWarning, match=rf"{parts[1]} can't be deleted .* Delete them"),
    ):
        assert delta.checkpoint(policy="classic").written
    assert set(parts) <= table.files().keys()
    whole = table.storage.read(checkpoint_path(2))
    with pytest.warns(DeltaWarning, match=parts[0]):
        # What was written is whole, and made again it is the same; only the deleting is made up for.
        written(table, policy="classic")
    assert table.storage.read(checkpoint_path(2)) == whole
    assert not table.files().keys() & set(parts)


def test_a_damaged_v2_checkpoint_without_the_feature_gives_way_to_a_classic_one(
    table: MemoryTable,
) -> None:
    """The feature may have been dropped. Without it the V2 spec must not be used."""
    commits = history(3, feature=False)
    put(table, commits)
    paths = v2_checkpoint(states(commits)[2], 2, form="json", sidecars=2)
    (top,) = (path for path in paths if "_sidecars" not in path)
    table.put({**paths, top: paths[top][:100]})
    with pytest.warns(DeltaWarning, match=top):
        result = written(table)
    assert (result.written, result.kind, result.path) == (True, "classic", checkpoint_path(2))
    assert result.plan.deletes == (top,)
    assert top not in table.files()
    (checkpoint,) = list_log(table.storage).checkpoints
    assert open_checkpoint(table.storage, checkpoint, table=table.uri).metadata is None
    assert not written(table).written

"""Which checkpoint is planned: of which kind, under which name, from what, and when none is due."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from airflow_delta.engine.checkpoint.read import open_checkpoint
from airflow_delta.engine.errors import (
    DeltaWarning,
    InvalidArgumentError,
    UnsupportedFeatureError,
)
from airflow_delta.engine.log.files import (
    ClassicCheckpoint,
    V2Checkpoint,
    checkpoint_path,
    v2_checkpoint_path,
)
from airflow_delta.engine.log.listing import Listing, list_log
from airflow_delta.engine.maintenance.checkpoint_plan import (
    CheckpointPlan,
    needs_classic_name,
    plan_checkpoint,
)
from airflow_delta.engine.maintenance.checkpointing import CheckpointResult, execute_checkpoint
from tests.laws.histories import protocol
from tests.log_builder import PROTOCOL, add, metadata
from tests.table_builder import (
    Action,
    MemoryTable,
    classic_checkpoint,
    commit_file,
    lines,
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
    ("feature", "set_to", "asked", "kind"),
    [
        (False, None, None, "classic"),
        (False, "v2", None, "classic"),  # the property asks for what the protocol doesn't allow
        (False, "v2", "classic", "classic"),
        (True, None, None, "classic"),
        (True, "classic", None, "classic"),
        (True, "v2", None, "v2"),
        (True, "v2", "classic", "classic"),
        (True, "classic", "v2", "v2"),
    ],
)
def test_the_kind_follows_property_feature_and_argument(
    table: MemoryTable, feature: bool, set_to: str | None, asked: Any, kind: str
) -> None:
    put(table, history(1, feature=feature, policy=set_to))
    assert planned(table, policy=asked).kind == kind
    result = written(table, policy=asked)
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
        "2 commits have come since the last checkpoint, and one is due after 3"
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
    for asked in ("classic", "v2"):
        again = written(table, policy=asked)
        assert (again.written, again.kind, again.path) == (False, policy, first.path)
        assert again.plan.reason == "version 0 has a whole checkpoint already"
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
    assert not planned(table, policy="classic").incremental
    without_sidecars = v2_checkpoint(states(commits)[2], 2, form="json", sidecars=0)
    put(table, commits)
    table.put(without_sidecars)
    assert not planned(table).incremental


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

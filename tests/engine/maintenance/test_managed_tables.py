"""Checkpoints and compactions of tables with a commit owner: of what is backfilled, and of nothing else.

The log is that of the example in the RFC managed-commits, "Reading managed-commit tables": versions 0 to 7
are backfilled, and for 8, 9 and 10 there are proposals.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from airflow_delta.engine import Snapshot
from airflow_delta.engine.errors import (
    CommitOwnerError,
    NotBackfilledError,
    VersionNotFoundError,
)
from airflow_delta.engine.features import protocol as protocol_rules
from airflow_delta.engine.features.feature import Support
from airflow_delta.engine.features.registry import FEATURES
from airflow_delta.engine.log.files import UnbackfilledCommit
from airflow_delta.engine.log.segment import load_segment
from airflow_delta.engine.maintenance.backfill.backfilled import open_backfilled
from airflow_delta.engine.maintenance.checkpoint.execution import (
    CheckpointResult,
    execute_checkpoint,
    plan_checkpoint,
)
from airflow_delta.engine.maintenance.checkpoint.log_size import measure_log
from airflow_delta.engine.maintenance.log_compaction.plan import plan_log_compaction
from tests.laws.histories import protocol
from tests.log_builder import add, metadata
from tests.table_builder import (
    Action,
    MemoryTable,
    classic_checkpoint,
    commit_file,
    commits,
    lines,
    state_of,
    states,
)

PROPOSED = (
    "00000000000000000006.3a0d65cd-4056-49b8-937b-95f9e3ee90e5.json",
    "00000000000000000007.016ae953-37a9-438e-8683-9a9a4a79a395.json",
    "00000000000000000008.7d17ac10-5cc3-401b-bd1a-9c82dd2ea032.json",
    "00000000000000000008.b91807ba-fe18-488c-a15e-c4807dbd2174.json",
    "00000000000000000009.41bf693a-f5b9-4478-9434-af7475d5a9f0.json",
    "00000000000000000010.0f707846-cd18-4e01-b40e-84ee0ae987b0.json",
    "00000000000000000010.7a980438-cb67-4b89-82d2-86f73239b6d6.json",
)
BACKFILLED = 7
OWNED = {"delta.managedCommit.commitOwner": "owner-1"}
TIMESTAMPS = {"delta.enableInCommitTimestamps": "true"}


def commit(version: int, *actions: Action) -> list[Action]:
    info: Action = {"commitInfo": {"inCommitTimestamp": 1_700_000_000_000 + version}}
    return [info, *actions, add(f"f{version}")]


HISTORY = [
    commit(
        0,
        protocol({"v2Checkpoint", "inCommitTimestamp", "managedCommit"}),
        metadata(configuration={**TIMESTAMPS, **OWNED}),
    ),
    *(commit(version) for version in range(1, BACKFILLED + 1)),
]
STATES = states(HISTORY)

pytestmark = pytest.mark.filterwarnings("ignore:.*may be stale")


@pytest.fixture(autouse=True)
def allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Checkpoints of managed tables are allowed, whatever the registry says of them."""
    row = replace(FEATURES["managedCommit"], checkpoint=Support.YES)
    monkeypatch.setattr(protocol_rules, "FEATURES", {**FEATURES, "managedCommit": row})


@pytest.fixture
def table() -> Iterator[MemoryTable]:
    example = {
        **commits(HISTORY),
        **classic_checkpoint(STATES[2], 2),
        f"_delta_log/{3:020}.{5:020}.compacted.json": lines(add(f"f{v}") for v in (3, 4, 5)),
        **{
            f"_delta_log/_commits/{name}": lines(commit(int(name[:20]), add("proposed")))
            for name in PROPOSED
        },
    }
    with MemoryTable(example) as table:
        yield table


def checkpoint(table: MemoryTable, version: int | None = None, **rest: Any) -> CheckpointResult:
    snapshot = open_backfilled(table.storage, version)
    return execute_checkpoint(table.storage, snapshot, plan_checkpoint(snapshot, **rest))


def compact(table: MemoryTable, version: int) -> object:
    return table.delta().compact_log(3, version)


@pytest.mark.parametrize("policy", ["classic", "v2"])
@pytest.mark.parametrize("version", [None, *range(3, BACKFILLED + 1)])
def test_each_backfilled_version_can_have_a_checkpoint(
    table: MemoryTable, version: int | None, policy: str
) -> None:
    result = checkpoint(table, version, policy=policy)
    assert (result.written, result.version) == (True, BACKFILLED if version is None else version)
    assert result.num_files == result.version + 1
    # It serves by itself.
    table.storage.delete([commit_file(older) for older in range(result.version)])
    snapshot = table.delta().snapshot(result.version)
    assert state_of(snapshot) == STATES[result.version].visible()


def test_backfilled_versions_can_be_compacted(table: MemoryTable) -> None:
    result = table.delta().compact_log(3, BACKFILLED)
    assert (result.written, result.num_actions) == (True, BACKFILLED - 2)
    assert state_of(table.delta().snapshot()) == STATES[BACKFILLED].visible()
    newest = plan_log_compaction(table.storage, start=3)
    assert (newest.end, newest.reason) == (BACKFILLED, f"{result.plan.path} exists already")


def measure(table: MemoryTable, version: int) -> int:
    """The measure that decides whether Spark writes a checkpoint."""
    return measure_log(table.storage, version=version)


@pytest.mark.parametrize("version", [8, 9, 10])
@pytest.mark.parametrize("work", [checkpoint, compact, measure])
def test_what_is_not_backfilled_is_refused(
    table: MemoryTable, version: int, work: Callable[[MemoryTable, int], object]
) -> None:
    before = table.files()
    with pytest.raises(
        NotBackfilledError,
        match=rf"up to version {version} yet.*'owner-1'.*_commits/0+{version}\..*"
        r"newest backfilled version is 7\. Set backfill_first=True",
    ) as caught:
        work(table, version)
    error = caught.value
    assert isinstance(error, CommitOwnerError)
    assert (error.table, error.owner) == (table.uri, "owner-1")
    assert (error.version, error.latest_backfilled) == (version, BACKFILLED)
    assert error.path in before
    assert pickle.loads(pickle.dumps(error)).facts == error.facts
    assert table.files() == before


@pytest.mark.parametrize("work", [checkpoint, compact])
def test_after_a_backfill_the_same_call_succeeds(
    table: MemoryTable, work: Callable[[MemoryTable, int], Any]
) -> None:
    with pytest.raises(NotBackfilledError, match="version 8"):
        work(table, 8)
    ratified = next(name for name in PROPOSED if name.startswith(f"{8:020}"))
    table.put({commit_file(8): table.storage.read(f"_delta_log/_commits/{ratified}")})
    assert work(table, 8).written


@pytest.mark.parametrize("work", [checkpoint, compact, measure])
def test_a_version_that_nobody_has_proposed_does_not_exist(
    table: MemoryTable, work: Callable[[MemoryTable, int], object]
) -> None:
    with pytest.raises(VersionNotFoundError, match="version 11"):
        work(table, 11)
    # Not a commit by its name.
    table.put({f"_delta_log/_commits/{11:020}.json": b"{}\n"})
    with pytest.raises(VersionNotFoundError, match="version 11"):
        work(table, 11)


@pytest.mark.parametrize("work", [checkpoint, compact])
def test_a_version_that_cleanup_has_deleted_is_not_reported_as_unbackfilled(
    table: MemoryTable, work: Callable[[MemoryTable, int], object]
) -> None:
    checkpoint(table)
    table.storage.delete([commit_file(older) for older in range(BACKFILLED)])
    table.storage.delete([f"_delta_log/{2:020}.checkpoint.parquet"])
    with pytest.raises(VersionNotFoundError, match="version 6"):
        work(table, 6)


@pytest.mark.parametrize("work", [checkpoint, compact])
def test_proposals_do_not_matter_if_the_file_system_manages_the_table(
    table: MemoryTable, work: Callable[[MemoryTable, int], Any]
) -> None:
    released = commit(
        8, protocol({"v2Checkpoint", "inCommitTimestamp"}), metadata(configuration=TIMESTAMPS)
    )
    table.put({commit_file(8): lines(released)})
    with pytest.raises(VersionNotFoundError, match="version 9"):
        work(table, 9)
    assert work(table, 8).written


@pytest.mark.parametrize("if_needed", [False, True])
def test_a_snapshot_that_knows_more_than_the_directory_gets_no_checkpoint(
    table: MemoryTable, if_needed: bool
) -> None:
    """Of a version that the commit owner has reported."""
    ratified = [
        UnbackfilledCommit(int(name[:20]), name[21:57], info.path, info.size, info.modified_ms)
        for name in PROPOSED
        if name.startswith((f"{8:020}.7d", f"{9:020}"))
        for info in [table.storage.head(f"_delta_log/_commits/{name}")]
    ]
    snapshot = Snapshot(table.storage, load_segment(table.storage).extended(ratified))
    assert snapshot.version == 9
    with pytest.raises(NotBackfilledError, match="up to version 9 yet") as caught:
        plan_checkpoint(snapshot, if_needed=if_needed)
    assert caught.value.latest_backfilled == BACKFILLED

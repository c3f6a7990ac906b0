"""Reading managed tables: the example of the RFC managed-commits, and races with backfills."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.changes.plan import plan_changes
from airflow_delta.engine.commit.registry import CommitOwners
from airflow_delta.engine.errors import (
    CommitOwnerError,
    CommitOwnerUnavailableError,
    CorruptLogError,
    DeltaWarning,
    InvalidTableError,
    VersionNotFoundError,
)
from airflow_delta.engine.snapshot.new_commits import is_newest
from tests.log_builder import add, commit_path, metadata, write_commit
from tests.scripted_owner import ScriptedOwner, tracked

OWNER = "commit-owner-1"
FEATURES = ["inCommitTimestamp", "managedCommit"]
PROTOCOL = {"protocol": {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": FEATURES}}
OWNER_CONF = "delta.managedCommit.commitOwnerConf"
CONFIGURATION = {
    "delta.managedCommit.commitOwner": OWNER,
    OWNER_CONF: '{"tableId": "t-1"}',
    "delta.enableInCommitTimestamps": "true",
}

# The files and the owner's map of RFC managed-commits, "Reading managed-commit tables".
PROPOSED = [
    "00000000000000000006.3a0d65cd-4056-49b8-937b-95f9e3ee90e5.json",
    "00000000000000000007.016ae953-37a9-438e-8683-9a9a4a79a395.json",
    "00000000000000000008.7d17ac10-5cc3-401b-bd1a-9c82dd2ea032.json",
    "00000000000000000008.b91807ba-fe18-488c-a15e-c4807dbd2174.json",
    "00000000000000000009.41bf693a-f5b9-4478-9434-af7475d5a9f0.json",
    "00000000000000000010.0f707846-cd18-4e01-b40e-84ee0ae987b0.json",
    "00000000000000000010.7a980438-cb67-4b89-82d2-86f73239b6d6.json",
]
MAP = {
    6: "00000000000000000006.3a0d65cd-4056-49b8-937b-95f9e3ee90e5.json",
    7: "00000000000000000007.016ae953-37a9-438e-8683-9a9a4a79a395.json",
    8: "00000000000000000008.7d17ac10-5cc3-401b-bd1a-9c82dd2ea032.json",
    9: "00000000000000000009.41bf693a-f5b9-4478-9434-af7475d5a9f0.json",
}


def in_commit_time(version: int) -> int:
    return 1_700_000_000_000 + 1000 * version


def info(version: int, **fields: Any) -> dict[str, Any]:
    return {
        "commitInfo": {
            "inCommitTimestamp": in_commit_time(version),
            "operation": "WRITE",
            "txnId": f"txn-{version}",
            **fields,
        }
    }


TABLE = [PROTOCOL, metadata(configuration=CONFIGURATION)]
TABLE_WITH_CHANGES = [
    {"protocol": {**PROTOCOL["protocol"], "writerFeatures": [*FEATURES, "changeDataFeed"]}},
    metadata(configuration={**CONFIGURATION, "delta.enableChangeDataFeed": "true"}),
]


def write_log(root: Path, *versions: int, table: list[dict[str, Any]] = TABLE) -> None:
    """Backfilled commits: each adds a file named by its version."""
    for version in versions:
        actions = [info(version), *(table if version == 0 else ())]
        write_commit(root, version, *actions, add(f"v{version}"))


def propose(root: Path, name: str, *actions: dict[str, Any]) -> None:
    """A file in ``_commits`` that adds a file named by its name's first digits of the uuid."""
    version = int(name.split(".")[0])
    shown = add(f"v{version}-{name.split('.')[1][:4]}")
    write_commit(root, version, info(version), *(actions or (shown,)))
    commits = root / "_delta_log" / "_commits"
    commits.mkdir(exist_ok=True)
    commit_path(root, version).rename(commits / name)


def spec_table(root: Path, table: list[dict[str, Any]] = TABLE) -> Path:
    for name in PROPOSED:
        propose(root, name)
    write_log(root, *range(8), table=table)
    # As the example has it: 6 and 7 are backfilled copies of what was ratified.
    for version in (6, 7):
        copy = (root / "_delta_log/_commits" / MAP[version]).read_bytes()
        commit_path(root, version).write_bytes(copy)
    assert DeltaTable(str(root)).checkpoint(2).written
    assert DeltaTable(str(root)).compact_log(3, 5).written
    return root


def files(table: DeltaTable, **which: Any) -> set[str]:
    return set(table.snapshot(**which).files(columns=["path"])["path"].to_pylist())


def opened(root: Path, owner: ScriptedOwner) -> DeltaTable:
    return DeltaTable(str(root), commit_owners={OWNER: owner})


def spec_owner(root: Path, **options: Any) -> ScriptedOwner:
    return ScriptedOwner([tracked(root, name) for name in MAP.values()], 9, **options)


SPEC_FILES = {f"v{v}" for v in range(6)} | {"v6-3a0d", "v7-016a", "v8-7d17", "v9-41bf"}


def test_the_example_of_the_specification_with_its_owner(tmp_path: Path) -> None:
    table = opened(spec_table(tmp_path), spec_owner(tmp_path))
    assert table.latest_version() == 9
    assert table.snapshot().version == 9
    assert files(table) == SPEC_FILES
    assert files(table, version=8) == SPEC_FILES - {"v9-41bf"}
    assert files(table, version=7) == SPEC_FILES - {"v8-7d17", "v9-41bf"}
    with pytest.raises(VersionNotFoundError, match="covers versions 0 to 9") as raised:
        table.snapshot(version=10)
    assert raised.value.latest == 9


def test_the_example_of_the_specification_without_its_owner(tmp_path: Path) -> None:
    table = DeltaTable(str(spec_table(tmp_path)))
    with pytest.warns(DeltaWarning, match="may be stale.*'commit-owner-1' isn't known"):
        snapshot = table.snapshot()
    assert snapshot.version == 7
    with pytest.warns(DeltaWarning, match="may be stale"):
        assert table.latest_version() == 7
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # an older version is never stale
        assert files(table, version=6) == SPEC_FILES - {"v7-016a", "v8-7d17", "v9-41bf"}
    with (
        pytest.warns(DeltaWarning, match="may be stale"),
        pytest.raises(VersionNotFoundError, match="0 to 7"),
    ):
        table.snapshot(version=8)


def test_times_and_history_go_on_beyond_what_is_backfilled(tmp_path: Path) -> None:
    table = opened(spec_table(tmp_path), spec_owner(tmp_path))
    assert table.snapshot().timestamp_ms == in_commit_time(9)
    assert table.version_at(in_commit_time(9)) == 9
    assert table.version_at(in_commit_time(9) - 1) == 8
    assert table.version_at(in_commit_time(7) + 1) == 7
    assert files(table, timestamp=in_commit_time(8) + 1) == SPEC_FILES - {"v9-41bf"}
    reported = [(each.version, each.timestamp_ms) for each in table.history()]
    assert reported == [(v, in_commit_time(v)) for v in range(9, -1, -1)]
    assert [each.version for each in table.history(limit=4)] == [9, 8, 7, 6]
    assert [each.raw["txnId"] for each in table.history(limit=2)] == ["txn-9", "txn-8"]


def test_changes_include_what_isnt_backfilled(tmp_path: Path) -> None:
    spec_table(tmp_path, TABLE_WITH_CHANGES)
    plan = opened(tmp_path, spec_owner(tmp_path)).changes(7)
    found = plan.files.select(["path", "_commit_version"]).to_pylist()
    assert [(row["path"], row["_commit_version"]) for row in found] == [
        ("v7-016a", 7),
        ("v8-7d17", 8),
        ("v9-41bf", 9),
    ]
    assert [
        row["path"] for row in opened(tmp_path, spec_owner(tmp_path)).changes(9).files.to_pylist()
    ] == ["v9-41bf"]


def backfilled(root: Path, name: str) -> Callable[[], None]:
    """Copies an un-backfilled commit into the log."""

    def copy() -> None:
        version = int(name.split(".")[0])
        commit_path(root, version).write_bytes((root / "_delta_log/_commits" / name).read_bytes())

    return copy


def test_a_commit_that_is_backfilled_between_listing_and_answer(tmp_path: Path) -> None:
    """L14a: the listing is too early to see it, and the owner's answer is too late to contain it."""
    write_log(tmp_path, *range(6))
    propose(tmp_path, MAP[6])
    owner = ScriptedOwner((), 6, before=backfilled(tmp_path, MAP[6]))
    assert opened(tmp_path, owner).snapshot().version == 6
    assert files(opened(tmp_path, owner)) == {*(f"v{v}" for v in range(6)), "v6-3a0d"}


def test_the_owner_tracks_only_what_comes_after_a_fresh_backfill(tmp_path: Path) -> None:
    """L14b: the log ended at 5, the owner returns 7 and 8: 6 was backfilled in between."""
    write_log(tmp_path, *range(6))
    for version in (6, 7, 8):
        propose(tmp_path, MAP[version])
    owner = ScriptedOwner(
        [tracked(tmp_path, MAP[7]), tracked(tmp_path, MAP[8])],
        8,
        before=backfilled(tmp_path, MAP[6]),
    )
    table = opened(tmp_path, owner)
    assert files(table) == SPEC_FILES - {"v9-41bf"}
    assert len(owner.asked) == 1


def test_a_ratified_commit_that_is_nowhere_is_an_error(tmp_path: Path) -> None:
    """L14b, where 6 was lost: neither in the log nor tracked."""
    write_log(tmp_path, *range(6))
    for version in (7, 8):
        propose(tmp_path, MAP[version])
    owner = ScriptedOwner([tracked(tmp_path, MAP[7]), tracked(tmp_path, MAP[8])], 8)
    with pytest.raises(CorruptLogError, match="ratified versions after 5") as raised:
        opened(tmp_path, owner).snapshot()
    assert raised.value.version == 6
    assert files(opened(tmp_path, owner), version=5) == {f"v{v}" for v in range(6)}


def test_an_owner_that_has_ratified_nothing_yet(tmp_path: Path) -> None:
    """L14c: latest_table_version is -1 while the log has 3."""
    write_log(tmp_path, *range(4))
    table = opened(tmp_path, ScriptedOwner((), -1))
    assert table.snapshot().version == 3
    assert table.latest_version() == 3


def test_only_the_ratified_one_of_two_proposals_counts(tmp_path: Path) -> None:
    """L14d."""
    write_log(tmp_path, *range(6))
    other = "00000000000000000006.00000000-0000-4000-8000-000000000000.json"
    for name in (other, MAP[6]):
        propose(tmp_path, name)
    owner = ScriptedOwner([tracked(tmp_path, MAP[6])], 6)
    assert files(opened(tmp_path, owner)) == {*(f"v{v}" for v in range(6)), "v6-3a0d"}


@pytest.mark.parametrize(
    "error",
    [
        CommitOwnerUnavailableError("the database doesn't answer", owner=OWNER),
        CommitOwnerError("it doesn't have the table t-1", owner=OWNER),
    ],
)
def test_an_owner_that_cant_tell_leaves_the_backfilled_snapshot(
    tmp_path: Path, error: CommitOwnerError
) -> None:
    """L14i."""
    owner = spec_owner(spec_table(tmp_path), error=error)
    with pytest.warns(DeltaWarning, match=f"version 7 may be stale: {error.message}"):
        assert opened(tmp_path, owner).snapshot().version == 7


def test_the_logs_own_commit_counts_where_it_differs_from_the_ratified_one(tmp_path: Path) -> None:
    """L14j: that ``6.json`` is there proves it; a warning reports that it isn't the ratified one."""
    write_log(tmp_path, *range(7))
    propose(tmp_path, MAP[6], add("ratified", size=123456789))
    write_log(tmp_path, 6)
    owner = ScriptedOwner([tracked(tmp_path, MAP[6])], 6)
    with pytest.warns(DeltaWarning, match=r"000006\.json isn't the commit .*3a0d65cd"):
        assert files(opened(tmp_path, owner)) == {f"v{v}" for v in range(7)}


def test_a_file_that_left_commits_after_its_backfill_is_read_from_the_log(tmp_path: Path) -> None:
    """A cleanup takes ``_commits`` files once they are backfilled, while a snapshot still means them."""
    spec_table(tmp_path)
    snapshot = opened(tmp_path, spec_owner(tmp_path)).snapshot()
    for version in (8, 9):
        backfilled(tmp_path, MAP[version])()
        (tmp_path / "_delta_log/_commits" / MAP[version]).unlink()
    assert snapshot.timestamp_ms == in_commit_time(9)
    assert set(snapshot.files(columns=["path", "stats"])["path"].to_pylist()) == SPEC_FILES
    assert snapshot.version == 9


def test_the_newest_snapshot_is_followed_by_what_the_owner_tells(tmp_path: Path) -> None:
    """Repeated reads of a table read its new commits, whether they were backfilled or not."""
    write_log(tmp_path, *range(6))
    for name in MAP.values():
        propose(tmp_path, name)
    owner = ScriptedOwner([tracked(tmp_path, MAP[6])], 6)
    newest = opened(tmp_path, owner)._newest
    assert newest.get().version == 6
    owner.commits, owner.latest = (tracked(tmp_path, MAP[6]), tracked(tmp_path, MAP[7])), 7
    assert newest.get().version == 7
    backfilled(tmp_path, MAP[6])()
    backfilled(tmp_path, MAP[7])()
    backfilled(tmp_path, MAP[8])()
    owner.commits, owner.latest = (tracked(tmp_path, MAP[9]),), 9
    followed = newest.get()
    assert followed.version == 9
    assert set(followed.files(columns=["path"])["path"].to_pylist()) == SPEC_FILES
    owner.error = CommitOwnerUnavailableError("gone")
    with pytest.raises(CommitOwnerUnavailableError, match="gone"):
        newest.get()  # for writers, who must not go on from what may be stale


def test_a_commit_that_the_commit_store_has_lost_is_not_gone_on_from(tmp_path: Path) -> None:
    """The commit store was restored from a backup, and another commit became version 6."""
    write_log(tmp_path, *range(6))
    other = "00000000000000000006.00000000-0000-4000-8000-000000000000.json"
    for name in (*MAP.values(), other):
        propose(tmp_path, name)
    owner = ScriptedOwner([tracked(tmp_path, MAP[6])], 6)
    newest = opened(tmp_path, owner)._newest
    seen = newest.get()
    owner.commits, owner.latest = (tracked(tmp_path, other), tracked(tmp_path, MAP[7])), 7
    restored = {*(f"v{v}" for v in range(6)), "v6-0000", "v7-016a"}
    assert set(newest.get().files(columns=["path"])["path"].to_pylist()) == restored
    owned = CommitOwners({OWNER: owner}).find_owned_table(
        seen.storage, seen.protocol, seen.metadata
    )
    assert not is_newest(seen.storage, seen.segment, owned)
    backfilled(tmp_path, other)()
    owner.commits = (tracked(tmp_path, MAP[7]),)
    assert not is_newest(seen.storage, seen.segment, owned)
    owner.commits, owner.latest = (), 5  # nothing but the backup
    commit_path(tmp_path, 6).unlink()
    assert not is_newest(seen.storage, seen.segment, owned)


def test_a_base_that_was_backfilled_meanwhile_is_gone_on_from(tmp_path: Path) -> None:
    write_log(tmp_path, *range(6))
    propose(tmp_path, MAP[6])
    owner = ScriptedOwner([tracked(tmp_path, MAP[6])], 6)
    seen = opened(tmp_path, owner)._newest.get()
    owned = CommitOwners({OWNER: owner}).find_owned_table(
        seen.storage, seen.protocol, seen.metadata
    )
    assert is_newest(seen.storage, seen.segment, owned)
    backfilled(tmp_path, MAP[6])()
    owner.commits = ()
    assert is_newest(seen.storage, seen.segment, owned)


HALF_STATES = {
    "without the property": ([PROTOCOL, metadata()], "is missing"),
    "without the feature": (
        [{"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}, TABLE[1]],
        "the protocol lacks the feature managedCommit",
    ),
    "with a configuration that nobody can read": (
        [PROTOCOL, metadata(configuration={**CONFIGURATION, OWNER_CONF: "nonsense"})],
        "a JSON object of strings",
    ),
}


@pytest.mark.parametrize("state", HALF_STATES)
def test_a_half_state_is_read_with_a_warning_and_not_written(tmp_path: Path, state: str) -> None:
    """RFC managed-commits, "Reader Requirements": a writer feature puts no restrictions on readers."""
    table, named = HALF_STATES[state]
    write_log(tmp_path, *range(3), table=table)
    opened_ = opened(tmp_path, ScriptedOwner((), -1))
    with pytest.warns(DeltaWarning, match=f"may be stale: .*{named}"):
        assert files(opened_) == {"v0", "v1", "v2"}
    with pytest.raises(InvalidTableError, match=named):
        opened_.transaction("WRITE")


def test_changes_of_a_commit_that_left_commits_after_its_backfill(tmp_path: Path) -> None:
    spec_table(tmp_path, TABLE_WITH_CHANGES)

    newest = opened(tmp_path, spec_owner(tmp_path)).snapshot()
    for version in (8, 9):
        backfilled(tmp_path, MAP[version])()
        (tmp_path / "_delta_log/_commits" / MAP[version]).unlink()
    plan = plan_changes(newest, 8, 9)
    assert plan.files["path"].to_pylist() == ["v8-7d17", "v9-41bf"]


def test_a_transaction_is_not_searched_for_without_the_owner(tmp_path: Path) -> None:
    """What isn't found is committed: so nothing may be left out."""
    owner = spec_owner(spec_table(tmp_path), error=CommitOwnerUnavailableError("gone"))
    with pytest.raises(CommitOwnerUnavailableError, match="gone"):
        opened(tmp_path, owner).version_of_transaction("app", 1)


def test_a_table_without_proposals_is_not_asked_about(tmp_path: Path) -> None:
    write_log(tmp_path, *range(4))
    owner = ScriptedOwner((), 3)
    assert opened(tmp_path, owner).latest_version() == 3
    assert owner.asked == []


def test_a_snapshot_names_the_version_that_the_owner_released(tmp_path: Path) -> None:
    """A commit that gives the table back, ratified and not backfilled: later commits aren't requested."""
    write_log(tmp_path, *range(6))
    free = {"delta.enableInCommitTimestamps": "true"}
    protocol = {"protocol": {**PROTOCOL["protocol"], "writerFeatures": ["inCommitTimestamp"]}}
    propose(tmp_path, MAP[6], protocol, metadata(configuration=free))
    snapshot = opened(tmp_path, ScriptedOwner([tracked(tmp_path, MAP[6])], 6)).snapshot()
    assert snapshot.version == 6
    assert snapshot.properties.commit_owner is None

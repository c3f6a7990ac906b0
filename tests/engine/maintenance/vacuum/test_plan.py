"""What a vacuum refuses, whom it asks, and what it goes by; for what it deletes see tests/matrix."""

from __future__ import annotations

import os
import pickle
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.commit.registry import CommitOwners
from airflow_delta.engine.errors import (
    CommitOwnerError,
    CommitOwnerUnavailableError,
    CorruptLogError,
    DeletionVectorError,
    InvalidArgumentError,
    InvalidTableError,
    RetentionError,
    UnsupportedFeatureError,
    VersionNotFoundError,
)
from airflow_delta.engine.maintenance.table_files import removals as vacuum_log
from airflow_delta.engine.maintenance.table_files.removals import read_commits
from airflow_delta.engine.maintenance.vacuum.execution import execute_vacuum
from airflow_delta.engine.maintenance.vacuum.last_vacuum import read_last_vacuum
from airflow_delta.engine.maintenance.vacuum.plan import VacuumPlan, plan_vacuum
from airflow_delta.engine.storage.local import LocalStorage
from tests.faulty_storage import READS, Fault, FaultyStorage
from tests.house.test_layers import loaded_after
from tests.log_builder import PROTOCOL, add, commit_path, metadata, remove, write_commit
from tests.scripted_owner import ScriptedOwner, tracked
from tests.table_builder import classic_checkpoint, states
from tests.vacuum_world import DAY_MS, NOW_MS, RETENTION_MS

OLD_MS = NOW_MS - 30 * DAY_MS
RECENT_MS = NOW_MS - DAY_MS
HOURS = 3_600_000


def put(root: Path, *paths: str, at: int = OLD_MS) -> None:
    """Files of a byte."""
    for path in paths:
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"x")
        os.utime(file, ns=(at * 1_000_000, at * 1_000_000))


def make(root: Path, *commits: list[Any], **configuration: str) -> LocalStorage:
    """A table whose first commit is 30 days old, and each later one a day younger."""
    for version, actions in enumerate(commits):
        first = [PROTOCOL, metadata(configuration=configuration)] if version == 0 else []
        at = OLD_MS + version * DAY_MS
        write_commit(root, version, *first, *actions, modified_ms=at)
    return LocalStorage(str(root))


def plan(storage: Any, **options: Any) -> VacuumPlan:
    return plan_vacuum(storage, CommitOwners(), **{"now_ms": NOW_MS, **options})


def paths(plan: VacuumPlan) -> list[str]:
    return sorted(plan.files["path"].to_pylist())


def left(root: Path) -> list[str]:
    files = (file for file in root.rglob("*") if file.is_file() and "_delta_log" not in file.parts)
    return sorted(str(file.relative_to(root)) for file in files)


# Whether it may


PROTOCOLS = {
    "an unknown writer feature": {
        "minReaderVersion": 1,
        "minWriterVersion": 7,
        "writerFeatures": ["novelty"],
    },
    "an unknown feature of both": {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": ["novelty", "vacuumProtocolCheck"],
        "writerFeatures": ["novelty", "vacuumProtocolCheck"],
    },
    "a newer writer version": {"minReaderVersion": 1, "minWriterVersion": 8},
    "coordinated commits": {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": ["vacuumProtocolCheck"],
        "writerFeatures": ["coordinatedCommits-preview", "inCommitTimestamp", "vacuumProtocolCheck"],
    },
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:.*may be stale.*coordinatedCommits")
@pytest.mark.parametrize("mode", ["full", "lite"])
@pytest.mark.parametrize("name", PROTOCOLS)
def test_a_table_that_can_not_be_written_is_not_vacuumed(
    tmp_path: Path, name: str, mode: str
) -> None:
    storage = make(tmp_path, [{"protocol": PROTOCOLS[name]}, add("a")], [remove("a")])
    put(tmp_path, "a", "orphan")
    faulty = FaultyStorage(storage)
    with pytest.raises(
        UnsupportedFeatureError, match=r"novelty|coordinatedCommits|needs writer version 8"
    ):
        plan(faulty, mode=mode)
    assert not faulty.count("walk")
    assert left(tmp_path) == ["a", "orphan"]


def test_the_protocol_check_is_no_obstacle_where_nothing_else_is(tmp_path: Path) -> None:
    protocol = {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": ["vacuumProtocolCheck"],
        "writerFeatures": ["vacuumProtocolCheck"],
    }
    storage = make(tmp_path, [{"protocol": protocol}, add("a")])
    put(tmp_path, "a", "orphan")
    assert paths(plan(storage)) == ["orphan"]


def test_a_protocol_that_changes_while_files_are_listed_counts(tmp_path: Path) -> None:
    storage = make(tmp_path, [add("a")])

    def upgrade() -> None:
        write_commit(tmp_path, 1, {"protocol": PROTOCOLS["an unknown writer feature"]})

    faulty = FaultyStorage(storage, Fault("walk", meanwhile=upgrade))
    with pytest.raises(UnsupportedFeatureError, match="novelty"):
        plan(faulty)


# How old files must be


@pytest.mark.parametrize("hours", [-1, float("nan"), float("inf"), "7", True])
def test_a_retention_is_a_number_of_hours(tmp_path: Path, hours: Any) -> None:
    storage = make(tmp_path, [add("a")])
    with pytest.raises(InvalidArgumentError, match="retention_hours: expected a number of hours"):
        plan(storage, retention_hours=hours)


def test_less_than_the_table_keeps_is_refused(tmp_path: Path) -> None:
    storage = make(tmp_path, [add("a")])
    put(tmp_path, "a")
    put(tmp_path, "orphan", at=RECENT_MS)
    with pytest.raises(
        RetentionError, match=r"20 hours, but.* 7 days .*enforce_retention"
    ) as error:
        plan(storage, retention_hours=20)
    assert error.value.configured_ms == RETENTION_MS
    assert paths(plan(storage, retention_hours=20, enforce_retention=False)) == ["orphan"]
    assert paths(plan(storage, retention_hours=30, enforce_retention=False)) == []
    assert plan(storage, retention_hours=168).retention.cutoff_ms == NOW_MS - RETENTION_MS


def test_the_tables_property_is_the_default(tmp_path: Path) -> None:
    storage = make(
        tmp_path, [add("a")], **{"delta.deletedFileRetentionDuration": "interval 12 hours"}
    )
    put(tmp_path, "orphan", at=RECENT_MS)
    assert paths(plan(storage)) == ["orphan"]
    with pytest.raises(RetentionError, match="11 hours"):
        plan(storage, retention_hours=11)


def test_a_property_that_can_not_be_read_stops_it(tmp_path: Path) -> None:
    storage = make(tmp_path, [add("a")], **{"delta.deletedFileRetentionDuration": "two weeks"})
    with pytest.raises(InvalidTableError, match="deletedFileRetentionDuration"):
        plan(storage)


def test_nothing_is_too_young_by_a_millisecond(tmp_path: Path) -> None:
    cutoff = NOW_MS - RETENTION_MS
    storage = make(
        tmp_path,
        [add("a"), add("b"), add("c")],
        [remove("a", deletionTimestamp=cutoff - 1), remove("b", deletionTimestamp=cutoff)],
    )
    put(tmp_path, "a", "b", "c")
    for name, at in (("before", cutoff - 1), ("at", cutoff), ("after", cutoff + 1)):
        put(tmp_path, name, at=at)
    assert paths(plan(storage)) == ["a", "before"]


def test_a_lite_vacuum_leaves_to_the_next_what_is_too_young_by_a_millisecond(
    tmp_path: Path,
) -> None:
    cutoff = NOW_MS - RETENTION_MS
    removals = [remove("a", deletionTimestamp=cutoff - 1), remove("b", deletionTimestamp=cutoff)]
    storage = make(tmp_path, [add("a"), add("b"), add("c")], removals)
    put(tmp_path, "a", "b", "c")
    first = plan(storage, mode="lite")
    assert paths(first) == ["a"]
    execute_vacuum(storage, first)
    assert "b" in paths(plan(storage, mode="lite", now_ms=NOW_MS + 1))


# A checkpoint made now has forgotten tombstones as old as the tests' past; the commits still have them.


def forgetful(root: Path) -> LocalStorage:
    """A table of which a checkpoint has forgotten that ``a`` was removed ten days before `NOW_MS`."""
    storage = make(root, [add("a"), add("b")], [add("c")])
    removed = NOW_MS - 10 * DAY_MS
    write_commit(root, 2, remove("a", deletionTimestamp=1), modified_ms=removed)
    assert DeltaTable(str(root)).checkpoint().written
    # Only the commit has the time.
    write_commit(root, 2, remove("a", deletionTimestamp=removed), modified_ms=removed)
    put(root, "a", "b", "c")
    assert DeltaTable(str(root)).snapshot().tombstones(include_expired=True).num_rows == 0
    return storage


def test_more_than_the_table_keeps_is_honoured(tmp_path: Path) -> None:
    storage = forgetful(tmp_path)
    assert paths(plan(storage)) == ["a"]
    assert paths(plan(storage, retention_hours=9 * 24)) == ["a"]
    assert paths(plan(storage, retention_hours=11 * 24)) == []
    # Beyond the first commit as well.
    assert paths(plan(storage, retention_hours=1000 * 24)) == []


def test_a_retention_that_the_log_does_not_cover_is_refused(tmp_path: Path) -> None:
    storage = forgetful(tmp_path)
    for version in (0, 1):
        commit_path(tmp_path, version).unlink()
    # The time of the commit that removed it is still known.
    assert paths(plan(storage, retention_hours=9 * 24)) == ["a"]
    with pytest.raises(RetentionError, match="the commits before version 2 are gone"):
        plan(storage, retention_hours=11 * 24)


@pytest.fixture
def raised(tmp_path: Path) -> LocalStorage:
    """A retention of an hour, by which a checkpoint forgot that ``a`` was removed; then of 30 days."""
    name = "delta.deletedFileRetentionDuration"
    short, long = ({name: f"interval {n}"} for n in ("1 hour", "30 days"))
    removed = NOW_MS - 3 * DAY_MS
    history: list[list[Any]] = [
        [PROTOCOL, metadata(configuration=short), add("a"), add("b"), add("c")],
        [remove("c", deletionTimestamp=OLD_MS - 1)],
        [remove("a", deletionTimestamp=removed)],
        [metadata(configuration=long)],
    ]
    times = [OLD_MS - DAY_MS, OLD_MS - DAY_MS + 1, removed, removed + 1]
    for version, actions in enumerate(history):
        write_commit(tmp_path, version, *actions, modified_ms=times[version])
    forgetful = replace(states(history)[2], tombstones={})
    for path, content in classic_checkpoint(forgetful, 2).items():
        (tmp_path / path).write_bytes(content)
    put(tmp_path, "a", "b", "c", at=OLD_MS - 2 * DAY_MS)
    return LocalStorage(str(tmp_path))


def test_a_retention_that_was_raised_is_honoured(raised: LocalStorage) -> None:
    made = plan(raised)
    assert (paths(made), made.oldest_restorable) == (["c"], 1)
    assert paths(plan(raised, mode="lite")) == ["c"]


def test_only_commits_within_the_retention_are_read_for_it(
    raised: LocalStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[range] = []

    def read(snapshot: Any, versions: range) -> Any:
        reads.append(versions)
        return read_commits(snapshot, versions)

    monkeypatch.setattr(vacuum_log, "read_commits", read)
    plan(raised)
    assert reads == [range(2, 3)]


def test_a_raised_retention_reads_only_commits_that_exist(
    raised: LocalStorage,
) -> None:
    for version in (0, 1, 2):
        commit_path(Path(raised.root), version).unlink()
    assert paths(plan(raised)) == ["a", "c"]
    with pytest.raises(RetentionError, match="before version 3 are gone"):
        plan(raised, retention_hours=31 * 24)


# What is restorable afterwards


def far_vector(value: str) -> dict[str, Any]:
    return {
        "storageType": "p",
        "pathOrInlineDv": value,
        "offset": 1,
        "sizeInBytes": 34,
        "cardinality": 1,
    }


@pytest.mark.parametrize("form", ["{root}", "file://{root}", "/mnt/other{root}", "s3://elsewhere"])
@pytest.mark.parametrize("mode", ["full", "lite", "inventory"])
def test_versions_that_need_a_file_by_an_absolute_path_are_lost_with_it(
    tmp_path: Path, form: str, mode: Any
) -> None:
    base = form.format(root=tmp_path)
    ours = base != "s3://elsewhere"
    first = add("a", deletionVector=far_vector(f"{base}/one.bin"))
    storage = make(
        tmp_path,
        [first, add(f"{base}/b")],
        [
            remove("a", deletionTimestamp=OLD_MS, deletionVector=first["add"]["deletionVector"]),
            add("a", deletionVector=far_vector(f"{base}/two.bin")),
        ],
        [remove(f"{base}/b", deletionTimestamp=OLD_MS)],
    )
    put(tmp_path, "a", *(("one.bin", "two.bin", "b") if ours else ()))
    options: dict[str, Any] = {"mode": mode}
    if mode == "inventory":
        names = ["one.bin", "b"] if ours else ["none"]
        options = {
            "inventory": pa.table(
                {
                    "path": names,
                    "length": [1] * len(names),
                    "isDir": [False] * len(names),
                    "modificationTime": [OLD_MS] * len(names),
                }
            )
        }
    made = plan(storage, **options)
    # By a name of the root that nobody knows a lite vacuum doesn't find them.
    taken = ours and not (mode == "lite" and base.startswith("/mnt"))
    assert {"one.bin", "b"} & {*paths(made)} == ({"one.bin", "b"} if taken else set())
    assert made.oldest_restorable == (2 if taken else 0)


# Managed tables


OWNER = "owner-db"
MANAGED = {
    "delta.managedCommit.commitOwner": OWNER,
    "delta.managedCommit.commitOwnerConf": '{"tableId": "t"}',
    "delta.enableInCommitTimestamps": "true",
}
PROPOSED = {
    v: f"{v:020}.3a0d65cd-4056-49b8-937b-95f9e3ee90e{v}.json" for v in (2, 3)
}  # fmt: skip


@pytest.fixture
def managed(tmp_path: Path) -> LocalStorage:
    """Versions 0 and 1 are backfilled, 2 is ratified, and 3 was proposed."""
    protocol = {
        "minReaderVersion": 1,
        "minWriterVersion": 7,
        "writerFeatures": ["inCommitTimestamp", "managedCommit"],
    }
    log = tmp_path / "_delta_log"
    for version in range(4):
        info = {"commitInfo": {"inCommitTimestamp": OLD_MS + version, "txnId": str(version)}}
        first = [{"protocol": protocol}, metadata(configuration=MANAGED)]
        removed = [remove("f1", deletionTimestamp=OLD_MS)] if version == 2 else []
        actions = first if version == 0 else [add(f"f{version}"), *removed]
        written = write_commit(tmp_path, version, info, *actions)
        if version > 1:
            (log / "_commits").mkdir(exist_ok=True)
            written.rename(log / "_commits" / PROPOSED[version])
    put(tmp_path, "f1", "f2", "f3")
    return LocalStorage(str(tmp_path))


def owners(managed: LocalStorage, **options: Any) -> CommitOwners:
    ratified = tracked(Path(managed.root), PROPOSED[2])
    return CommitOwners({OWNER: ScriptedOwner([ratified], 2, **options)})


@pytest.mark.parametrize("mode", ["full", "lite"])
def test_the_owner_reports_what_the_table_needs(managed: LocalStorage, mode: Any) -> None:
    """``f2`` is in a ratified commit, which removes ``f1``; ``f3`` is in one that was only proposed."""
    made = plan_vacuum(managed, owners(managed), mode=mode, now_ms=NOW_MS)
    assert made.version == 2
    assert paths(made) == (["f1", "f3"] if mode == "full" else ["f1"])
    assert made.oldest_restorable == 2


def unavailable(managed: LocalStorage) -> CommitOwners:
    return owners(managed, error=CommitOwnerUnavailableError("it can't be reached", owner=OWNER))


def unknown(managed: LocalStorage) -> CommitOwners:
    return CommitOwners()


@pytest.mark.parametrize("mode", ["full", "lite"])
@pytest.mark.parametrize("ask", [unavailable, unknown])
def test_without_its_owner_nothing_is_done(managed: LocalStorage, ask: Any, mode: Any) -> None:
    before = left(Path(managed.root))
    with pytest.raises(CommitOwnerError, match=r"can't be reached|isn't known here"):
        plan_vacuum(managed, ask(managed), mode=mode, now_ms=NOW_MS)
    assert left(Path(managed.root)) == before


# Others at work


def test_files_of_a_concurrent_commit_stay(tmp_path: Path) -> None:
    """With no retention at all: the newest version is opened after the listing."""
    storage = make(tmp_path, [add("a")])
    put(tmp_path, "a", "in-the-making", "orphan")

    def commit() -> None:
        write_commit(tmp_path, 1, add("in-the-making"))

    faulty = FaultyStorage(storage, Fault("walk", meanwhile=commit))
    made = plan(faulty, retention_hours=0, enforce_retention=False)
    assert (made.version, paths(made)) == (1, ["orphan"])


def test_a_file_that_comes_and_goes_concurrently_does_not_count_as_lost(tmp_path: Path) -> None:
    storage = make(tmp_path, [add("a")])
    put(tmp_path, "a")

    def commit() -> None:
        write_commit(tmp_path, 1, add("b"), modified_ms=OLD_MS + DAY_MS)
        write_commit(tmp_path, 2, remove("b"), modified_ms=OLD_MS + DAY_MS)

    # After the listing, before the newest version is opened.
    listed = FaultyStorage(storage)
    assert not plan(listed).files.num_rows
    nth = [call.operation for call in listed.calls].index("walk") + 2
    faulty = FaultyStorage(storage, Fault("*", nth=nth, meanwhile=commit))
    made = plan(faulty)
    assert (made.version, made.oldest_restorable) == (2, 0)


# What cannot be found out


def test_a_path_that_can_not_be_decoded_stops_it(tmp_path: Path) -> None:
    storage = make(tmp_path, [add("k=1/100%/a"), add("b%20c")])
    put(tmp_path, "k=1/100%/a", "orphan")
    with pytest.raises(CorruptLogError, match="'k=1/100%/a'"):
        plan(storage)


@pytest.mark.parametrize(
    ("vector", "error", "match"),
    [
        ({"storageType": "x", "pathOrInlineDv": "a"}, CorruptLogError, "storage type 'x'"),
        ({"storageType": "u", "pathOrInlineDv": "tooshort"}, DeletionVectorError, "not Z85"),
    ],
)
def test_a_deletion_vector_without_a_valid_file_name_stops_the_vacuum(
    tmp_path: Path, vector: dict[str, Any], error: type[Exception], match: str
) -> None:
    descriptor = {"offset": 1, "sizeInBytes": 1, "cardinality": 1, **vector}
    storage = make(tmp_path, [add("a", deletionVector=descriptor)])
    put(tmp_path, "a", "orphan")
    with pytest.raises(error, match=match):
        plan(storage)


def test_a_full_vacuum_does_without_the_times_of_commits(tmp_path: Path) -> None:
    """A writer has left the time out; a lite one goes by it."""
    protocol = {
        "minReaderVersion": 1,
        "minWriterVersion": 7,
        "writerFeatures": ["inCommitTimestamp"],
    }
    storage = make(
        tmp_path,
        [{"protocol": protocol}, add("a"), add("b")],
        [{"commitInfo": {"operation": "DELETE"}}, remove("a", deletionTimestamp=OLD_MS)],
        **{"delta.enableInCommitTimestamps": "true"},
    )
    put(tmp_path, "a", "b")
    made = plan(storage)
    assert (paths(made), made.vacuumed) == (["a"], None)
    with pytest.raises(InvalidTableError, match="no inCommitTimestamp"):
        plan(storage, mode="lite")


# The arguments


def test_an_unknown_mode_is_refused(tmp_path: Path) -> None:
    storage = make(tmp_path, [add("a")])
    with pytest.raises(InvalidArgumentError, match=r"'full' or 'lite'.*found 'light'"):
        plan(storage, mode="light")
    with pytest.raises(InvalidArgumentError, match="found 'lite' with an inventory"):
        plan(storage, mode="lite", inventory=pa.table({}))


def test_the_method_deletes_and_a_dry_run_does_not(tmp_path: Path) -> None:
    """By the clock: the files are from 1970."""
    write_commit(tmp_path, 0, PROTOCOL, metadata(), add("a"), modified_ms=1_000)
    put(tmp_path, "a", "k=1/orphan", at=1_000)
    table = DeltaTable(str(tmp_path))
    dry = table.vacuum(dry_run=True)
    assert (dry.num_deleted, paths(dry.plan)) == (0, ["k=1/orphan"])
    assert left(tmp_path) == ["a", "k=1/orphan"]
    assert read_last_vacuum(table.storage) is None
    done = table.vacuum()
    assert (done.num_deleted, done.bytes_deleted) == (1, 1)
    assert left(tmp_path) == ["a"]
    assert (tmp_path / "k=1").is_dir()
    assert table.vacuum().plan.reason == (
        "of 1 candidates the table needs 1, for its newest version or older ones "
        "within the retention; of the others 0 are younger than the retention, 0 are hidden and 0 belong "
        "to other tables"
    )
    assert pickle.loads(pickle.dumps(done)).plan.files.equals(done.plan.files)


def test_files_that_the_table_needs_count_as_needed_however_young_they_are(tmp_path: Path) -> None:
    names = [f"f{number}" for number in range(5)]
    write_commit(tmp_path, 0, PROTOCOL, metadata(), *map(add, names))
    now_ms = time.time_ns() // 1_000_000
    put(tmp_path, *names, "being-written", "_hidden", at=now_ms)
    planned = DeltaTable(str(tmp_path)).vacuum(dry_run=True).plan
    assert (planned.kept.referenced, planned.kept.young, planned.kept.hidden) == (5, 1, 1)
    assert "of 7 candidates the table needs 5," in str(planned.reason)


VACUUM = """
from airflow_delta.engine import DeltaTable
table = DeltaTable({root!r})
assert table.vacuum(dry_run=True, retention_hours=1000).plan.files.num_rows == 1
assert table.vacuum(mode="lite", dry_run=True).plan.files.num_rows == 1
assert table.vacuum(inventory=table.storage.root + "/inventory.parquet").plan.total.num_files == 1
"""


def test_a_vacuum_does_not_load_pandas(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    make(tmp_path, [add("a"), add("b%20c")], [remove("a", deletionTimestamp=1)])
    for version in (0, 1):
        os.utime(commit_path(tmp_path, version), (1, 1 + version))
    put(tmp_path, "a", "b c", at=1_000)
    rows = [{"path": "a", "length": 1, "isDir": False} for _ in range(2)]
    rows = [{**row, "modificationTime": 10**12 + at} for at, row in enumerate(rows)]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "inventory.parquet")
    assert "pandas" not in loaded_after(VACUUM.format(root=str(tmp_path)))


# What it notes


@pytest.fixture
def history(tmp_path: Path) -> Iterator[LocalStorage]:
    """Versions 0 to 4, a day each from 30 days before `NOW_MS`; each removes the file before."""
    commits = [[add("f0")]]
    for version in range(1, 5):
        removed = remove(f"f{version - 1}", deletionTimestamp=OLD_MS + version * DAY_MS)
        commits.append([add(f"f{version}"), removed])
    storage = make(tmp_path, *commits)
    put(tmp_path, *(f"f{version}" for version in range(5)))
    return storage


def vacuum(storage: LocalStorage, day: int, **options: Any) -> list[str]:
    """What a vacuum deletes when files of a number of days have grown old enough."""
    now_ms = OLD_MS + day * DAY_MS + RETENTION_MS + 1
    made = plan(storage, now_ms=now_ms, **options)
    execute_vacuum(storage, made)
    return paths(made)


@pytest.mark.parametrize("mode", ["full", "lite"])
def test_each_vacuum_notes_how_far_it_has_come(history: LocalStorage, mode: str) -> None:
    assert vacuum(history, -1, mode=mode) == []
    assert read_last_vacuum(history) is None
    assert vacuum(history, 2, mode=mode) == ["f0", "f1"]
    assert read_last_vacuum(history) == 2
    assert vacuum(history, 3, mode="lite") == ["f2"]
    # A longer retention doesn't take it back.
    assert vacuum(history, 1, mode=mode) == []
    assert read_last_vacuum(history) == 3


def test_an_inventory_is_not_relied_upon(history: LocalStorage) -> None:
    rows = {"path": ["f0"], "length": [1], "isDir": [False], "modificationTime": [OLD_MS]}
    assert vacuum(history, 2, inventory=pa.table(rows)) == ["f0"]
    assert read_last_vacuum(history) is None
    assert vacuum(history, 2, mode="lite") == ["f0", "f1"]


def test_what_was_noted_of_another_table_is_nothing(history: LocalStorage) -> None:
    history.replace(
        "_delta_log/_last_vacuum_info", b'{"latestCommitVersionOutsideOfRetentionWindow":99}'
    )
    assert vacuum(history, 2, mode="lite") == ["f0", "f1"]
    assert read_last_vacuum(history) == 2


def test_a_lite_vacuum_is_refused_where_commits_are_gone(history: LocalStorage) -> None:
    root = Path(history.root)
    assert vacuum(history, 1, mode="lite") == ["f0"]
    for version in (2, 3):
        assert DeltaTable(str(root)).checkpoint(version).written
    commit_path(root, 0).unlink()
    commit_path(root, 1).unlink()
    # The commit after the last vacuum is there.
    assert vacuum(history, 2, mode="lite") == ["f1"]
    commit_path(root, 2).unlink()
    commit_path(root, 3).unlink()
    match = (
        r"lite vacuum needs the commits 3 to 4.*those before 4.*up to version 2.*run a full vacuum"
    )
    with pytest.raises(VersionNotFoundError, match=match) as error:
        vacuum(history, 9, mode="lite")
    assert (error.value.version, error.value.earliest) == (3, 4)
    assert vacuum(history, 9) == ["f2", "f3"]
    assert read_last_vacuum(history) == 4
    assert vacuum(history, 9, mode="lite") == []


def test_without_a_note_a_lite_vacuum_needs_the_whole_log(history: LocalStorage) -> None:
    root = Path(history.root)
    assert DeltaTable(str(root)).checkpoint(3).written
    commit_path(root, 0).unlink()
    with pytest.raises(VersionNotFoundError, match="none is recorded"):
        vacuum(history, 9, mode="lite")
    # Nothing is that old yet: nothing is missing either.
    assert vacuum(history, -2, mode="lite") == []


def test_a_remove_that_is_younger_than_its_commit_is_not_passed_over(tmp_path: Path) -> None:
    """The clocks of the writer and of the store differ."""
    late = NOW_MS - 2 * DAY_MS
    storage = make(
        tmp_path,
        [add("a"), add("b"), add("c")],
        [remove("a", deletionTimestamp=OLD_MS)],
        [remove("b", deletionTimestamp=late)],
        [remove("c", deletionTimestamp=OLD_MS)],
    )
    put(tmp_path, "a", "b", "c")
    made = plan(storage, mode="lite")
    assert (paths(made), made.commits, made.vacuumed) == (["a", "c"], range(4), 1)
    execute_vacuum(storage, made)
    later = plan(storage, mode="lite", now_ms=NOW_MS + 60 * DAY_MS)
    assert (paths(later), later.commits, later.vacuumed) == (["b", "c"], range(2, 4), 3)


def test_a_full_vacuum_does_not_note_a_commit_whose_removed_file_stays(tmp_path: Path) -> None:
    storage = make(
        tmp_path,
        [add("a"), add("b"), add("c")],
        [remove("a", deletionTimestamp=OLD_MS)],
        [remove("b", deletionTimestamp=NOW_MS - 2 * DAY_MS)],
        [remove("c", deletionTimestamp=OLD_MS)],
    )
    put(tmp_path, "a", "b", "c")
    made = plan(storage)
    assert (paths(made), made.vacuumed) == (["a", "c"], 1)
    execute_vacuum(storage, made)
    assert "b" in paths(plan(storage, mode="lite", now_ms=NOW_MS + 60 * DAY_MS))


@pytest.mark.parametrize(("late", "vacuumed"), [("a", None), ("v", 0), ("d", 1), ("e", 2)])
def test_a_full_vacuum_does_not_note_files_that_were_copied_later(
    tmp_path: Path, late: str, vacuumed: int | None
) -> None:
    """As in a copy of a table, with the times of commits in the commits."""
    old = {"deletionTimestamp": OLD_MS}
    vector = {"storageType": "u", "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^", "offset": 4,
              "sizeInBytes": 40, "cardinality": 6}  # fmt: skip
    storage = make(
        tmp_path,
        [remove("a", **old), remove("live", **old), add("b", deletionVector=vector)],
        [remove("b", deletionVector=vector, **old), add("live")],
        [
            {
                "cdc": {
                    "path": "_change_data/d",
                    "partitionValues": {},
                    "size": 1,
                    "dataChange": False,
                }
            }
        ],
    )
    names = {
        "a": "a",
        "v": "ab/deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin",
        "d": "_change_data/d",
        "e": "unknown",
    }
    put(tmp_path, *names.values(), "b")
    put(tmp_path, names[late], "live", at=RECENT_MS)
    made = plan(storage)
    assert names[late] not in paths(made)
    assert made.vacuumed == vacuumed


def test_a_full_vacuum_does_without_commits_that_a_checkpoint_covers(tmp_path: Path) -> None:
    storage = make(tmp_path, [add("a")], [remove("a", deletionTimestamp=OLD_MS)], [add("b")])
    put(tmp_path, "a", "b")
    assert DeltaTable(str(tmp_path)).checkpoint(2).written
    commit_path(tmp_path, 0).unlink()
    commit_path(tmp_path, 1).write_text("{")
    made = plan(storage)
    assert (paths(made), made.vacuumed) == (["a"], None)


def test_a_full_vacuum_reads_old_commits_only_up_to_the_first_that_names_a_file_that_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vacuum_log, "_FIRST_RUN_BYTES", 1)
    monkeypatch.setattr(vacuum_log, "_RUN_BYTES", 1)
    names = [f"f{number}" for number in range(5)]
    removes = [[remove(name, deletionTimestamp=OLD_MS)] for name in names]
    storage = make(tmp_path, [*map(add, names)], *removes, [add("b")])
    put(tmp_path, *names, "b")
    put(tmp_path, names[2], at=RECENT_MS)
    assert DeltaTable(str(tmp_path)).checkpoint().written
    commit_path(tmp_path, 0).unlink()
    faulty = FaultyStorage(storage)
    made = plan(faulty)
    assert (paths(made), made.vacuumed) == ([*names[:2], *names[3:]], 2)
    read = ",".join(call.path for call in faulty.calls if call.operation in READS)
    versions = [version for version in range(7) if f"{version:020}.json" in read]
    assert versions == [1, 2, 3]


def test_lite_figures_are_those_of_the_log(history: LocalStorage) -> None:
    made = plan(history, mode="lite")
    assert (made.commits, made.vacuumed) == (range(5), 4)
    assert made.files["size"].to_pylist() == [None] * 4
    assert made.total.size_in_bytes == 0
    assert made.oldest_restorable == 4
    none = plan(history, mode="lite", now_ms=OLD_MS)
    assert none.reason == "no commit from version 0 on is older than the retention"

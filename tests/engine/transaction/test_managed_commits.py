"""Transactions of managed tables: by their owner, after its commits, and not without it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable as Peer

from airflow_delta.engine import AddFile, DeltaTable, OptimisticTransaction
from airflow_delta.engine.commit.owner import CommitResponse
from airflow_delta.engine.errors import (
    CommitConflictError,
    CommitOutcomeUnknownError,
    CommitOwnerError,
    CommitOwnerUnavailableError,
    ConcurrentAppendError,
    DeltaError,
    InvalidArgumentError,
    InvalidTableError,
    MetadataChangedError,
    TableAlreadyExistsError,
)
from airflow_delta.engine.model.actions import Metadata, Protocol
from airflow_delta.engine.model.schema import LONG, STRING, StructField, StructType
from airflow_delta.engine.transaction import commit_loop
from tests.watched_owner import WatchedOwner

SCHEMA = StructType((StructField("id", LONG), StructField("part", STRING)))
OWNER, CONF = "delta.managedCommit.commitOwner", "delta.managedCommit.commitOwnerConf"
TIMESTAMPS = "delta.enableInCommitTimestamps"
DOWN = CommitOwnerUnavailableError("the commit store can't be reached", owner="central")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit_loop, "pause", lambda _: None)


@pytest.fixture
def owner() -> WatchedOwner:
    return WatchedOwner()


def create(
    root: Path, owner: WatchedOwner, backfill: str = "on-request", **more: str
) -> DeltaTable:
    properties = {OWNER: "central", CONF: json.dumps({"backfill": backfill}), **more}
    return DeltaTable.create(
        str(root), SCHEMA, properties=properties, commit_owners={"central": owner}
    )


def opened(root: Path, owner: WatchedOwner) -> DeltaTable:
    return DeltaTable(str(root), commit_owners={"central": owner})


def file(path: str) -> AddFile:
    return AddFile(path=path, partition_values={}, size=1, modification_time=1, data_change=True)


def appending(table: DeltaTable, path: str) -> OptimisticTransaction:
    transaction = table.transaction("WRITE")
    transaction.add_file(file(path))
    return transaction


def append(table: DeltaTable, path: str) -> int:
    return appending(table, path).commit().version


def live(table: DeltaTable) -> set[str]:
    return set(table.snapshot().files(columns=["path"])["path"].to_pylist())


def names(root: Path) -> set[str]:
    """What is in the log directory, below it as well."""
    log = root / "_delta_log"
    return {str(path.relative_to(log)) for path in log.rglob("*") if path.is_file()}


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def in_log(root: Path, version: int) -> list[dict[str, Any]]:
    return lines(root / "_delta_log" / f"{version:020}.json")


def test_commits_of_a_managed_table_are_files_that_its_owner_has_ratified(
    tmp_path: Path, owner: WatchedOwner
) -> None:
    table = create(tmp_path, owner)
    assert [append(table, f"f{n}") for n in range(3)] == [1, 2, 3]
    tracked = owner.inner.get_commits(_table_of(owner, table), 0).commits
    assert [commit.version for commit in tracked] == [1, 2, 3]
    unbackfilled = {name for name in names(tmp_path) if name.startswith("_commits")}
    assert unbackfilled == {commit.path.removeprefix("_delta_log/") for commit in tracked}
    for n, commit in enumerate(tracked):
        info, added = lines(tmp_path / commit.path)
        assert info["commitInfo"]["readVersion"] == n
        assert added["add"]["path"] == f"f{n}"
    # In the log alone there is version 0, and no sign of later ones.
    assert names(tmp_path) - unbackfilled == {f"{0:020}.json", f"{0:020}.crc"}
    assert live(opened(tmp_path, owner)) == {"f0", "f1", "f2"}
    assert Peer(tmp_path).version() == 0


def _table_of(owner: WatchedOwner, table: DeltaTable) -> Any:
    owned = table._owners.find_owned_table(
        table.storage, table.snapshot().protocol, table.snapshot().metadata
    )
    assert owned is not None
    assert owned.owner is owner
    return owned.table


def test_what_is_backfilled_at_once_is_for_everybody(tmp_path: Path, owner: WatchedOwner) -> None:
    table = create(tmp_path, owner, backfill="1")
    for n in range(3):
        append(table, f"f{n}")
    assert {f"{version:020}.crc" for version in range(4)} <= names(tmp_path)
    assert not table.snapshot().verify().differences
    peer = Peer(tmp_path)
    assert peer.version() == 3
    assert {path.rpartition("/")[2] for path in peer.file_uris()} == {"f0", "f1", "f2"}


def test_writers_take_turns(tmp_path: Path, owner: WatchedOwner) -> None:
    create(tmp_path, owner, backfill="4")
    writers = [opened(tmp_path, owner) for _ in range(3)]
    versions = [append(writers[n % 3], f"f{n}") for n in range(12)]
    assert versions == [*range(1, 13)]
    for writer in writers:
        assert live(writer) == {f"f{n}" for n in range(12)}
        assert writer.latest_version() == 12


def test_in_commit_timestamps_ascend_though_the_clock_goes_back(
    tmp_path: Path, owner: WatchedOwner, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(tmp_path, owner)
    first, second = opened(tmp_path, owner), opened(tmp_path, owner)
    now = commit_loop.now_ms()
    monkeypatch.setattr(commit_loop, "now_ms", lambda: now - 100_000)
    lost = appending(second, "late")
    for n in range(3):
        append(first if n % 2 else second, f"f{n}")
    assert lost.commit().version == 4
    times = [commit.in_commit_timestamp_ms or 0 for commit in reversed(first.history())]
    assert len(times) == 5
    assert all(earlier < later for earlier, later in pairwise(times))
    assert first.snapshot(timestamp=times[2]).version == 2


def test_a_loser_follows_winners_that_are_not_backfilled(
    tmp_path: Path, owner: WatchedOwner
) -> None:
    table = create(tmp_path, owner)
    losers = [appending(opened(tmp_path, owner), f"mine{n}") for n in range(2)]
    for n in range(3):
        append(table, f"theirs{n}")
    results = [loser.commit() for loser in losers]
    assert [(result.version, result.attempts) for result in results] == [(4, 2), (5, 2)]
    assert live(table) == {"mine0", "mine1", "theirs0", "theirs1", "theirs2"}


def test_a_conflict_with_a_winner_that_is_not_backfilled_is_one(
    tmp_path: Path, owner: WatchedOwner
) -> None:
    table = create(tmp_path, owner)
    loser = appending(opened(tmp_path, owner), "mine")
    loser.read_table()
    append(table, "harmless, but added")
    with pytest.raises(ConcurrentAppendError, match=r"version 1 \(WRITE\).*'harmless"):
        loser.commit()
    assert live(table) == {"harmless, but added"}


def test_winners_are_found_where_they_were_backfilled_and_compacted_into_a_checkpoint(
    tmp_path: Path, owner: WatchedOwner
) -> None:
    table = create(tmp_path, owner)
    append(table, "f0")
    loser = appending(opened(tmp_path, owner), "mine")
    for n in range(1, 4):
        append(table, f"f{n}")
    table.checkpoint(3, backfill_first=True)
    append(table, "f4")
    for name in names(tmp_path):
        if name.startswith("_commits/" + f"{1:020}"):
            (tmp_path / "_delta_log" / name).unlink()  # as a cleanup does it
    assert loser.commit().version == 6
    assert live(table) == {"mine", *(f"f{n}" for n in range(5))}


def test_a_commit_whose_answer_was_lost_is_found_among_the_winners(
    tmp_path: Path, owner: WatchedOwner
) -> None:
    table = create(tmp_path, owner)
    transaction = appending(table, "mine")
    transaction.read_table()
    owner.after["commit"] = lambda answer: CommitResponse(None, answer.latest_table_version)
    result = transaction.commit()
    assert (result.version, result.attempts) == (1, 1)
    assert live(table) == {"mine"}


def test_the_same_commit_is_made_once_though_its_outcome_was_unknown(
    tmp_path: Path, owner: WatchedOwner
) -> None:
    table = create(tmp_path, owner)

    def write() -> Any:
        def stage(transaction: OptimisticTransaction) -> None:
            transaction.add_file(file("mine"))

        return table.commit_once("app", 7, "WRITE", stage)

    def lose(_: object) -> None:
        raise CommitOutcomeUnknownError("the answer is lost", version=1, txn_id="t")

    owner.after["commit"] = lose
    with pytest.raises(CommitOutcomeUnknownError, match="lost"):
        write()
    owner.after.clear()
    append(table, "theirs")
    result = write()
    [commit_info] = [info for info in table.history() if info.version == 1]
    assert (result.version, result.repeated) == (1, True)
    assert result.timestamp_ms == commit_info.in_commit_timestamp_ms
    assert live(table) == {"mine", "theirs"}


def test_without_its_owner_a_table_is_not_written(tmp_path: Path, owner: WatchedOwner) -> None:
    append(create(tmp_path, owner, backfill="1"), "f0")
    before = names(tmp_path)
    stranger = DeltaTable(str(tmp_path))
    for begin in (
        lambda: stranger.transaction("WRITE"),
        lambda: stranger.alter.set_description("x"),
        stranger.convert_to_file_system,
    ):
        with pytest.raises(CommitOwnerUnavailableError, match="'central' isn't known here"):
            begin()
    assert names(tmp_path) == before


COMMITTING: dict[str, Callable[[DeltaTable], object]] = {
    "transaction": lambda table: table.transaction("WRITE"),
    "alter": lambda table: table.alter.set_description("x"),
    "optimize": lambda table: table.optimize(),
    "repair statistics": lambda table: table.repair_statistics(),
    "enable row tracking": lambda table: table.enable_row_tracking(),
    "drop a feature": lambda table: table.drop_feature("managedCommit"),
    "restore": lambda table: table.restore(0),
    "vacuum": lambda table: table.vacuum(),
}


@pytest.mark.parametrize("operation", COMMITTING)
def test_an_unreachable_owner_is_an_error_before_any_work_is_done(
    tmp_path: Path, owner: WatchedOwner, operation: str
) -> None:
    create(tmp_path, owner)
    before = names(tmp_path)
    owner.fail(DOWN)
    with pytest.raises(CommitOwnerUnavailableError, match="can't be reached"):
        COMMITTING[operation](opened(tmp_path, owner))
    assert names(tmp_path) == before


def test_an_owner_that_goes_away_takes_no_commit_and_the_file_system_none_instead(
    tmp_path: Path, owner: WatchedOwner
) -> None:
    table = create(tmp_path, owner)
    transaction = appending(table, "mine")
    before = names(tmp_path)
    owner.fail(DOWN)
    with pytest.raises(CommitOwnerUnavailableError, match="can't be reached"):
        transaction.commit()
    assert names(tmp_path) == before
    owner.fails.clear()
    assert append(table, "again") == 1


def test_a_managed_table_is_altered_and_stays_its_owners(
    tmp_path: Path, owner: WatchedOwner
) -> None:
    table = create(tmp_path, owner)
    before = table.snapshot().properties.commit_owner_conf
    result = table.alter.set_properties({"delta.enableChangeDataFeed": "true"})
    after = table.snapshot()
    assert (result.version, after.version) == (1, 1)
    assert (after.properties.commit_owner, after.properties.commit_owner_conf) == (
        "central",
        before,
    )
    for name in (OWNER, CONF):
        with pytest.raises(InvalidArgumentError, match=r"DeltaTable\.convert_to_managed"):
            table.alter.set_properties({name: "{}"})
        with pytest.raises(InvalidArgumentError, match="convert_to_file_system"):
            table.alter.unset_properties([name])


Change = Callable[[Protocol, Metadata], tuple[Protocol, Metadata]]


def without(*properties: str, **others: str) -> Change:
    def change(protocol: Protocol, metadata: Metadata) -> tuple[Protocol, Metadata]:
        kept = {k: v for k, v in metadata.configuration.items() if k not in properties}
        named = {key.replace("_", "."): value for key, value in others.items()}
        return protocol, replace(metadata, configuration={**kept, **named})

    return change


def dropping(*features: str, also: Change | None = None) -> Change:
    def change(protocol: Protocol, metadata: Metadata) -> tuple[Protocol, Metadata]:
        left = (protocol.writer_features or frozenset()) - {*features}
        changed = replace(protocol, writer_features=left)
        return (changed, metadata) if also is None else also(changed, metadata)

    return change


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (without(OWNER), f"lists the feature managedCommit, but the property {OWNER} is missing"),
        (without(OWNER, CONF), "lists the feature managedCommit, but"),
        (dropping("managedCommit"), "but the protocol lacks the feature managedCommit"),
        (
            dropping("managedCommit", also=without(OWNER)),
            f"{CONF} would stay without {OWNER}",
        ),
        (dropping("inCommitTimestamp"), "lacks the features .'inCommitTimestamp'"),
        (
            dropping("managedCommit", "inCommitTimestamp", also=without(OWNER, CONF)),
            f"lose the feature inCommitTimestamp, but {TIMESTAMPS} would stay 'true'",
        ),
        (without(TIMESTAMPS), f"{TIMESTAMPS} is None: expected 'true'"),
        (without(**{TIMESTAMPS.replace(".", "_"): "false"}), f"{TIMESTAMPS} is 'false'"),
        (
            without(**{OWNER.replace(".", "_"): "other"}),
            "from 'central' to 'other': first take the table",
        ),
        (without(CONF), f"{CONF} would change"),
        (without(**{CONF.replace(".", "_"): '{"tableId":"x"}'}), f"{CONF} would change"),
    ],
)
def test_a_managed_table_is_not_left_half_managed(
    tmp_path: Path, owner: WatchedOwner, change: Change, problem: str
) -> None:
    table = create(tmp_path, owner)
    before = names(tmp_path)
    transaction = table.transaction("X")
    protocol, metadata = change(transaction.base.protocol, transaction.base.metadata)
    if protocol != transaction.base.protocol:
        transaction.set_protocol(protocol)
    transaction.set_metadata(metadata)
    with pytest.raises(InvalidTableError, match=problem):
        transaction.commit()
    assert names(tmp_path) == before


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (without(**{OWNER.replace(".", "_"): "central"}), "but the protocol lacks the feature"),
        (without(**{CONF.replace(".", "_"): "{}"}), f"{CONF} would be set without {OWNER}"),
    ],
)
def test_a_table_is_not_made_half_managed(
    tmp_path: Path, owner: WatchedOwner, change: Change, problem: str
) -> None:
    DeltaTable.create(str(tmp_path), SCHEMA)
    transaction = opened(tmp_path, owner).transaction("X")
    transaction.set_metadata(change(transaction.base.protocol, transaction.base.metadata)[1])
    with pytest.raises(InvalidTableError, match=problem):
        transaction.commit()
    with pytest.raises(InvalidTableError, match="lists the feature managedCommit, but"):
        opened(tmp_path, owner).alter.add_feature("managedCommit")


def test_a_commit_to_a_half_managed_table_is_refused(tmp_path: Path, owner: WatchedOwner) -> None:
    """Of one without in-commit timestamps; another engine has made it so."""
    table = create(tmp_path, owner, backfill="1")
    [info, *rest] = in_log(tmp_path, 0)
    for action in rest:
        if "metaData" in action:
            action["metaData"]["configuration"].pop(TIMESTAMPS)
    text = "".join(json.dumps(action) + "\n" for action in [info, *rest])
    (tmp_path / "_delta_log" / f"{0:020}.json").write_text(text)
    (tmp_path / "_delta_log" / f"{0:020}.crc").unlink()
    table = opened(tmp_path, owner)
    with pytest.raises(InvalidTableError, match=f"{TIMESTAMPS} is None: expected 'true'"):
        append(table, "f0")


def test_a_new_table_has_all_that_a_managed_one_needs(tmp_path: Path, owner: WatchedOwner) -> None:
    table = create(tmp_path, owner, backfill="10")
    snapshot = table.snapshot()
    assert (snapshot.protocol.min_reader_version, snapshot.protocol.min_writer_version) == (1, 7)
    assert snapshot.protocol.writer_features == {"inCommitTimestamp", "managedCommit"}
    conf = dict(snapshot.properties.commit_owner_conf)
    assert re.fullmatch(r"[0-9a-f-]{36}", conf.pop("tableId"))
    assert conf == {"backfill": "10"}
    assert snapshot.metadata.configuration[TIMESTAMPS] == "true"
    assert "inCommitTimestamp" in in_log(tmp_path, 0)[0]["commitInfo"]
    assert owner.named("propose", "take_over", "forget") == [("propose", 0), ("take_over", 0)]
    other = create(tmp_path / "other", owner).snapshot().properties.commit_owner_conf
    assert other["tableId"] != snapshot.properties.commit_owner_conf["tableId"]


@pytest.mark.parametrize(
    ("properties", "error", "problem"),
    [
        ({CONF: '{"tableId":"mine"}'}, InvalidArgumentError, "contains tableId='mine': omit it"),
        ({CONF: "[]"}, InvalidArgumentError, "expected a JSON object of strings"),
        ({OWNER: ""}, InvalidArgumentError, "found an empty text"),
        ({OWNER: "nobody"}, CommitOwnerUnavailableError, "'nobody' isn't known here"),
        ({TIMESTAMPS: "false"}, InvalidTableError, f"{TIMESTAMPS} is 'false': expected 'true'"),
    ],
)
def test_a_new_table_that_can_not_be_managed_is_not_created(
    tmp_path: Path,
    owner: WatchedOwner,
    properties: dict[str, str],
    error: type[DeltaError],
    problem: str,
) -> None:
    with pytest.raises(error, match=problem):
        create(tmp_path, owner, **properties)
    assert not (tmp_path / "_delta_log").exists()


def test_a_configuration_without_an_owner_creates_no_table(tmp_path: Path) -> None:
    with pytest.raises(InvalidTableError, match=f"{CONF} would be set without {OWNER}"):
        DeltaTable.create(str(tmp_path), SCHEMA, properties={CONF: "{}"})
    assert not (tmp_path / "_delta_log").exists()


def test_a_creation_that_another_writer_wins_is_forgotten(
    tmp_path: Path, owner: WatchedOwner
) -> None:
    owner.before["propose"] = lambda: DeltaTable.create(str(tmp_path), SCHEMA)
    with pytest.raises(TableAlreadyExistsError, match="created the table first"):
        create(tmp_path, owner)
    assert owner.named("propose", "take_over", "forget") == [("propose", 0), ("forget", 0)]
    assert DeltaTable(str(tmp_path)).snapshot().properties.commit_owner is None


@pytest.fixture
def plain(tmp_path: Path) -> DeltaTable:
    """A table of the file system with two files."""
    table = DeltaTable.create(str(tmp_path), SCHEMA)
    append(table, "f0")
    append(table, "f1")
    return table


def test_a_writer_of_before_meets_the_conversion_as_a_conflict(
    tmp_path: Path, owner: WatchedOwner, plain: DeltaTable
) -> None:
    late = appending(plain, "late")
    assert opened(tmp_path, owner).convert_to_managed("central").version == 3
    with pytest.raises(CommitConflictError, match=r"version 3 .*managedCommit"):
        late.commit()
    back = appending(opened(tmp_path, owner), "late too")
    assert opened(tmp_path, owner).convert_to_file_system().version == 4
    with pytest.raises(CommitConflictError, match=r"version 4 .*dropped the features"):
        back.commit()
    assert live(DeltaTable(str(tmp_path))) == {"f0", "f1"}


def test_a_conversion_meets_other_changes_of_the_table_as_conflicts(
    tmp_path: Path, owner: WatchedOwner, plain: DeltaTable
) -> None:
    owner.before["propose"] = lambda: plain.alter.set_description("a description")
    with pytest.raises(MetadataChangedError, match=r"version 3 \(SET TBLPROPERTIES\)"):
        opened(tmp_path, owner).convert_to_managed("central")
    assert owner.named("propose", "forget") == [("propose", 3), ("forget", 3)]
    owner.before.clear()
    table = opened(tmp_path, owner)
    assert table.convert_to_managed("central").converted
    owner.before["backfill_to_version"] = lambda: opened(tmp_path, owner).alter.set_name("a name")
    with pytest.raises(MetadataChangedError, match="version 5"):
        table.convert_to_file_system()
    assert table.snapshot().properties.commit_owner == "central"


@pytest.mark.parametrize("backfill", ["1", "on-request", "direct"])
def test_an_owner_that_refuses_to_let_go_keeps_the_table(
    tmp_path: Path, owner: WatchedOwner, backfill: str
) -> None:
    table = create(tmp_path, owner, backfill=backfill)
    owner.fails["commit"] = CommitOwnerError("it stays here", owner="central")
    with pytest.raises(CommitOwnerError, match="it stays here"):
        table.convert_to_file_system()
    owner.fails.clear()
    assert append(table, "f0") == 1
    assert table.commit_status().owner == "central"

"""Who makes a version, in which steps, and what is left where one of them goes wrong."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from itertools import count

import pytest

from airflow_delta.engine.commit.committers import choose_committer, finish_release
from airflow_delta.engine.commit.owner import ManagedTable, Standing
from airflow_delta.engine.commit.registry import OwnedTable
from airflow_delta.engine.errors import (
    CommitOutcomeUnknownError,
    CommitOwnerError,
    CommitOwnerUnavailableError,
    CorruptLogError,
    DeltaWarning,
    StorageError,
    UnsafeStorageError,
)
from airflow_delta.engine.log.files import (
    Commit,
    UnbackfilledCommit,
    commit_path,
    unbackfilled_commit_path,
)
from airflow_delta.engine.storage.memory import MemoryStorage
from tests.faulty_storage import Fault, FaultyStorage, How
from tests.watched_owner import WatchedOwner

_NUMBERS = count()
DOWN = CommitOwnerUnavailableError("the commit store can't be reached", owner="central")


@pytest.fixture
def inner() -> Iterator[MemoryStorage]:
    storage = MemoryStorage(f"memory://committers-{next(_NUMBERS)}")
    yield storage
    storage.delete([info.path for info in storage.walk("")])


@pytest.fixture
def owner() -> WatchedOwner:
    return WatchedOwner()


def owned_by(
    owner: WatchedOwner, storage: MemoryStorage | FaultyStorage, **conf: str
) -> OwnedTable:
    return OwnedTable(owner, ManagedTable(storage, "central", {"tableId": "t-1", **conf}))


def commit_of(writer: str) -> bytes:
    return json.dumps({"commitInfo": {"txnId": writer}}).encode() + b"\n"


def hand_over(writer: str) -> bytes:
    """A commit that gives the table of `owned_by` to its owner."""
    conf = json.dumps({"tableId": "t-1"})
    configuration = {
        "delta.managedCommit.commitOwner": "central",
        "delta.managedCommit.commitOwnerConf": conf,
    }
    return commit_of(writer) + json.dumps({"metaData": {"configuration": configuration}}).encode()


def taken_over(
    owner: WatchedOwner, storage: MemoryStorage | FaultyStorage, **conf: str
) -> OwnedTable:
    """A table that the owner has from version 0 on."""
    owned = owned_by(owner, storage, **conf)
    committer = choose_committer(storage, before=None, after=owned)
    assert committer.commit(0, hand_over("first"), txn_id="first") == commit_path(0)
    owner.calls.clear()
    return owned


def in_log(storage: MemoryStorage) -> dict[str, bytes]:
    paths = [info.path for info in storage.list("_delta_log") if info.path.endswith(".json")]
    return {path: storage.read(path) for path in paths}


def proposed(storage: MemoryStorage) -> list[str]:
    return [info.path for info in storage.list("_delta_log/_commits")]


def test_without_an_owner_the_file_system_decides(inner: MemoryStorage) -> None:
    committer = choose_committer(inner, before=None, after=None)
    assert committer.commit(0, commit_of("mine"), txn_id="mine") == commit_path(0)
    assert committer.commit(0, commit_of("theirs"), txn_id="theirs") is None
    assert in_log(inner) == {commit_path(0): commit_of("mine")}


def test_an_owner_makes_the_versions_of_its_table(
    inner: MemoryStorage, owner: WatchedOwner
) -> None:
    owned = taken_over(owner, inner, backfill="on-request")
    committer = choose_committer(inner, before=owned, after=owned)
    path = committer.commit(1, commit_of("mine"), txn_id="mine")
    assert proposed(inner) == [path]
    assert inner.read(path or "") == commit_of("mine")
    assert committer.commit(1, commit_of("theirs"), txn_id="theirs") is None
    assert owner.named("commit") == [("commit", 1), ("commit", 1)]
    assert in_log(inner).keys() == {commit_path(0)}


def test_a_commit_that_its_owner_has_backfilled_is_the_one_in_the_log(
    inner: MemoryStorage, owner: WatchedOwner
) -> None:
    owned = taken_over(owner, inner)
    committer = choose_committer(inner, before=owned, after=owned)
    assert committer.commit(1, commit_of("mine"), txn_id="mine") == commit_path(1)
    assert in_log(inner)[commit_path(1)] == commit_of("mine")


@pytest.mark.parametrize("version", [0, 1])
def test_a_table_is_given_away_in_two_phases(
    inner: MemoryStorage, owner: WatchedOwner, version: int
) -> None:
    if version:
        inner.create(commit_path(0), commit_of("older"))
    owned = owned_by(owner, inner)
    seen: list[bool] = []
    owner.before["take_over"] = lambda: seen.append(commit_path(version) in in_log(inner))
    owner.before["propose"] = lambda: seen.append(commit_path(version) in in_log(inner))
    committer = choose_committer(inner, before=None, after=owned)
    assert committer.commit(version, hand_over("mine"), txn_id="mine") == commit_path(version)
    assert owner.calls == [("propose", version), ("take_over", version)]
    assert seen == [False, True]
    status = owner.status(owned.table)
    assert (status.standing, status.latest_version) == (Standing.ACTIVE, version)


def test_an_owner_that_does_not_agree_gets_no_table(
    inner: MemoryStorage, owner: WatchedOwner
) -> None:
    owner.fails["propose"] = CommitOwnerError("not this one", owner="central")
    committer = choose_committer(inner, before=None, after=owned_by(owner, inner))
    with pytest.raises(CommitOwnerError, match="not this one"):
        committer.commit(0, hand_over("mine"), txn_id="mine")
    assert [*inner.walk("")] == []


def test_an_owner_forgets_a_table_that_another_writer_was_faster_to_change(
    inner: MemoryStorage, owner: WatchedOwner
) -> None:
    owned = owned_by(owner, inner)
    owner.after["propose"] = lambda _: inner.create(commit_path(0), commit_of("theirs"))
    committer = choose_committer(inner, before=None, after=owned)
    assert committer.commit(0, hand_over("mine"), txn_id="mine") is None
    assert owner.calls == [("propose", 0), ("forget", 0)]
    with pytest.raises(CommitOwnerError, match="no table with the id t-1"):
        owner.inner.status(owned.table)


def test_the_next_try_to_give_a_table_away_is_for_the_next_version(
    inner: MemoryStorage, owner: WatchedOwner
) -> None:
    """Even if the owner couldn't be informed that the first one was withdrawn."""
    owned = owned_by(owner, inner)
    inner.create(commit_path(0), commit_of("theirs"))
    owner.fails["forget"] = DOWN
    committer = choose_committer(inner, before=None, after=owned)
    assert committer.commit(0, hand_over("mine"), txn_id="mine") is None
    assert committer.commit(1, hand_over("mine"), txn_id="mine") == commit_path(1)
    assert owner.status(owned.table).latest_version == 1


def test_an_owner_forgets_a_table_whose_commit_failed(
    inner: MemoryStorage, owner: WatchedOwner
) -> None:
    storage = FaultyStorage(inner, Fault("create", 0, How.FAIL))
    owned = owned_by(owner, storage)
    with pytest.raises(StorageError, match="the connection broke"):
        choose_committer(storage, before=None, after=owned).commit(
            0, hand_over("mine"), txn_id="mine"
        )
    assert owner.calls == [("propose", 0), ("forget", 0)]


def test_an_owner_stands_by_its_promise_where_the_outcome_is_unknown(
    inner: MemoryStorage, owner: WatchedOwner
) -> None:
    storage = FaultyStorage(
        inner, Fault("create", 0, How.LOSE_ANSWER), Fault("read", 0, How.FAIL, suffix="0.json")
    )
    owned = owned_by(owner, storage)
    with pytest.raises(CommitOutcomeUnknownError, match="look for txnId mine"):
        choose_committer(storage, before=None, after=owned).commit(
            0, hand_over("mine"), txn_id="mine"
        )
    assert owner.calls == [("propose", 0)]
    # The commit is there, and the owner finds out.
    again = owned_by(owner, inner)
    assert owner.status(again.table).standing is Standing.ACTIVE


@pytest.mark.parametrize("error", [DOWN, RuntimeError("an owner's mistake")], ids=["down", "bug"])
def test_an_owner_that_can_not_be_informed_finds_out(
    inner: MemoryStorage, owner: WatchedOwner, error: Exception
) -> None:
    owner.fails["take_over"] = error
    owned = owned_by(owner, inner)
    committer = choose_committer(inner, before=None, after=owned)
    with pytest.warns(DeltaWarning, match=r"gives the table to .* 'central'.*it finds out when"):
        assert committer.commit(0, hand_over("mine"), txn_id="mine") == commit_path(0)
    committer = choose_committer(inner, before=owned, after=owned)
    assert committer.commit(1, commit_of("next"), txn_id="next") is not None


def test_a_warning_does_not_undo_what_was_done(
    inner: MemoryStorage, owner: WatchedOwner, caplog: pytest.LogCaptureFixture
) -> None:
    """Tests run with warnings as errors, as other processes may."""
    owner.fails["take_over"] = DOWN
    committer = choose_committer(inner, before=None, after=owned_by(owner, inner))
    with caplog.at_level(logging.WARNING):
        assert committer.commit(0, hand_over("mine"), txn_id="mine") == commit_path(0)
    assert "couldn't be informed" in caplog.text


def test_a_table_is_not_given_away_where_the_store_can_not_create_exclusively(
    inner: MemoryStorage, owner: WatchedOwner, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: str, data: bytes) -> None:
        raise UnsafeStorageError("no put-if-absent")

    monkeypatch.setattr(inner, "create", refuse)
    owned = owned_by(owner, inner)
    with pytest.raises(UnsafeStorageError, match="no put-if-absent"):
        choose_committer(inner, before=None, after=owned).commit(
            0, hand_over("mine"), txn_id="mine"
        )
    assert owner.calls == [("propose", 0), ("forget", 0)]


def test_a_table_is_taken_back_with_all_its_commits(
    inner: MemoryStorage, owner: WatchedOwner
) -> None:
    owned = taken_over(owner, inner, backfill="on-request")
    committer = choose_committer(inner, before=owned, after=owned)
    for version in (1, 2):
        committer.commit(version, commit_of(f"v{version}"), txn_id=f"v{version}")
    seen: list[set[str]] = []
    owner.before["commit"] = lambda: seen.append({*in_log(inner)})
    releasing = choose_committer(inner, before=owned, after=None)
    assert releasing.commit(3, commit_of("back"), txn_id="back") == commit_path(3)
    assert seen == [{commit_path(version) for version in (0, 1, 2)}]
    assert [*in_log(inner).values()][1:] == [commit_of(writer) for writer in ("v1", "v2", "back")]
    assert owner.status(owned.table).standing is Standing.RELEASED
    with pytest.raises(CommitOwnerError, match="has given the table back"):
        committer.commit(4, commit_of("late"), txn_id="late")


def test_who_takes_a_table_back_can_be_too_late(inner: MemoryStorage, owner: WatchedOwner) -> None:
    owned = taken_over(owner, inner)
    committer = choose_committer(inner, before=owned, after=owned)
    committer.commit(1, commit_of("theirs"), txn_id="theirs")
    releasing = choose_committer(inner, before=owned, after=None)
    assert releasing.commit(1, commit_of("back"), txn_id="back") is None
    assert owner.status(owned.table).standing is Standing.ACTIVE


def left_by_a_crash(inner: MemoryStorage, owner: WatchedOwner) -> str:
    """A table whose release is ratified, and not in the log: the path of the commit."""
    storage = FaultyStorage(inner, Fault("create", 0, How.FAIL, suffix=commit_path(2)))
    owned = taken_over(owner, storage, backfill="on-request")
    choose_committer(storage, before=owned, after=owned).commit(1, commit_of("one"), txn_id="one")
    releasing = choose_committer(storage, before=owned, after=None)
    with pytest.warns(DeltaWarning, match="backfill"):
        path = releasing.commit(2, commit_of("back"), txn_id="back")
    assert path is not None
    assert path in proposed(inner)
    assert [*in_log(inner)] == [commit_path(0), commit_path(1)]
    return path


def test_a_release_that_is_not_in_the_log_is_finished_by_the_next_writer(
    inner: MemoryStorage, owner: WatchedOwner
) -> None:
    path = left_by_a_crash(inner, owner)
    assert owner.status(owned_by(owner, inner).table).standing is Standing.RELEASED
    commit = UnbackfilledCommit(2, path.split(".")[1], path, len(commit_of("back")), 0)
    finish_release(inner, [commit])
    finish_release(inner, [commit])
    assert in_log(inner)[commit_path(2)] == commit_of("back")


def test_a_release_is_finished_with_what_is_not_known_to_be_in_the_log(
    inner: MemoryStorage,
) -> None:
    """A commit in the log proves that all commits before it are there, listed or not."""
    paths = [unbackfilled_commit_path(version, "x" * 36) for version in range(4)]
    for version, path in enumerate(paths):
        inner.create(path, commit_of(f"v{version}"))
    size = len(commit_of("v0"))
    listed = [UnbackfilledCommit(v, "x" * 36, path, size, 0) for v, path in enumerate(paths)]
    for version in (0, 1):
        inner.create(commit_path(version), commit_of(f"v{version}"))
    finish_release(inner, [listed[0], Commit(1, commit_path(1), size, 0)])
    assert len(in_log(inner)) == 2
    finish_release(inner, [listed[0], Commit(1, commit_path(1), size, 0), *listed[2:]])
    assert [*in_log(inner).values()] == [commit_of(f"v{version}") for version in range(4)]
    finish_release(inner, ())


def test_a_release_whose_place_is_taken_is_not_finished(inner: MemoryStorage) -> None:
    path = unbackfilled_commit_path(1, "x" * 36)
    inner.create(path, commit_of("back"))
    inner.create(commit_path(1), commit_of("somebody"))
    commit = UnbackfilledCommit(1, "x" * 36, path, len(commit_of("back")), 0)
    with pytest.raises(CorruptLogError, match=rf"{commit_path(1)}.*{path}"):
        finish_release(inner, [commit])
    assert in_log(inner)[commit_path(1)] == commit_of("somebody")

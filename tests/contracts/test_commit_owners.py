"""The contract of commit owners (`airflow_delta.engine.commit.owner`), over every implementation.

Each is tested with each backfill policy. The results are read back from the files of the table.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from airflow_delta.engine.commit.owner import (
    CommitOwner,
    CommitResponse,
    ManagedTable,
    OwnerStatus,
    Standing,
)
from airflow_delta.engine.commit.sql.owner import SqlCommitOwner
from airflow_delta.engine.commit.store.memory import MemoryCommitStore
from airflow_delta.engine.commit.store.owner import StoreBackedOwner
from airflow_delta.engine.errors import CommitOwnerError, CorruptLogError, StorageError
from airflow_delta.engine.log.files import Commit, UnbackfilledCommit, commit_path
from tests.faulty_storage import Fault, FaultyStorage, How
from tests.owned_tables import (
    OWNER,
    commit_text,
    fresh_storage,
    hand_over,
    handing_over,
    history,
    in_log,
    managed,
)
from tests.postgres_server import new_database


@pytest.fixture(scope="module")
def sqlite(tmp_path_factory: pytest.TempPathFactory) -> CommitOwner:
    return SqlCommitOwner(f"sqlite:///{tmp_path_factory.mktemp('owner') / 'commits.db'}")


@pytest.fixture(scope="module")
def postgresql() -> CommitOwner:
    return SqlCommitOwner(new_database())


@pytest.fixture(params=["memory", "sqlite", "postgresql"])
def owner(request: pytest.FixtureRequest) -> CommitOwner:
    if request.param == "memory":
        return StoreBackedOwner(MemoryCommitStore())
    return request.getfixturevalue(request.param)


@pytest.fixture(params=["1", "3", "on-request", "direct"])
def policy(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def table(owner: CommitOwner, policy: str) -> ManagedTable:
    """A table whose versions 0 and 1 were made by the file system, and 1 has handed it over."""
    table = managed(fresh_storage(), backfill=policy)
    hand_over(owner, table, 1)
    return table


def make(owner: CommitOwner, table: ManagedTable, version: int, by: str = "") -> CommitResponse:
    txn_id = by or f"version {version}"
    return owner.commit(table, version, commit_text(txn_id), txn_id=txn_id)


def backfilled(policy: str, latest: int) -> int:
    """How far the policy backfills up to a version, of a table that is owned from version 1 on."""
    if policy in ("1", "direct"):
        return latest
    return max(1, latest - latest % 3) if policy == "3" else 1


# Committing


def test_commits_make_versions_in_their_order(
    owner: CommitOwner, table: ManagedTable, policy: str
) -> None:
    for version in range(2, 9):
        response = make(owner, table, version)
        assert response.latest_table_version == version
        assert response.commit is not None
        assert response.commit.version == version
        assert table.storage.read(response.commit.path) == commit_text(f"version {version}")
        assert response.commit.size == len(commit_text(f"version {version}"))
        there = backfilled(policy, version)
        assert isinstance(response.commit, Commit if there == version else UnbackfilledCommit)
        assert max(in_log(table.storage)) == there
        assert owner.status(table) == OwnerStatus(Standing.ACTIVE, version, there, version - there)
    assert history(owner, table)[1:] == [
        handing_over(table.conf),
        *(commit_text(f"version {version}") for version in range(2, 9)),
    ]


def test_a_version_is_made_once(owner: CommitOwner, table: ManagedTable) -> None:
    make(owner, table, 2, "first")
    make(owner, table, 3)
    for version in (1, 2, 3):
        assert make(owner, table, version, "second") == CommitResponse(None, 3)
    assert history(owner, table)[2:] == [commit_text("first"), commit_text("version 3")]


def test_a_commit_that_is_sent_again_is_recognised(owner: CommitOwner, table: ManagedTable) -> None:
    make(owner, table, 2)
    make(owner, table, 3)
    again = make(owner, table, 2)
    assert again.latest_table_version == 3
    assert again.commit is not None
    assert table.storage.read(again.commit.path) == commit_text("version 2")
    assert len(history(owner, table)) == 4


def test_no_version_is_made_before_the_one_before_it(
    owner: CommitOwner, table: ManagedTable
) -> None:
    with pytest.raises(CommitOwnerError, match=r"doesn't take version 3: .* is 1,") as caught:
        make(owner, table, 3)
    assert (caught.value.owner, caught.value.table) == (OWNER, table.uri)
    assert (caught.value.version, caught.value.latest) == (3, 1)
    assert len(history(owner, table)) == 2


def test_a_version_that_the_log_has_is_taken(owner: CommitOwner, table: ManagedTable) -> None:
    """By a writer that doesn't know the owner, or an owner whose commit store was restored."""
    table.storage.create(commit_path(2), commit_text("foreign"))
    assert make(owner, table, 2) == CommitResponse(None, 2)
    assert make(owner, table, 3).latest_table_version == 3
    assert history(owner, table)[2:] == [commit_text("foreign"), commit_text("version 3")]


@pytest.mark.parametrize("policy", ["3", "on-request"], indirect=True)
def test_a_log_with_another_commit_than_the_ratified_one_is_refused(
    owner: CommitOwner, table: ManagedTable
) -> None:
    make(owner, table, 2)
    table.storage.create(commit_path(2), commit_text("foreign"))
    with pytest.raises(CorruptLogError, match=r"2\.json isn't the commit .*_commits/"):
        make(owner, table, 3)
    with pytest.raises(CorruptLogError, match="without asking the owner") as caught:
        owner.backfill_to_version(table)
    assert (caught.value.version, caught.value.path) == (2, commit_path(2))
    assert in_log(table.storage)[2] == commit_text("foreign")
    assert owner.get_commits(table).latest_table_version == 2


def test_a_commit_file_that_cannot_be_written_commits_nothing(
    owner: CommitOwner, table: ManagedTable
) -> None:
    full = ManagedTable(
        FaultyStorage(table.storage, Fault("create", 1, How.FULL)), OWNER, table.conf
    )
    with pytest.raises(StorageError, match="No space left"):
        make(owner, full, 2)
    assert owner.get_commits(table).latest_table_version == 1
    assert make(owner, table, 2).latest_table_version == 2


# Reading and backfilling


def test_un_backfilled_commits_are_returned(
    owner: CommitOwner, table: ManagedTable, policy: str
) -> None:
    assert owner.get_commits(table).commits == ()
    for version in range(2, 9):
        make(owner, table, version)
    first = backfilled(policy, 8) + 1
    for start, end in [(0, None), (0, 8), (4, None), (3, 5), (8, 8), (9, None), (7, 20), (5, 4)]:
        response = owner.get_commits(table, start, end)
        assert response.latest_table_version == 8
        wanted = range(max(start, first), min(8 if end is None else end, 8) + 1)
        assert [commit.version for commit in response.commits] == [*wanted]
        for commit in response.commits:
            content = table.storage.read(commit.path)
            assert content == commit_text(f"version {commit.version}")
            assert commit.size == len(content)
            assert commit.uuid in commit.path


def test_backfills_end_at_the_requested_version(
    owner: CommitOwner, table: ManagedTable, policy: str
) -> None:
    for version in range(2, 9):
        make(owner, table, version)
    before = backfilled(policy, 8)
    for wanted, done in [(1, before), (4, max(before, 4)), (4, max(before, 4)), (None, 8), (8, 8)]:
        assert owner.backfill_to_version(table, wanted) == done
        assert sorted(in_log(table.storage)) == [*range(done + 1)]
        assert owner.status(table).backfilled_version == done
        assert owner.status(table).unbackfilled == 8 - done
    texts = [commit_text(f"version {version}") for version in range(2, 9)]
    assert [in_log(table.storage)[version] for version in range(2, 9)] == texts
    assert owner.get_commits(table).commits == ()
    assert owner.get_commits(table).latest_table_version == 8


def test_what_is_not_ratified_cannot_be_backfilled(owner: CommitOwner, table: ManagedTable) -> None:
    make(owner, table, 2)
    with pytest.raises(CommitOwnerError, match=r"version 3 can't be backfilled.* is 2") as caught:
        owner.backfill_to_version(table, 3)
    assert (caught.value.owner, caught.value.table, caught.value.version) == (
        OWNER,
        table.uri,
        3,
    )


def test_tables_are_apart(owner: CommitOwner, policy: str) -> None:
    tables = [managed(fresh_storage(), backfill=policy) for _ in range(3)]
    for number, table in enumerate(tables):
        hand_over(owner, table, number)
    for number, table in enumerate(tables):
        make(owner, table, number + 1, f"table {number}")
    for number, table in enumerate(tables):
        assert owner.get_commits(table).latest_table_version == number + 1
        assert history(owner, table)[-1] == commit_text(f"table {number}")
        owner.backfill_to_version(table)
        assert len(in_log(table.storage)) == number + 2


def test_a_table_that_the_owner_does_not_have(owner: CommitOwner, policy: str) -> None:
    table = managed(fresh_storage(), backfill=policy)
    anything: list[Callable[[], object]] = [
        lambda: make(owner, table, 0),
        lambda: owner.get_commits(table),
        lambda: owner.backfill_to_version(table),
        lambda: owner.take_over(table, 0),
        lambda: owner.status(table),
    ]
    for each in anything:
        with pytest.raises(CommitOwnerError, match="no table with the id") as caught:
            each()
        assert (caught.value.owner, caught.value.table) == (OWNER, table.uri)


# Getting and giving back


def test_a_proposed_table_is_not_owned_before_the_log_says_so(
    owner: CommitOwner, policy: str
) -> None:
    table = managed(fresh_storage(), backfill=policy)
    table.storage.create(commit_path(0), commit_text("file system 0"))
    owner.propose(table, 1)
    assert owner.status(table).standing is Standing.PROPOSED
    assert owner.get_commits(table).latest_table_version == -1
    for each in (lambda: make(owner, table, 1), lambda: make(owner, table, 2)):
        with pytest.raises(
            CommitOwnerError, match=r"agreed to own it from version 1 on, but .*1\."
        ):
            each()
    with pytest.raises(CommitOwnerError, match="agreed to own it from version 1 on"):
        owner.backfill_to_version(table)
    with pytest.raises(CommitOwnerError, match="doesn't hand over the table"):
        owner.take_over(table, 1)
    assert sorted(in_log(table.storage)) == [0]


@pytest.mark.parametrize("use", ["commit", "get_commits", "backfill", "status", "propose"])
def test_an_owner_that_was_not_informed_finds_out(
    owner: CommitOwner, policy: str, use: str
) -> None:
    table = managed(fresh_storage(), backfill=policy)
    owner.propose(table, 0)
    table.storage.create(commit_path(0), handing_over(table.conf))
    if use == "commit":
        assert make(owner, table, 1).latest_table_version == 1
    elif use == "get_commits":
        assert owner.get_commits(table).latest_table_version == 0
    elif use == "backfill":
        assert owner.backfill_to_version(table) == 0
    elif use == "propose":
        with pytest.raises(CommitOwnerError, match="handed over before, with version 0"):
            owner.propose(table, 1)
    assert owner.status(table).standing is Standing.ACTIVE
    make(owner, table, 1)
    owner.take_over(table, 0)
    make(owner, table, 2)
    assert len(history(owner, table)) == 3


def test_a_hand_over_that_lost_its_race_is_forgotten(owner: CommitOwner, policy: str) -> None:
    table = managed(fresh_storage(), backfill=policy)
    for version in (0, 1):
        owner.propose(table, version)
        table.storage.create(commit_path(version), commit_text("faster"))
    with pytest.raises(CommitOwnerError, match="agreed to own from version 1 on"):
        owner.take_over(table, 0)
    owner.forget(table, 0)
    assert owner.status(table).standing is Standing.PROPOSED
    owner.forget(table, 1)
    owner.forget(table, 1)
    with pytest.raises(CommitOwnerError, match="no table with the id"):
        owner.status(table)
    owner.propose(table, 2)
    table.storage.create(commit_path(2), handing_over(table.conf))
    owner.take_over(table, 2)
    assert make(owner, table, 3).latest_table_version == 3


def test_what_a_client_that_died_has_proposed_is_forgotten_by_the_next_one(
    owner: CommitOwner, policy: str
) -> None:
    storage = fresh_storage()
    lost, open_, mine = (managed(storage, backfill=policy) for _ in range(3))
    owner.propose(lost, 0)
    owner.propose(open_, 1)
    storage.create(commit_path(0), commit_text("faster"))
    owner.propose(mine, 1)
    with pytest.raises(CommitOwnerError, match="no table with the id"):
        owner.status(lost)
    assert owner.status(open_).standing is Standing.PROPOSED
    assert owner.status(mine).standing is Standing.PROPOSED


def test_what_is_handed_over_is_not_forgotten(owner: CommitOwner, policy: str) -> None:
    """The client that says so has misunderstood the answer of its store."""
    table = managed(fresh_storage(), backfill=policy)
    owner.propose(table, 0)
    table.storage.create(commit_path(0), handing_over(table.conf))
    owner.forget(table, 0)
    assert make(owner, table, 1).latest_table_version == 1
    owner.forget(table, 0)
    assert owner.status(table).standing is Standing.ACTIVE


def test_the_log_takes_one_of_two_proposals(owner: CommitOwner, policy: str) -> None:
    storage = fresh_storage()
    one, other = managed(storage, backfill=policy), managed(storage, backfill=policy)
    owner.propose(one, 0)
    owner.propose(other, 0)
    storage.create(commit_path(0), handing_over(one.conf))
    with pytest.raises(CommitOwnerError, match="doesn't hand over the table"):
        owner.take_over(other, 0)
    owner.forget(other, 0)
    owner.take_over(one, 0)
    assert make(owner, one, 1).latest_table_version == 1


def test_a_table_is_given_back(owner: CommitOwner, table: ManagedTable) -> None:
    for version in (2, 3):
        make(owner, table, version)
    last = commit_text("released")
    response = owner.commit(table, 4, last, txn_id="released", releases=True)
    assert response.commit is not None
    assert response.latest_table_version == 4
    assert owner.status(table) == OwnerStatus(Standing.RELEASED, 4, 4, 0)
    assert in_log(table.storage)[4] == last
    assert sorted(in_log(table.storage)) == [0, 1, 2, 3, 4]
    assert owner.get_commits(table).latest_table_version == 4
    assert owner.backfill_to_version(table) == 4
    # A client that hasn't noticed loses the race for that version, and is refused the next one.
    assert make(owner, table, 4) == CommitResponse(None, 4)
    with pytest.raises(CommitOwnerError, match="given the table back to the file system with ver"):
        make(owner, table, 5)
    assert sorted(in_log(table.storage)) == [0, 1, 2, 3, 4]
    with pytest.raises(CommitOwnerError, match="handed over before, with version 1"):
        owner.propose(table, 5)


def test_a_table_that_was_given_back_is_handed_over_again(
    owner: CommitOwner, table: ManagedTable, policy: str
) -> None:
    owner.commit(table, 2, commit_text("released"), txn_id="released", releases=True)
    again = managed(table.storage, backfill=policy)
    owner.propose(again, 3)
    table.storage.create(commit_path(3), handing_over(again.conf))
    owner.take_over(again, 3)
    assert make(owner, again, 4).latest_table_version == 4
    assert owner.status(table).standing is Standing.RELEASED


def test_a_copied_table_is_refused(owner: CommitOwner, table: ManagedTable) -> None:
    copy = ManagedTable(fresh_storage(), OWNER, table.conf)
    for version, content in in_log(table.storage).items():
        copy.storage.create(commit_path(version), content)
    make(owner, table, 2)
    anything: list[Callable[[], object]] = [
        lambda: make(owner, copy, 2),
        lambda: make(owner, copy, 3),
        lambda: owner.get_commits(copy),
        lambda: owner.backfill_to_version(copy),
        lambda: owner.status(copy),
    ]
    for each in anything:
        with pytest.raises(CommitOwnerError, match="relocate") as caught:
            each()
        assert table.location in str(caught.value)
        assert copy.location in str(caught.value)
    assert sorted(in_log(copy.storage)) == [0, 1]


# At the same time


def test_of_many_commits_for_a_version_one_makes_it(
    owner: CommitOwner, table: ManagedTable
) -> None:
    together = threading.Barrier(8)

    def attempt(writer: int) -> CommitResponse:
        together.wait()
        return make(owner, table, 2, f"writer {writer}")

    with ThreadPoolExecutor(8) as pool:
        responses = [*pool.map(attempt, range(8))]
    winners = [writer for writer, each in enumerate(responses) if each.commit is not None]
    assert len(winners) == 1
    assert history(owner, table)[2:] == [commit_text(f"writer {winners[0]}")]


def test_writers_readers_and_backfills_race(owner: CommitOwner, table: ManagedTable) -> None:
    """8 writers make 5 versions each. Nobody ever sees a version change or go away."""
    made: dict[int, str] = {}
    done = threading.Event()

    def write(writer: int) -> None:
        version = 2
        for number in range(5):
            by = f"writer {writer}, {number}"
            while (response := make(owner, table, version, by)).commit is None:
                version = response.latest_table_version + 1
            assert made.setdefault(version, by) == by
            version += 1

    def read() -> int:
        seen: list[bytes] = []
        looks = 0
        while not done.is_set():
            now = history(owner, table)
            assert now[: len(seen)] == seen
            seen = now
            looks += 1
        return looks

    def backfill(seed: int) -> None:
        choose = random.Random(seed)
        while not done.is_set():
            latest = owner.get_commits(table).latest_table_version
            owner.backfill_to_version(table, choose.choice([None, choose.randint(1, latest)]))

    with ThreadPoolExecutor(11) as pool:
        others = [pool.submit(read), *(pool.submit(backfill, seed) for seed in range(2))]
        try:
            for each in [pool.submit(write, writer) for writer in range(8)]:
                each.result()
        finally:
            done.set()
        for each in others:
            each.result()

    assert sorted(made) == [*range(2, 42)]
    owner.backfill_to_version(table)
    texts = in_log(table.storage)
    assert {version: texts[version] for version in made} == {
        version: commit_text(by) for version, by in made.items()
    }

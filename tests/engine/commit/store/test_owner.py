"""What a `StoreBackedOwner` leaves when anything fails or dies, and how the next one goes on.

``tests/contracts/test_commit_owners.py`` has what every commit owner guarantees.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

import pytest

from airflow_delta.engine.commit.owner import (
    CommitResponse,
    GetCommitsResponse,
    ManagedTable,
    OwnerStatus,
    Standing,
)
from airflow_delta.engine.commit.store.commit_store import TableEntry
from airflow_delta.engine.commit.store.memory import MemoryCommitStore
from airflow_delta.engine.commit.store.owner import StoreBackedOwner
from airflow_delta.engine.errors import (
    CommitOutcomeUnknownError,
    CommitOwnerError,
    CommitOwnerUnavailableError,
    CorruptLogError,
    DeltaError,
    DeltaWarning,
    InvalidArgumentError,
    InvalidTableError,
    StorageError,
)
from airflow_delta.engine.log.files import Commit, UnbackfilledCommit, commit_path
from airflow_delta.engine.storage.base import Storage
from airflow_delta.engine.storage.memory import MemoryStorage
from tests.faulty_commit_store import FaultyCommitStore
from tests.faulty_storage import Crash, Fault, FaultyStorage, How
from tests.owned_tables import (
    OWNER,
    commit_text,
    fresh_storage,
    hand_over,
    handing_over,
    history,
    in_log,
    managed,
    unbackfilled_files,
)

POLICIES = ["1", "3", "on-request", "direct"]
HOWS = [How.FAIL, How.LOSE_ANSWER, How.CRASH_BEFORE, How.CRASH_AFTER]


@dataclass
class World:
    """A table, its log and the books of its owner; and clients of it, who may be faulty."""

    conf: dict[str, str]
    inner: MemoryStorage = field(default_factory=fresh_storage)
    commit_store: MemoryCommitStore = field(default_factory=MemoryCommitStore)

    @classmethod
    def owned(cls, policy: str = "1", version: int = 1) -> World:
        """A table that was handed over with a version."""
        world = cls(dict(managed(fresh_storage(), backfill=policy).conf))
        hand_over(world.owner(), world.table(), version)
        return world

    def owner(self, *faults: Fault) -> StoreBackedOwner:
        return StoreBackedOwner(
            FaultyCommitStore(self.commit_store, *faults) if faults else self.commit_store
        )

    def table(self, storage: Storage | None = None) -> ManagedTable:
        return ManagedTable(storage or self.inner, OWNER, self.conf)

    def make(
        self,
        version: int,
        *,
        owner: StoreBackedOwner | None = None,
        storage: Storage | None = None,
        releases: bool = False,
        by: str = "",
    ) -> CommitResponse:
        txn_id = by or f"version {version}"
        return (owner or self.owner()).commit(
            self.table(storage), version, commit_text(txn_id), txn_id=txn_id, releases=releases
        )

    def status(self) -> OwnerStatus:
        return self.owner().status(self.table())

    def history(self) -> list[bytes]:
        return history(self.owner(), self.table())

    def entry(self) -> TableEntry:
        entry = self.commit_store.find(self.conf["tableId"])
        assert entry is not None
        return entry

    def restore(self, entry: TableEntry) -> None:
        """Set the books back, as a restored backup does."""
        self.commit_store._entries[entry.table_id] = entry


def texts(versions: Iterable[int]) -> list[bytes]:
    return [commit_text(f"version {version}") for version in versions]


# Any call of the store or the books may fail, lose its answer, or be the last one


Job = Callable[[World, StoreBackedOwner, Storage], object]


def commit(version: int, *, releases: bool = False) -> Job:
    return lambda world, owner, storage: world.make(
        version, owner=owner, storage=storage, releases=releases
    )


def backfill(world: World, owner: StoreBackedOwner, storage: Storage) -> object:
    return owner.backfill_to_version(world.table(storage))


def every_fault(job: Job, prepare: Callable[[], World]) -> Iterable[tuple[World, object]]:
    """Each world that a job can leave when one call goes wrong, with how the job ended."""
    for place, how in itertools.product(["storage", "books"], HOWS):
        for nth in itertools.count(1):
            world = prepare()
            fault = Fault("*", nth, how)
            storage = FaultyStorage(world.inner, *([fault] if place == "storage" else []))
            commit_store = FaultyCommitStore(
                world.commit_store, *([fault] if place == "books" else [])
            )
            try:
                outcome: object = job(world, StoreBackedOwner(commit_store), storage)
            except (DeltaError, Crash) as error:
                outcome = error
            yield world, outcome
            if nth > len(storage.calls if place == "storage" else commit_store.calls):
                break
        assert nth > 2, f"{place} isn't used"


def check_made_once(world: World, version: int, outcome: object) -> None:
    """Whatever an attempt to make a version led to: once it is repeated the version is there, once."""
    made = world.history()[2:] == texts(range(2, version + 1))
    if isinstance(outcome, CommitResponse):
        assert made
        assert outcome.commit is not None
        assert world.inner.read(outcome.commit.path) == texts([version])[0]
    elif isinstance(outcome, (StorageError, CommitOwnerUnavailableError)):
        assert not made, f"{outcome!r} says that nothing was committed"
    else:
        assert isinstance(outcome, (CommitOutcomeUnknownError, Crash))
    again = world.make(version)
    assert again.commit is not None
    assert again.latest_table_version == version
    assert world.history()[2:] == texts(range(2, version + 1))


@pytest.mark.parametrize("policy", POLICIES)
def test_a_commit_is_made_once_whatever_goes_wrong(policy: str) -> None:
    def prepare() -> World:
        world = World.owned(policy)
        for version in (2, 3, 4, 5):
            world.make(version)
        return world

    for world, outcome in every_fault(commit(6), prepare):
        check_made_once(world, 6, outcome)
        world.make(7)
        assert world.owner().backfill_to_version(world.table()) == 7
        assert world.status() == OwnerStatus(Standing.ACTIVE, 7, 7, 0)
        assert [*in_log(world.inner).values()][2:] == texts(range(2, 8))


@pytest.mark.parametrize("policy", POLICIES)
def test_a_table_is_given_back_once_whatever_goes_wrong(policy: str) -> None:
    def prepare() -> World:
        world = World.owned(policy)
        for version in (2, 3, 4):
            world.make(version)
        return world

    for world, outcome in every_fault(commit(5, releases=True), prepare):
        made = world.history()[2:] == texts(range(2, 6))
        if isinstance(outcome, CommitResponse):
            assert made
        elif isinstance(outcome, (StorageError, CommitOwnerUnavailableError)):
            assert not made
        assert world.make(5, releases=True).commit is not None
        world.owner().backfill_to_version(world.table())
        assert [*in_log(world.inner).values()][2:] == texts(range(2, 6))
        # A stale client gets nothing into a table that isn't the owner's any more.
        assert world.make(5, by="stale").commit is None
        if policy != "direct":
            assert world.status() == OwnerStatus(Standing.RELEASED, 5, 5, 0)
            with pytest.raises(CommitOwnerError, match="given the table back"):
                world.make(6)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_backfill_goes_on_whatever_goes_wrong(policy: str) -> None:
    def prepare() -> World:
        world = World.owned("on-request")
        for version in (2, 3, 4):
            world.make(version)
        world.conf["backfill"] = policy
        return world

    for world, outcome in every_fault(backfill, prepare):
        if isinstance(outcome, StorageError):
            # What is known to be there is noted, even though it ended in an error.
            assert world.status().backfilled_version >= max(in_log(world.inner)) - 1
        assert world.history()[2:] == texts((2, 3, 4))
        assert world.owner().backfill_to_version(world.table()) == 4
        assert [*in_log(world.inner).values()][2:] == texts((2, 3, 4))
        assert world.status() == OwnerStatus(Standing.ACTIVE, 4, 4, 0)


def test_a_hand_over_is_finished_whatever_goes_wrong() -> None:
    def hand_it_over(world: World, owner: StoreBackedOwner, storage: Storage) -> None:
        owner.propose(world.table(storage), 1)
        storage.create(commit_path(1), handing_over(world.conf))
        owner.take_over(world.table(storage), 1)

    def prepare() -> World:
        world = World(dict(managed(fresh_storage()).conf))
        world.inner.create(commit_path(0), commit_text("file system 0"))
        return world

    for world, _ in every_fault(hand_it_over, prepare):
        if 1 not in in_log(world.inner):
            # Nothing was handed over, and it can be tried again.
            hand_it_over(world, world.owner(), world.inner)
        assert world.make(2).commit is not None
        assert world.status() == OwnerStatus(Standing.ACTIVE, 2, 2, 0)


# Answers that the books don't give


@pytest.mark.parametrize("lost", [1, 2])
@pytest.mark.parametrize("how", [How.FAIL, How.LOSE_ANSWER])
def test_books_that_do_not_answer_are_asked_again(how: How, lost: int) -> None:
    world = World.owned()
    faults = [Fault("ratify", nth + 1, how) for nth in range(lost)]
    response = world.make(2, owner=world.owner(*faults))
    assert isinstance(response.commit, Commit)
    assert world.history()[2:] == texts([2])


def test_an_answer_that_never_comes_is_read_from_the_books() -> None:
    world = World.owned()
    response = world.make(2, owner=world.owner(Fault("ratify", 0, How.LOSE_ANSWER)))
    assert response == CommitResponse(response.commit, 2)
    assert response.commit is not None
    assert response.commit.path == commit_path(2)


@pytest.mark.parametrize("by", ["version 2", "another"])
def test_an_answer_that_never_comes_is_read_from_the_log(by: str) -> None:
    """Somebody has made the version and backfilled it; and the books can't be reached any more."""
    world = World.owned()
    gone = [Fault("ratify", 0, How.FAIL), Fault("find", 2, How.FAIL)]
    meanwhile = Fault("find", 2, meanwhile=lambda: world.make(2, by=by))
    response = world.make(2, owner=world.owner(meanwhile, *gone))
    assert response.latest_table_version == 2
    assert (response.commit is not None) is (by == "version 2")
    assert world.history()[2:] == [commit_text(by)]


def test_what_nothing_tells_is_unknown() -> None:
    for faults in (
        [Fault("ratify", 0, How.FAIL)],
        [Fault("ratify", 0, How.LOSE_ANSWER), Fault("find", 2, How.FAIL)],
    ):
        world = World.owned()
        with pytest.raises(CommitOutcomeUnknownError, match="txnId version 2") as caught:
            world.make(2, owner=world.owner(*faults))
        assert (caught.value.version, caught.value.txn_id) == (2, "version 2")
        assert caught.value.table == world.inner.root
        assert world.make(2).commit is not None
        assert world.history()[2:] == texts([2])


def test_what_the_store_does_not_tell_is_unknown() -> None:
    world = World.owned()
    storage = FaultyStorage(world.inner, Fault("read", 1, How.FAIL))
    with pytest.raises(CommitOutcomeUnknownError, match="failed while it was to ratify version 2"):
        world.make(2, owner=world.owner(Fault("ratify", 0, How.LOSE_ANSWER)), storage=storage)


def test_a_commit_that_was_ratified_and_backfilled_by_others_is_recognised() -> None:
    """The books don't track it any more when they are asked again."""
    world = World.owned("on-request")
    lost = Fault("ratify", 1, How.LOSE_ANSWER)
    others = Fault("ratify", 2, meanwhile=lambda: world.owner().backfill_to_version(world.table()))
    response = world.make(2, owner=world.owner(lost, others))
    assert isinstance(response.commit, Commit)
    assert world.history()[2:] == texts([2])


def test_a_ratified_file_that_is_backfilled_and_cleaned_up_while_it_is_looked_for() -> None:
    world = World.owned("on-request")

    def others() -> None:
        world.owner().backfill_to_version(world.table())
        world.inner.delete(unbackfilled_files(world.inner))

    storage = FaultyStorage(world.inner, Fault("read", 1, meanwhile=others))
    response = world.make(
        2, owner=world.owner(Fault("ratify", 0, How.LOSE_ANSWER)), storage=storage
    )
    assert response.commit is not None
    assert world.history()[2:] == texts([2])


def test_books_that_are_down_take_no_commit() -> None:
    world = World.owned()
    down = world.owner(Fault("*", 0, How.FAIL))
    anything: list[Callable[[], object]] = [
        lambda: world.make(2, owner=down),
        lambda: down.get_commits(world.table()),
        lambda: down.backfill_to_version(world.table()),
        lambda: down.propose(world.table(), 2),
        lambda: down.take_over(world.table(), 2),
        lambda: down.forget(world.table(), 2),
        lambda: down.status(world.table()),
        lambda: down.relocate(world.table()),
        lambda: down.accept_log(world.table(), 1),
    ]
    for each in anything:
        with pytest.raises(CommitOwnerUnavailableError, match="can't be reached") as caught:
            each()
        assert (caught.value.owner, caught.value.table) == (OWNER, world.inner.root)
    assert unbackfilled_files(world.inner) == []


# What fails after a commit is made


@pytest.mark.parametrize("policy", ["1", "2"])
def test_a_backfill_that_fails_does_not_fail_the_commit(policy: str) -> None:
    world = World.owned(policy)
    full = FaultyStorage(world.inner, Fault("create", 1, How.FAIL, suffix=commit_path(2)))
    with pytest.warns(DeltaWarning, match=r"version 2 is there, but couldn't be backfilled"):
        response = world.make(2, storage=full)
    assert isinstance(response.commit, UnbackfilledCommit)
    assert world.inner.read(response.commit.path) == texts([2])[0]
    assert world.status() == OwnerStatus(Standing.ACTIVE, 2, 1, 1)
    for version in (3, 4):
        world.make(version)
    assert [*in_log(world.inner).values()][2:] == texts((2, 3, 4))
    assert world.status() == OwnerStatus(Standing.ACTIVE, 4, 4, 0)


def test_books_that_miss_a_backfill_do_not_fail_the_commit() -> None:
    world = World.owned()
    with pytest.warns(DeltaWarning, match="version 2 is there and backfilled, but that couldn't"):
        response = world.make(2, owner=world.owner(Fault("observe", 1, How.FAIL)))
    assert isinstance(response.commit, Commit)
    assert world.status() == OwnerStatus(Standing.ACTIVE, 2, 1, 1)
    world.make(3)
    assert world.status() == OwnerStatus(Standing.ACTIVE, 3, 3, 0)


def test_books_that_miss_a_direct_commit_catch_up() -> None:
    world = World.owned("direct")
    with pytest.warns(DeltaWarning, match="version 2 is there, but the owner"):
        response = world.make(2, owner=world.owner(Fault("observe", 1, How.FAIL)))
    assert isinstance(response.commit, Commit)
    assert world.status().latest_version == 1
    assert world.make(3).latest_table_version == 3
    assert world.status() == OwnerStatus(Standing.ACTIVE, 3, 3, 0)


def test_a_release_is_refused_where_what_comes_before_cannot_be_backfilled() -> None:
    world = World.owned("on-request")
    world.make(2)
    broken = FaultyStorage(world.inner, Fault("create", 0, How.FAIL, suffix=commit_path(2)))
    with pytest.raises(StorageError, match="the connection broke"):
        world.make(3, storage=broken, releases=True)
    assert world.status() == OwnerStatus(Standing.ACTIVE, 2, 1, 1)
    assert world.make(3).latest_table_version == 3


# The log and the books


def test_books_that_were_restored_catch_up_with_the_log() -> None:
    world = World.owned()
    world.make(2)
    backup = world.entry()
    for version in (3, 4, 5):
        world.make(version)
    world.restore(backup)
    assert world.make(5, by="late") == CommitResponse(None, 5)
    world.restore(backup)
    assert world.make(6).latest_table_version == 6
    world.restore(backup)
    assert world.owner().backfill_to_version(world.table(), 6) == 6
    assert [*in_log(world.inner).values()][2:] == texts(range(2, 7))
    assert world.status() == OwnerStatus(Standing.ACTIVE, 6, 6, 0)


def test_books_that_were_restored_catch_up_with_what_they_track() -> None:
    world = World.owned("on-request")
    world.make(2)
    world.make(3)
    backup = world.entry()
    world.owner().backfill_to_version(world.table())
    world.make(4)
    world.owner().backfill_to_version(world.table())
    world.restore(backup)
    assert world.make(4, by="late") == CommitResponse(None, 4)
    assert world.status() == OwnerStatus(Standing.ACTIVE, 4, 4, 0)


def test_commits_that_restored_books_have_lost_are_not_passed_over() -> None:
    world = World.owned("on-request")
    backup = world.entry()
    for version in (2, 3):
        world.make(version)
    world.restore(backup)
    with pytest.raises(CommitOwnerError, match=r"restored from a backup, .* are lost") as caught:
        world.make(4)
    assert (caught.value.version, caught.value.latest) == (4, 1)
    # A client that opens the table anew sees version 1, and makes the next one of it.
    assert world.make(2, by="anew").commit is not None
    assert world.history()[2:] == [commit_text("anew")]


def test_copies_that_others_have_begun_are_noted() -> None:
    world = World.owned("on-request")
    for version in (2, 3, 4):
        world.make(version)
    for version in (2, 3):
        world.inner.create(commit_path(version), texts([version])[0])
    world.make(5)
    assert world.status() == OwnerStatus(Standing.ACTIVE, 5, 3, 2)


def test_a_table_whose_ratified_file_is_gone() -> None:
    world = World.owned("on-request")
    world.make(2)
    (path,) = unbackfilled_files(world.inner)
    world.inner.delete([path])
    with pytest.raises(CorruptLogError, match="is gone") as caught:
        world.owner().backfill_to_version(world.table())
    assert (caught.value.version, caught.value.path) == (2, path)


def test_a_version_that_was_cleaned_up_is_taken() -> None:
    world = World.owned()
    for version in (2, 3):
        world.make(version)
    world.inner.delete([commit_path(2), *unbackfilled_files(world.inner)])
    assert world.make(2, by="stale") == CommitResponse(None, 3)


@pytest.mark.parametrize("content", [b"", b"{broken", b'{"commitInfo":3}\n', b'{"add":{}}\n'])
def test_a_commit_without_our_mark_is_not_ours(content: bytes) -> None:
    world = World.owned()
    world.inner.create(commit_path(2), content)
    assert world.make(2) == CommitResponse(None, 2)


# Policies


def test_a_policy_may_change() -> None:
    """Whoever makes a version knows the policy of the version before."""
    world = World.owned("on-request")
    world.make(2)
    world.make(3)
    world.conf["backfill"] = "direct"
    assert isinstance(world.make(4).commit, Commit)
    assert sorted(in_log(world.inner)) == [0, 1, 2, 3, 4]
    world.conf["backfill"] = "on-request"
    assert isinstance(world.make(5).commit, UnbackfilledCommit)
    world.conf["backfill"] = "1"
    world.make(6)
    assert [*in_log(world.inner).values()][2:] == texts(range(2, 7))


def test_a_policy_that_is_none_keeps_nobody_in() -> None:
    world = World.owned("on-request")
    world.make(2)
    world.conf["backfill"] = "sometimes"
    with pytest.raises(InvalidTableError, match="'sometimes'"):
        world.make(3)
    assert world.owner().get_commits(world.table()).latest_table_version == 2
    assert world.owner().backfill_to_version(world.table()) == 2
    assert world.make(3, releases=True).commit is not None
    assert world.status().standing is Standing.RELEASED


def test_a_commit_costs_a_few_calls() -> None:
    """Of the store and of the books; the first is a price in milliseconds, the second in load."""
    costs = {
        "1": (["head", "create", "create"], ["find", "ratify", "observe"]),
        "on-request": (["head", "create"], ["find", "ratify"]),
        "direct": (["head", "create"], ["find", "observe"]),
    }
    for policy, (store, books) in costs.items():
        world = World.owned(policy)
        storage, commit_store = FaultyStorage(world.inner), FaultyCommitStore(world.commit_store)
        world.make(2, owner=StoreBackedOwner(commit_store), storage=storage)
        assert [call.operation for call in storage.calls] == store
        assert commit_store.calls == books


# Whose a table is


@pytest.mark.parametrize(
    ("conf", "problem"),
    [
        ({"backfill": "sometimes"}, r"conf\['backfill'\] is 'sometimes'.*above 0.*'direct'"),
        ({"backfil": "3"}, r"conf\['backfil'\] means nothing.*other key than 'backfill'"),
    ],
)
def test_a_table_is_not_taken_with_a_configuration_that_is_none(
    conf: dict[str, str], problem: str
) -> None:
    world = World(dict(managed(fresh_storage(), **conf).conf))
    with pytest.raises(InvalidArgumentError, match=problem) as caught:
        world.owner().propose(world.table(), 0)
    assert (caught.value.table, caught.value.option) == (world.inner.root, *conf)
    assert world.commit_store.find(world.conf["tableId"]) is None


def test_a_table_without_an_id() -> None:
    table = ManagedTable(fresh_storage(), OWNER, {"endpoint": "elsewhere"})
    owner = StoreBackedOwner(MemoryCommitStore())
    for each in (
        lambda: owner.get_commits(table),
        lambda: owner.propose(table, 0),
        lambda: owner.commit(table, 1, b"", txn_id="x"),
    ):
        with pytest.raises(CommitOwnerError, match="'tableId'") as caught:
            each()
        assert (caught.value.owner, caught.value.table) == (OWNER, table.uri)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{broken metaData\n",
        b'{"metaData":{"configuration":null}}\n',
        b'{"metaData":{"configuration":{"delta.managedCommit.commitOwnerConf":"{"}}}\n',
        b'["metaData"]\n',
        handing_over({"tableId": "of another table"}),
        commit_text('"metaData"'),
    ],
)
def test_a_commit_that_hands_nothing_over(content: bytes) -> None:
    world = World({"tableId": "ours"})
    world.owner().propose(world.table(), 0)
    world.inner.create(commit_path(0), content)
    with pytest.raises(CommitOwnerError, match="doesn't hand over the table with the id ours"):
        world.owner().take_over(world.table(), 0)
    with pytest.raises(CommitOwnerError, match="Commit by the file system"):
        world.make(1)
    assert world.status().standing is Standing.PROPOSED


USES: dict[str, Callable[[World], object]] = {
    "commit": lambda world: world.make(4),
    "get_commits": lambda world: world.owner().get_commits(world.table()),
    "backfill": lambda world: world.owner().backfill_to_version(world.table()),
    "status": lambda world: world.status(),
}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("proof", [commit_path(3), f"_delta_log/{3:020}.checkpoint.parquet"])
def test_a_hand_over_that_was_cleaned_up_before_the_owner_looked(use: str, proof: str) -> None:
    """The table tells its id in what is left of the log, and so the owner must not refuse it."""
    world = World(dict(managed(fresh_storage()).conf))
    world.owner().propose(world.table(), 1)
    world.inner.create(proof, b"x")
    USES[use](world)
    status = world.status()
    assert status.standing is Standing.ACTIVE
    assert status.backfilled_version == (4 if use == "commit" else 3)
    assert world.owner().get_commits(world.table()) == GetCommitsResponse((), status.latest_version)
    assert world.make(5 if use == "commit" else 4).commit is not None
    assert world.make(6 if use == "commit" else 5, releases=True).commit is not None


@pytest.mark.parametrize("ours", [True, False])
def test_a_hand_over_that_is_made_while_the_owner_looks(ours: bool) -> None:
    world = World(dict(managed(fresh_storage()).conf))
    world.owner().propose(world.table(), 0)
    text = handing_over(world.conf) if ours else commit_text("faster")
    storage = FaultyStorage(
        world.inner,
        Fault("list", 1, meanwhile=lambda: world.inner.create(commit_path(0), text)),
    )
    standing = world.owner().status(world.table(storage)).standing
    assert standing is (Standing.ACTIVE if ours else Standing.PROPOSED)


@pytest.mark.parametrize("use", ["propose", "take_over", "forget"])
def test_whoever_hands_a_table_over_has_no_proof_in_later_versions(use: str) -> None:
    """What these calls know of the table is what was to be written."""
    world = World(dict(managed(fresh_storage()).conf))
    world.owner().propose(world.table(), 1)
    world.inner.create(commit_path(3), commit_text("of others"))
    if use == "take_over":
        with pytest.raises(CommitOwnerError, match="doesn't hand over the table"):
            world.owner().take_over(world.table(), 1)
    elif use == "propose":
        world.owner().propose(world.table(), 4)
    else:
        world.owner().forget(world.table(), 1)
        assert world.commit_store.find(world.conf["tableId"]) is None
        return
    assert world.entry().standing is Standing.PROPOSED


def test_a_proposal_is_not_forgotten_while_nobody_can_tell() -> None:
    world = World({"tableId": "ours"})
    world.owner().propose(world.table(), 0)
    world.owner().forget(world.table(FaultyStorage(world.inner, Fault("read", 1, How.FAIL))), 0)
    assert world.status().standing is Standing.PROPOSED
    world.owner().forget(world.table(), 0)
    assert world.commit_store.find("ours") is None


def test_a_table_made_anew_in_the_same_place() -> None:
    world = World.owned()
    world.make(2)
    world.inner.delete([info.path for info in world.inner.walk("")])
    anew = replace(world, conf=dict(managed(world.inner).conf))
    hand_over(anew.owner(), anew.table())
    assert anew.make(1).commit is not None
    assert [*in_log(world.inner).values()][1:] == texts([1])


def move(world: World) -> World:
    """Move all files of a table to another place."""
    moved = replace(world, inner=fresh_storage())
    for info in [*world.inner.walk("")]:
        moved.inner.create(info.path, world.inner.read(info.path))
        world.inner.delete([info.path])
    return moved


@pytest.mark.parametrize("policy", POLICIES)
def test_a_table_that_has_moved(policy: str) -> None:
    world = World.owned(policy)
    for version in (2, 3, 4):
        world.make(version)
    moved = move(world)
    with pytest.raises(CommitOwnerError, match="relocate"):
        moved.make(5)
    assert moved.owner().relocate(moved.table()) == world.table().location
    assert moved.owner().relocate(moved.table()) == moved.table().location
    assert moved.make(5).commit is not None
    assert moved.history()[2:] == texts((2, 3, 4, 5))
    with pytest.raises(CommitOwnerError, match="relocate"):
        world.status()


@pytest.mark.parametrize(
    ("policy", "lacks", "version"),
    [("on-request", "_commits", 2), ("1", commit_path(4), 4), ("3", commit_path(3), None)],
)
def test_a_table_that_has_not_wholly_moved(policy: str, lacks: str, version: int | None) -> None:
    world = World.owned(policy)
    for number in (2, 3, 4):
        world.make(number)
    moved = move(world)
    moved.inner.delete([info.path for info in moved.inner.walk("") if lacks in info.path])
    if version is None:
        # What the books know to be backfilled needn't all be there: logs are cleaned up.
        moved.owner().relocate(moved.table())
        return
    with pytest.raises(CommitOwnerError, match=f"version {version} isn't there") as caught:
        moved.owner().relocate(moved.table())
    assert caught.value.expected == world.table().location
    assert caught.value.found == moved.table().location
    assert moved.entry().location == world.table().location


def test_a_table_is_not_moved_to_where_another_one_is() -> None:
    world, other = World.owned(), World.owned()
    elsewhere = replace(world, inner=other.inner)
    with pytest.raises(CommitOwnerError, match="version 1 isn't the commit that handed"):
        elsewhere.owner().relocate(elsewhere.table())
    unknown = World(dict(managed(fresh_storage()).conf))
    with pytest.raises(CommitOwnerError, match="no table with the id"):
        unknown.owner().relocate(unknown.table())


def test_a_ratified_file_that_is_damaged_by_a_move() -> None:
    world = World.owned("on-request")
    world.make(2)
    moved = move(world)
    (path,) = unbackfilled_files(moved.inner)
    moved.inner.replace(path, b"half")
    with pytest.raises(CommitOwnerError, match="version 2 isn't there"):
        moved.owner().relocate(moved.table())

"""A managed table in memory, clients of it that take turns, and observers that look at it after every step.

Each call of the store, and each call of a commit owner's commit store, is a step. `Steps` decides whose
step is next, and lets clients die. `each_schedule` has them interrupt each other at every possible step.

`World.truth` computes the table's state by brute force: from the commits in the log, and those in the
commit store. After every step that may have changed something, the table must not have lost a commit, and
all observers must see just that state. Observers that only know the log must see the part of it that is
there.
"""

from __future__ import annotations

import itertools
import json
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeVar, final

from airflow_delta.engine import AddFile, DeltaTable, Snapshot
from airflow_delta.engine.commit.owner import ManagedTable, Standing
from airflow_delta.engine.commit.registry import CommitOwners, OwnedTable
from airflow_delta.engine.commit.store.commit_store import TableEntry
from airflow_delta.engine.commit.store.memory import MemoryCommitStore
from airflow_delta.engine.commit.store.owner import StoreBackedOwner
from airflow_delta.engine.errors import (
    CommitConflictError,
    CommitOutcomeUnknownError,
    CommitOwnerUnavailableError,
    DeltaWarning,
    InvalidArgumentError,
)
from airflow_delta.engine.log.files import LOG_DIRECTORY, commit_path
from airflow_delta.engine.snapshot.opening import open_snapshot
from tests.faulty_commit_store import FaultyCommitStore
from tests.faulty_storage import Crash, Fault
from tests.log_builder import metadata
from tests.races.replayed_log import Log
from tests.races.serial_model import timestamp_problems
from tests.stepping import SteppedStorage, Turns
from tests.table_builder import Files, MemoryTable, commits

__all__ = [
    "OWNER",
    "SteppedCommitStore",
    "Steps",
    "World",
    "append",
    "backfill",
    "backfill_by_owner",
    "begun",
    "each_death",
    "each_schedule",
    "file",
    "plain_files",
]

OWNER = "central"
_MANAGED: dict[object, tuple[Files, tuple[TableEntry, ...]]] = {}
"""What `World.managed` has made: files, and the entries of the commit store."""

_Result = TypeVar("_Result")
_CHANGES = (
    *("create", "replace", "writer", "delete"),
    *(
        "commit_store.propose",
        "commit_store.forget",
        "commit_store.activate",
        "commit_store.ratify",
        "commit_store.observe",
    ),
)
"""How the steps begin that have an effect on others."""


class Steps(Turns):
    """Turns that are looked at, and in which actors die.

    Args:
        choose: see `Turns`.
        dies: after so many steps, by the actor's number.

    Attributes:
        look: called whenever something may have changed.
        taken: how many steps each actor has taken.
    """

    def __init__(
        self, choose: Callable[[Sequence[int]], int], dies: Mapping[int, int] | None = None
    ) -> None:
        super().__init__(choose)
        self.look: Callable[[], None] = lambda: None
        self.taken: dict[int, int] = {}
        self._dies = dict(dies or {})
        self._changed = False

    def step(self, what: str) -> None:
        # Before the turn is given away, and where an actor has ended when it has come back.
        self._look()
        before = len(self.trace)
        super().step(what)
        if len(self.trace) == before:
            return  # nobody's step
        self._look()
        me, _ = self.trace[-1]
        if self.taken.get(me, 0) >= self._dies.get(me, 10**9):
            raise Crash(f"{what}: a dead process does nothing")
        self.taken[me] = self.taken.get(me, 0) + 1
        self._changed = what.startswith(_CHANGES)

    def _look(self) -> None:
        if self._changed:
            self._changed = False
            self.look()


class SteppedCommitStore(FaultyCommitStore):
    """A commit store, each call of which takes a turn."""

    def __init__(self, inner: MemoryCommitStore, turns: Turns, *faults: Fault) -> None:
        super().__init__(inner, *faults)
        self._turns = turns

    def _step(self, method: str, effect: Callable[[], _Result]) -> _Result:
        self._turns.step(f"commit_store.{method}")
        return super()._step(method, effect)


@final
class World:
    """A table, the commit stores of its owners, its clients, and observers.

    Args:
        steps: in which the clients take turns.
        files: the table's log; none to have it created.
        owners: the names of the owners, each with its own commit store.
        thorough: whether the engine looks on as well, and not only brute force.
    """

    def __init__(
        self,
        steps: Steps,
        files: Files | None = None,
        owners: Sequence[str] = (OWNER,),
        *,
        thorough: bool = True,
    ) -> None:
        self.steps = steps
        self.table = MemoryTable({} if files is None else files)
        self.commit_stores = {name: MemoryCommitStore() for name in owners}
        self._owners = {
            name: StoreBackedOwner(commit_store)
            for name, commit_store in self.commit_stores.items()
        }
        self._thorough = thorough
        self._failures: list[Exception] = []
        self._seen: list[bytes] = []
        self._logged = -1
        self._followed = self.direct()

    def __enter__(self) -> World:
        return self

    def __exit__(self, *failure: object) -> None:
        self.table.__exit__(*failure)

    def client(self, *faults: Fault, commit_store: Sequence[Fault] = ()) -> DeltaTable:
        """Somebody who takes turns.

        Args:
            faults: of the store, as this client has it.
            commit_store: likewise, those of the commit store.
        """
        delta = DeltaTable(
            self.table.uri,
            commit_owners={
                name: StoreBackedOwner(SteppedCommitStore(inner, self.steps, *commit_store))
                for name, inner in self.commit_stores.items()
            },
        )
        delta.__dict__["storage"] = SteppedStorage(self.table.storage, self.steps, *faults)
        return delta

    def direct(self) -> DeltaTable:
        """Somebody who knows the owners and takes no turns."""
        return self._opened(DeltaTable(self.table.uri, commit_owners=self._owners))

    def stranger(self) -> DeltaTable:
        """Somebody who doesn't know the owners, and takes no turns."""
        return self._opened(DeltaTable(self.table.uri))

    def owned(self) -> OwnedTable:
        """The table and its owner, as a client who takes turns has them."""
        delta = self.client()
        newest = open_snapshot(self.table.storage)
        owned = delta._owners.find_owned_table(delta.storage, newest.protocol, newest.metadata)
        assert owned is not None
        return owned

    def managed(self, policy: str, appends: int = 2) -> World:
        """Hand the table over, and make some commits, of which the policy may leave some where they are.

        A test wants the same table for each of its schedules; it is made once.
        """
        before = (frozenset(self.table.files().items()), policy, appends)
        entries = self.commit_stores[OWNER]._entries
        assert not entries
        if before not in _MANAGED:
            self.direct().convert_to_managed(OWNER, {"backfill": policy})
            for number in range(appends):
                append(self.direct(), f"before{number}")
            _MANAGED[before] = self.table.files(), tuple(entries.values())
            return self
        files, made = _MANAGED[before]
        self.table.put(files)
        entries.update((entry.table_id, replace(entry, location=self.location)) for entry in made)
        return self

    def run(self, *actors: Callable[[], object]) -> list[object]:
        """Run actors, under the eyes of the onlookers: what each has returned or raised."""
        self.look()
        self.steps.look = self._look_aside
        outcomes = self.steps.run(actors)
        self._look_aside()
        if self._failures:
            raise self._failures[0]
        return outcomes

    def _look_aside(self) -> None:
        """As `look`, while an actor is at work, who must not be the one to learn what is wrong."""
        try:
            self.look()
        except Exception as error:
            self._failures.append(error)

    @property
    def location(self) -> str:
        """The location of the table in the commit store."""
        return ManagedTable(self.table.storage, OWNER, {}).location

    def truth(self) -> list[bytes]:
        """The commits of all versions: those in the log, then those that an owner has ratified."""
        found = self._in_log()
        tracked = self._tracked()
        while len(found) in tracked:
            found.append(self.table.storage.read(tracked[len(found)]))
        return found

    def log(self) -> Log:
        """The table's log as `truth` has it, by commits and states; it can be looked at again."""
        return Log(_WholeLog(self))  # type: ignore[arg-type]

    def read_whole(self, path: str) -> bytes | None:
        """A file; of a commit that isn't backfilled what will be its copy."""
        content = self.table.storage.read_many([path])[0]
        if content is None and path.endswith(".json"):
            tracked = self._tracked().get(int(path[-25:-5]))
            return None if tracked is None else self.table.storage.read(tracked)
        return content

    def look(self) -> None:
        """See that no version has gone or changed, and that everybody sees what there is."""
        truth, logged = self.truth(), self._in_log()
        assert truth[: len(self._seen)] == self._seen, "a version has gone, or has changed"
        assert len(logged) - 1 >= self._logged, "a version has gone from the log"
        self._seen, self._logged = truth, len(logged) - 1
        if not (logged and self._thorough):
            return
        storage, owners = self.table.storage, CommitOwners(self._owners)
        self._check_seen("a reader", open_snapshot(storage, owners=owners), truth)
        self._check_seen("a reader of the log", open_snapshot(storage), logged)
        assert self.direct().latest_version() == len(truth) - 1

    def check_seen(self, seen: Snapshot) -> None:
        """See that what somebody has seen is a version."""
        truth = self.truth()[: seen.version + 1]
        self._check_seen("somebody", seen, truth)

    def check_follower(self) -> None:
        """See that somebody who holds the table open sees what there is as well."""
        self._check_seen("a follower", self._followed._newest.get(), self.truth())

    def version(self) -> int:
        """The newest version."""
        return len(self.truth()) - 1

    def stranger_version(self) -> int:
        """The newest version that the log has."""
        return len(self._in_log()) - 1

    def check(self, outcomes: Mapping[str, object]) -> dict[str, list[int]]:
        """See that what was committed is there once, and what wasn't isn't; and that life goes on.

        Args:
            outcomes: what became of `append` by name: a version or an error.

        Returns:
            The versions that each has made, by name.
        """
        made = self.made()
        for name, outcome in outcomes.items():
            versions = made.get(name, [])
            if isinstance(outcome, int):
                assert versions == [outcome], (name, outcome, versions)
            elif isinstance(outcome, Crash | CommitOutcomeUnknownError):
                assert len(versions) <= 1, (name, outcome, versions)
            else:
                refusals = (CommitConflictError, CommitOwnerUnavailableError)
                assert isinstance(outcome, refusals), (name, outcome)
                assert not versions, (name, outcome, versions)
        log = self.log()
        log.look()
        assert not [*timestamp_problems(log)]
        self.check_onward("afterwards")
        return made

    def made(self) -> dict[str, list[int]]:
        """The versions of each ``userMetadata``."""
        made: dict[str, list[int]] = {}
        for version, commit in enumerate(self.truth()):
            info = json.loads(commit.split(b"\n")[0])["commitInfo"]
            made.setdefault(info.get("userMetadata", ""), []).append(version)
        return made

    def check_onward(self, name: str) -> None:
        """See that the next commit is made, with a name, and that everybody has it after a backfill."""
        count = len(self.truth())
        assert append(self.direct(), name) == count
        with suppress(InvalidArgumentError):  # the file system's
            assert self.direct().backfill().backfilled_version == count
        self.look()
        assert self._logged == count
        log = self.log()
        log.look()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeltaWarning)
            for delta in (self.direct(), self.stranger()):
                files = delta.snapshot().files(columns=["path"])["path"].to_pylist()
                assert sorted(files) == sorted(path for path, _ in log.states[-1].files)

    def _check_seen(self, who: str, seen: Snapshot, truth: Sequence[bytes]) -> None:
        assert seen.version == len(truth) - 1, f"{who} sees {seen.version}, not {len(truth) - 1}"
        for commit in seen.segment.commits:
            found = self.table.storage.read(commit.path)
            assert found == truth[commit.version], f"{who} sees another {commit.path}"

    def _in_log(self) -> list[bytes]:
        """The commits in the log, in which there never is a gap."""
        paths = [info.path for info in self.table.storage.list(LOG_DIRECTORY)]
        versions = [int(path[-25:-5]) for path in paths if path.endswith(".json")]
        assert versions == [*range(len(versions))], f"a log with a gap: {versions}"
        return [self.table.storage.read(commit_path(version)) for version in versions]

    def _tracked(self) -> dict[int, str]:
        """The files that owners have ratified, by version."""
        tracked: dict[int, str] = {}
        for commit_store in self.commit_stores.values():
            for found in commit_store.entries_at(self.location):
                entry = commit_store.find(found.table_id)
                if entry is None or entry.standing is Standing.PROPOSED:
                    continue
                for commit in entry.commits:
                    assert commit.version not in tracked, "a version of two owners"
                    tracked[commit.version] = commit.path
        return tracked

    def _opened(self, delta: DeltaTable) -> DeltaTable:
        delta.__dict__["storage"] = self.table.storage
        return delta


class _WholeLog:
    """As much of a storage as `Log` needs."""

    def __init__(self, world: World) -> None:
        self._world = world

    def read_many(self, paths: Sequence[str]) -> list[bytes | None]:
        return [self._world.read_whole(path) for path in paths]


def plain_files(**configuration: str) -> Files:
    """The log of a table that the file system manages: version 0, of which some features are on."""
    first: list[dict[str, Any]] = [
        {"commitInfo": {"operation": "CREATE TABLE", "timestamp": 1}},
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
        metadata(configuration=configuration),
    ]
    return commits([first])


def begun(delta: DeltaTable, name: str) -> Callable[[], int]:
    """Add a file, by the commit of a name, which is left to be made: its version."""
    transaction = delta.transaction("WRITE", user_metadata=name)
    columns = transaction.base.metadata.partition_columns
    transaction.add_file(replace(file(name), partition_values=dict.fromkeys(columns)))
    return lambda: transaction.commit().version


def append(delta: DeltaTable, name: str) -> int:
    """Add a file, by the commit of a name: its version."""
    return begun(delta, name)()


def file(name: str) -> AddFile:
    """A data file."""
    return AddFile(name, {}, 1, 1, data_change=True, stats='{"numRecords":1}')


def backfill(delta: DeltaTable) -> int | None:
    """Backfill what is ratified: the newest backfilled version; None of the file system's table."""
    try:
        return delta.backfill().backfilled_version
    except InvalidArgumentError:
        return None


def backfill_by_owner(owned: OwnedTable, version: int | None = None) -> int:
    """Have the owner backfill, without a look at the log before and after."""
    return owned.owner.backfill_to_version(owned.table, version)


def each_schedule(*, twice: bool = False, firsts: Sequence[int] = (0, 1)) -> Iterator[Steps]:
    """All the ways in which one of two actors interrupts the other one.

    One takes some steps, then the other one goes to its end, then the first. The caller has to run the
    actors before the next schedule is requested, because how many steps they have is only known then.

    Args:
        twice: the other one is interrupted as well, after some steps, until the first is at its end.
        firsts: who is the first; one is enough where they do the same.
    """
    for first in firsts:
        for before in itertools.count(1):
            longest = 0
            for meanwhile in itertools.count(2) if twice else (10**9,):
                steps = Steps(_in_parts([(first, before), (1 - first, meanwhile)], first))
                yield steps
                longest = max(longest, steps.taken.get(first, 0))
                if meanwhile > steps.taken.get(1 - first, 0):
                    break
            if before > longest:
                break


def each_death(*, meanwhile: bool = False) -> Iterator[Steps]:
    """All the ways in which the first of two actors dies; the other one begins after that.

    Args:
        meanwhile: the other one has begun before, and taken some steps, in all the ways too.
    """
    for count in itertools.count():
        longest = 0
        for before in itertools.count(1) if meanwhile else (0,):
            steps = Steps(_in_parts([(1, before), (0, 10**9)], 1), dies={0: count})
            yield steps
            longest = max(longest, steps.taken.get(0, 0))
            if before > steps.taken.get(1, 0):
                break
        if longest < count:
            return


def _in_parts(parts: Sequence[tuple[int, int]], last: int) -> Callable[[Sequence[int]], int]:
    """Has actors take so many steps, one part after the other; then ``last``, then the others, end."""
    left = [[number, count] for number, count in parts]

    def choose(going: Sequence[int]) -> int:
        while left:
            number, count = left[0]
            if count > 0 and number in going:
                left[0][1] -= 1
                return number
            left.pop(0)
        return last if last in going else going[0]

    return choose

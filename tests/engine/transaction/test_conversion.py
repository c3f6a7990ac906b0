"""Tables that are given to a commit owner and taken back, whatever others do meanwhile."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable as Peer
from deltalake import write_deltalake

from airflow_delta.engine import AddFile, DeltaTable
from airflow_delta.engine.commit.owner import Standing
from airflow_delta.engine.commit.store.commit_store import CommitStore
from airflow_delta.engine.commit.store.memory import MemoryCommitStore
from airflow_delta.engine.commit.store.owner import StoreBackedOwner
from airflow_delta.engine.errors import (
    CommitConflictError,
    CommitOwnerUnavailableError,
    DeltaWarning,
    InvalidArgumentError,
    InvalidTableError,
    UnsupportedFeatureError,
)
from airflow_delta.engine.log.files import commit_path
from airflow_delta.engine.model.schema import LONG, STRING, StructField, StructType
from airflow_delta.engine.storage.base import Storage
from airflow_delta.engine.transaction import commit_loop
from tests.faulty_storage import Fault, FaultyStorage, How
from tests.log_builder import metadata, write_commit
from tests.stepping import SteppedStorage, Turns, stepped_engine, ticking_clock
from tests.table_builder import MemoryTable
from tests.watched_owner import WatchedOwner

SCHEMA = StructType((StructField("id", LONG), StructField("part", STRING)))
OWNER, CONF = "delta.managedCommit.commitOwner", "delta.managedCommit.commitOwnerConf"
SEEDS = 30
ENABLED = (
    "delta.inCommitTimestampEnablementVersion",
    "delta.inCommitTimestampEnablementTimestamp",
)


@pytest.fixture
def owner() -> WatchedOwner:
    return WatchedOwner()


def opened(root: Path, owner: WatchedOwner) -> DeltaTable:
    return DeltaTable(str(root), commit_owners={"central": owner})


def file(path: str) -> AddFile:
    return AddFile(path=path, partition_values={}, size=1, modification_time=1, data_change=True)


def append(table: DeltaTable, path: str) -> int:
    transaction = table.transaction("WRITE")
    transaction.add_file(file(path))
    return transaction.commit().version


def live(table: DeltaTable) -> set[str]:
    return set(table.snapshot().files(columns=["path"])["path"].to_pylist())


def in_log(root: Path, version: int) -> dict[str, Any]:
    """The actions of a commit that is in the log, by their kind; one of each."""
    text = (root / "_delta_log" / f"{version:020}.json").read_text(encoding="utf-8")
    return {kind: value for line in text.splitlines() for kind, value in json.loads(line).items()}


@pytest.fixture
def plain(tmp_path: Path) -> DeltaTable:
    """A table of the file system, version 2."""
    table = DeltaTable.create(str(tmp_path), SCHEMA, properties={"delta.appendOnly": "true"})
    append(table, "f0")
    append(table, "f1")
    return table


def test_a_table_is_given_to_an_owner_by_one_commit(
    tmp_path: Path, owner: WatchedOwner, plain: DeltaTable
) -> None:
    table = opened(tmp_path, owner)
    before = plain.snapshot()
    result = table.convert_to_managed("central", {"backfill": "on-request"})
    assert (result.version, result.owner, result.converted) == (3, "central", True)
    actions = in_log(tmp_path, 3)
    assert actions.keys() == {"commitInfo", "protocol", "metaData"}
    assert actions["protocol"]["minWriterVersion"] == 7
    assert {*actions["protocol"]["writerFeatures"]} == {
        "appendOnly",
        "invariants",
        "inCommitTimestamp",
        "managedCommit",
    }
    configuration = actions["metaData"]["configuration"]
    conf = json.loads(configuration.pop(CONF))
    timestamp = actions["commitInfo"]["inCommitTimestamp"]
    assert timestamp > before.timestamp_ms
    assert configuration == {
        "delta.appendOnly": "true",
        "delta.enableInCommitTimestamps": "true",
        OWNER: "central",
        **dict(zip(ENABLED, ("3", str(timestamp)), strict=True)),
    }
    assert conf.keys() == {"backfill", "tableId"}
    assert conf["backfill"] == "on-request"
    # As Delta Spark has it: what was set, in JSON.
    assert actions["commitInfo"]["operation"] == "SET TBLPROPERTIES"
    recorded = json.loads(actions["commitInfo"]["operationParameters"]["properties"])
    assert recorded.keys() == {OWNER, CONF, "delta.enableInCommitTimestamps"}
    status = table.commit_status()
    assert (status.owner, status.standing) == ("central", Standing.ACTIVE)
    assert append(table, "f2") == 4
    assert not (tmp_path / commit_path(4)).exists()
    assert live(table) == {"f0", "f1", "f2"}
    assert Peer(tmp_path).version() == 3


def test_the_history_of_before_keeps_its_times(
    tmp_path: Path, owner: WatchedOwner, plain: DeltaTable
) -> None:
    times = [info.timestamp_ms for info in plain.history()]
    table = opened(tmp_path, owner)
    table.convert_to_managed("central", {"backfill": "on-request"})
    append(table, "f2")
    later = [info.timestamp_ms for info in table.history()]
    assert later[2:] == times
    assert sorted(later, reverse=True) == later
    assert len({*later}) == 5


def test_what_is_managed_by_the_owner_already_is_left_alone(
    tmp_path: Path, owner: WatchedOwner, plain: DeltaTable
) -> None:
    table = opened(tmp_path, owner)
    conf = {"backfill": "2"}
    table.convert_to_managed("central", conf)
    append(table, "f2")
    for again in (table.convert_to_managed("central"), table.convert_to_managed("central", conf)):
        assert (again.version, again.owner, again.converted) == (4, "central", False)
    with pytest.raises(
        InvalidArgumentError, match=r"the configuration \{'backfill': '2'\} instead of"
    ):
        table.convert_to_managed("central", {"backfill": "3"})
    other = DeltaTable(str(tmp_path), commit_owners={"central": owner, "other": WatchedOwner()})
    with pytest.raises(InvalidArgumentError, match=r"has the commit owner 'central'.*'other'"):
        other.convert_to_managed("other")
    assert table.latest_version() == 4


@pytest.mark.parametrize(
    ("owner_name", "conf", "problem"),
    [
        ("", None, "found an empty text"),
        (None, None, "owner: expected a text"),
        ("central", {"tableId": "mine"}, "contains tableId='mine'"),
        ("central", {"backfill": 2}, r"conf\['backfill'\]: expected a text, found the int 2"),
        ("central", "backfill", "conf: expected a mapping"),
    ],
)
def test_what_makes_no_sense_gives_no_table_away(
    tmp_path: Path,
    owner: WatchedOwner,
    plain: DeltaTable,
    owner_name: Any,
    conf: Any,
    problem: str,
) -> None:
    with pytest.raises(InvalidArgumentError, match=problem):
        opened(tmp_path, owner).convert_to_managed(owner_name, conf)
    assert plain.latest_version() == 2
    assert owner.calls == []


def test_an_owner_that_nobody_knows_gets_no_table(
    tmp_path: Path, owner: WatchedOwner, plain: DeltaTable
) -> None:
    with pytest.raises(CommitOwnerUnavailableError, match="'nobody' isn't known here"):
        opened(tmp_path, owner).convert_to_managed("nobody")
    assert plain.latest_version() == 2


@pytest.mark.parametrize("feature", ["coordinatedCommits-preview", "catalogManaged"])
def test_tables_of_later_coordinators_are_left_to_them(
    tmp_path: Path, owner: WatchedOwner, feature: str
) -> None:
    listed = ["inCommitTimestamp", "vacuumProtocolCheck", feature]
    readers = [name for name in listed[1:] if name != "coordinatedCommits-preview"]
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": readers}
    on = {"delta.enableInCommitTimestamps": "true"}
    write_commit(
        tmp_path,
        0,
        {"commitInfo": {"inCommitTimestamp": 1}},
        {"protocol": {**protocol, "writerFeatures": listed}},
        metadata(configuration=on),
    )
    table = opened(tmp_path, owner)
    for convert in (lambda: table.convert_to_managed("central"), table.convert_to_file_system):
        if feature == "catalogManaged":
            with pytest.raises(UnsupportedFeatureError, match=feature):
                convert()
            continue
        with (
            pytest.warns(DeltaWarning, match="may be stale"),
            pytest.raises(UnsupportedFeatureError, match=feature),
        ):
            DeltaTable(str(tmp_path), commit_owners={"central": owner}).convert_to_managed(
                "central"
            )


def test_in_commit_timestamps_may_go_with_the_owner(
    tmp_path: Path, owner: WatchedOwner, plain: DeltaTable
) -> None:
    """deltalake writes no table that has them."""
    table = opened(tmp_path, owner)
    table.convert_to_managed("central", {"backfill": "on-request"})
    append(table, "f2")
    result = table.convert_to_file_system(keep_in_commit_timestamps=False)
    actions = in_log(tmp_path, result.version)
    assert {*actions["protocol"]["writerFeatures"]} == {"appendOnly", "invariants"}
    configuration = actions["metaData"]["configuration"]
    assert {OWNER, CONF, "delta.enableInCommitTimestamps", *ENABLED} & configuration.keys() == set()
    assert "inCommitTimestamp" not in actions["commitInfo"]
    rows = pa.table({"id": pa.array([1], pa.int64()), "part": ["a"]})
    write_deltalake(str(tmp_path), rows, mode="append")
    stranger = DeltaTable(str(tmp_path))
    assert stranger.latest_version() == result.version + 1
    assert len(live(stranger)) == len(live(table)) == 4
    assert append(table, "f3") == result.version + 2
    times = [each.timestamp_ms for each in stranger.history()]
    assert times == sorted(times, reverse=True)


def test_in_commit_timestamps_stay_while_there_is_an_owner(
    tmp_path: Path, owner: WatchedOwner, plain: DeltaTable
) -> None:
    table = opened(tmp_path, owner)
    table.convert_to_managed("central")
    base = table.snapshot()
    transaction = table.transaction("DROP FEATURE")
    features = base.protocol.writer_features - {"inCommitTimestamp"}
    transaction.set_protocol(replace(base.protocol, writer_features=features))
    with pytest.raises(InvalidTableError, match=r"lacks the features .*inCommitTimestamp"):
        transaction.commit()


def test_a_table_is_taken_back_by_one_commit(
    tmp_path: Path, owner: WatchedOwner, plain: DeltaTable
) -> None:
    table = opened(tmp_path, owner)
    table.convert_to_managed("central", {"backfill": "on-request"})
    for n in range(2, 5):
        append(table, f"f{n}")
    table_id = table.snapshot().properties.commit_owner_conf["tableId"]
    result = table.convert_to_file_system()
    assert (result.version, result.owner, result.converted) == (7, None, True)
    actions = in_log(tmp_path, 7)
    assert actions.keys() == {"commitInfo", "protocol", "metaData"}
    assert {*actions["protocol"]["writerFeatures"]} == {
        "appendOnly",
        "invariants",
        "inCommitTimestamp",
    }
    configuration = actions["metaData"]["configuration"]
    assert {OWNER, CONF} & configuration.keys() == set()
    assert configuration["delta.enableInCommitTimestamps"] == "true"
    assert configuration[ENABLED[0]] == "3"
    assert actions["commitInfo"]["operation"] == "DROP FEATURE"
    assert actions["commitInfo"]["operationParameters"] == {
        "featureName": "managedCommit",
        "truncateHistory": "false",
    }
    # Nobody needs to know of the owner any more.
    stranger = DeltaTable(str(tmp_path))
    assert stranger.latest_version() == 7
    assert live(stranger) == {f"f{n}" for n in range(5)}
    assert append(stranger, "f5") == 8
    assert append(table, "f6") == 9
    peer = Peer(tmp_path)
    assert (peer.version(), len(peer.file_uris())) == (9, 7)
    again = table.convert_to_file_system()
    assert (again.version, again.owner, again.converted) == (9, None, False)
    # And it may be given away again, by another id.
    assert table.convert_to_managed("central").version == 10
    assert table.snapshot().properties.commit_owner_conf["tableId"] != table_id
    assert append(table, "f7") == 11
    assert live(opened(tmp_path, owner)) == {f"f{n}" for n in range(8)}


def released_and_not_in_log(root: Path, owner: WatchedOwner) -> DeltaTable:
    """A table whose last managed version, 3, is ratified, and not in the log."""
    conf = json.dumps({"backfill": "on-request"})
    table = DeltaTable.create(
        str(root),
        SCHEMA,
        properties={OWNER: "central", CONF: conf},
        commit_owners={"central": owner},
    )
    append(table, "f0")
    append(table, "f1")
    broken = opened(root, owner)
    fault = Fault("create", 0, How.FAIL, suffix=commit_path(3))
    broken.__dict__["storage"] = FaultyStorage(broken.storage, fault)
    with pytest.warns(DeltaWarning, match="backfill"):
        result = broken.convert_to_file_system()
    assert (result.version, result.converted) == (3, True)
    assert (root / commit_path(2)).exists()
    assert not (root / commit_path(3)).exists()
    return opened(root, owner)


def test_a_release_that_is_not_in_the_log_holds_strangers_up(
    tmp_path: Path, owner: WatchedOwner
) -> None:
    released_and_not_in_log(tmp_path, owner)
    with pytest.raises(CommitOwnerUnavailableError, match="isn't known here"):
        DeltaTable(str(tmp_path)).transaction("WRITE")


@pytest.mark.parametrize("way", ["append", "conversion", "backfill", "alteration"])
def test_a_release_that_is_not_in_the_log_is_finished(
    tmp_path: Path, owner: WatchedOwner, way: str
) -> None:
    table = released_and_not_in_log(tmp_path, owner)
    status = table.commit_status()
    assert (status.standing, status.ratified_version, status.lag) == (Standing.RELEASED, 3, 1)
    assert table.snapshot().properties.commit_owner is None
    latest = 3
    if way == "append":
        latest = append(table, "f2")
    elif way == "alteration":
        latest = table.alter.set_description("given back").version
    elif way == "conversion":
        assert not table.convert_to_file_system().converted
    else:
        assert table.backfill().num_backfilled == 1
    assert "managedCommit" not in in_log(tmp_path, 3)["protocol"]["writerFeatures"]
    assert latest == (4 if way in ("append", "alteration") else 3)
    stranger = DeltaTable(str(tmp_path))
    assert append(stranger, "last") == latest + 1
    expected = {"f0", "f1", "last"} | ({"f2"} if way == "append" else set())
    assert live(stranger) == live(table) == expected


def test_two_that_finish_a_release_do_it_once(tmp_path: Path, owner: WatchedOwner) -> None:
    first, second = released_and_not_in_log(tmp_path, owner), opened(tmp_path, owner)
    begun = [table.transaction("WRITE") for table in (first, second)]
    for n, transaction in enumerate(begun):
        transaction.add_file(file(f"g{n}"))
    assert [transaction.commit().version for transaction in begun] == [4, 5]
    assert live(DeltaTable(str(tmp_path))) == {"f0", "f1", "g0", "g1"}


class SteppedCommitStore:
    """A commit store each step of which takes a turn."""

    def __init__(self, inner: CommitStore, turns: Turns) -> None:
        self._inner = inner
        self._turns = turns

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._inner, name)

        def step(*args: Any, **kwargs: Any) -> Any:
            self._turns.step(f"commit_store.{name}")
            return method(*args, **kwargs)

        return step


class Race:
    """Writers of one table in memory, who take turns at each step of the store and of the commit store."""

    def __init__(self, table: MemoryTable, turns: Turns) -> None:
        self.commit_store = MemoryCommitStore()
        self.storage: Storage = SteppedStorage(table.storage, turns)
        self._table = table
        self._stepped = StoreBackedOwner(SteppedCommitStore(self.commit_store, turns))  # type: ignore[arg-type]

    def writer(self) -> DeltaTable:
        """Another writer, who knows the owner."""
        delta = DeltaTable(self._table.storage.root, commit_owners={"central": self._stepped})
        delta.__dict__["storage"] = self.storage
        return delta

    def reader(self) -> DeltaTable:
        """Somebody who doesn't take turns."""
        owner = StoreBackedOwner(self.commit_store)
        delta = DeltaTable(self._table.storage.root, commit_owners={"central": owner})
        delta.__dict__["storage"] = self._table.storage
        return delta


def _files() -> dict[str, bytes]:
    actions: list[dict[str, Any]] = [
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
        metadata(),
    ]
    first = "".join(json.dumps(action) + "\n" for action in actions)
    return {commit_path(0): first.encode()}


def in_runs(seed: int) -> Turns:
    """Turns by chance; mostly somebody takes several in a row, so that some come early and some late."""
    rng = random.Random(seed)
    last = [0]

    def choose(going: Sequence[int]) -> int:
        if last[0] not in going or rng.random() < 0.2:
            last[0] = rng.choice(going)
        return last[0]

    return Turns(choose)


@pytest.fixture
def use() -> Iterator[Callable[[Turns], None]]:
    with stepped_engine(ticking_clock()) as use:
        yield use


def check(race: Race, outcomes: dict[str, object]) -> None:
    """What was committed is there, once, and nothing else; log and commit store agree."""
    made = {path for path, outcome in outcomes.items() if isinstance(outcome, int)}
    refused = [outcome for outcome in outcomes.values() if not isinstance(outcome, int)]
    assert all(isinstance(error, CommitConflictError) for error in refused), refused
    reader = race.reader()
    newest = reader.snapshot()
    assert {path for path in live(reader) if not path.startswith("_")} == made
    history = reader.history()
    by_version = {info.version: info.operation for info in history}
    versions = [outcome for outcome in outcomes.values() if isinstance(outcome, int)]
    assert [by_version[version] for version in versions] == ["WRITE"] * len({*versions})
    assert [info.version for info in history] == [*range(newest.version, -1, -1)]
    recorded = [info.timestamp_ms or 0 for info in history]
    assert sorted(recorded, reverse=True) == recorded


@pytest.mark.parametrize("backfill", ["1", "on-request", "direct"])
def test_a_conversion_races_with_appends_in_any_order(
    use: Callable[[Turns], None], backfill: str
) -> None:
    """An append comes before the conversion, conflicts with it, or goes to the owner."""
    met: Counter[str] = Counter()
    for seed in range(SEEDS):
        turns = in_runs(seed)
        use(turns)
        with MemoryTable(_files()) as table:
            race = Race(table, turns)
            converting, one, two = (race.writer() for _ in range(3))
            outcomes = turns.run(
                [
                    partial(converting.convert_to_managed, "central", {"backfill": backfill}),
                    partial(append, one, "a"),
                    partial(append, two, "b"),
                ]
            )
            result, *appends = outcomes
            assert not isinstance(result, BaseException), result
            check(race, dict(zip("ab", appends, strict=True)))
            met.update(
                type(outcome).__name__ if not isinstance(outcome, int) else _side(outcome, result)
                for outcome in appends
            )
            reader = race.reader()
            status = reader.commit_status()
            assert (status.owner, status.standing) == ("central", Standing.ACTIVE)
            assert append(reader, "_last") == status.ratified_version + 1
    assert met.keys() == {"before", "after", "ProtocolChangedError"}


@pytest.mark.parametrize("backfill", ["1", "on-request", "direct"])
def test_a_conversion_back_races_with_appends_in_any_order(
    use: Callable[[Turns], None], backfill: str
) -> None:
    met: Counter[str] = Counter()
    for seed in range(SEEDS):
        turns = in_runs(seed)
        use(turns)
        with MemoryTable(_files()) as table:
            race = Race(table, turns)
            race.reader().convert_to_managed("central", {"backfill": backfill})
            append(race.reader(), "_first")
            converting, one, two = (race.writer() for _ in range(3))
            result, *appends = turns.run(
                [
                    converting.convert_to_file_system,
                    partial(append, one, "a"),
                    partial(append, two, "b"),
                ]
            )
            assert not isinstance(result, BaseException), result
            check(race, dict(zip("ab", appends, strict=True)))
            met.update(
                type(outcome).__name__ if not isinstance(outcome, int) else _side(outcome, result)
                for outcome in appends
            )
            stranger = DeltaTable(table.storage.root)
            stranger.__dict__["storage"] = table.storage
            newest = stranger.snapshot()
            assert newest.properties.commit_owner is None
            assert live(stranger) == live(race.reader())
            assert append(stranger, "_last") == newest.version + 1
    assert met.keys() == {"before", "after", "ProtocolChangedError"}


def _side(version: int, result: Any) -> str:
    return "before" if version < result.version else "after"


def test_of_two_conversions_one_is_made(use: Callable[[Turns], None]) -> None:
    met: Counter[str] = Counter()
    for seed in range(SEEDS):
        turns = in_runs(seed)
        use(turns)
        with MemoryTable(_files()) as table:
            race = Race(table, turns)
            outcomes = turns.run(
                [partial(race.writer().convert_to_managed, "central") for _ in range(2)]
            )
            kinds = sorted(
                str(getattr(outcome, "converted", type(outcome).__name__)) for outcome in outcomes
            )
            met[" ".join(kinds)] += 1
            reader = race.reader()
            assert reader.commit_status().standing is Standing.ACTIVE
            assert append(reader, "f") == 2
            entries = race.commit_store.entries_at(reader.storage.root)
            assert [entry.standing for entry in entries] == [Standing.ACTIVE]
    assert met.keys() == {"False True", "ProtocolChangedError True"}


def test_the_loop_waits_between_attempts_of_a_conversion(
    tmp_path: Path, owner: WatchedOwner, plain: DeltaTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An append that wins the version is no conflict; the conversion comes after it."""
    pauses: list[int] = []
    monkeypatch.setattr(commit_loop, "pause", pauses.append)
    wins = iter(["w0", "w1"])

    def win() -> None:
        if path := next(wins, None):
            append(plain, path)

    owner.before["propose"] = win
    result = opened(tmp_path, owner).convert_to_managed("central")
    assert (result.version, pauses) == (5, [1, 2])
    assert owner.named("propose", "forget", "take_over") == [
        ("propose", 3),
        ("forget", 3),
        ("propose", 4),
        ("forget", 4),
        ("propose", 5),
        ("take_over", 5),
    ]
    assert in_log(tmp_path, 5)["metaData"]["configuration"][ENABLED[0]] == "5"
    assert live(opened(tmp_path, owner)) == {"f0", "f1", "w0", "w1"}

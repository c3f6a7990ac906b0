"""Every call that an operation makes of the storage fails once, before and after its effect.

Whatever fails, the table is the old one or the new one afterwards, never something between; success
is reported exactly for what is in the log; and running the operation again is safe. `sweep` counts
the calls of an undisturbed run first, so that no call is forgotten when an operation changes.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import pytest

import airflow_delta.engine.table.base
from airflow_delta.engine import DeltaTable
from airflow_delta.engine.errors import (
    CommitOutcomeUnknownError,
    DeltaError,
    DeltaWarning,
    InvalidArgumentError,
    StorageError,
    TableAlreadyExistsError,
    TableNotFoundError,
)
from airflow_delta.engine.model.actions import AddFile, RemoveFile
from airflow_delta.engine.model.schema import PrimitiveType, StructField, StructType
from tests.faulty_storage import READS, Crash, Fault, FaultyStorage, How
from tests.log_builder import PROTOCOL, add, metadata, remove
from tests.table_builder import (
    FAR_FUTURE_MS,
    Files,
    MemoryTable,
    State,
    commit_file,
    commits,
    state_of,
    states,
)

HISTORY = [
    [PROTOCOL, metadata(), add("a"), add("b")],
    [add("c"), {"txn": {"appId": "other", "version": 4}}],
    [remove("b", deletionTimestamp=FAR_FUTURE_MS), add("d")],
    [add("e")],
]
LAST = len(HISTORY) - 1
OLD = states(HISTORY)[LAST].visible()


@dataclass(frozen=True)
class Run:
    """One disturbed run of an operation.

    Attributes:
        table: the table afterwards, without faults.
        outcome: what was returned, or raised.
    """

    table: MemoryTable
    outcome: object


def files_with(*checkpoints: int) -> Files:
    """The history with our checkpoints of some versions, the commits before the first deleted."""
    with MemoryTable(commits(HISTORY)) as table:
        for version in checkpoints:
            table.delta().checkpoint(version=version)
        table.storage.delete([commit_file(v) for v in range(min(checkpoints, default=0))])
        return table.files()


LOGS = {"commits": files_with(), "checkpoints": files_with(1, 2)}


@pytest.fixture(params=list(LOGS))
def files(request: pytest.FixtureRequest) -> Files:
    return LOGS[request.param]


def disturbed(table: MemoryTable, *faults: Fault) -> tuple[DeltaTable, FaultyStorage]:
    """The table as an engine with a bad connection opens it."""
    delta, storage = table.delta(), FaultyStorage(table.storage, *faults)
    delta.__dict__["storage"] = storage
    return delta, storage


def sweep(files: Files, operate: Callable[[DeltaTable], object]) -> Iterator[Run]:
    """Run an operation once for each of its calls and each way to go wrong."""
    with MemoryTable(files) as table:
        delta, storage = disturbed(table)
        operate(delta)
        calls = [*storage.calls]
    assert len(calls) > 1
    for nth, call in enumerate(calls, 1):
        # A process that dies in a read leaves what the call before it has left.
        for how in [How.FAIL] if call.operation in READS else How:
            with MemoryTable(files) as table:
                delta, storage = disturbed(table, Fault("*", nth, how))
                yield Run(table, attempt(lambda delta=delta: operate(delta)))
                assert storage.met, "the fault was never met"


def attempt(operate: Callable[[], object]) -> object:
    """What an operation returns or raises; an error that is no `DeltaError` goes through."""
    try:
        return operate()
    except (DeltaError, Crash) as error:
        return error


def seen(table: MemoryTable) -> tuple[int, State]:
    snapshot = table.delta().snapshot()
    return snapshot.version, state_of(snapshot)


@contextmanager
def lenient() -> Iterator[None]:
    """What is optional (a hint, a version checksum) may fail with no more than a warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeltaWarning)
        yield


@lenient()
def append(delta: DeltaTable) -> int:
    """An operation as a task runs it: it looks for its own earlier commit first."""
    done = delta.version_of_transaction("app", 7)
    if done is not None:
        return done
    transaction = delta.transaction("WRITE")
    transaction.set_transaction("app", 7)
    transaction.add_file(AddFile("new", {}, 5, 1, data_change=True))
    transaction.remove_file(RemoveFile("a", data_change=True, deletion_timestamp=FAR_FUTURE_MS))
    return transaction.commit().version


def test_a_commit_is_made_or_not(files: Files) -> None:
    for run in sweep(files, append):
        version, state = seen(run.table)
        made = "app" in state.transactions
        assert version == LAST + made
        if made:
            assert {path for path, _ in state.files} == {"c", "d", "e", "new"}
            assert {path for path, _ in state.tombstones} == {"a", "b"}
            assert (state.protocol, state.metadata) == (OLD.protocol, OLD.metadata)
        else:
            assert state == OLD
        if isinstance(run.outcome, int):
            assert (made, run.outcome) == (True, version)
        elif not isinstance(run.outcome, (CommitOutcomeUnknownError, Crash)):
            assert isinstance(run.outcome, StorageError)
            assert not made
        # The retry of the task: whatever happened, there is one commit in the end.
        assert append(run.table.delta()) == LAST + 1
        assert seen(run.table)[0] == LAST + 1
        assert "app" in seen(run.table)[1].transactions


def test_a_commit_whose_answer_is_lost_counts(files: Files) -> None:
    """Whoever made the request: the engine that fails, or a client below it that tries again."""
    for how in (How.LOSE_ANSWER, How.REPEAT):
        with MemoryTable(files) as table:
            delta, _ = disturbed(table, Fault("create", how=how))
            assert append(delta) == LAST + 1
            assert seen(table)[0] == LAST + 1


def test_a_commit_whose_fate_cannot_be_told_says_so(files: Files) -> None:
    """The answer is lost, and then the store is gone."""
    with MemoryTable(files) as table:
        delta, storage = disturbed(table)
        transaction = delta.transaction("WRITE")
        transaction.add_file(AddFile("new", {}, 5, 1, data_change=True))
        storage.__init__(
            table.storage, Fault("create", how=How.LOSE_ANSWER), Fault("read", 0, How.FAIL)
        )
        with pytest.raises(CommitOutcomeUnknownError, match="txnId") as caught:
            transaction.commit()
        assert caught.value.version == LAST + 1
        assert caught.value.txn_id in table.storage.read(commit_file(LAST + 1)).decode()
        # Trying again could make a second commit of it.
        storage.__init__(table.storage)
        with pytest.raises(InvalidArgumentError, match="tried to be; begin a new one"):
            transaction.commit()
        assert seen(table)[0] == LAST + 1


def test_a_commit_that_no_put_could_make_is_not_tried_again(files: Files) -> None:
    with MemoryTable(files) as table:
        delta, storage = disturbed(table)
        transaction = delta.transaction("WRITE")
        transaction.add_file(AddFile("new", {}, 5, 1, data_change=True))
        storage.__init__(table.storage, Fault("create", 0, How.FAIL))
        with pytest.raises(StorageError, match="the connection broke"):
            transaction.commit()
        storage.__init__(table.storage)
        with pytest.raises(InvalidArgumentError, match="tried to be; begin a new one"):
            transaction.commit()
        assert seen(table) == (LAST, OLD)


def test_a_table_is_created_or_not(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = StructType(
        tuple(StructField(name, PrimitiveType("long"), nullable=True) for name in ("id", "n"))
    )

    def create(uri: str, storage: FaultyStorage | None = None) -> DeltaTable:
        with monkeypatch.context() as patch:
            if storage is not None:
                patch.setattr(airflow_delta.engine.table.base, "open_storage", lambda *_: storage)
            with lenient():
                return DeltaTable.create(uri, schema, partition_by=["id"])

    with MemoryTable({}) as table:
        storage = FaultyStorage(table.storage)
        create(table.uri, storage)
        calls = len(storage.calls)
    for how in How:
        for nth in range(1, calls + 1):
            with MemoryTable({}) as table:
                storage = FaultyStorage(table.storage, Fault("*", nth, how))
                outcome = attempt(lambda uri=table.uri, storage=storage: create(uri, storage))
                made = table.delta().exists()
                if isinstance(outcome, DeltaTable):
                    assert made
                elif not isinstance(outcome, (CommitOutcomeUnknownError, Crash)):
                    assert not made
                if not made:
                    with pytest.raises(TableNotFoundError, match="no Delta table"):
                        table.delta().snapshot()
                with suppress(TableAlreadyExistsError):
                    create(table.uri)
                version, state = seen(table)
                assert (version, state.files) == (0, {})
                assert state.metadata is not None
                assert state.metadata["partitionColumns"] == ["id"]


def test_a_reader_gets_the_table_or_the_error_of_the_store(files: Files) -> None:
    def read(delta: DeltaTable) -> tuple[int, State]:
        snapshot = delta.snapshot()
        return snapshot.version, state_of(snapshot)

    for run in sweep(files, read):
        assert run.outcome == (LAST, OLD) or isinstance(run.outcome, (StorageError, Crash))


def test_a_snapshot_outlives_a_failure_of_the_store(files: Files) -> None:
    """What is read late can fail late; asked again, the same snapshot answers."""
    with MemoryTable(files) as table:
        delta, storage = disturbed(table)
        snapshot = delta.snapshot()
        before = len(storage.calls)
        assert state_of(snapshot) == OLD
        calls = len(storage.calls) - before
    for nth in range(1, calls + 1):
        with MemoryTable(files) as table:
            delta, storage = disturbed(table)
            snapshot = delta.snapshot()
            storage.__init__(table.storage, Fault("*", nth, How.FAIL))
            assert isinstance(attempt(lambda snapshot=snapshot: state_of(snapshot)), StorageError)
            assert state_of(snapshot) == OLD


def test_history_and_versions_get_the_error_of_the_store(files: Files) -> None:
    questions: list[Callable[[DeltaTable], object]] = [
        lambda delta: [info.version for info in delta.history()],
        lambda delta: delta.latest_version(),
        lambda delta: delta.latest_version(known=LAST),
        lambda delta: delta.version_of_transaction("other", 4),
    ]
    for ask in questions:
        with MemoryTable(files) as table:
            expected = ask(table.delta())
        with MemoryTable(files) as table:
            delta, storage = disturbed(table)
            ask(delta)
            calls = len(storage.calls)
        for how in How:
            for nth in range(1, calls + 1):
                with MemoryTable(files) as table:
                    delta, _ = disturbed(table, Fault("*", nth, how))
                    outcome = attempt(lambda ask=ask, delta=delta: ask(delta))
                    assert outcome == expected or isinstance(outcome, (StorageError, Crash))

"""Copying un-backfilled commits: in order, never over another file, and as often as one likes."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from airflow_delta.engine.commit import backfill_files
from airflow_delta.engine.commit.backfill_files import (
    backfill_commits,
    check_copies,
    is_backfilled,
    write_unbackfilled,
)
from airflow_delta.engine.errors import (
    CorruptLogError,
    InvalidArgumentError,
    ObjectExistsError,
    StorageError,
    UnsafeStorageError,
)
from airflow_delta.engine.log.files import UnbackfilledCommit, commit_path, parse_log_file
from airflow_delta.engine.storage.base import Capabilities
from airflow_delta.engine.storage.memory import MemoryStorage
from tests.faulty_storage import Crash, Fault, FaultyStorage, How
from tests.owned_tables import commit_text, fresh_storage, in_log, unbackfilled_files


class Plain(FaultyStorage):
    """A store without put-if-absent."""

    @property
    def capabilities(self) -> Capabilities:
        return replace(self.inner.capabilities, put_if_absent=False)

    def create(self, path: str, data: bytes) -> None:
        raise UnsafeStorageError("no conditional writes", path=path)


class Promising(FaultyStorage):
    """A store that says it has put-if-absent, and refuses when it is tried."""

    def create(self, path: str, data: bytes) -> None:
        raise UnsafeStorageError("no conditional writes", path=path)


@pytest.fixture
def inner() -> MemoryStorage:
    return fresh_storage()


@pytest.fixture(params=[FaultyStorage, Plain, Promising])
def store(request: pytest.FixtureRequest) -> type[FaultyStorage]:
    return request.param


def write(inner: MemoryStorage, *versions: int) -> list[UnbackfilledCommit]:
    return [
        write_unbackfilled(inner, version, commit_text(f"version {version}"))
        for version in versions
    ]


def texts(*versions: int) -> dict[int, bytes]:
    return {version: commit_text(f"version {version}") for version in versions}


# Writing


def test_a_file_that_is_no_version_yet(store: type[FaultyStorage], inner: MemoryStorage) -> None:
    one, other = (write_unbackfilled(store(inner), 7, data) for data in (b"one", b"other"))
    assert [inner.read(commit.path) for commit in (one, other)] == [b"one", b"other"]
    for commit in (one, other):
        parsed = parse_log_file(inner.head(commit.path))
        assert isinstance(parsed, UnbackfilledCommit)
        assert replace(parsed, modified_ms=commit.modified_ms) == commit
    assert in_log(inner) == {}


def test_a_name_that_is_taken_is_not_used(
    inner: MemoryStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken, free = "0" * 36, "1" * 36
    names = iter([taken, free, *[taken] * 9])
    monkeypatch.setattr(backfill_files.uuid, "uuid4", lambda: next(names))
    theirs = f"_delta_log/_commits/{7:020}.{taken}.json"
    inner.create(theirs, b"theirs")
    assert write_unbackfilled(inner, 7, b"ours").uuid == free
    assert inner.read(theirs) == b"theirs"
    with pytest.raises(ObjectExistsError, match=taken):
        write_unbackfilled(inner, 7, b"ours")


def test_a_store_that_repeats_a_request_by_itself(inner: MemoryStorage) -> None:
    storage = FaultyStorage(inner, Fault("create", 1, How.REPEAT))
    commit = write_unbackfilled(storage, 7, b"ours")
    assert inner.read(commit.path) == b"ours"
    assert commit.path in unbackfilled_files(inner)


def test_a_file_that_cannot_be_written(inner: MemoryStorage) -> None:
    with pytest.raises(StorageError, match="the connection broke"):
        write_unbackfilled(FaultyStorage(inner, Fault("create", 1, How.FAIL)), 7, b"ours")


# Copying


def test_commits_are_copied_in_order(store: type[FaultyStorage], inner: MemoryStorage) -> None:
    done: list[int] = []
    storage = store(inner)
    backfill_commits(storage, write(inner, 3, 4, 5), on_copied=done.append)
    assert done == [3, 4, 5]
    assert in_log(inner) == texts(3, 4, 5)
    backfill_commits(storage, [])
    assert len(unbackfilled_files(inner)) == 3


def test_many_commits_are_read_together(inner: MemoryStorage) -> None:
    commits = write(inner, *range(150))
    storage = FaultyStorage(inner)
    backfill_commits(storage, commits)
    assert in_log(inner) == texts(*range(150))
    assert len(storage.calls) == 150 + 3
    assert storage.count("create") == 150


def test_large_commits_are_read_apart(
    inner: MemoryStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backfill_files, "_BATCH_BYTES", 100)
    commits = [write_unbackfilled(inner, version, b"x" * 60) for version in range(3)]
    storage = FaultyStorage(inner)
    backfill_commits(storage, commits)
    assert storage.count("read_many") == 3


def test_what_the_caller_has_is_not_read(inner: MemoryStorage) -> None:
    commits = write(inner, 3, 4)
    storage = FaultyStorage(inner)
    backfill_commits(storage, commits, contents={commits[1].path: commit_text("version 4")})
    assert in_log(inner) == texts(3, 4)
    assert [call.path for call in storage.calls if call.operation == "read_many"] == [
        commits[0].path
    ]


def test_a_gap_is_refused(inner: MemoryStorage) -> None:
    for versions in [(3, 5), (4, 3), (3, 3)]:
        with pytest.raises(InvalidArgumentError, match="without a gap"):
            backfill_commits(inner, write(inner, *versions))
    assert in_log(inner) == {}


def test_a_copy_that_is_there_stays(store: type[FaultyStorage], inner: MemoryStorage) -> None:
    commits = write(inner, 3, 4, 5)
    inner.create(commit_path(4), commit_text("version 4"))
    inner.set_modified(commit_path(4), 1)
    for _ in range(2):
        backfill_commits(store(inner), commits)
        assert in_log(inner) == texts(3, 4, 5)
        assert inner.head(commit_path(4)).modified_ms == 1


@pytest.mark.parametrize("theirs", [b"", b"theirs", commit_text("version 4")[:-1]])
def test_another_file_is_never_overwritten(
    store: type[FaultyStorage], inner: MemoryStorage, theirs: bytes
) -> None:
    commits = write(inner, 3, 4, 5)
    inner.create(commit_path(4), theirs)
    done: list[int] = []
    with pytest.raises(CorruptLogError, match="without asking the owner") as caught:
        backfill_commits(store(inner), commits, on_copied=done.append)
    assert commit_path(4) in str(caught.value)
    assert commits[1].path in str(caught.value)
    assert (caught.value.version, caught.value.path) == (4, commit_path(4))
    assert done == [3]
    assert in_log(inner) == {**texts(3), 4: theirs}


def test_a_file_that_is_gone_is_missed(store: type[FaultyStorage], inner: MemoryStorage) -> None:
    commits = write(inner, 3, 4, 5)
    inner.delete([commits[1].path])
    done: list[int] = []
    with pytest.raises(CorruptLogError, match=r"is gone, and .* put one of them back") as caught:
        backfill_commits(store(inner), commits, on_copied=done.append)
    assert (caught.value.version, caught.value.path) == (4, commits[1].path)
    assert commit_path(4) in str(caught.value)
    assert done == [3]


def test_a_file_that_is_gone_is_not_needed_where_the_log_has_it(
    store: type[FaultyStorage], inner: MemoryStorage
) -> None:
    commits = write(inner, 3, 4, 5)
    backfill_commits(inner, commits[:2])
    inner.delete([commits[0].path, commits[1].path])
    done: list[int] = []
    backfill_commits(store(inner), commits, on_copied=done.append)
    assert done == [3, 4, 5]
    assert in_log(inner) == texts(3, 4, 5)


def test_a_file_that_was_changed_is_not_copied(inner: MemoryStorage) -> None:
    commits = write(inner, 3, 4)
    inner.replace(commits[1].path, commit_text("version 4")[:-9])
    with pytest.raises(
        CorruptLogError, match="has 69 bytes, expected 78: it was cut off"
    ) as caught:
        backfill_commits(inner, commits)
    assert (caught.value.version, caught.value.path) == (4, commits[1].path)
    assert in_log(inner) == texts(3)


# Faults and races


@pytest.mark.parametrize(
    "how", [How.FAIL, How.LOSE_ANSWER, How.REPEAT, How.CRASH_BEFORE, How.CRASH_AFTER]
)
def test_every_call_may_go_wrong(store: type[FaultyStorage], how: How) -> None:
    nth = 0
    met = True
    while met:
        nth += 1
        inner = fresh_storage()
        commits = write(inner, 3, 4, 5)
        storage = store(inner, Fault("*", nth, how))
        done: list[int] = []
        try:
            backfill_commits(storage, commits, on_copied=done.append)
        except (StorageError, Crash):
            assert how is not How.REPEAT
            assert set(done) <= set(in_log(inner))
        else:
            assert done == [3, 4, 5]
        # What is there was copied in order, and is whole.
        assert in_log(inner) == texts(*range(3, 3 + len(in_log(inner))))
        assert len(in_log(inner)) <= len(done) + 1
        backfill_commits(store(inner), commits)
        assert in_log(inner) == texts(3, 4, 5)
        met = bool(storage.met)
    assert nth > 4


def test_a_put_whose_answer_was_lost_is_settled_by_reading(
    store: type[FaultyStorage], inner: MemoryStorage
) -> None:
    put = "create" if store is FaultyStorage else "replace"
    backfill_commits(store(inner, Fault(put, 2, How.LOSE_ANSWER)), write(inner, 3, 4, 5))
    assert in_log(inner) == texts(3, 4, 5)


def test_a_writer_who_does_not_ask_may_be_faster(inner: MemoryStorage) -> None:
    commits = write(inner, 3)
    theirs = Fault("create", 1, meanwhile=lambda: inner.create(commit_path(3), b"theirs"))
    with pytest.raises(CorruptLogError, match="without asking the owner"):
        backfill_commits(FaultyStorage(inner, theirs), commits)
    assert in_log(inner) == {3: b"theirs"}


def test_a_file_that_is_backfilled_and_cleaned_up_concurrently(inner: MemoryStorage) -> None:
    commits = write(inner, 3, 4)

    def others() -> None:
        backfill_commits(inner, commits)
        inner.delete([commit.path for commit in commits])

    backfill_commits(FaultyStorage(inner, Fault("read_many", 1, meanwhile=others)), commits)
    assert in_log(inner) == texts(3, 4)


def test_many_backfill_at_once(inner: MemoryStorage) -> None:
    commits = write(inner, *range(30))
    together = threading.Barrier(8)

    def backfill(start: int) -> None:
        together.wait()
        backfill_commits(inner, commits[start:] if start in in_log(inner) else commits)

    with ThreadPoolExecutor(8) as pool:
        for each in [pool.submit(backfill, start) for start in range(8)]:
            each.result()
    assert in_log(inner) == texts(*range(30))


# Looking


def test_copies_are_compared_as_far_as_there_are_any(inner: MemoryStorage) -> None:
    commits = write(inner, 3, 4, 5, 6)
    assert check_copies(inner, commits) is None
    backfill_commits(inner, commits[:2])
    assert check_copies(inner, commits) == 4
    inner.delete([commits[0].path])
    assert check_copies(inner, commits) == 4
    inner.create(commit_path(5), b"theirs")
    with pytest.raises(CorruptLogError, match="without asking the owner") as caught:
        check_copies(inner, commits)
    assert caught.value.version == 5
    assert in_log(inner) == {**texts(3, 4), 5: b"theirs"}


def test_whether_a_version_is_in_the_log(inner: MemoryStorage) -> None:
    commits = write(inner, 3)
    assert not is_backfilled(inner, 3)
    backfill_commits(inner, commits)
    assert is_backfilled(inner, 3)
    broken = FaultyStorage(inner, Fault("head", 1, How.FAIL))
    with pytest.raises(StorageError, match="the connection broke"):
        is_backfilled(broken, 3)

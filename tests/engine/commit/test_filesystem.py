"""Whose is the version? The committer's answer to every way a put can go wrong."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count

import pytest

from airflow_delta.engine.commit.filesystem import FileSystemCommitter
from airflow_delta.engine.errors import (
    CommitCutOffError,
    CommitOutcomeUnknownError,
    StorageError,
    UnsafeStorageError,
)
from airflow_delta.engine.log.files import commit_path
from airflow_delta.engine.storage.base import Capabilities
from airflow_delta.engine.storage.memory import MemoryStorage
from tests.faulty_storage import Fault, FaultyStorage, How

VERSION = 3
PATH = commit_path(VERSION)
_NUMBERS = count()


def commit_of(writer: str) -> bytes:
    return json.dumps({"commitInfo": {"txnId": writer}}).encode() + b"\n"


class Remote(FaultyStorage):
    """A store behind a network, as far as it says so itself."""

    @property
    def capabilities(self) -> Capabilities:
        return replace(self.inner.capabilities, remote=True)


@pytest.fixture
def inner() -> Iterator[MemoryStorage]:
    storage = MemoryStorage(f"memory://committer-{next(_NUMBERS)}")
    yield storage
    storage.delete([info.path for info in storage.walk("")])


def attempt(storage: FaultyStorage) -> str | None:
    committer = FileSystemCommitter(storage, table="tbl")
    return committer.commit(VERSION, commit_of("mine"), txn_id="mine")


def stored(inner: MemoryStorage) -> bytes | None:
    return inner.read_many([PATH])[0]


@pytest.fixture(params=[FaultyStorage, Remote], ids=["local", "remote"])
def store(request: pytest.FixtureRequest) -> type[FaultyStorage]:
    return request.param


def test_one_put_is_enough(store: type[FaultyStorage], inner: MemoryStorage) -> None:
    storage = store(inner)
    assert attempt(storage)
    assert [call.operation for call in storage.calls] == ["create"]


@pytest.mark.parametrize("failures", [1, 2])
@pytest.mark.parametrize("how", [How.FAIL, How.LOSE_ANSWER, How.REPEAT])
def test_a_put_that_failed_is_settled_by_the_next(
    store: type[FaultyStorage], inner: MemoryStorage, how: How, failures: int
) -> None:
    storage = store(inner, *(Fault("create", nth + 1, how) for nth in range(failures)))
    assert attempt(storage)
    assert stored(inner) == commit_of("mine")


def test_another_writer_may_be_faster_than_the_repetition(
    store: type[FaultyStorage], inner: MemoryStorage
) -> None:
    theirs = Fault("create", 2, meanwhile=lambda: inner.create(PATH, commit_of("theirs")))
    assert not attempt(store(inner, Fault("create", 1, How.FAIL), theirs))
    assert stored(inner) == commit_of("theirs")


def test_a_request_that_arrives_late_is_ours(
    store: type[FaultyStorage], inner: MemoryStorage
) -> None:
    """The put fails, nothing is there, and then the store carries the request out."""
    late = Fault("create", 2, meanwhile=lambda: inner.create(PATH, commit_of("mine")))
    assert attempt(store(inner, Fault("create", 1, How.FAIL), late))


@pytest.mark.parametrize("content", [b"", b"{broken", b'{"add":{}}\n', b'{"commitInfo":3}\n'])
def test_a_commit_without_our_mark_is_not_ours(
    store: type[FaultyStorage], inner: MemoryStorage, content: bytes
) -> None:
    inner.create(PATH, content)
    assert not attempt(store(inner))


def test_a_part_of_our_commit_is_not_ours(store: type[FaultyStorage], inner: MemoryStorage) -> None:
    """As a file system leaves it that moves files by copying, and fails while it does."""
    data = commit_of("mine") + b'{"add":{"path":"a"}}\n'
    cut_off = Fault("create", 1, How.FAIL, meanwhile=lambda: inner.create(PATH, data[:-5]))
    committer = FileSystemCommitter(store(inner, cut_off), table="tbl")
    sizes = rf"not what was sent \({len(data) - 5} bytes, expected {len(data)}\); delete this file"
    with pytest.raises(CommitCutOffError, match=sizes) as caught:
        committer.commit(VERSION, data, txn_id="mine")
    assert (caught.value.facts["version"], caught.value.facts["txn_id"]) == (VERSION, "mine")


@pytest.mark.parametrize(("writer", "path"), [("mine", PATH), ("theirs", None)])
def test_where_no_put_gets_an_answer_the_file_decides(
    store: type[FaultyStorage], inner: MemoryStorage, writer: str, path: str | None
) -> None:
    there = Fault("read", meanwhile=lambda: inner.create(PATH, commit_of(writer)))
    assert attempt(store(inner, Fault("create", 0, How.FAIL), there)) == path


def test_a_local_file_that_is_not_there_will_not_come(inner: MemoryStorage) -> None:
    with pytest.raises(StorageError, match=r"create .* failed: the connection broke"):
        attempt(FaultyStorage(inner, Fault("create", 0, How.FAIL)))
    assert stored(inner) is None


def test_a_remote_file_that_is_not_there_may_still_come(inner: MemoryStorage) -> None:
    storage = Remote(inner, Fault("create", 0, How.FAIL))
    with pytest.raises(CommitOutcomeUnknownError, match=f"txnId mine in {PATH}") as caught:
        attempt(storage)
    assert (caught.value.version, caught.value.txn_id) == (VERSION, "mine")


@pytest.mark.parametrize(
    "prepare",
    [
        pytest.param(lambda _: None, id="nothing is there"),
        pytest.param(lambda inner: inner.create(PATH, commit_of("theirs")), id="theirs is there"),
    ],
)
def test_what_cannot_be_read_back_is_unknown(
    store: type[FaultyStorage], inner: MemoryStorage, prepare: Callable[[MemoryStorage], None]
) -> None:
    prepare(inner)
    storage = store(inner, Fault("create", 0, How.FAIL), Fault("read", 0, How.FAIL))
    with pytest.raises(CommitOutcomeUnknownError, match="reading the commit back"):
        attempt(storage)


def test_a_store_without_exclusive_puts_gets_no_second_request(inner: MemoryStorage) -> None:
    class Unsafe(FaultyStorage):
        def create(self, path: str, data: bytes) -> None:
            super().create(f"{path}.tried", data)
            raise UnsafeStorageError("no conditional writes", path=path)

    storage = Unsafe(inner)
    with pytest.raises(UnsafeStorageError, match="no conditional writes"):
        attempt(storage)
    assert storage.count("create") == 1

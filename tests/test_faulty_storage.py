"""The faults of `FaultyStorage` are those that they say."""

from __future__ import annotations

import pytest

from airflow_delta.engine.errors import ObjectExistsError, StorageError
from airflow_delta.engine.storage.base import Storage
from airflow_delta.engine.storage.local import LocalStorage
from tests.faulty_storage import Call, Crash, Fault, FaultyStorage, How


@pytest.fixture
def inner(tmp_path) -> Storage:
    return LocalStorage(str(tmp_path))


def test_without_faults_it_is_the_storage_itself(inner: Storage) -> None:
    storage = FaultyStorage(inner)
    storage.create("d/x", b"1")
    with storage.writer("d/y", overwrite=False) as file:
        file.write(b"2")
    assert storage.read_many(["d/x", "d/y"]) == [b"1", b"2"]
    assert [info.name for info in storage.list("d", start_after="x")] == ["y"]
    assert storage.calls[0] == Call("create", "d/x")
    assert storage.count("read_many") == 1


def test_only_the_nth_call_of_an_operation_fails(inner: Storage) -> None:
    storage = FaultyStorage(inner, Fault("create", 2, How.FAIL, suffix=".json"))
    storage.create("1.json", b"")
    storage.create("2.crc", b"")
    with pytest.raises(StorageError, match=r"2\.json"):
        storage.create("2.json", b"")
    storage.create("3.json", b"")
    assert {info.path for info in inner.walk("")} == {"1.json", "2.crc", "3.json"}


def test_a_lost_answer_has_had_its_effect(inner: Storage) -> None:
    storage = FaultyStorage(inner, Fault("create", how=How.LOSE_ANSWER))
    with pytest.raises(StorageError, match="connection"):
        storage.create("x", b"1")
    assert inner.read("x") == b"1"


def test_a_repeated_create_meets_itself(inner: Storage) -> None:
    storage = FaultyStorage(inner, Fault("create", how=How.REPEAT))
    with pytest.raises(ObjectExistsError, match="'x'"):
        storage.create("x", b"1")
    assert inner.read("x") == b"1"


@pytest.mark.parametrize(("how", "published"), [(How.CRASH_BEFORE, False), (How.CRASH_AFTER, True)])
def test_a_crash_happens_before_or_after_the_effect(
    inner: Storage, how: How, published: bool
) -> None:
    def write() -> None:
        with FaultyStorage(inner, Fault("writer", how=how)).writer("x", overwrite=True) as file:
            file.write(b"1")

    with pytest.raises(Crash, match="writer x"):
        write()
    visible = [info.path for info in inner.list("") if not info.name.startswith(".")]
    assert visible == (["x"] if published else [])


def test_another_writer_can_be_faster_meanwhile(inner: Storage) -> None:
    faster = Fault("create", meanwhile=lambda: inner.create("x", b"theirs"))
    with pytest.raises(ObjectExistsError, match="'x'"):
        FaultyStorage(inner, faster).create("x", b"mine")
    assert inner.read("x") == b"theirs"


def test_a_dead_process_cleans_nothing_up(inner: Storage) -> None:
    storage = FaultyStorage(inner, Fault("read", how=How.CRASH_BEFORE))
    storage.create("x", b"1")
    with pytest.raises(Crash):
        storage.read("x")
    with pytest.raises(Crash):
        storage.delete(["x"])
    assert inner.read("x") == b"1"


@pytest.mark.parametrize("operation", ["create", "replace"])
def test_half_of_a_content_is_in_a_hidden_neighbour(inner: Storage, operation: str) -> None:
    storage = FaultyStorage(inner, Fault(operation, how=How.CRASH_WITHIN))
    with pytest.raises(Crash):
        getattr(storage, operation)("d/x", b"1234")
    (left,) = inner.walk("")
    assert left.path.startswith("d/.x.")
    assert inner.read(left.path) == b"12"


def test_half_of_the_paths_are_deleted(inner: Storage) -> None:
    storage = FaultyStorage(inner, Fault("delete", how=How.CRASH_WITHIN))
    for path in ("x", "y"):
        storage.create(path, b"")
    with pytest.raises(Crash):
        storage.delete(["x", "y"])
    assert [info.path for info in inner.walk("")] == ["y"]


@pytest.mark.parametrize(
    ("how", "content"),
    [(How.CRASH_BEFORE, b"12"), (How.CRASH_WITHIN, b"123"), (How.CRASH_AFTER, b"1234")],
)
def test_a_file_in_the_making_stays_as_far_as_it_came(
    inner: Storage, how: How, content: bytes
) -> None:
    storage = FaultyStorage(inner, Fault("file.write", 2, how))

    def write() -> None:
        with storage.writer("d/x", overwrite=True) as file:
            file.write(b"12")
            file.write(b"34")

    with pytest.raises(Crash):
        write()
    (left,) = inner.walk("")
    assert inner.read(left.path) == content


def test_a_full_store_lets_read_and_delete(inner: Storage) -> None:
    storage = FaultyStorage(inner, Fault("create", 2, How.FULL))
    storage.create("x", b"1")
    for _ in range(2):
        with pytest.raises(StorageError, match="No space left") as caught:
            storage.create("y", b"2")
        assert isinstance(caught.value.__cause__, OSError)
    assert storage.read("x") == b"1"
    storage.delete(["x"])
    assert not [*inner.walk("")]


def test_reads_of_an_opened_file_are_steps(inner: Storage) -> None:
    inner.create("x", b"1234")
    storage = FaultyStorage(inner, Fault("**", 3, How.FAIL))
    with storage.open("x") as file:
        assert file.read(2) == b"12"
        with pytest.raises(StorageError, match=r"file\.read"):
            file.read()
    assert storage.met == [Call("file.read", "x")]
    assert storage.calls == [Call("open", "x")]

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
    assert [info.path for info in inner.list("")] == (["x"] if published else [])


def test_another_writer_can_be_faster_meanwhile(inner: Storage) -> None:
    faster = Fault("create", meanwhile=lambda: inner.create("x", b"theirs"))
    with pytest.raises(ObjectExistsError, match="'x'"):
        FaultyStorage(inner, faster).create("x", b"mine")
    assert inner.read("x") == b"theirs"

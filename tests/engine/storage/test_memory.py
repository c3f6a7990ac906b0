"""What is special about storages in memory; the contract itself is in tests/contracts."""

from __future__ import annotations

import pickle

import pytest

from airflow_delta.engine.errors import InvalidArgumentError, ObjectNotFoundError
from airflow_delta.engine.storage.memory import MemoryStorage


def test_equal_canonical_locations_mean_one_location() -> None:
    MemoryStorage("memory://shared/t").create("x", b"1")
    assert MemoryStorage("memory://shared/t/").read("x") == b"1"
    assert MemoryStorage("memory://shared").read("t/x") == b"1"
    assert list(MemoryStorage("memory://other/t").walk("")) == []


def test_modification_times_come_from_the_clock() -> None:
    storage = MemoryStorage("memory://clock", clock=iter([1_000, 2_000]).__next__)
    storage.create("x", b"")
    storage.create("y", b"")
    assert [info.modified_ms for info in storage.list("")] == [1_000, 2_000]


def test_modification_times_can_be_set() -> None:
    storage = MemoryStorage("memory://set-modified")
    storage.create("x", b"content")
    storage.set_modified("x", 12_345)
    assert storage.head("x").modified_ms == 12_345
    assert storage.read("x") == b"content"
    with pytest.raises(ObjectNotFoundError, match="missing"):
        storage.set_modified("missing", 1)


def test_what_was_written_later_does_not_change_what_was_given() -> None:
    storage = MemoryStorage("memory://copy")
    data = bytearray(b"before")
    storage.create("x", data)
    data[:] = b"after!"
    assert storage.read("x") == b"before"


def test_survives_a_pickle_within_the_process() -> None:
    storage = MemoryStorage("memory://pickle/t")
    storage.create("x", b"1")
    assert pickle.loads(pickle.dumps(storage)).read("x") == b"1"


def test_other_locations_are_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="memory://"):
        MemoryStorage("/tmp/t")

"""Stores that ignore conditional writes are found out before they can do harm."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from obstore.exceptions import PermissionDeniedError
from obstore.store import MemoryStore

from airflow_delta.engine.errors import UnsafeStorageError
from airflow_delta.engine.storage import exclusive_put
from airflow_delta.engine.storage.base import Capabilities
from airflow_delta.engine.storage.object_store import ObjectStorage

CAPABLE = Capabilities(put_if_absent=True, start_after=True, remote=True)


class Counting:
    """An obstore store that counts its writes, and may ignore their conditions."""

    def __init__(self, *, ignores_conditions: bool) -> None:
        self.inner = MemoryStore()
        self.puts: list[str] = []
        self._ignores = ignores_conditions

    def put(self, path: str, data: bytes, *, mode: str) -> Any:
        self.puts.append(path)
        return self.inner.put(path, data, mode="overwrite" if self._ignores else mode)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


@pytest.fixture
def storage_of(monkeypatch: pytest.MonkeyPatch) -> Callable[[Counting], ObjectStorage]:
    monkeypatch.setattr(exclusive_put, "_TRIED", {})
    return lambda store: ObjectStorage(
        "s3://b/t", "s3://b/t", store, CAPABLE, unproven="http://old (b)"
    )


def test_a_store_that_ignores_conditions_is_refused(
    storage_of: Callable[[Counting], ObjectStorage],
) -> None:
    store = Counting(ignores_conditions=True)
    store.inner.put("log/0.json", b"somebody's commit")
    storage = storage_of(store)
    for _ in range(2):
        with pytest.raises(UnsafeStorageError, match=r"http://old \(b\) ignores 'If-None-Match'"):
            storage.create("log/0.json", b"mine")
    assert storage.read("log/0.json") == b"somebody's commit"
    assert [info.path for info in storage.walk("")] == ["log/0.json"]


def test_an_honest_store_is_tried_once(
    storage_of: Callable[[Counting], ObjectStorage],
) -> None:
    store = Counting(ignores_conditions=False)
    storage_of(store).create("log/0.json", b"x")
    storage_of(store).create("log/1.json", b"x")
    trials = [path for path in store.puts if "trial" in path]
    assert len(trials) == 2
    assert all(path.startswith("log/.") for path in trials)
    assert [info.path for info in storage_of(store).walk("")] == ["log/0.json", "log/1.json"]


@pytest.mark.parametrize("error", [PermissionDeniedError("403 AccessDenied"), OSError("reset")])
def test_a_store_without_permission_to_delete_is_tried_all_the_same(
    storage_of: Callable[[Counting], ObjectStorage],
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
) -> None:
    def _refuse(store: Counting, path: str) -> None:
        raise error

    monkeypatch.setattr(Counting, "delete", _refuse, raising=False)
    store = Counting(ignores_conditions=False)
    for number in range(2):
        storage_of(store).create(f"log/{number}.json", b"x")
    assert len([path for path in store.puts if "trial" in path]) == 2
    careless = Counting(ignores_conditions=True)
    monkeypatch.setattr(exclusive_put, "_TRIED", {})
    with pytest.raises(UnsafeStorageError):
        storage_of(careless).create("log/0.json", b"x")


def test_a_replacement_needs_no_trial(
    storage_of: Callable[[Counting], ObjectStorage],
) -> None:
    store = Counting(ignores_conditions=True)
    storage_of(store).replace("x", b"1")
    assert store.puts == ["x"]

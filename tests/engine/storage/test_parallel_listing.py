"""A walk by several requests at a time, over a store that counts them and hands out small pages."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

import pytest

from airflow_delta.engine.errors import StorageError
from airflow_delta.engine.storage import object_store
from airflow_delta.engine.storage.base import FileInfo
from airflow_delta.engine.storage.parallel_listing import walk_in_parallel
from tests.object_stores import new_location

PAGE = 3


class Store:
    """Objects in order, handed out page by page; at a barrier, where several requests must meet."""

    def __init__(self, paths: Sequence[str], together: int = 1) -> None:
        self.paths = sorted(paths)
        self.requests: list[tuple[str, str | None]] = []
        self.empty = 0
        self._barrier = threading.Barrier(together) if together > 1 else None
        self._lock = threading.Lock()

    def page(self, prefix: str, offset: str | None) -> list[FileInfo]:
        with self._lock:
            self.requests.append((prefix, offset))
            first = len(self.requests) == 1
        if self._barrier is not None and not first:
            self._barrier.wait(timeout=20)
        below = f"{prefix}/" if prefix else ""
        found = (p for p in self.paths if p.startswith(below) and (offset is None or p > offset))
        page = [FileInfo(path, 0, 0) for path in islice(found, PAGE)]
        with self._lock:
            self.empty += not page
        return page

    def walk(self, prefix: str = "", *, threads: int = 4) -> Iterator[FileInfo]:
        return walk_in_parallel(self.page, prefix, full_page=PAGE, threads=threads)


def paths_of(infos: Iterator[FileInfo]) -> list[str]:
    return sorted(info.path for info in infos)


TREES = {
    "nothing": [],
    "one page": ["a", "b"],
    "a full page": ["a", "b", "c"],
    "one directory of many files": [f"f{n:03}" for n in range(100)],
    "small directories": [f"k={n:02}/f" for n in range(40)],
    "large directories": [f"k={k}/f{n:02}" for k in range(5) for n in range(20)],
    "deep ones": [f"y={y}/m={m}/f{n}" for y in range(3) for m in range(4) for n in range(5)],
    "files between directories": [
        "a",
        "a/b",
        "a/b/c",
        "a.b",
        "ab",
        "b",
        "b/\U0001f600",
        "b/é",
        "b0",
    ],
    "a directory at the end of a page": ["a/1", "a/2", "a/3", "b/1", "b/2", "b/3"],
}


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("name", TREES)
def test_every_object_is_found_once(name: str, threads: int) -> None:
    store = Store(TREES[name])
    assert paths_of(store.walk(threads=threads)) == store.paths


@pytest.mark.parametrize("seed", range(20))
def test_so_it_is_in_trees_of_any_shape(seed: int) -> None:
    dice = random.Random(seed)
    paths = {
        "/".join(dice.choice("ab.c/=é") * dice.randint(1, 2) for _ in range(dice.randint(1, 4)))
        for _ in range(60)
    }
    paths = {p for p in paths if "" not in p.split("/")}
    store = Store([*paths])
    assert paths_of(store.walk()) == store.paths
    inside = [path for path in store.paths if path.startswith("a/")]
    assert paths_of(store.walk("a")) == inside


def test_small_directories_cost_no_request_of_their_own() -> None:
    store = Store(TREES["small directories"])
    assert paths_of(store.walk()) == store.paths
    # Each page that ends inside a directory has one more task for what may be left of it.
    assert len(store.requests) - store.empty == -(-len(store.paths) // PAGE)
    assert store.empty <= len(store.paths) // PAGE


def test_directories_are_listed_at_the_same_time() -> None:
    """All requests but the first wait for a second one: one after the other they would wait for ever."""
    store = Store([f"k={k}/f{n}" for k in range(2) for n in range(4)], together=2)
    assert paths_of(store.walk()) == store.paths


def test_an_error_ends_the_walk() -> None:
    store = Store(TREES["large directories"])

    def failing(prefix: str, offset: str | None) -> list[FileInfo]:
        if prefix == "k=2":
            raise StorageError("the connection broke", path=prefix)
        return store.page(prefix, offset)

    with pytest.raises(StorageError, match="the connection broke"):
        list(walk_in_parallel(failing, "", full_page=PAGE, threads=3))


def test_a_walk_may_be_given_up() -> None:
    store = Store(TREES["large directories"])
    walk = store.walk()
    next(walk)
    walk.close()
    asked = len(store.requests)
    assert asked < 20
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("delta-list")]


@pytest.mark.parametrize("kind", ["s3", "gcs"])
def test_stores_begin_behind_the_path_that_they_are_given(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(object_store, "_PAGE", PAGE)
    storage = new_location(kind, tmp_path)("tables/t")
    paths = sorted({*TREES["files between directories"], *TREES["deep ones"]})
    # An object can't be a directory as well for all clients, so this one is left out.
    paths = [path for path in paths if not any(other.startswith(f"{path}/") for other in paths)]
    for path in paths:
        storage.replace(path, b"x")
    assert paths_of(storage.walk("")) == paths
    assert paths_of(storage.walk("y=1")) == [path for path in paths if path.startswith("y=1/")]

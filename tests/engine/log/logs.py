"""Logs made of names, and a storage that counts what is asked of it."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Any

from airflow_delta.engine.storage.base import Capabilities, FileInfo, Storage
from airflow_delta.engine.storage.memory import MemoryStorage

_NAMES = itertools.count()

UUID = "80a083e8-7026-4e79-81be-64bd76c43a11"
OTHER_UUID = "3a0d65cd-4056-49b8-937b-95f9e3ee90e5"


def commit(version: int) -> str:
    return f"{version:020d}.json"


def classic(version: int) -> str:
    return f"{version:020d}.checkpoint.parquet"


def part(version: int, number: int, parts: int) -> str:
    return f"{version:020d}.checkpoint.{number:010d}.{parts:010d}.parquet"


def multipart(version: int, parts: int) -> list[str]:
    return [part(version, number, parts) for number in range(1, parts + 1)]


def v2(version: int, uuid: str = UUID, kind: str = "json") -> str:
    return f"{version:020d}.checkpoint.{uuid}.{kind}"


def compacted(start: int, end: int) -> str:
    return f"{start:020d}.{end:020d}.compacted.json"


def crc(version: int) -> str:
    return f"{version:020d}.crc"


def commits(first: int, last: int) -> list[str]:
    return [commit(version) for version in range(first, last + 1)]


def make_log(names: Iterable[str], *, empty: Iterable[str] = ()) -> MemoryStorage:
    """A table whose log has files of these names, those in ``empty`` without content."""
    storage = MemoryStorage(f"memory://log-{next(_NAMES)}")
    for name in names:
        storage.replace(f"_delta_log/{name}", b"{}")
    for name in empty:
        storage.replace(f"_delta_log/{name}", b"")
    return storage


class Hiding:
    """A storage whose first listings miss some files, as others are made or deleted meanwhile.

    Args:
        storage: what is there.
        names: the files that are missed.
        times: by so many listings.
    """

    def __init__(self, storage: Storage, *names: str, times: float = 1) -> None:
        self._storage = storage
        self._hidden = {f"_delta_log/{name}" for name in names}
        self.left = times

    def list(self, directory: str, *, start_after: str = "") -> Iterator[FileInfo]:
        found = [*self._storage.list(directory, start_after=start_after)]
        if self.left and any(info.path in self._hidden for info in found):
            self.left -= 1
            found = [info for info in found if info.path not in self._hidden]
        return iter(found)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._storage, name)


class Counting:
    """A storage that records its calls, and may list without a start inside the store."""

    def __init__(
        self, storage: MemoryStorage, *, start_after: bool = True, remote: bool = True
    ) -> None:
        self._storage = storage
        self.root, self.canonical_location = storage.root, storage.canonical_location
        self.capabilities = Capabilities(put_if_absent=True, start_after=start_after, remote=remote)
        self.calls: list[tuple[str, str]] = []
        self.listed = 0

    def list(self, directory: str, *, start_after: str = "") -> Iterator[FileInfo]:
        self.calls.append(("list", start_after))
        for info in self._storage.list(directory, start_after=start_after):
            self.listed += 1
            yield info

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._storage, name)

        def recorded(path: Any, *args: Any, **kwargs: Any) -> Any:
            self.calls.append((name, path))
            return method(path, *args, **kwargs)

        return recorded

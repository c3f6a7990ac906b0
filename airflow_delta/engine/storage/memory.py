"""A storage in the memory of the process, for tests and experiments.

``memory://<name>/<path>``: storages of one process with the same name share their objects, like those of
one bucket. Each operation holds one lock, so it is atomic. Processes share nothing. This isn't fsspec's
``memory://``, which can't create objects exclusively.
"""

from __future__ import annotations

import io
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import BinaryIO, ClassVar

from airflow_delta.engine.clock import now_ms
from airflow_delta.engine.errors import (
    InvalidArgumentError,
    ObjectExistsError,
    ObjectNotFoundError,
)
from airflow_delta.engine.storage.base import Capabilities, FileInfo, Level, check_path

__all__ = ["MemoryStorage"]

_SCHEME = "memory://"


@dataclass(frozen=True, slots=True)
class _Object:
    data: bytes
    modified_ms: int


@dataclass(frozen=True, slots=True)
class _Bucket:
    objects: dict[str, _Object] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)


_BUCKETS: dict[str, _Bucket] = {}
_BUCKETS_LOCK = threading.Lock()


class MemoryStorage:
    """A storage over the objects below one ``memory://`` location.

    Args:
        root: ``memory://<name>`` or ``memory://<name>/<path>``.
        clock: returns the modification time of a written object, in epoch milliseconds.

    Raises:
        InvalidArgumentError: the root doesn't begin with ``memory://``.
    """

    capabilities: ClassVar[Capabilities] = Capabilities(
        put_if_absent=True, start_after=True, remote=False
    )

    def __init__(self, root: str, *, clock: Callable[[], int] = now_ms) -> None:
        if not root.startswith(_SCHEME):
            raise InvalidArgumentError(f"{root!r} isn't a location in memory: expected memory://…")
        self.root = root if root == _SCHEME else root.rstrip("/")
        self._clock = clock
        name, _, path = root[len(_SCHEME) :].partition("/")
        self._prefix = _prefix(path)
        self.canonical_location = _SCHEME + f"{name}/{self._prefix}".rstrip("/")
        with _BUCKETS_LOCK:
            self._bucket = _BUCKETS.setdefault(name, _Bucket())

    def __repr__(self) -> str:
        return f"MemoryStorage({self.root!r})"

    def __reduce__(self) -> tuple[type[MemoryStorage], tuple[str]]:
        # The process that unpickles it has its own objects.
        return MemoryStorage, (self.root,)

    def read(self, path: str, *, start: int = 0, length: int | None = None) -> bytes:
        """See `Storage.read`."""
        data = self._object("read", path).data
        return data[start:] if length is None else data[start : start + length]

    def read_many(self, paths: Sequence[str]) -> list[bytes | None]:
        """See `Storage.read_many`."""
        keys = [self._key(path) for path in paths]
        with self._bucket.lock:
            found = [self._bucket.objects.get(key) for key in keys]
        return [each.data if each else None for each in found]

    def open(self, path: str, *, size: int | None = None) -> BinaryIO:  # noqa: ARG002
        """See `Storage.open`; the size isn't needed here."""
        return io.BytesIO(self._object("open", path).data)

    def list(self, directory: str, *, start_after: str = "") -> Iterator[FileInfo]:
        """See `Storage.list`; it lists the objects at the moment when iteration starts."""
        prefix = _prefix(check_path(directory))
        for info in sorted(self._below(prefix), key=lambda info: info.path):
            name = info.path[len(prefix) :]
            if "/" not in name and name > start_after:
                yield info

    def walk(self, directory: str) -> Iterator[FileInfo]:
        """See `Storage.walk`."""
        yield from self._below(_prefix(check_path(directory)))

    def level(self, directory: str) -> Level:
        """See `Storage.level`."""
        prefix = _prefix(check_path(directory))
        below = (info.path.removeprefix(prefix) for info in self._below(prefix))
        folders = {f"{prefix}{path.partition('/')[0]}" for path in below if "/" in path}
        return Level([*self.list(directory)], sorted(folders))

    def head(self, path: str) -> FileInfo:
        """See `Storage.head`."""
        found = self._object("head", path)
        return FileInfo(path, len(found.data), found.modified_ms)

    def create(self, path: str, data: bytes) -> None:
        """See `Storage.create`."""
        self._put(path, data, overwrite=False)

    def replace(self, path: str, data: bytes) -> None:
        """See `Storage.replace`."""
        self._put(path, data, overwrite=True)

    @contextmanager
    def writer(self, path: str, *, overwrite: bool) -> Iterator[BinaryIO]:
        """See `Storage.writer`."""
        buffer = _LastingBuffer()
        yield buffer
        self._put(path, buffer.content(), overwrite=overwrite)

    def delete(self, paths: Iterable[str]) -> None:
        """See `Storage.delete`."""
        for path in paths:
            with self._bucket.lock:
                self._bucket.objects.pop(self._key(path), None)

    def set_modified(self, path: str, modified_ms: int) -> None:
        """Set the modification time of an object, in epoch milliseconds; for tests.

        Raises:
            ObjectNotFoundError: there is no such object.
        """
        found = self._object("set_modified", path)
        with self._bucket.lock:
            self._bucket.objects[self._key(path)] = _Object(found.data, modified_ms)

    def _key(self, path: str) -> str:
        return self._prefix + check_path(path)

    def _object(self, operation: str, path: str) -> _Object:
        with self._bucket.lock:
            found = self._bucket.objects.get(self._key(path))
        if found is None:
            raise ObjectNotFoundError(
                f"{operation} {path!r}: there is no such object",
                table=self.root,
                path=path,
                operation=operation,
            )
        return found

    def _below(self, prefix: str) -> Iterator[FileInfo]:
        below = self._prefix + prefix
        with self._bucket.lock:
            found = [item for item in self._bucket.objects.items() if item[0].startswith(below)]
        for key, each in found:
            yield FileInfo(key[len(self._prefix) :], len(each.data), each.modified_ms)

    def _put(self, path: str, data: bytes, *, overwrite: bool) -> None:
        key = self._key(path)
        new = _Object(bytes(data), self._clock())
        with self._bucket.lock:
            there = self._bucket.objects.get(key) if not overwrite else None
            if there is None:
                self._bucket.objects[key] = new
                return
        raise ObjectExistsError(
            f"create {path!r}: there is such an object already",
            table=self.root,
            path=path,
            operation="create",
        )


class _LastingBuffer(io.BytesIO):
    """A buffer that keeps its content after ``close``, which Parquet writers may call."""

    _content: bytes | None = None

    def close(self) -> None:
        """Close the buffer, and keep its content."""
        if not self.closed:
            self._content = self.getvalue()
        super().close()

    def content(self) -> bytes:
        """Return everything that was written."""
        return self.getvalue() if self._content is None else self._content


def _prefix(directory: str) -> str:
    directory = directory.strip("/")
    return f"{directory}/" if directory else ""

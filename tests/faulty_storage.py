"""A storage that goes wrong on purpose: at the n-th call of an operation, before or after its effect.

    storage = FaultyStorage(inner, Fault("create", nth=2, how=How.LOSE_ANSWER))

Calls are counted per fault: ``operation`` and ``suffix`` say which ones count. What calls were made
is kept in ``calls``, so a test can also state how many requests something may cost.
"""

from __future__ import annotations

import enum
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import BinaryIO, TypeVar

from airflow_delta.engine.errors import StorageError
from airflow_delta.engine.storage.base import Capabilities, FileInfo, Storage

__all__ = ["Call", "Fault", "FaultyStorage", "How"]

_Result = TypeVar("_Result")


class How(enum.Enum):
    """What goes wrong."""

    FAIL = enum.auto()
    """The request never arrives: a `StorageError`, and no effect."""

    LOSE_ANSWER = enum.auto()
    """The request takes effect, and the answer is lost: a `StorageError`."""

    REPEAT = enum.auto()
    """The answer is lost and the client sends the request again: the second answer is given."""

    CRASH_BEFORE = enum.auto()
    """The process dies before the request: `Crash`, which no handler of errors takes."""

    CRASH_AFTER = enum.auto()
    """The process dies after the request took effect: `Crash`."""


class Crash(BaseException):
    """The death of the process, as far as a test can have it."""


@dataclass(frozen=True)
class Call:
    """One call of an operation, and the path it was for; joined by commas where for several."""

    operation: str
    path: str


@dataclass(frozen=True)
class Fault:
    """What goes wrong, and when.

    Attributes:
        operation: the name of a method of `Storage`, or ``*`` for any.
        nth: which of the counted calls, from 1; 0 for every one.
        how: what goes wrong; None for nothing.
        suffix: only calls for paths that end so are counted.
        meanwhile: called before the effect of that call: to let another writer be faster, or to
            wait for it. It may use the storage.
    """

    operation: str
    nth: int = 1
    how: How | None = None
    suffix: str = ""
    meanwhile: Callable[[], object] | None = None


class FaultyStorage:
    """A storage over another one, with faults."""

    def __init__(self, inner: Storage, *faults: Fault) -> None:
        self.inner = inner
        self.calls: list[Call] = []
        self._counts = dict.fromkeys(range(len(faults)), 0)
        self._faults = faults
        self._lock = threading.Lock()

    @property
    def root(self) -> str:
        return self.inner.root

    @property
    def capabilities(self) -> Capabilities:
        return self.inner.capabilities

    def count(self, operation: str, suffix: str = "") -> int:
        """How often an operation was called for paths with a suffix."""
        return sum(
            call.operation == operation and call.path.endswith(suffix) for call in self.calls
        )

    def read(self, path: str, *, start: int = 0, length: int | None = None) -> bytes:
        return self._call("read", path, lambda: self.inner.read(path, start=start, length=length))

    def read_many(self, paths: Sequence[str]) -> list[bytes | None]:
        return self._call("read_many", ",".join(paths), lambda: self.inner.read_many(paths))

    def open(self, path: str, *, size: int | None = None) -> BinaryIO:
        return self._call("open", path, lambda: self.inner.open(path, size=size))

    def list(self, directory: str, *, start_after: str = "") -> Iterator[FileInfo]:
        found = self._call(
            "list", directory, lambda: [*self.inner.list(directory, start_after=start_after)]
        )
        return iter(found)

    def walk(self, directory: str) -> Iterator[FileInfo]:
        return iter(self._call("walk", directory, lambda: [*self.inner.walk(directory)]))

    def head(self, path: str) -> FileInfo:
        return self._call("head", path, lambda: self.inner.head(path))

    def create(self, path: str, data: bytes) -> None:
        self._call("create", path, lambda: self.inner.create(path, data))

    def replace(self, path: str, data: bytes) -> None:
        self._call("replace", path, lambda: self.inner.replace(path, data))

    @contextmanager
    def writer(self, path: str, *, overwrite: bool) -> Iterator[BinaryIO]:
        """Faults of ``writer`` happen as it publishes, except that REPEAT has no effect of its own.

        Content is written before the fault is looked up, so FAIL and CRASH_BEFORE abandon it.
        """
        hows = None
        with self.inner.writer(path, overwrite=overwrite) as file:
            yield file
            hows = self._enter("writer", path)
            self._fail(hows, "writer", path, before=True)
        self._fail(hows, "writer", path, before=False)

    def delete(self, paths: Iterable[str]) -> None:
        paths = [*paths]
        self._call("delete", ",".join(paths), lambda: self.inner.delete(paths))

    def _call(self, operation: str, path: str, effect: Callable[[], _Result]) -> _Result:
        hows = self._enter(operation, path)
        self._fail(hows, operation, path, before=True)
        result = effect()
        if How.REPEAT in hows:
            result = effect()
        self._fail(hows, operation, path, before=False)
        return result

    def _enter(self, operation: str, path: str) -> set[How | None]:
        """Count a call, let the world go on meanwhile, and tell what is to go wrong."""
        due = []
        with self._lock:
            self.calls.append(Call(operation, path))
            for number, fault in enumerate(self._faults):
                if fault.operation in (operation, "*") and path.endswith(fault.suffix):
                    self._counts[number] += 1
                    if fault.nth in (0, self._counts[number]):
                        due.append(fault)
        # Outside the lock: what happens meanwhile may use this storage.
        for fault in due:
            if fault.meanwhile is not None:
                fault.meanwhile()
        return {fault.how for fault in due}

    @staticmethod
    def _fail(hows: set[How | None], operation: str, path: str, *, before: bool) -> None:
        if (How.CRASH_BEFORE if before else How.CRASH_AFTER) in hows:
            raise Crash(f"{operation} {path}")
        if (How.FAIL if before else How.LOSE_ANSWER) in hows:
            raise StorageError(
                f"{operation} {path!r} failed: the connection broke", path=path, operation=operation
            )

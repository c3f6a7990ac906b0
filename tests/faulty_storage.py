"""A storage that goes wrong on purpose: at the n-th call of an operation, before, in or after its effect.

    storage = FaultyStorage(inner, Fault("create", nth=2, how=How.LOSE_ANSWER))

Calls are counted per fault: ``operation`` and ``suffix`` say which ones count. What calls were made
is kept in ``calls``, so a test can also state how many requests something may cost. Reads of an opened
file and writes to one in the making are steps as well, which can fail, and are kept in ``steps``.

A crash is the death of the process: from then on every call raises `Crash`, so that no clean-up has an
effect that a dead process can't have.
"""

from __future__ import annotations

import enum
import errno
import io
import os
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, BinaryIO, TypeVar, cast

from airflow_delta.engine.errors import StorageError
from airflow_delta.engine.storage.base import Capabilities, FileInfo, Level, Storage

__all__ = ["READS", "STREAMED", "Call", "Crash", "Fault", "FaultyStorage", "How"]

_Result = TypeVar("_Result")

READS = frozenset({"read", "read_many", "open", "list", "walk", "level", "head", "file.read"})
"""The steps without an effect: it's all the same whether a crash comes before or after."""

STREAMED = frozenset({"file.new", "file.read", "file.write"})
"""The steps that no method of `Storage` is called for."""

_NEEDS_ROOM = frozenset({"create", "replace", "writer", "file.new", "file.write"})


class How(enum.Enum):
    """What goes wrong."""

    FAIL = enum.auto()
    """The request never arrives: a `StorageError`, and no effect."""

    LOSE_ANSWER = enum.auto()
    """The request takes effect, and the answer is lost: a `StorageError`."""

    REPEAT = enum.auto()
    """The answer is lost and the client sends the request again: the second answer is given."""

    FULL = enum.auto()
    """The store has no room left, from then on: a `StorageError` by each step that needs some."""

    CRASH_BEFORE = enum.auto()
    """The process dies before the request: `Crash`, which no handler of errors takes."""

    CRASH_WITHIN = enum.auto()
    """The process dies during the request: half of the paths are deleted; half of the content has
    arrived, and is in a hidden neighbour, as a file system has them for files in the making."""

    CRASH_AFTER = enum.auto()
    """The process dies after the request took effect: `Crash`."""


class Crash(BaseException):
    """The death of the process, as far as a test can have it."""


@dataclass(frozen=True)
class Call:
    """A step: what it was, and the path it was for; joined by commas where for several."""

    operation: str
    path: str


@dataclass(frozen=True)
class Fault:
    """What goes wrong, and when.

    Attributes:
        operation: the name of a method of `Storage`; ``*`` for any of them; ``file.new``,
            ``file.write`` or ``file.read`` for the begin of a file in the making, what is written to
            it, and what is read of an opened one; ``**`` for any step.
        nth: which of the counted steps, from 1; 0 for every one.
        how: what goes wrong; None for nothing.
        suffix: only steps for paths that end so are counted.
        meanwhile: called before the effect of that step: to let another writer be faster, or to
            wait for it. It may use the storage.
    """

    operation: str
    nth: int = 1
    how: How | None = None
    suffix: str = ""
    meanwhile: Callable[[], object] | None = None

    def concerns(self, call: Call) -> bool:
        """Whether a step counts."""
        wide = self.operation == "**" or (self.operation == "*" and call.operation not in STREAMED)
        return (wide or self.operation == call.operation) and call.path.endswith(self.suffix)


class FaultyStorage:
    """A storage over another one, with faults.

    Attributes:
        inner: the other one.
        calls: the calls of the storage's methods. That of ``writer`` counts as it publishes.
        steps: the calls, and what was done to opened files.
        met: the steps that a fault was due in.
    """

    def __init__(self, inner: Storage, *faults: Fault) -> None:
        self.inner = inner
        self.calls: list[Call] = []
        self.steps: list[Call] = []
        self.met: list[Call] = []
        self._counts = dict.fromkeys(range(len(faults)), 0)
        self._faults = faults
        self._lock = threading.Lock()
        self._dead = self._full = False

    @property
    def root(self) -> str:
        return self.inner.root

    @property
    def canonical_location(self) -> str:
        return self.inner.canonical_location

    @property
    def capabilities(self) -> Capabilities:
        return self.inner.capabilities

    def count(self, operation: str, suffix: str = "") -> int:
        """How often an operation was called for paths with a suffix."""
        return sum(
            call.operation == operation and call.path.endswith(suffix) for call in self.calls
        )

    def read(self, path: str, *, start: int = 0, length: int | None = None) -> bytes:
        return self.step("read", path, lambda: self.inner.read(path, start=start, length=length))

    def read_many(self, paths: Sequence[str]) -> list[bytes | None]:
        return self.step("read_many", ",".join(paths), lambda: self.inner.read_many(paths))

    def open(self, path: str, *, size: int | None = None) -> BinaryIO:
        file = self.step("open", path, lambda: self.inner.open(path, size=size))
        return cast("BinaryIO", _OpenedFile(self, path, file))

    def list(self, directory: str, *, start_after: str = "") -> Iterator[FileInfo]:
        found = self.step(
            "list", directory, lambda: [*self.inner.list(directory, start_after=start_after)]
        )
        return iter(found)

    def walk(self, directory: str) -> Iterator[FileInfo]:
        return iter(self.step("walk", directory, lambda: [*self.inner.walk(directory)]))

    def level(self, directory: str) -> Level:
        return self.step("level", directory, lambda: self.inner.level(directory))

    def head(self, path: str) -> FileInfo:
        return self.step("head", path, lambda: self.inner.head(path))

    def create(self, path: str, data: bytes) -> None:
        self.step(
            "create",
            path,
            lambda: self.inner.create(path, data),
            half=lambda: self._leave(path, data[: len(data) // 2]),
        )

    def replace(self, path: str, data: bytes) -> None:
        self.step(
            "replace",
            path,
            lambda: self.inner.replace(path, data),
            half=lambda: self._leave(path, data[: len(data) // 2]),
        )

    @contextmanager
    def writer(self, path: str, *, overwrite: bool) -> Iterator[BinaryIO]:
        """Faults of ``writer`` happen as it publishes, except that REPEAT has no effect of its own.

        Content is written before the fault is looked up, so FAIL and CRASH_BEFORE abandon it. Of a
        process that dies while a file is in the making, what it has written stays.
        """
        hows = self._enter("file.new", path)
        self._fail(hows, "file.new", path, before=True)
        written = io.BytesIO()
        try:
            with self.inner.writer(path, overwrite=overwrite) as file:
                if How.CRASH_WITHIN in hows:
                    raise self._crash("file.new", path)
                self._fail(hows, "file.new", path, before=False)
                yield cast("BinaryIO", _FileInTheMaking(self, path, file, written))
                hows = self._enter("writer", path)
                self._fail(hows, "writer", path, before=True)
                if How.CRASH_WITHIN in hows:
                    raise self._crash("writer", path)
        except BaseException:
            if self._dead:
                self._leave(path, written.getvalue())
            raise
        self._fail(hows, "writer", path, before=False)

    def delete(self, paths: Iterable[str]) -> None:
        paths = [*paths]
        self.step(
            "delete",
            ",".join(paths),
            lambda: self.inner.delete(paths),
            half=lambda: self.inner.delete(paths[: len(paths) // 2]),
        )

    def step(
        self,
        operation: str,
        path: str,
        effect: Callable[[], _Result],
        *,
        half: Callable[[], object] | None = None,
    ) -> _Result:
        """Do something, unless something goes wrong.

        Args:
            operation: what it is, by the names of `Fault`.
            path: which file it is for.
            effect: does it.
            half: does half of it, for a process that dies meanwhile.
        """
        hows = self._enter(operation, path)
        self._fail(hows, operation, path, before=True)
        if How.CRASH_WITHIN in hows:
            if half is not None:
                half()
            raise self._crash(operation, path)
        result = effect()
        if How.REPEAT in hows and operation not in STREAMED:
            result = effect()
        self._fail(hows, operation, path, before=False)
        return result

    def _enter(self, operation: str, path: str) -> set[How | None]:
        """Count a step, let the world go on meanwhile, and tell what is to go wrong."""
        due = []
        call = Call(operation, path)
        with self._lock:
            if self._dead:
                raise Crash(f"{operation} {path}: a dead process does nothing")
            self.steps.append(call)
            if operation not in STREAMED:
                self.calls.append(call)
            for number, fault in enumerate(self._faults):
                if fault.concerns(call):
                    self._counts[number] += 1
                    if fault.nth in (0, self._counts[number]):
                        due.append(fault)
            if due:
                self.met.append(call)
        # Outside the lock: what happens meanwhile may use this storage.
        for fault in due:
            if fault.meanwhile is not None:
                fault.meanwhile()
        return {fault.how for fault in due}

    def _fail(self, hows: set[How | None], operation: str, path: str, *, before: bool) -> None:
        if (How.CRASH_BEFORE if before else How.CRASH_AFTER) in hows:
            raise self._crash(operation, path)
        if How.FULL in hows:
            self._full = True
        if before and self._full and operation in _NEEDS_ROOM:
            reason = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            raise StorageError(
                f"{operation} {path!r} failed: {reason.strerror}",
                table=self.root,
                path=path,
                operation=operation,
            ) from reason
        if (How.FAIL if before else How.LOSE_ANSWER) in hows:
            raise StorageError(
                f"{operation} {path!r} failed: the connection broke",
                table=self.root,
                path=path,
                operation=operation,
            )

    def _crash(self, operation: str, path: str) -> Crash:
        self._dead = True
        return Crash(f"{operation} {path}")

    def _leave(self, path: str, content: bytes) -> None:
        """What a file system still has of a file in the making when the process is gone."""
        directory, _, name = path.rpartition("/")
        hidden = f".{name}.{uuid.uuid4()}.tmp"
        self.inner.replace(f"{directory}/{hidden}" if directory else hidden, content)


class _FileInTheMaking(io.BufferedIOBase):
    """What `FaultyStorage.writer` gives: each write is a step."""

    def __init__(
        self, storage: FaultyStorage, path: str, file: BinaryIO, written: io.BytesIO
    ) -> None:
        self._storage = storage
        self._path = path
        self._file = file
        self._written = written

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._file.tell()

    def write(self, data: Any, /) -> int:
        content = bytes(data)
        return self._storage.step(
            "file.write",
            self._path,
            lambda: self._write(content),
            half=lambda: self._write(content[: len(content) // 2]),
        )

    def _write(self, content: bytes) -> int:
        self._file.write(content)
        return self._written.write(content)


class _OpenedFile(io.BufferedIOBase):
    """What `FaultyStorage.open` gives: each read is a step."""

    def __init__(self, storage: FaultyStorage, path: str, file: BinaryIO) -> None:
        self._storage = storage
        self._path = path
        self._file = file

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._file.tell()

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        return self._file.seek(offset, whence)

    def read(self, size: int | None = -1, /) -> bytes:
        return self._storage.step(
            "file.read", self._path, lambda: self._file.read(-1 if size is None else size)
        )

    def close(self) -> None:
        self._file.close()
        super().close()

"""A store that several processes share: a process that holds a `MemoryStorage`, and a storage that asks it.

    with memory_server() as address:
        storage = MemoryServerStorage(address, "table")

Each call of the contract is one message and its answer, so each is as atomic as it is in the memory of
one process. ``python -m tests.memory_server`` is the process; it ends when its input does.
"""

from __future__ import annotations

import io
import pickle
import socket
import struct
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO, cast

from airflow_delta.engine.errors import DeltaError
from airflow_delta.engine.storage.base import FileInfo, Level, check_path
from airflow_delta.engine.storage.memory import MemoryStorage

__all__ = ["MEMORY_SERVER", "MemoryServerStorage", "memory_server"]

MEMORY_SERVER = "memory-server://"
"""How the locations begin; the address and the path follow."""

_ROOT = Path(__file__).resolve().parents[1]
_LENGTH = struct.Struct(">Q")


@contextmanager
def memory_server() -> Iterator[str]:
    """Run a server; gives its address, ``<host>:<port>``."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.memory_server"],
        cwd=_ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin
    assert process.stdout
    try:
        yield process.stdout.readline().strip()
    finally:
        process.stdin.close()
        process.wait(timeout=30)
        process.stdout.close()


class MemoryServerStorage:
    """The storage contract over a connection to a server.

    Args:
        address: the server.
        path: the root, below the server's memory.
    """

    capabilities = replace(MemoryStorage.capabilities, remote=True)

    def __init__(self, address: str, path: str) -> None:
        self.root = self.canonical_location = f"{MEMORY_SERVER}{address}/{path}".rstrip("/")
        self._path = path
        host, _, port = address.partition(":")
        self._socket = socket.create_connection((host, int(port)))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._lock = threading.Lock()

    def read(self, path: str, *, start: int = 0, length: int | None = None) -> bytes:
        return cast("bytes", self._ask("read", path, start=start, length=length))

    def read_many(self, paths: Sequence[str]) -> list[bytes | None]:
        return cast("list[bytes | None]", self._ask("read_many", [*paths]))

    def open(self, path: str, *, size: int | None = None) -> BinaryIO:
        return io.BytesIO(self.read(path))

    def list(self, directory: str, *, start_after: str = "") -> Iterator[FileInfo]:
        yield from self._ask("list", directory, start_after=start_after)

    def walk(self, directory: str) -> Iterator[FileInfo]:
        yield from self._ask("walk", directory)

    def level(self, directory: str) -> Level:
        return cast("Level", self._ask("level", directory))

    def head(self, path: str) -> FileInfo:
        return cast("FileInfo", self._ask("head", path))

    def create(self, path: str, data: bytes) -> None:
        self._ask("create", path, data)

    def replace(self, path: str, data: bytes) -> None:
        self._ask("replace", path, data)

    @contextmanager
    def writer(self, path: str, *, overwrite: bool) -> Iterator[BinaryIO]:
        check_path(path)
        # Writers of parquet close the file, and a plain `BytesIO` would then forget what it has.
        local, name = MemoryStorage("memory://writers"), str(uuid.uuid4())
        with local.writer(name, overwrite=True) as file:
            yield file
        data = local.read(name)
        local.delete([name])
        self._ask("replace" if overwrite else "create", path, data)

    def delete(self, paths: Iterable[str]) -> None:
        self._ask("delete", [*paths])

    def _ask(self, operation: str, /, *arguments: Any, **named: Any) -> Any:
        with self._lock:
            _send(self._socket, (self._path, operation, arguments, named))
            failed, answer = _receive(self._socket)
        if failed:
            raise answer
        return answer


def _serve(connection: socket.socket) -> None:
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    while (message := _receive(connection)) is not None:
        path, operation, arguments, named = message
        try:
            _send(connection, (False, _done(path, operation, arguments, named)))
        except DeltaError as error:
            _send(connection, (True, error))


def _done(path: str, operation: str, arguments: Any, named: Any) -> Any:
    storage = MemoryStorage(f"memory://served/{path}")
    answer = getattr(storage, operation)(*arguments, **named)
    return [*answer] if isinstance(answer, Iterator) else answer


def _send(connection: socket.socket, message: Any) -> None:
    data = pickle.dumps(message)
    connection.sendall(_LENGTH.pack(len(data)) + data)


def _receive(connection: socket.socket) -> Any:
    """The next message; None where the other end has closed."""
    header = _exactly(connection, _LENGTH.size)
    if header is None:
        return None
    data = _exactly(connection, _LENGTH.unpack(header)[0])
    return None if data is None else pickle.loads(data)


def _exactly(connection: socket.socket, size: int) -> bytes | None:
    received = bytearray()
    while len(received) < size:
        chunk = connection.recv(min(size - len(received), 1 << 20))
        if not chunk:
            return None
        received += chunk
    return bytes(received)


def main() -> None:
    """Serve until the input ends."""
    listener = socket.create_server(("127.0.0.1", 0))
    threading.Thread(target=_accept, args=(listener,), daemon=True).start()
    print(f"127.0.0.1:{listener.getsockname()[1]}", flush=True)
    sys.stdin.read()


def _accept(listener: socket.socket) -> None:
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=_serve, args=(connection,), daemon=True).start()


if __name__ == "__main__":
    main()

"""An object store that answers every request alike, and keeps who has asked."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.serving import serving

__all__ = ["AnsweringStore", "answering_store"]


class AnsweringStore(ThreadingHTTPServer):
    """A store that answers every request alike, and keeps who has asked.

    Attributes:
        status: the status of its answers.
        body: their content.
        to_puts: the statuses of its answers to PUT, one after the other, the last one for ever; if it is
            empty, ``status``.
        puts: the number of PUTs.
        asked: the key or the token of each request.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.status, self.body = 200, b"x"
        self.to_puts: list[int] = []
        self.puts = 0
        self.asked: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    """Answers for `AnsweringStore`."""

    server: AnsweringStore

    def do_GET(self) -> None:
        self._answer(self.server.status)

    def do_HEAD(self) -> None:
        self._answer(self.server.status)

    def do_PUT(self) -> None:
        self.server.puts += 1
        remaining = self.server.to_puts or [self.server.status]
        self._answer(remaining.pop(0) if len(remaining) > 1 else remaining[0])

    def _answer(self, status: int) -> None:
        authorization = self.headers.get("Authorization", "")
        key = re.search(r"Credential=(\w+)/", authorization)
        self.server.asked.append(key[1] if key else authorization)
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.send_response(status)
        self.send_header("Content-Length", str(len(self.server.body)))
        self.send_header("ETag", '"1"')
        self.send_header("Last-Modified", "Thu, 01 Jan 2026 00:00:00 GMT")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(self.server.body)

    def log_message(self, *arguments: Any) -> None:
        pass


@contextmanager
def answering_store() -> Iterator[AnsweringStore]:
    """A store that runs as long as the block."""
    store = AnsweringStore()
    with serving(store):
        yield store

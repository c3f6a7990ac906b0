"""An object store that answers every request alike, and keeps who has asked."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

__all__ = ["AnsweringStore", "answering_store"]


class AnsweringStore(ThreadingHTTPServer):
    """A store that answers every request alike, and keeps who has asked."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.status, self.body = 200, b"x"
        self.asked: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    """Answers for `AnsweringStore`."""

    server: AnsweringStore

    def do_GET(self) -> None:
        authorization = self.headers.get("Authorization", "")
        key = re.search(r"Credential=(\w+)/", authorization)
        self.server.asked.append(key[1] if key else authorization)
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.send_response(self.server.status)
        self.send_header("Content-Length", str(len(self.server.body)))
        self.send_header("ETag", '"1"')
        self.send_header("Last-Modified", "Thu, 01 Jan 2026 00:00:00 GMT")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(self.server.body)

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_PUT(self) -> None:
        self.do_GET()

    def log_message(self, *arguments: Any) -> None:
        pass


@contextmanager
def answering_store() -> Iterator[AnsweringStore]:
    """A store that runs as long as the block."""
    with AnsweringStore() as store:
        thread = threading.Thread(target=store.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield store
        store.shutdown()
        thread.join()

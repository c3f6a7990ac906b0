"""A proxy before an object store that loses what is said of commits: faults as the network makes them.

    with tampering_proxy(endpoint, Tamper.LOSE_ANSWER) as proxy:
        ...  # a store at proxy.url

The first PUTs of commit files meet the faults that are given, in this order; whatever else passes.
"""

from __future__ import annotations

import enum
import http.client
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

from tests.serving import serving

__all__ = ["Proxy", "Tamper", "tampering_proxy"]

_HOP_BY_HOP = frozenset({"connection", "keep-alive", "transfer-encoding", "content-length"})


class Tamper(enum.Enum):
    """What happens to a PUT."""

    LOSE_REQUEST = enum.auto()
    """The connection breaks, and the store never hears of it."""

    LOSE_ANSWER = enum.auto()
    """The store does it, and the connection breaks before its answer."""

    SEND_TWICE = enum.auto()
    """The store gets it twice, and its second answer is passed on."""

    ANSWER_500 = enum.auto()
    """The store does it, and something on the way says that it failed."""

    DELAY = enum.auto()
    """The connection breaks, and the store gets it when `Proxy.deliver` is called."""


@dataclass(frozen=True)
class _Request:
    method: str
    target: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Proxy:
    """The proxy, as a test sees it.

    Attributes:
        url: its endpoint.
        puts: how many PUTs of commit files have come.
        met: the faults that were met.
        meanwhile: called when a fault is met: to let another writer be faster.
        watch: called with the method and the path of each request, before it is passed on.
    """

    url: str = ""
    meanwhile: Callable[[], object] | None = None
    watch: Callable[[str, str], object] | None = None
    puts: int = 0
    met: list[Tamper] = field(default_factory=list)
    _store: str = ""
    _due: list[Tamper] = field(default_factory=list)
    _delayed: list[_Request] = field(default_factory=list)

    def deliver(self) -> list[int]:
        """Let the store have the requests that were delayed; the statuses that it answers."""
        delayed, self._delayed = self._delayed, []
        return [self.forward(request).status for request in delayed]

    def forward(self, request: _Request) -> _Answer:
        """Ask the store."""
        connection = http.client.HTTPConnection(self._store, timeout=30)
        try:
            connection.request(
                request.method, request.target, body=request.body, headers=request.headers
            )
            response = connection.getresponse()
            return _Answer(response.status, dict(response.getheaders()), response.read())
        finally:
            connection.close()

    def fault(self, request: _Request) -> Tamper | None:
        """What is to happen to a request."""
        path = urlsplit(request.target).path
        if self.watch is not None:
            self.watch(request.method, path)
        if request.method != "PUT" or not path.endswith((".json", "%2Ejson")):
            return None
        self.puts += 1
        if not self._due:
            return None
        self.met.append(self._due.pop(0))
        if self.met[-1] is Tamper.DELAY:
            self._delayed.append(request)
        if self.meanwhile is not None:
            self.meanwhile()
        return self.met[-1]


@dataclass(frozen=True)
class _Answer:
    status: int
    headers: dict[str, str]
    body: bytes


@contextmanager
def tampering_proxy(endpoint: str, *faults: Tamper) -> Iterator[Proxy]:
    """Run a proxy before an endpoint."""
    store = urlsplit(endpoint)
    proxy = Proxy(_store=store.netloc, _due=[*faults])

    class Handler(_Handler):
        of = proxy

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    proxy.url = f"http://127.0.0.1:{server.server_port}{store.path}"
    with serving(server):
        yield proxy


class _Handler(BaseHTTPRequestHandler):
    of: Proxy

    def log_message(self, *_: object) -> None:
        """Nothing on the terminal."""

    def _pass(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        request = _Request(self.command, self.path, dict(self.headers), body)
        fault = self.of.fault(request)
        if fault in (Tamper.LOSE_REQUEST, Tamper.DELAY):
            return
        answer = self.of.forward(request)
        if fault is Tamper.SEND_TWICE:
            answer = self.of.forward(request)
        if fault is Tamper.LOSE_ANSWER:
            return
        if fault is Tamper.ANSWER_500:
            answer = _Answer(500, {}, b"")
        self.send_response_only(answer.status)
        for name, value in answer.headers.items():
            if name.lower() not in _HOP_BY_HOP:
                self.send_header(name, value)
        # An answer to HEAD tells a length without having it.
        told = answer.headers.get("Content-Length") if self.command == "HEAD" else None
        self.send_header("Content-Length", told or str(len(answer.body)))
        self.end_headers()
        self.wfile.write(answer.body)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _pass  # noqa: N815

"""Run the servers of tests, each in a thread as long as a block."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from socketserver import BaseServer

__all__ = ["serving"]


@contextmanager
def serving(server: BaseServer) -> Iterator[None]:
    """Have a server answer as long as the block, and close it also if the block fails."""
    with server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join()

"""Run independent pieces of work on threads, and hand out their results in order.

Reading a checkpoint falls into pieces that don't depend on each other: footers of sidecars, row
groups of one file. Arrow decodes outside Python's interpreter lock, so threads use all cores; and
where a piece is a round trip to an object store, they overlap the waiting.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

__all__ = ["read_ahead", "reader_threads"]

_T = TypeVar("_T")

# Round trips wait more than they work; more threads than this only add memory.
_REMOTE_THREADS = 8


def reader_threads(*, remote: bool) -> int:
    """How many pieces to work on at once, for a local store or for one behind a network."""
    return max(_REMOTE_THREADS, os.cpu_count() or 1) if remote else os.cpu_count() or 1


def read_ahead(pieces: Iterable[Callable[[], _T]], *, threads: int) -> Iterator[_T]:
    """Yield the results of the pieces, in their order, working a few pieces ahead.

    At most ``threads`` pieces are worked on or waiting to be taken beside the one handed out, which
    bounds memory. An error of a piece is raised in its turn; pieces after it may have run. Where
    the caller stops early, pieces that haven't started never do.
    """
    if threads == 1:
        for piece in pieces:
            yield piece()
        return
    pending: deque[Future[_T]] = deque()
    with ThreadPoolExecutor(threads, thread_name_prefix="delta-read") as pool:
        try:
            for piece in pieces:
                pending.append(pool.submit(piece))
                if len(pending) > threads:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        finally:
            for future in pending:
                future.cancel()

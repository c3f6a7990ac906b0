"""Run independent pieces of work on threads, and hand out their results in order.

Reading the log falls into pieces that don't depend on each other: slices of commits, footers of
sidecars, row groups of a checkpoint. Arrow decodes outside Python's interpreter lock, so threads use
all cores; and where a piece is a round trip to an object store, they overlap the waiting.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain, islice
from typing import TypeVar

__all__ = ["read_ahead"]

_T = TypeVar("_T")


def read_ahead(pieces: Iterable[Callable[[], _T]], *, threads: int) -> Iterator[_T]:
    """Yield the results of the pieces, in their order, working a few pieces ahead.

    At most ``threads`` pieces are worked on or waiting to be taken beside the one handed out, which
    bounds memory. Pieces are drawn in the calling thread, as they are needed. An error of a piece
    is raised in its turn; pieces after it may have run. Where the caller stops early, pieces that
    haven't started never do.

    Args:
        pieces: the work; each piece is called once.
        threads: how many to use. A single piece needs none, and runs in the calling thread.
    """
    stream = iter(pieces)
    head = list(islice(stream, 2))
    if len(head) < 2 or threads < 2:
        for piece in chain(head, stream):
            yield piece()
        return
    pending: deque[Future[_T]] = deque()
    pool = ThreadPoolExecutor(threads, thread_name_prefix="delta-read")
    try:
        for piece in chain(head, stream):
            pending.append(pool.submit(piece))
            if len(pending) > threads:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)

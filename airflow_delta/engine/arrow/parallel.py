"""Work on a stream of items in threads, with the results in order and a bounded look-ahead.

pyarrow releases the interpreter lock while it parses and decodes, so threads use every core. The
look-ahead is what keeps memory flat: an item is drawn from the stream only when a worker will soon
be free, and it is forgotten as soon as it is done.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from concurrent.futures import Future

__all__ = ["map_ordered"]

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def map_ordered(
    function: Callable[[_Item], _Result],
    items: Iterable[_Item],
    *,
    workers: int | None = None,
    ahead: int | None = None,
) -> Iterator[_Result]:
    """Apply a function to every item in threads, and yield the results in the order of the items.

    Args:
        function: called from several threads at once. The error of the first item that fails is
            raised in that item's turn; later items are abandoned.
        items: drawn in the calling thread, some of them ahead of the results.
        workers: number of threads; None for one per core. A single item needs no thread at all.
        ahead: how many items there are at a time, with those whose results are waiting; None for two
            per worker. Fewer take less memory.
    """
    stream = iter(items)
    head = deque(islice(stream, 2))
    alone = len(head) < 2 or workers == 1
    # Taken out of the head, which lives as long as the stream, so that they are forgotten as the rest.
    drawn = chain((head.popleft() for _ in range(len(head))), stream)
    if alone:
        yield from map(function, drawn)
    else:
        workers = workers or os.cpu_count() or 1
        yield from _map_in_threads(function, drawn, workers, ahead or 2 * workers)


def _map_in_threads(
    function: Callable[[_Item], _Result], items: Iterable[_Item], workers: int, ahead: int
) -> Iterator[_Result]:
    # Loading it takes as long as opening a table, which needs no threads.
    from concurrent.futures import ThreadPoolExecutor

    executor = ThreadPoolExecutor(workers, thread_name_prefix="delta-read")
    pending: deque[Future[_Result]] = deque()
    try:
        for item in items:
            pending.append(executor.submit(function, item))
            del item  # it may be done with before the next one is drawn
            if len(pending) >= ahead:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    finally:
        executor.shutdown(wait=True, cancel_futures=True)

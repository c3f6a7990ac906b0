"""Process a stream of items in threads, with the results in order and bounded memory.

pyarrow releases the interpreter lock while it parses and decodes, so threads use every core. An item is
taken from the stream only when a thread will soon be free, and is released once it is processed.
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
        function: called from several threads at once. If it fails for an item, its error is raised in
            that item's turn, and later items are abandoned.
        items: taken in the calling thread, some of them ahead of the results.
        workers: the number of threads; None for one per core. A single item is processed without thread.
        ahead: the most items to hold at a time, including those whose results wait for their turn; None
            for two per thread. Fewer take less memory.
    """
    stream = iter(items)
    head = deque(islice(stream, 2))
    alone = len(head) < 2 or workers == 1
    # The head lives as long as the stream, so its items are taken out of it, to be released like others.
    drawn = chain((head.popleft() for _ in range(len(head))), stream)
    if alone:
        yield from map(function, drawn)
    else:
        workers = workers or os.cpu_count() or 1
        yield from _map_in_threads(function, drawn, workers, ahead or 2 * workers)


def _map_in_threads(
    function: Callable[[_Item], _Result], items: Iterable[_Item], workers: int, ahead: int
) -> Iterator[_Result]:
    # Importing it takes as long as opening a table, which needs no threads.
    from concurrent.futures import ThreadPoolExecutor

    executor = ThreadPoolExecutor(workers, thread_name_prefix="delta-read")
    pending: deque[Future[_Result]] = deque()
    try:
        for item in items:
            pending.append(executor.submit(function, item))
            del item  # It may be processed, and released, before the next one is taken.
            if len(pending) >= ahead:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    finally:
        executor.shutdown(wait=True, cancel_futures=True)

"""List all objects below a prefix with several requests at a time.

Stores answer a listing page by page, each after the one before: a million objects are a thousand round
trips. But a store that lists in order, and from any name on, can be asked for several places at once.
Which places is told by the pages themselves: one that ends inside a sub-directory leaves two tasks, the
rest of the sub-directory and what comes after it. So directories spread over the threads, at any depth,
no page is asked for in vain, and a small directory costs no request of its own. A directory without
sub-directories is listed as ever, one page after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import TypeAlias

from airflow_delta.engine.storage.base import FileInfo

__all__ = ["AFTER_ALL", "ListPage", "walk_in_parallel"]

AFTER_ALL = "\U0010ffff"
"""Sorts after every name that can stand in its place."""

ListPage: TypeAlias = Callable[[str, str | None], Sequence[FileInfo]]
"""The first page of the objects below a prefix, at any depth, after a path (None: from the first on)."""

_Task: TypeAlias = tuple[str, str | None]


def walk_in_parallel(
    list_page: ListPage, prefix: str, *, full_page: int, threads: int
) -> Iterator[FileInfo]:
    """All objects below a prefix, in no order.

    Args:
        list_page: called from several threads at once.
        prefix: a directory, without a trailing slash; empty for all.
        full_page: how many objects a page has when there may be more.
        threads: at most so many requests at a time.
    """
    # The task that was left last comes first: so few tasks wait, however many directories there are.
    tasks: list[_Task] = [(prefix, None)]
    running: dict[Future[Sequence[FileInfo]], _Task] = {}
    executor = ThreadPoolExecutor(threads, thread_name_prefix="delta-list")
    try:
        while tasks or running:
            while tasks and len(running) < threads:
                task = tasks.pop()
                running[executor.submit(list_page, *task)] = task
            done, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                (directory, _), page = running.pop(future), future.result()
                if len(page) >= full_page:
                    tasks += _rest(directory, page[-1].path)
                yield from page
    finally:
        executor.shutdown(wait=True, cancel_futures=True)


def _rest(directory: str, last: str) -> Iterator[_Task]:
    """What is left of a directory after a full page that ended with an object."""
    below = f"{directory}/" if directory else ""
    child, slash, _ = last[len(below) :].partition("/")
    if not slash:
        yield directory, last
        return
    yield directory, f"{below}{child}/{AFTER_ALL}"
    yield f"{below}{child}", last

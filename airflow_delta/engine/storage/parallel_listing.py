"""List all objects below a prefix with several requests at a time.

Stores list page by page, so a million objects are a thousand round trips in a row. But a store that lists
in order, and from any name on, can list several ranges at once. A full page that ends inside a
sub-directory leaves two tasks: the rest of the sub-directory, and what comes after it. So directories at
any depth spread over the threads, and no request is wasted. A directory without sub-directories is listed
one page after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import TypeAlias

from airflow_delta.engine.storage.base import FileInfo

__all__ = ["AFTER_ALL", "ListPage", "walk_in_parallel"]

AFTER_ALL = "\U0010ffff"
"""Sorts after every name."""

ListPage: TypeAlias = Callable[[str, str | None], Sequence[FileInfo]]
"""Lists the first page of objects below a prefix, at any depth, after a path or from the start."""

_Task: TypeAlias = tuple[str, str | None]


def walk_in_parallel(
    list_page: ListPage, prefix: str, *, full_page: int, threads: int
) -> Iterator[FileInfo]:
    """Yield all objects below a prefix, in any order.

    Args:
        list_page: lists a page; called from several threads at once.
        prefix: a directory, without a trailing slash; empty for all objects.
        full_page: the size of a page that isn't the last one.
        threads: the most requests at a time.
    """
    # The newest task comes first, so few tasks wait, however many directories there are.
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
                    tasks += _split_rest(directory, page[-1].path)
                yield from page
    finally:
        executor.shutdown(wait=True, cancel_futures=True)


def _split_rest(directory: str, last: str) -> Iterator[_Task]:
    """Yield the tasks that are left of a directory after a full page that ended with an object."""
    below = f"{directory}/" if directory else ""
    child, slash, _ = last[len(below) :].partition("/")
    if not slash:
        yield directory, last
        return
    yield directory, f"{below}{child}/{AFTER_ALL}"
    yield f"{below}{child}", last

"""Run the parts of a scan in threads, with bounded memory.

A *part* is some row groups of one file; running it gives its batches. Threads take parts from a list,
and split the next file into parts when the list is empty. So one large file and many small ones both keep
all threads busy, and footers are read when they are needed.

Batches come as soon as they are ready, each with the number of its part, by which a caller can sort them.
At most two finished batches for each thread are kept. When there are so many, the threads wait until the
caller takes some.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from threading import Condition, Thread
from typing import Generic, TypeVar

import pyarrow as pa

__all__ = ["read_ahead"]

_Part = TypeVar("_Part")

_WAITING = 2
"""The most finished batches to keep for each thread."""


def read_ahead(
    num_files: int,
    split: Callable[[int], Sequence[_Part]],
    run: Callable[[_Part], Iterator[pa.RecordBatch]],
    *,
    threads: int,
) -> Iterator[tuple[tuple[int, int], pa.RecordBatch]]:
    """Run all parts of some files.

    Args:
        num_files: the number of files.
        split: the parts of a file, by its number. Like ``run``, it is called in several threads.
        run: makes the batches of a part.
        threads: the number of threads; 1 runs the parts in the calling thread, in order.

    Yields:
        The number of the file and that of the part in it, and a batch. The batches of a part are in order.

    Raises:
        BaseException: the first error of ``split`` or ``run``.
    """
    if threads == 1:
        for number in range(num_files):
            for position, part in enumerate(split(number)):
                for batch in run(part):
                    yield (number, position), batch
        return
    yield from _Threads(num_files, split, run, threads).batches()


class _Threads(Generic[_Part]):
    """The threads of one scan, and what they share."""

    def __init__(
        self,
        num_files: int,
        split: Callable[[int], Sequence[_Part]],
        run: Callable[[_Part], Iterator[pa.RecordBatch]],
        threads: int,
    ) -> None:
        self._split = split
        self._run = run
        self._changed = Condition()
        # All below is protected by the condition.
        self._next_file = 0
        self._num_files = num_files
        self._parts: deque[tuple[tuple[int, int], _Part]] = deque()
        self._splitting = 0
        self._ready: deque[tuple[tuple[int, int], pa.RecordBatch]] = deque()
        self._running = threads
        self._most_ready = _WAITING * threads
        self._error: BaseException | None = None
        self._is_stopped = False

    def batches(self) -> Iterator[tuple[tuple[int, int], pa.RecordBatch]]:
        """Start the threads, and take what they make."""
        threads = [
            Thread(target=self._work, name=f"delta-scan-{number}", daemon=True)
            for number in range(self._running)
        ]
        for thread in threads:
            thread.start()
        try:
            while (item := self._take()) is not None:
                yield item
                del item  # Not kept while the next batch is awaited.
        finally:
            self._stop()
            for thread in threads:
                thread.join()

    def _take(self) -> tuple[tuple[int, int], pa.RecordBatch] | None:
        with self._changed:
            self._changed.wait_for(lambda: self._ready or self._error or not self._running)
            if self._error is not None:
                raise self._error
            if not self._ready:
                return None
            item = self._ready.popleft()
            self._changed.notify_all()
            return item

    def _stop(self) -> None:
        with self._changed:
            self._is_stopped = True
            self._ready.clear()
            self._changed.notify_all()

    def _work(self) -> None:
        try:
            while (item := self._next_part()) is not None:
                key, part = item
                for batch in self._run(part):
                    if not self._put(key, batch):
                        return
        except BaseException as error:  # noqa: BLE001 - raised in the thread of the caller
            with self._changed:
                self._error = self._error or error
        finally:
            with self._changed:
                self._running -= 1
                self._changed.notify_all()

    def _put(self, key: tuple[int, int], batch: pa.RecordBatch) -> bool:
        """Hand over a batch; False if the scan was stopped."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_stopped or len(self._ready) < self._most_ready)
            if self._is_stopped:
                return False
            self._ready.append((key, batch))
            self._changed.notify_all()
            return True

    def _next_part(self) -> tuple[tuple[int, int], _Part] | None:
        """The next part; None if there are no more."""
        while True:
            with self._changed:
                self._changed.wait_for(self._has_work)
                if self._is_stopped or self._error is not None:
                    return None
                if self._parts:
                    return self._parts.popleft()
                if self._next_file == self._num_files:
                    return None
                number = self._next_file
                self._next_file += 1
                self._splitting += 1
            parts: Sequence[_Part] = ()
            try:
                parts = self._split(number)
            finally:
                with self._changed:
                    self._splitting -= 1
                    self._parts.extend(((number, i), part) for i, part in enumerate(parts))
                    self._changed.notify_all()

    def _has_work(self) -> bool:
        """Whether a thread needn't wait: there is work, or there will be none."""
        return bool(
            self._parts
            or self._is_stopped
            or self._error
            or self._next_file < self._num_files
            or not self._splitting
        )

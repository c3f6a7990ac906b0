"""`BoundedCall`: call a function that may hang, and wait for it no longer than a limit."""

from __future__ import annotations

import asyncio
import contextvars
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from contextlib import AbstractAsyncContextManager
from functools import partial
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

__all__ = ["SLOT_SECONDS", "BoundedCall"]

_ResultT = TypeVar("_ResultT")

_LOST_SECONDS = 600.0
"""A call of so many seconds will never end, for example because its connection is gone."""

SLOT_SECONDS = 5.0
"""A call that takes longer gives its slot back, so that calls that hang don't delay the others."""


class BoundedCall(Generic[_ResultT]):
    """Calls a function in another thread, one call at a time.

    A caller waits no longer than its limit, but the call goes on. Later callers wait for the same call. So
    a function that hangs takes one thread in ten minutes, however often it is called. A call that hangs is
    replaced by a new one after ten minutes, and in a forked process, which doesn't have its thread.

    :param function: the function.
    :param keeps_late: whether a result that comes too late for its caller is for the next one. Otherwise
        the next one calls the function again.
    """

    def __init__(self, function: Callable[[], _ResultT], *, keeps_late: bool = False) -> None:
        self._function = function
        self._keeps_late = keeps_late
        self._lock = threading.Lock()
        self._last: Future[_ResultT] | None = None
        self._is_taken = False
        self._process, self._lost_at = os.getpid(), 0.0

    def __call__(self, seconds: float) -> _ResultT:
        """Return the result of the function.

        :param seconds: the longest time to wait for it.
        :raises TimeoutError: there is none yet.
        """
        call = self._begin_or_join()
        wait([call], timeout=seconds)
        return self._result(call, seconds)

    async def wait(
        self, seconds: float, slot: AbstractAsyncContextManager[Any] | None = None
    ) -> _ResultT:
        """Like `__call__`, without holding the event loop.

        :param seconds: the longest time to wait for the result, without the time to get the slot.
        :param slot: entered before a new call begins, and left after its end or `SLOT_SECONDS`. It can
            limit how many calls run at once.
        :raises TimeoutError: there is no result yet.
        """
        left = seconds
        if slot is not None and self.is_over:
            async with slot:
                call = self._begin_or_join()
                at_once = min(left, SLOT_SECONDS)
                left -= at_once
                await _wait_for_end(call, at_once)
        else:
            call = self._begin_or_join()
        await _wait_for_end(call, left)
        return self._result(call, seconds)

    @property
    def is_running(self) -> bool:
        """Whether the next caller will wait for a call that runs."""
        return not (self.is_over or self._last is None or self._last.done())

    @property
    def is_over(self) -> bool:
        """Whether the next caller begins a new call."""
        if self._last is None or self._is_lost():
            return True
        return self._last.done() and (self._is_taken or not self._keeps_late)

    def _begin_or_join(self) -> Future[_ResultT]:
        with self._lock:
            if self._last is None or self.is_over:
                self._last, self._is_taken = self._start(), False
                self._process, self._lost_at = os.getpid(), time.monotonic() + _LOST_SECONDS
            return self._last

    def _result(self, call: Future[_ResultT], seconds: float) -> _ResultT:
        if not call.done():
            raise TimeoutError(f"no answer within {seconds:g} seconds")
        self._is_taken = True
        return call.result()

    def _is_lost(self) -> bool:
        if self._last is not None and self._last.done():
            return False
        return os.getpid() != self._process or time.monotonic() >= self._lost_at

    def _start(self) -> Future[_ResultT]:
        running: Future[_ResultT] = Future()
        # Otherwise a caller in an event loop that is cancelled would cancel the call of all.
        running.set_running_or_notify_cancel()

        def call() -> None:
            """Call the function, and give its result or error to the waiting callers."""
            try:
                running.set_result(self._function())
            except BaseException as error:  # noqa: BLE001 - the caller raises it
                running.set_exception(error)

        # The context has the task's logger.
        _run_in_thread(partial(contextvars.copy_context().run, call))
        return running


class _Worker:
    """A thread that runs one call after the other, because a new thread for each is slower."""

    def __init__(self) -> None:
        self.calls: SimpleQueue[Callable[[], object]] = SimpleQueue()
        # A daemon, so that a process can end while a call hangs.
        threading.Thread(target=self._work, name="delta-bounded-call", daemon=True).start()

    def _work(self) -> None:
        while True:
            self.calls.get()()
            if len(_IDLE) >= _MOST_IDLE:
                return
            _IDLE.append(self)


_MOST_IDLE = 16
_IDLE: list[_Worker] = []
# A forked process has none of the threads.
os.register_at_fork(after_in_child=_IDLE.clear)


def _run_in_thread(call: Callable[[], object]) -> None:
    """Run a call in an idle thread or a new one, but not behind a call that may hang."""
    try:
        worker = _IDLE.pop()
    except IndexError:
        worker = _Worker()
    worker.calls.put(call)


async def _wait_for_end(call: Future[Any], seconds: float) -> None:
    """Wait in an event loop until a call ends.

    Not with `asyncio.wait_for`, which before Python 3.12 doesn't notice that the caller is cancelled just
    when the call ends: a trigger that the triggerer has cancelled would go on.
    """
    if call.done():
        return
    ended = asyncio.wrap_future(call)
    try:
        await asyncio.wait({ended}, timeout=seconds)
    finally:
        if not ended.cancel() and not ended.cancelled():
            ended.exception()  # Otherwise asyncio logs that nobody has retrieved it.

"""`BoundedCall`: call a function that may hang, and wait for it no longer than a limit."""

from __future__ import annotations

import contextvars
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Generic, TypeVar

__all__ = ["BoundedCall"]

_ResultT = TypeVar("_ResultT")

_LOST_SECONDS = 600.0
"""A call of so many seconds will never end, for example because its connection is gone."""


class BoundedCall(Generic[_ResultT]):
    """Calls a function in a thread of its own, one call at a time.

    A caller waits no longer than its limit, but the call goes on. Later callers wait for the same call. So
    a function that hangs takes one thread in ten minutes, however often it is called. A call that hangs is
    replaced by a new one after ten minutes, and in a forked process, which doesn't have its thread.

    :param function: the function.
    """

    def __init__(self, function: Callable[[], _ResultT]) -> None:
        self._function = function
        self._lock = threading.Lock()
        self._running: Future[_ResultT] | None = None
        self._process, self._lost_at = os.getpid(), 0.0

    def __call__(self, seconds: float) -> _ResultT:
        """Return the result of the function.

        :param seconds: the longest time to wait for it.
        :raises TimeoutError: there is none yet.
        """
        with self._lock:
            running = self._running
            if running is None or running.done() or self._is_lost():
                running = self._running = self._start()
                self._process, self._lost_at = os.getpid(), time.monotonic() + _LOST_SECONDS
        wait([running], timeout=seconds)
        if not running.done():
            raise TimeoutError(f"no answer within {seconds:g} seconds")
        return running.result()

    def _is_lost(self) -> bool:
        return os.getpid() != self._process or time.monotonic() >= self._lost_at

    def _start(self) -> Future[_ResultT]:
        running: Future[_ResultT] = Future()

        def call() -> None:
            """Call the function, and give its result or error to the waiting callers."""
            try:
                running.set_result(self._function())
            except BaseException as error:  # noqa: BLE001 - the caller raises it
                running.set_exception(error)

        # A daemon, so that a process can end while it hangs. The context has the task's logger.
        run = contextvars.copy_context().run
        threading.Thread(target=run, args=(call,), name="delta-bounded-call", daemon=True).start()
        return running

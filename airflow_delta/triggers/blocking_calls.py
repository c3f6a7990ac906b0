"""`BlockingCalls`: call blocking functions from the event loop of the triggerer.

Not by `asyncio.to_thread`: all triggers and Airflow itself share the few threads behind it, and a call that
hangs, for example because a network share doesn't answer, takes one for good.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar
from weakref import WeakKeyDictionary

from airflow_delta.hooks.bounded_call import BoundedCall

__all__ = ["LOOK_SECONDS", "BlockingCalls"]

_ResultT = TypeVar("_ResultT")

LOOK_SECONDS = 300.0
"""A call that takes longer counts as failed."""

_MOST_AT_ONCE = 16
"""The calls of all triggers that begin together. Those that hang don't count; see `BoundedCall.wait`."""

_SLOTS: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()


class BlockingCalls(Generic[_ResultT]):
    """Calls functions in other threads, one at a time, and waits for each no longer than a limit.

    While a call hangs, no other is started: the next caller gets the result of that call, also if it
    has ended since. So the functions must be interchangeable. After ten minutes a call counts as lost; see
    `BoundedCall`.
    """

    def __init__(self) -> None:
        self._call: BoundedCall[_ResultT] | None = None

    @property
    def hangs(self) -> bool:
        """Whether the last call has taken longer than its limit, and still runs."""
        return self._call is not None and self._call.is_running

    async def __call__(
        self, function: Callable[[], _ResultT], seconds: float | None = None
    ) -> _ResultT:
        """Return the result of a function, or of the call that still hangs.

        :param function: the function.
        :param seconds: the longest time to wait; None: `LOOK_SECONDS`.
        :raises TimeoutError: there is no result yet.
        """
        call = self._call
        if call is None or call.is_over:
            call = self._call = BoundedCall(function, keeps_late=True)
        return await call.wait(LOOK_SECONDS if seconds is None else seconds, _slots())


def _slots() -> asyncio.Semaphore:
    """The slots of the running event loop."""
    loop = asyncio.get_running_loop()
    slots = _SLOTS.get(loop)
    if slots is None:
        slots = _SLOTS[loop] = asyncio.Semaphore(_MOST_AT_ONCE)
    return slots

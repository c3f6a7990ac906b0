"""Report the progress of long operations, for callers that show it.

An operation runs its long loop inside of `report_progress`. A caller listens with `listen_to_progress`::

    with listen_to_progress(print):
        table.vacuum()

=================  =========  ==========================================================================
step               unit       reported by
=================  =========  ==========================================================================
``list``           files      vacuums, conversions, checks and health: files that a listing has found
``look up``        files      restores, checks and pinned versions: files whose existence was checked
``delete``         files      vacuums, cleanups of metadata, and expired copies
``read footers``   files      conversions, checks and repairs of statistics
``rewrite``        bytes      optimizations
``read commits``   commits    log compactions, lite vacuums, checks, histories and searches in them
``backfill``       commits    managed tables
``checkpoint``     files      checkpoints: live files that are in the new checkpoint
``give row ids``   files      row tracking
``read rows``      rows       `Scan.to_table`, and ``airflow-delta scan``
=================  =========  ==========================================================================

An operation may have several steps, one after the other. Steps don't nest: what an operation does inside of
a step, such as a commit, reports none of its own.

Without a listener a report costs the lookup of a context variable for each step, and nothing for each file:
loops report batches, and `Reporter.count` returns its argument as it is.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from time import monotonic
from typing import Literal, TypeAlias, TypeVar

from airflow_delta.engine.model.sizes import rounded_size

__all__ = [
    "Listener",
    "Progress",
    "Reporter",
    "Step",
    "Unit",
    "listen_to_progress",
    "report_progress",
]

_Item = TypeVar("_Item")

_LOG = logging.getLogger(__name__)

Unit: TypeAlias = Literal["files", "bytes", "commits", "rows"]
"""What a step counts."""

Step: TypeAlias = Literal[
    "list",
    "look up",
    "delete",
    "read footers",
    "rewrite",
    "read commits",
    "backfill",
    "checkpoint",
    "give row ids",
    "read rows",
]
"""What an operation is doing; see the module."""

_DONE: dict[Step, str] = {
    "list": "listed",
    "look up": "looked up",
    "delete": "deleted",
    "read footers": "read the footers of",
    "rewrite": "rewrote",
    "read commits": "read",
    "backfill": "backfilled",
    "checkpoint": "checkpointed",
    "give row ids": "gave row ids to",
    "read rows": "read",
}

_INTERVAL_S = 0.1
"""Between its first and its last report a step reports no more often than this."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a step of an operation is. Its text is a line for people.

    The first report of a step has ``done=0``, and ``done`` grows with each later one. When the step is
    complete, ``done`` has reached the total. A step that fails, or that doesn't need the rest, ends before.
    A step with nothing to do reports nothing.

    Attributes:
        step: what is being done, such as ``"delete"``; the module lists all steps.
        done: how many of the units are done.
        total: how many there are; None if it isn't known.
        unit: what is counted.
    """

    step: Step
    done: int
    total: int | None
    unit: Unit

    def __str__(self) -> str:
        """For example ``deleted 12,000 of 109,000 files``."""
        done, total = self.done, self.total
        if self.unit == "bytes":
            whole = "" if total is None else f" of {rounded_size(total)}"
            return f"{_DONE[self.step]} {rounded_size(done)}{whole}"
        whole = "" if total is None else f" of {total:,}"
        return f"{_DONE[self.step]} {done:,}{whole} {self.unit}"


Listener: TypeAlias = Callable[[Progress], object]
"""A function that gets the progress of operations; what it returns is ignored."""


class Reporter:
    """Counts what a step has done; use it only in the thread that has begun the step.

    This class does nothing, for operations that nobody listens to.
    """

    def advance(self, count: int) -> None:
        """Report that some more units are done.

        Args:
            count: how many.
        """

    def count(self, items: Iterable[_Item]) -> Iterable[_Item]:
        """Yield some items, and report each as done when the next one is taken.

        Args:
            items: the items. If nobody listens, they are returned themselves.
        """
        return items


@contextmanager
def listen_to_progress(listener: Listener) -> Iterator[None]:
    """Send the progress of all operations in a block to a function.

    The listener is a context variable and no argument of operations: the loops that take long are many
    modules below the method that is called, and the code that shows progress, such as the command line, is
    far above it. So it crosses all of them as a logger does. It applies to the block in its thread, or its
    task of asyncio, and replaces the listener of an outer block.

    The listener is called in the thread that has called the operation, also if the work is done in other
    threads, and about ten times a second. It should return soon, since the operation waits for it. If it
    raises an `Exception`, that is logged, and the listener isn't called again: what shows the progress must
    not stop an operation halfway. Other errors, such as `KeyboardInterrupt`, end the operation.

    Args:
        listener: it gets each `Progress`.
    """
    token = _listening.set(_Listening(listener))
    try:
        yield
    finally:
        _listening.reset(token)


@contextmanager
def report_progress(step: Step, unit: Unit, total: int | None = None) -> Iterator[Reporter]:
    """Report the progress of the work in a block.

    Args:
        step: what the block does.
        unit: what it counts.
        total: how many there are; None if it isn't known.

    Yields:
        The reporter, which the block calls now and then.
    """
    listening = _listening.get()
    if listening is None or listening.has_step or total == 0:
        yield _SILENT
        return
    listening.has_step = True
    try:
        reporter = _CountingReporter(listening, step, unit, total)
        yield reporter
        reporter.finish()
    finally:
        listening.has_step = False


class _Listening:
    """A block of `listen_to_progress`.

    Attributes:
        has_step: whether a step is in progress.
    """

    def __init__(self, listener: Listener) -> None:
        self._listener: Listener | None = listener
        self.has_step = False

    def report(self, progress: Progress) -> None:
        """Call the listener, unless it has failed before."""
        if self._listener is None:
            return
        try:
            self._listener(progress)
        except Exception:  # noqa: BLE001 - code of the caller
            self._listener = None
            _LOG.warning(
                "the listener of the progress failed, and isn't called again", exc_info=True
            )


class _CountingReporter(Reporter):
    """The reporter of a step that somebody listens to."""

    def __init__(self, listening: _Listening, step: Step, unit: Unit, total: int | None) -> None:
        self._listening = listening
        self._step, self._unit, self._total = step, unit, total
        self._done = self._reported = 0
        self._report()

    def advance(self, count: int) -> None:
        """Report that some more units are done, unless the last report was just now."""
        self._done += count
        if self._done > self._reported and monotonic() - self._reported_s >= _INTERVAL_S:
            self._report()

    def count(self, items: Iterable[_Item]) -> Iterator[_Item]:
        """Yield some items, and report each as done when the next one is taken."""
        for item in items:
            yield item
            self.advance(1)

    def finish(self) -> None:
        """Report what wasn't reported yet."""
        if self._done > self._reported:
            self._report()

    def _report(self) -> None:
        self._reported, self._reported_s = self._done, monotonic()
        self._listening.report(Progress(self._step, self._done, self._total, self._unit))


_SILENT = Reporter()

_listening: ContextVar[_Listening | None] = ContextVar("airflow_delta_progress", default=None)

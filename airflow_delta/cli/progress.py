"""Show the progress of long work on a terminal: a spinner, or a bar if the total is known."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow_delta.engine.progress import Progress

__all__ = ["pause_progress", "show_progress"]

_BAR_WIDTH = 24


@contextmanager
def show_progress(work: str, *, is_shown: bool = True) -> Iterator[None]:
    """Show the progress that the engine reports in a block, on standard error, if that is a terminal.

    What is shown disappears at the end of the block, also after an error or an interrupt.

    Args:
        work: a name for the work.
        is_shown: whether to show it at all.
    """
    global _display
    if not (is_shown and sys.stderr.isatty()):
        yield
        return
    from airflow_delta.engine.progress import listen_to_progress

    before, _display = _display, _Display(work)
    try:
        _display.start()
        with listen_to_progress(_display.update):
            yield
    finally:
        _display.stop()
        _display = before


def pause_progress() -> None:
    """Erase what is shown, because something is about to be printed. The next report shows it again."""
    if _display is not None:
        _display.stop()


class _Display:
    """A line on standard error: the work and its current step, a bar, the rate and the time."""

    def __init__(self, work: str) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            Progress,
            SpinnerColumn,
            Task,
            TextColumn,
            TimeElapsedColumn,
        )

        class _Bar(BarColumn):
            def render(self, task: Task) -> Any:
                """Show a bar if the total is known."""
                return "" if task.total is None else super().render(task)

        self._work = work
        self._lines = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            _Bar(_BAR_WIDTH),
            TextColumn("{task.fields[rate]}", markup=False),
            TimeElapsedColumn(),
            console=Console(stderr=True),
            transient=True,
            # Results go to standard output, and `pause_progress` is called before.
            redirect_stdout=False,
        )
        self._task = self._lines.add_task(work, total=None, rate="")
        self._begun_s = monotonic()
        self._is_live = False

    def start(self) -> None:
        """Show the line."""
        if not self._is_live:
            self._is_live = True
            self._lines.start()

    def stop(self) -> None:
        """Erase the line."""
        if self._is_live:
            self._is_live = False
            self._lines.stop()

    def update(self, progress: Progress) -> None:
        """Show a report of the engine."""
        text = f"{self._work}: {progress}"
        if progress.done == 0:  # A new step.
            self._lines.remove_task(self._task)
            self._task = self._lines.add_task(text, total=progress.total, rate="")
            self._begun_s = monotonic()
        else:
            rate = _rate(progress, monotonic() - self._begun_s)
            self._lines.update(self._task, completed=progress.done, description=text, rate=rate)
        self.start()


_display: _Display | None = None


def _rate(progress: Progress, seconds: float) -> str:
    from airflow_delta.engine.model.sizes import rounded_size

    if seconds <= 0:
        return ""
    rate = progress.done / seconds
    if progress.unit == "bytes":
        return f"{rounded_size(int(rate))}/s"
    return f"{rate:,.0f} {progress.unit}/s"

"""Show the progress of long work on a terminal: a spinner with the time, or a bar of rows."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["progress"]


@contextmanager
def progress(
    work: str, *, total: int | None = None, is_shown: bool = True
) -> Iterator[Callable[[int], None]]:
    """Show the progress of the work in the context, on standard error, if that is a terminal.

    Args:
        work: a name for the work.
        total: the number of steps, such as rows; None if it isn't known.
        is_shown: whether to show it at all.

    Yields:
        A function to call with the number of steps that were done since the last call.
    """
    if not (is_shown and sys.stderr.isatty()):
        yield _ignore
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        SpinnerColumn,
        TextColumn,
        TimeElapsedColumn,
    )

    count = () if total is None else (BarColumn(), MofNCompleteColumn())
    columns = (SpinnerColumn(), TextColumn(work, markup=False), *count, TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(work, total=total)
        yield lambda steps: bar.advance(task, steps)


def _ignore(steps: int) -> None:
    """Do nothing."""

"""Log the progress of long work in a worker, so that a task doesn't look hung.

All methods of `DeltaHook` that may take long have the decorator `logs_progress`: a line such as
``deleted 12,000 of 109,000 files`` at most twice a minute. Short work logs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar, cast

if TYPE_CHECKING:
    from airflow_delta.engine.progress import Progress

__all__ = ["log_progress", "logs_progress"]

_MethodT = TypeVar("_MethodT", bound=Callable[..., Any])

_INTERVAL_S = 30
"""The least time between two lines, and before the first one."""


@contextmanager
def log_progress(logger: Any) -> Iterator[None]:
    """Log the progress that the engine reports in a block.

    :param logger: the logger of the task, or of a hook.
    """
    from airflow_delta.engine.progress import listen_to_progress

    logged_s = monotonic()

    def _log(progress: Progress) -> None:
        nonlocal logged_s
        now_s = monotonic()
        # The begin of a step has nothing to say.
        if progress.done and now_s - logged_s >= _INTERVAL_S:
            logged_s = now_s
            logger.info("%s", progress)

    with listen_to_progress(_log):
        yield


def logs_progress(method: _MethodT) -> _MethodT:
    """Decorate a method of `DeltaHook` that may take long: log the progress of its work."""

    @wraps(method)
    def logged(self: Any, *arguments: Any, **named: Any) -> Any:
        """Call the method, and log its progress."""
        with log_progress(self.log):
            return method(self, *arguments, **named)

    return cast("_MethodT", logged)

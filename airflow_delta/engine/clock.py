"""The time of the system's clock, as the protocol stores times."""

from __future__ import annotations

import time

__all__ = ["now_ms"]


def now_ms() -> int:
    """The time, in epoch milliseconds."""
    return time.time_ns() // 1_000_000

"""A trigger that holds the event loop, for the test of the measurement."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

__all__ = ["BlockingTrigger"]


class BlockingTrigger(BaseTrigger):
    """Waits in the loop, without any work for the processor."""

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Airflow creates it from this."""
        return f"{__name__}.BlockingTrigger", {}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Wait."""
        time.sleep(0.08)  # the mistake
        yield TriggerEvent({})

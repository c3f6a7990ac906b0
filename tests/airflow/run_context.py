"""The context of a task in a DAG run, as far as operators look at it."""

from __future__ import annotations

from datetime import datetime, timezone
from types import SimpleNamespace
from typing import Any

__all__ = ["context_of"]


def context_of(task_id: str = "task", *, run: int = 1, try_number: int = 1) -> Any:
    """The context of a try: the same task in another run has another time."""
    return {
        "ti": SimpleNamespace(
            dag_id="lake",
            task_id=task_id,
            run_id=f"run {run}",
            map_index=-1,
            try_number=try_number,
        ),
        "dag_run": SimpleNamespace(run_after=datetime(2026, 3, run, tzinfo=timezone.utc)),
    }

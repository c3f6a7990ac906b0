"""What all tests of failures need."""

from __future__ import annotations

import pytest

from airflow_delta.engine.snapshot import newest
from tests.table_builder import FAR_FUTURE_MS


@pytest.fixture(autouse=True)
def no_young_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every commit be old, so that a run takes the same steps each time.

    On a remote store the newest commit is read once more if it is young and its time is a whole second:
    once in a thousand runs.
    """
    monkeypatch.setattr(newest, "now_ms", lambda: FAR_FUTURE_MS)

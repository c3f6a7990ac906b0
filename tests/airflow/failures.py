"""Failures of tasks, as Airflow judges them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from airflow_delta.hooks.failures import TableFailure

__all__ = ["fails_for_good"]


@contextmanager
def fails_for_good(kind: type[BaseException], match: str = "") -> Iterator[None]:
    """Expect a failure that Airflow doesn't try again, with the engine's error as its cause."""
    with pytest.raises(TableFailure) as failed:
        yield
    cause = failed.value.__cause__
    assert isinstance(cause, kind), repr(cause)
    assert str(cause) in str(failed.value)
    assert re.search(match, str(failed.value)), str(failed.value)

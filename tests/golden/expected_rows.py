"""The rows that Spark expects of a golden table, and whether others are the same."""

from __future__ import annotations

import importlib.util
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from tests.conftest import GOLDEN

__all__ = ["ExpectedRows"]


class ExpectedRows:
    """The rows of a case.

    Args:
        table: the case's table, unpacked.
    """

    def __init__(self, table: Path) -> None:
        rows = [
            row
            for file in sorted((table.parent / "expected").glob("*.parquet"))
            for row in pq.read_table(file).to_pylist()
        ]
        assert rows, "a case without rows would prove nothing"
        self._columns = list(rows[0])
        self._bag = self._as_bag(rows)

    def are(self, rows: list[dict[str, Any]]) -> bool:
        """Whether rows are the expected ones, in any order."""
        return self._as_bag(rows) == self._bag

    def _as_bag(self, rows: list[dict[str, Any]]) -> Counter[tuple[str, ...]]:
        comparable = _comparable()
        return Counter(tuple(comparable(row[name]) for name in self._columns) for row in rows)


@cache
def _comparable() -> Callable[[Any], str]:
    """The corpus's own rule of what makes two values the same."""
    spec = importlib.util.spec_from_file_location("check_golden", GOLDEN / "check_golden.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    value: Callable[[Any], str] = module.value
    return value

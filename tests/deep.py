"""Which parameters of a test ``make test`` runs; ``make test-deep`` runs the others.

``make test`` keeps one or two of each kind, so that no oracle is left out. More of the same finds something
once in a while: it is worth the minutes before a change lands.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

__all__ = ["deep_but_for"]


def deep_but_for(values: Iterable[Any], *kept: Any) -> list[Any]:
    """All values as parameters, those that aren't kept with the mark ``deep``.

    Args:
        values: the values, or their names.
        kept: those that ``make test`` runs.
    """
    every = list(values)
    assert all(value in every for value in kept), f"no parameter: {kept}"
    deep = pytest.mark.deep
    return [value if value in kept else pytest.param(value, marks=deep) for value in every]

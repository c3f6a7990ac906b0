"""Bounds of the values of a column in each of many files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from airflow_delta.engine.scan.masks import Mask

__all__ = ["UNBOUNDED", "Bounds"]


@dataclass(frozen=True, slots=True)
class Bounds:
    """The bounds of a column, per file, or of a constant, for all files.

    Attributes:
        minimum: a lower bound: an array with one entry per file, null where unknown; or a scalar. None if
            it is unknown for all files.
        maximum: an upper bound; likewise.
        has_value: False where certainly every row is null.
        has_null: False where certainly no row is null.
        has_nan: False where certainly no value is NaN, to which the bounds don't apply.
    """

    minimum: Any
    maximum: Any
    has_value: Mask = True
    has_null: Mask = True
    has_nan: Mask = False


UNBOUNDED = Bounds(None, None, has_nan=True)
"""The bounds of a column of which nothing is known."""

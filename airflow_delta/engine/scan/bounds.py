"""What is known of the values that a column has in each of many files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from airflow_delta.engine.scan.masks import Mask

__all__ = ["UNBOUNDED", "Bounds"]


@dataclass(frozen=True, slots=True)
class Bounds:
    """Bounds of a column's values, per file, or of a constant for all files.

    Attributes:
        minimum: no value is less: an array with an entry a file, null where unknown, or a scalar;
            None where it's unknown for all.
        maximum: no value is greater; likewise.
        has_value: False where every row is null for certain.
        has_null: False where no row is null for certain.
        has_nan: whether some values may be NaN, which the bounds say nothing about.
    """

    minimum: Any
    maximum: Any
    has_value: Mask = True
    has_null: Mask = True
    has_nan: bool = False


UNBOUNDED = Bounds(None, None, has_nan=True)
"""Nothing is known."""

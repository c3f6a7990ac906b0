"""Masks: an answer for each of many files, or one for all of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from airflow_delta.engine.arrow.python_arrays import scalar_of

__all__ = ["Mask", "all_of", "any_of", "as_array", "known_true", "opposite", "true_unless_known"]

Mask: TypeAlias = "bool | Any"
"""A bool for all files, or a `pyarrow.BooleanArray` without nulls, with one entry per file."""


def all_of(masks: Iterable[Mask]) -> Mask:
    """True where all masks are. Stops at the first mask that is False for all files."""
    result: Mask = True
    for mask in masks:
        if mask is False:
            return False
        if mask is not True:
            result = mask if result is True else pc.and_(result, mask)
    return result


def any_of(masks: Iterable[Mask]) -> Mask:
    """True where any mask is. Stops at the first mask that is True for all files."""
    result: Mask = False
    for mask in masks:
        if mask is True:
            return True
        if mask is not False:
            result = mask if result is False else pc.or_(result, mask)
    return result


def as_array(mask: Mask, length: int) -> Any:
    """The mask as an array of booleans, with one entry per file."""
    return pa.repeat(scalar_of(mask, pa.bool_()), length) if isinstance(mask, bool) else mask


def opposite(mask: Mask) -> Mask:
    """True where the mask is False."""
    return not mask if isinstance(mask, bool) else pc.invert(mask)


def true_unless_known(answer: Any) -> Mask:
    """The outcome of a comparison, an array or a scalar, with True for null (unknown)."""
    return _fill_unknown(answer, unknown=True)


def known_true(answer: Any) -> Mask:
    """The outcome of a comparison, an array or a scalar, with False for null (unknown)."""
    return _fill_unknown(answer, unknown=False)


def _fill_unknown(answer: Any, *, unknown: bool) -> Mask:
    filled = pc.fill_null(answer, scalar_of(unknown, pa.bool_()))
    # The comparison of two constants is a scalar.
    return filled.as_py() if hasattr(filled, "as_py") else filled

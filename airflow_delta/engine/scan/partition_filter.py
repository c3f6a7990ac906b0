"""Evaluate a predicate over partition columns alone with pyarrow, whatever functions it uses.

All rows of a file share the values of its partition columns, so the predicate has the same outcome for
all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from airflow_delta.engine.arrow.numpy_arrays import bool_array, int64_array, int64_view
from airflow_delta.engine.features.schema_walk import SchemaPath
from airflow_delta.engine.scan.bounds import Bounds
from airflow_delta.engine.scan.masks import Mask, all_of, any_of

__all__ = ["can_evaluate", "evaluate"]

_ROW = "\x00row"


def can_evaluate(bounds: Mapping[SchemaPath, Bounds]) -> bool:
    """Whether the bounds are single values on which all engines agree, which excludes NaN."""
    return all(
        known.minimum is not None and not pa.types.is_floating(known.minimum.type)
        for known in bounds.values()
    )


def evaluate(predicate: Any, bounds: Mapping[SchemaPath, Bounds]) -> Mask:
    """Whether a predicate is true for each file, or its outcome is unknown.

    Args:
        predicate: a `pyarrow.compute.Expression` over partition columns alone.
        bounds: the bounds of these columns, by logical path.
    """
    values = {path[0]: known.minimum for path, known in bounds.items()}
    files = len(next(iter(values.values())))
    table = pa.table({**values, _ROW: int64_array(np.arange(files))})
    try:
        rows = table.filter(predicate)[_ROW].combine_chunks()
    except pa.ArrowException:  # Reading the rows will fail with the reason.
        return True
    matches = np.zeros(files, np.bool_)
    matches[int64_view(rows)] = True
    # Values that exist, but are invalid.
    unclear = (all_of((known.has_value, known.minimum.is_null())) for known in bounds.values())
    return any_of((bool_array(matches), *unclear))

"""Row ids and row commit versions of the rows of one data file.

Spec: PROTOCOL.md, "Reader Requirements for Row Tracking". Each has a default, which the file's
``add`` gives, and a materialised value, which a hidden column of the data file may hold for rows
that were moved there from another file:

=====================  ===================================  ======================================
of a row               materialised                         default
=====================  ===================================  ======================================
row id                 the column's value, if not null      ``baseRowId`` + the row's index
row commit version     the column's value, if not null      ``defaultRowCommitVersion``
=====================  ===================================  ======================================

The index of a row counts all rows of the file, those that a deletion vector hides included. The rows
of change data files have neither.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from airflow_delta.engine.arrow.python_arrays import scalar_of

__all__ = ["row_commit_versions", "row_ids"]


def row_ids(
    indexes: pa.Array, *, base_row_id: int, materialized: pa.Array | None = None
) -> pa.Array:
    """The stable ids of rows.

    Args:
        indexes: the place of each row in its file, from 0, int64.
        base_row_id: the file's ``baseRowId``.
        materialized: the hidden column's values of the same rows; None where the file lacks it.
    """
    default = pc.add(indexes.cast(pa.int64()), scalar_of(base_row_id, pa.int64()))
    return default if materialized is None else pc.coalesce(materialized, default)


def row_commit_versions(
    num_rows: int, *, default_row_commit_version: int, materialized: pa.Array | None = None
) -> pa.Array:
    """The versions that rows were last inserted or updated in.

    Args:
        num_rows: how many rows.
        default_row_commit_version: the file's ``defaultRowCommitVersion``.
        materialized: the hidden column's values of these rows; None where the file lacks it.
    """
    default = scalar_of(default_row_commit_version, pa.int64())
    if materialized is None:
        return pa.repeat(default, num_rows)
    return pc.coalesce(materialized, default)

"""The rows of a file that a change stands for, where deletion vectors decide.

See `file_changes` for the two vectors of an entry. Positions count all rows of the data file, in
physical order, from 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from airflow_delta.engine.deletion_vectors.read import OpenUri, read_deletion_vector
from airflow_delta.engine.model.dv_descriptor import DeletionVectorDescriptor
from airflow_delta.engine.storage.base import Storage

if TYPE_CHECKING:
    from pyroaring import BitMap64

__all__ = ["RowSelection", "select_rows"]

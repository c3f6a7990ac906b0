"""Read one deletion vector."""

from __future__ import annotations

from typing import Any

from airflow_delta.engine.deletion_vectors.read import read_deletion_vectors
from airflow_delta.engine.model.dv_descriptor import DeletionVectorDescriptor
from airflow_delta.engine.storage.base import Storage

__all__ = ["read_deletion_vector"]


def read_deletion_vector(
    descriptor: DeletionVectorDescriptor, storage: Storage, **named: Any
) -> Any:
    """The positions of the deleted rows; see `read_deletion_vectors`."""
    return read_deletion_vectors([descriptor], storage, **named)[0]

"""The log engine: reads and writes the Delta transaction log by itself, without a JVM.

The public names are loaded when they are first used: importing this package loads neither pyarrow
nor numpy, so that it costs an Airflow DAG parse nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow_delta.engine import errors
    from airflow_delta.engine.maintenance.checkpointing import CheckpointResult
    from airflow_delta.engine.model.actions import AddFile, CommitInfo, RemoveFile
    from airflow_delta.engine.snapshot.snapshot import Snapshot
    from airflow_delta.engine.table import DeltaTable
    from airflow_delta.engine.transaction.transaction import CommitResult, OptimisticTransaction

__all__ = [
    "AddFile",
    "CheckpointResult",
    "CommitInfo",
    "CommitResult",
    "DeltaTable",
    "OptimisticTransaction",
    "RemoveFile",
    "Snapshot",
    "errors",
]

_HOMES = {
    "AddFile": "model.actions",
    "CheckpointResult": "maintenance.checkpointing",
    "CommitInfo": "model.actions",
    "CommitResult": "transaction.transaction",
    "DeltaTable": "table",
    "OptimisticTransaction": "transaction.transaction",
    "RemoveFile": "model.actions",
    "Snapshot": "snapshot.snapshot",
}


def __getattr__(name: str) -> Any:
    if name == "errors":
        return import_module("airflow_delta.engine.errors")
    if name in _HOMES:
        return getattr(import_module(f"airflow_delta.engine.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__

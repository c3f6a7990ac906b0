"""The log engine: reads and writes the Delta transaction log by itself, without a JVM.

The public names are loaded when they are first used: importing this package loads neither pyarrow
nor numpy, so that it costs an Airflow DAG parse nothing.

What has a place of its own: the types of columns without parameters (``LONG``, ``STRING``, …) are in
`airflow_delta.engine.model.schema`, the other actions of the log in
`airflow_delta.engine.model.actions`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow_delta.engine import errors
    from airflow_delta.engine.maintenance.checkpointing import CheckpointResult
    from airflow_delta.engine.model.actions import (
        AddCdcFile,
        AddFile,
        CommitInfo,
        Metadata,
        Protocol,
        RemoveFile,
    )
    from airflow_delta.engine.model.schema import (
        ArrayType,
        DecimalType,
        MapType,
        StructField,
        StructType,
    )
    from airflow_delta.engine.snapshot.snapshot import Snapshot
    from airflow_delta.engine.table import DeltaTable
    from airflow_delta.engine.transaction.result import CommitResult
    from airflow_delta.engine.transaction.transaction import OptimisticTransaction

__all__ = [
    "AddCdcFile",
    "AddFile",
    "ArrayType",
    "CheckpointResult",
    "CommitInfo",
    "CommitResult",
    "DecimalType",
    "DeltaTable",
    "MapType",
    "Metadata",
    "OptimisticTransaction",
    "Protocol",
    "RemoveFile",
    "Snapshot",
    "StructField",
    "StructType",
    "errors",
]

_HOMES = {
    "AddCdcFile": "model.actions",
    "AddFile": "model.actions",
    "ArrayType": "model.schema",
    "CheckpointResult": "maintenance.checkpointing",
    "CommitInfo": "model.actions",
    "CommitResult": "transaction.result",
    "DecimalType": "model.schema",
    "DeltaTable": "table",
    "MapType": "model.schema",
    "Metadata": "model.actions",
    "OptimisticTransaction": "transaction.transaction",
    "Protocol": "model.actions",
    "RemoveFile": "model.actions",
    "Snapshot": "snapshot.snapshot",
    "StructField": "model.schema",
    "StructType": "model.schema",
}


def __getattr__(name: str) -> Any:
    if name == "errors":
        return import_module("airflow_delta.engine.errors")
    if name in _HOMES:
        return getattr(import_module(f"airflow_delta.engine.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__

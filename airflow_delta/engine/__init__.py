"""The log engine: reads and writes the Delta transaction log by itself, without a JVM.

The public names are loaded when they are first used: importing this package loads neither pyarrow
nor numpy, so that it costs an Airflow DAG parse nothing.

Here is what a user of the engine writes down: tables, schemas and their types, and the actions that a
transaction takes. What methods return needs no import; ``docs/reference/engine.md`` has it all.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow_delta.engine import errors
    from airflow_delta.engine.maintenance.checkpoint.execution import CheckpointResult
    from airflow_delta.engine.model.actions import (
        AddCdcFile,
        AddFile,
        CommitInfo,
        Metadata,
        Protocol,
        RemoveFile,
    )
    from airflow_delta.engine.model.schema import (
        BINARY,
        BOOLEAN,
        BYTE,
        DATE,
        DOUBLE,
        FLOAT,
        INTEGER,
        LONG,
        SHORT,
        STRING,
        TIMESTAMP,
        TIMESTAMP_NTZ,
        VARIANT,
        VOID,
        ArrayType,
        DecimalType,
        MapType,
        StructField,
        StructType,
    )
    from airflow_delta.engine.progress import Progress, listen_to_progress
    from airflow_delta.engine.snapshot.snapshot import Snapshot
    from airflow_delta.engine.table import DeltaTable
    from airflow_delta.engine.transaction.result import CommitResult
    from airflow_delta.engine.transaction.transaction import OptimisticTransaction

__all__ = [
    "BINARY",
    "BOOLEAN",
    "BYTE",
    "DATE",
    "DOUBLE",
    "FLOAT",
    "INTEGER",
    "LONG",
    "SHORT",
    "STRING",
    "TIMESTAMP",
    "TIMESTAMP_NTZ",
    "VARIANT",
    "VOID",
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
    "Progress",
    "Protocol",
    "RemoveFile",
    "Snapshot",
    "StructField",
    "StructType",
    "errors",
    "listen_to_progress",
]

_HOMES = {
    "BINARY": "model.schema",
    "BOOLEAN": "model.schema",
    "BYTE": "model.schema",
    "DATE": "model.schema",
    "DOUBLE": "model.schema",
    "FLOAT": "model.schema",
    "INTEGER": "model.schema",
    "LONG": "model.schema",
    "SHORT": "model.schema",
    "STRING": "model.schema",
    "TIMESTAMP": "model.schema",
    "TIMESTAMP_NTZ": "model.schema",
    "VARIANT": "model.schema",
    "VOID": "model.schema",
    "AddCdcFile": "model.actions",
    "AddFile": "model.actions",
    "ArrayType": "model.schema",
    "CheckpointResult": "maintenance.checkpoint.execution",
    "CommitInfo": "model.actions",
    "CommitResult": "transaction.result",
    "DecimalType": "model.schema",
    "DeltaTable": "table",
    "MapType": "model.schema",
    "Metadata": "model.actions",
    "OptimisticTransaction": "transaction.transaction",
    "Progress": "progress",
    "Protocol": "model.actions",
    "RemoveFile": "model.actions",
    "Snapshot": "snapshot.snapshot",
    "StructField": "model.schema",
    "StructType": "model.schema",
    "listen_to_progress": "progress",
}


def __getattr__(name: str) -> Any:
    if name == "errors":
        return import_module("airflow_delta.engine.errors")
    if name in _HOMES:
        return getattr(import_module(f"airflow_delta.engine.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__

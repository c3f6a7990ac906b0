"""The PySpark data plane: DataFrames of Delta tables, and tables from DataFrames. No Delta jar.

The engine reads the log and commits; Spark reads and writes the data files. ``jobs/`` has programs for
spark-submit. ::

    from airflow_delta.spark import read_snapshot, write

    sales = read_snapshot(spark, "s3://lake/sales", version=7)
    write(sales, "/data/copy", partition_by=["day"])

It needs Spark's classic API, with the driver in this process, not Spark Connect. Names are loaded at their
first use, so that Airflow's workers can import `airflow_delta.spark` without PySpark.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow_delta.spark.alterations.iceberg import IcebergCompatResult, enable_iceberg_compat
    from airflow_delta.spark.alterations.row_rules import add_constraint, set_not_null
    from airflow_delta.spark.changes.read import read_changes
    from airflow_delta.spark.dml.delete import DeleteResult, delete
    from airflow_delta.spark.dml.merge.merge import MergeBuilder, merge
    from airflow_delta.spark.dml.merge.result import MergeResult
    from airflow_delta.spark.dml.update import UpdateResult, update
    from airflow_delta.spark.ingest.write import WriteResult, write
    from airflow_delta.spark.optimizer.optimize import optimize
    from airflow_delta.spark.profile.profiling import profile_snapshot
    from airflow_delta.spark.reader.read import read_snapshot

__all__ = [
    "DeleteResult",
    "IcebergCompatResult",
    "MergeBuilder",
    "MergeResult",
    "UpdateResult",
    "WriteResult",
    "add_constraint",
    "delete",
    "enable_iceberg_compat",
    "merge",
    "optimize",
    "profile_snapshot",
    "read_changes",
    "read_snapshot",
    "set_not_null",
    "update",
    "write",
]

_HOMES = {
    "DeleteResult": "dml.delete",
    "IcebergCompatResult": "alterations.iceberg",
    "MergeBuilder": "dml.merge.merge",
    "MergeResult": "dml.merge.result",
    "UpdateResult": "dml.update",
    "WriteResult": "ingest.write",
    "add_constraint": "alterations.row_rules",
    "delete": "dml.delete",
    "enable_iceberg_compat": "alterations.iceberg",
    "merge": "dml.merge.merge",
    "optimize": "optimizer.optimize",
    "profile_snapshot": "profile.profiling",
    "read_changes": "changes.read",
    "read_snapshot": "reader.read",
    "set_not_null": "alterations.row_rules",
    "update": "dml.update",
    "write": "ingest.write",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        try:
            home = import_module(f"airflow_delta.spark.{_HOMES[name]}")
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] not in {"pyspark", "py4j"}:
                raise
            raise ImportError(
                f"airflow_delta.spark.{name} needs PySpark, which isn't installed here: "
                "pip install 'airflow-delta[spark]'"
            ) from error
        return getattr(home, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__

"""Jobs that optimize a table with Spark, and with Delta Spark in a session of equal settings.

Delta Spark gets the sizes of new files by its settings. It writes snappy, and our side zstd, as each does
unless a table says otherwise. The figures are those of the files afterwards.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from benchmarks import data_tables
from benchmarks.handles import our_table
from benchmarks.jobs.sorting import COLUMNS, FILE_SIZE, layout_figures
from benchmarks.spark_changes import Change, change_job

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["JOBS"]

_SMALL_FILES = 1_000
_TARGET = 128 << 20


def _compact(spark: SparkSession, uri: str) -> object:
    from airflow_delta.spark import optimize

    return optimize(spark, uri, max_file_size=_TARGET)


def _z_order(spark: SparkSession, uri: str) -> object:
    from airflow_delta.spark import optimize

    return optimize(spark, uri, z_order_by=[*COLUMNS], max_file_size=FILE_SIZE)


def _files(uri: str) -> Mapping[str, float]:
    snapshot = our_table(uri).snapshot()
    return {"files": float(snapshot.num_files), "MB": snapshot.size_in_bytes / 1e6}


def _sizes(most: int) -> Mapping[str, str]:
    names = ("minFileSize", "maxFileSize")
    return {f"spark.databricks.delta.optimize.{name}": str(most) for name in names}


JOBS = (
    change_job(
        "optimize-spark",
        "join 1,000 files of 1 MB into files of 128 MB",
        partial(data_tables.large, files=_SMALL_FILES),
        Change(_compact, "OPTIMIZE {table}", _sizes(_TARGET), _files),
    ),
    change_job(
        "z-order-spark",
        "sort all rows by two columns in Z-order",
        data_tables.large,
        Change(
            _z_order,
            f"OPTIMIZE {{table}} ZORDER BY ({', '.join(COLUMNS)})",
            _sizes(FILE_SIZE),
            layout_figures,
        ),
        rows=5_000_000,
    ),
)

"""Jobs that delete, update and merge rows with Spark, and with Delta Spark."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import data_tables
from benchmarks.data_tables import merge_source
from benchmarks.spark_changes import ROWS, Change, change_job

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["JOBS"]

_VECTORS = "delta.enableDeletionVectors"
_FEED = ("delta.enableChangeDataFeed", "delta.enableRowTracking")


def _deletion(condition: str) -> Change:
    def change(spark: SparkSession, uri: str) -> object:
        from airflow_delta.spark import delete

        return delete(spark, uri, condition)

    return Change(change, f"DELETE FROM {{table}} WHERE {condition}")


def _update(column: str, value: str, condition: str) -> Change:
    def change(spark: SparkSession, uri: str) -> object:
        from airflow_delta.spark import update

        return update(spark, uri, {column: value}, condition)

    return Change(change, f"UPDATE {{table}} SET {column} = {value} WHERE {condition}")


def _merge(*, updates: bool) -> Change:
    def change(spark: SparkSession, uri: str) -> object:
        from airflow_delta.spark import merge

        rows = spark.read.parquet(merge_source(uri))
        found = merge(spark, uri, rows, "target.id = source.id")
        if updates:
            found = found.when_matched_update_all()
        return found.when_not_matched_insert_all().execute()

    return Change(
        change,
        "MERGE INTO {table} AS target USING parquet.`{source}` AS source ON target.id = source.id "
        + ("WHEN MATCHED THEN UPDATE SET * " if updates else "")
        + "WHEN NOT MATCHED THEN INSERT *",
    )


def _table(*properties: str) -> Callable[[Path, int], Path]:
    return lambda work, rows: (
        data_tables.with_properties(work, rows, *properties)
        if properties
        else data_tables.large(work, rows)
    )


def _mergeable(*properties: str, updates: float, inserts: float) -> Callable[[Path, int], Path]:
    return lambda work, rows: data_tables.mergeable(
        work, rows, *properties, updates=updates, inserts=inserts
    )


_ANYWHERE = _deletion("pmod(hash(id), 1000) = 0")
_ONE_PERCENT = _update("price", "price + 1", "pmod(hash(id), 100) = 0")
_UPSERT, _INSERTS = _merge(updates=True), _merge(updates=False)
_FEW = {"updates": 0.01, "inserts": 0.01}

JOBS = (
    change_job(
        "delete-vectors", "delete 0.1 % of the rows by vectors", _table(_VECTORS), _ANYWHERE
    ),
    change_job("delete", "delete 0.1 % of the rows by rewriting files", _table(), _ANYWHERE),
    change_job(
        "delete-partition",
        "delete one partition of 20",
        partial(data_tables.large, partitioned=True),
        _deletion(f"region = '{data_tables.REGIONS[7]}'"),
    ),
    change_job(
        "delete-range",
        "delete whole files, which statistics show: of 20M rows a quarter",
        _table(),
        _deletion(f"id < {ROWS // 4}"),
    ),
    change_job(
        "delete-half",
        "delete half of the rows by vectors, in files of a thousand rows",
        data_tables.deletable_small_files,
        _deletion("pmod(hash(id), 2) = 0"),
    ),
    change_job(
        "update-vectors", "update 1 % of the rows by vectors", _table(_VECTORS), _ONE_PERCENT
    ),
    change_job("update", "update 1 % of the rows by rewriting files", _table(), _ONE_PERCENT),
    change_job(
        "update-feed",
        "update 1 % of the rows by vectors, with change data feed and row tracking",
        _table(_VECTORS, *_FEED),
        _ONE_PERCENT,
    ),
    change_job(
        "merge-vectors",
        "update 1 % and insert 1 % by key, by vectors",
        _mergeable(_VECTORS, **_FEW),
        _UPSERT,
    ),
    change_job(
        "merge", "update 1 % and insert 1 % by key, by rewriting files", _mergeable(**_FEW), _UPSERT
    ),
    change_job(
        "merge-feed",
        "update 1 % and insert 1 % by key, by vectors, with change data feed and row tracking",
        _mergeable(_VECTORS, *_FEED, **_FEW),
        _UPSERT,
    ),
    change_job(
        "merge-most",
        "update 80 % and insert 1 % by key, by vectors",
        _mergeable(_VECTORS, updates=0.8, inserts=0.01),
        _UPSERT,
    ),
    change_job(
        "merge-large",
        "update 10 % and insert 10 % by key, by vectors: a source too large to be broadcast",
        _mergeable(_VECTORS, updates=0.1, inserts=0.1),
        _UPSERT,
    ),
    change_job(
        "merge-inserts",
        "insert 1 % by key, where another 1 % has matches",
        _mergeable(**_FEW),
        _INSERTS,
    ),
)

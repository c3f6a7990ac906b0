"""Find the files of a table that may have matches, by the condition of a merge.

* Parts of the condition that use only columns of the table are true for every match:
  ``target.day > '2026-01-01'``.
* For a part ``<table> = <source>``, such as ``target.key = source.id + 1``, the least and the greatest
  value of the source's side are read. If the table's side has only partition columns, all of its values
  are read (`keys`).

Spark evaluates the source's side, in the type in which it compares the two. The comparison with the table's
side is translated like any other condition (`airflow_delta.spark.reader.pruning`).

The transaction records the resulting expression as read, so commits of others in other partitions aren't
conflicts.
"""

from __future__ import annotations

from functools import reduce
from operator import and_
from typing import TYPE_CHECKING

import pyarrow.compute as pc

from airflow_delta.spark.dml.merge.condition import resolve_condition
from airflow_delta.spark.dml.merge.keys import SourceKeys, read_keys
from airflow_delta.spark.reader.columns import frame_schema
from airflow_delta.spark.reader.pruning import translated
from airflow_delta.spark.reader.translation import Expression

if TYPE_CHECKING:
    from pyspark.sql import Column

    from airflow_delta.spark.dml.merge.source import MergeSource
    from airflow_delta.spark.writer.target import WriteTarget

__all__ = ["matching_files_expression"]


def matching_files_expression(
    source: MergeSource, target: WriteTarget, on: Column | str, aliases: tuple[str, str]
) -> tuple[Expression | None, SourceKeys]:
    """Translate the condition of a merge for data skipping.

    Args:
        source: the source.
        target: the table.
        on: the condition.
        aliases: the names of the table and of the source in it.

    Returns:
        An expression that is true for every row of the table that matches, None if nothing is known; and
        the values of the keys in the source.

    Raises:
        InvalidArgumentError: Spark can't resolve the condition, it isn't the same for a pair of rows each
            time, or it has a subquery.
        PySparkException: Spark's other errors.
    """
    assert target.base is not None
    spark, schema = source.spark, frame_schema(target.base.schema)
    own = spark.createDataFrame([], schema)
    condition = resolve_condition(
        own, source, on, aliases, table=target.table, partition_by=target.partition_by
    )
    found = read_keys(source, condition.keys, condition.of_source)
    if not found.num_matchable:
        return pc.scalar(False), found
    conditions = [*condition.of_table, *found.conditions]
    if not conditions:
        return None, found
    filtered = own.where(reduce(and_, conditions))._jdf.queryExecution().analyzed()  # noqa: SLF001
    return translated(spark, filtered.child(), filtered.condition(), schema), found

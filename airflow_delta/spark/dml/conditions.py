"""Check conditions on the rows of a table, and find the files for which the log alone decides them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import AnalysisException
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812

from airflow_delta.engine.errors import InvalidArgumentError, TableNotFoundError
from airflow_delta.spark.dml.expressions import check_repeatable
from airflow_delta.spark.reader.catalyst import Tree, analyzed_condition, condition_text
from airflow_delta.spark.reader.columns import frame_schema
from airflow_delta.spark.reader.driver_tables import driver_frame
from airflow_delta.spark.reader.file_partitions import partition_facts, table_columns
from airflow_delta.spark.reader.generated_partitions import generated_partitions
from airflow_delta.spark.reader.pruning import (
    implied_expression,
    unmatched_expression,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

    from airflow_delta.engine import DeltaTable
    from airflow_delta.spark.writer.target import WriteTarget

__all__ = ["ChosenFiles", "check_condition", "choose_files", "predicate_text"]


@dataclass(frozen=True, slots=True)
class ChosenFiles:
    """The live files that may have rows for which a condition is true.

    Attributes:
        whole: the files for whose rows it is always true.
        partial: the files whose rows must be read to decide it.
        columns: the names of the columns in the condition, in lower case.
    """

    whole: pa.Table
    partial: pa.Table
    columns: frozenset[str]


def choose_files(
    spark: SparkSession, target: WriteTarget, condition: Column | str | None
) -> ChosenFiles:
    """Find the files of a condition by partition values and statistics, and record them as read.

    Args:
        spark: the session.
        target: the table, which exists.
        condition: a condition on the table's columns; None: all rows.

    Raises:
        InvalidArgumentError: Spark can't resolve the condition, or it isn't the same for a row each time,
            or has a subquery.
        DeltaError: the table's files can't be read.
    """
    base, transaction = target.base, target.transaction
    assert base is not None
    if condition is None:
        live = transaction.read_table().files()
        return ChosenFiles(live, live.slice(0, 0), frozenset())
    schema = frame_schema(base.schema)
    plan = _checked(spark, schema, condition, target.table)
    generated = generated_partitions(spark, base)
    pruning = implied_expression(spark, schema, plan, generated=generated)
    candidates = transaction.read_files(pruning)
    columns = _referenced_columns(plan)
    if columns <= {name.lower() for name in target.partition_by}:
        whole = _of_partitions(spark, target, candidates, condition)
        return ChosenFiles(whole, candidates.slice(0, 0), columns)
    unmatched = unmatched_expression(spark, schema, plan)
    if unmatched is None:
        return ChosenFiles(candidates.slice(0, 0), candidates, columns)
    others = base.files(columns=["path"], predicate=unmatched)["path"]
    has_others = pc.is_in(candidates["path"], value_set=others.combine_chunks())
    return ChosenFiles(
        candidates.filter(pc.invert(has_others)), candidates.filter(has_others), columns
    )


def check_condition(spark: SparkSession, target: WriteTarget, condition: Column | str) -> None:
    """Check a condition on the rows of a table.

    Args:
        spark: the session.
        target: the table, which exists; columns that its commit adds can't be in the condition.
        condition: the condition.

    Raises:
        InvalidArgumentError: see `choose_files`.
    """
    assert target.base is not None
    _checked(spark, frame_schema(target.base.schema), condition, target.table)


def predicate_text(spark: SparkSession, table: DeltaTable, condition: Column | str) -> str:
    """A condition as SQL, for the commit.

    Args:
        spark: the session.
        table: the table; it needn't exist.
        condition: the condition.

    Raises:
        InvalidArgumentError: Spark can't resolve the condition with the columns of the table.
        DeltaError: the table can't be read.
    """
    if isinstance(condition, str):
        return condition
    try:
        schema = frame_schema(table.snapshot().schema)
    except TableNotFoundError:
        return condition_text(condition)
    return str(_analyzed(spark, schema, condition, table.uri).sql())


def _analyzed(
    spark: SparkSession, schema: T.StructType, condition: Column | str, table: str
) -> Tree:
    try:
        return analyzed_condition(spark, schema, condition).condition()
    except AnalysisException as error:
        raise InvalidArgumentError(
            f"Spark can't resolve the condition {condition_text(condition)} with the columns of the table: "
            f"{str(error).strip().partition(chr(10))[0]}",
            table=table,
        ) from error


def _checked(
    spark: SparkSession, schema: T.StructType, condition: Column | str, table: str
) -> Tree:
    """Resolve a condition, and check it; the plan is a ``Filter`` of an empty relation with the columns."""
    nothing = spark.createDataFrame([], schema)
    what = f"the condition {condition_text(condition)}"
    return check_repeatable(nothing, condition, what, "the table", table=table)


def _referenced_columns(plan: Tree) -> frozenset[str]:
    """The names of the columns in the condition of a plan, in lower case."""
    references = plan.condition().references().toSeq()
    return frozenset(str(references.apply(i).name()).lower() for i in range(references.size()))


def _of_partitions(
    spark: SparkSession, target: WriteTarget, files: pa.Table, condition: Column | str
) -> pa.Table:
    """The files for whose partition values a condition is true. Spark evaluates it."""
    base = target.base
    assert base is not None
    schema, partition_by, mode = base.schema, target.partition_by, target.mode
    facts = partition_facts(files, schema, partition_by, mode)
    numbers = pa.array(np.arange(files.num_rows, dtype=np.int64))
    number = _unused_name(facts, *schema.names)
    known = {number: (T.LongType(), numbers), **facts}
    types = T.StructType([T.StructField(name, type_) for name, (type_, _) in known.items()])
    values = pa.table({name: column for name, (_, column) in known.items()})
    columns = [
        column
        for column, field in zip(
            table_columns(spark, schema, partition_by, mode), schema, strict=True
        )
        if field.name in partition_by
    ]
    partitions = driver_frame(spark, values, types).select(F.col(number), *columns)
    found = partitions.where(condition).select(number).toArrow()[number]
    return files.take(found.combine_chunks().sort())


def _unused_name(facts: Iterable[str], *names: str) -> str:
    taken = {name.lower() for name in (*facts, *names)}
    name = "file_number"
    while name in taken:
        name += "_"
    return name

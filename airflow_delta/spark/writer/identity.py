"""Make the values of identity columns.

Tasks make values independently of each other: row ``i`` of task ``t`` gets the value number
``i * stride + t`` after the high water mark, where the stride is at least the number of tasks. The values
depend only on the task and the index of the row, so a repeated task makes the same ones. As in Delta Spark
they leave gaps.

The commit moves the high water mark, which is part of the table's metadata. So of two concurrent
writers one fails, and must begin again with the new mark (`write`).

Spec: PROTOCOL.md, "Identity Columns".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from airflow_delta.engine.errors import ConstraintViolationError
from airflow_delta.engine.features.identity import IdentityColumn
from airflow_delta.spark.reader.columns import quoted
from airflow_delta.spark.runtime.executor_errors import error_text

__all__ = ["with_identities"]

_LONG = 1 << 63
_TASK_BITS = 33
"""``monotonically_increasing_id`` is the task's number, and the row's in the lower 33 bits."""

_MOST_TASKS = 1 << 16
"""The number of tasks that a plan of unknown size may have."""


def with_identities(
    rows: DataFrame,
    columns: Sequence[IdentityColumn],
    *,
    table: str,
    where: Mapping[str, Column] | None = None,
) -> DataFrame:
    """Fill identity columns.

    The rows must not be shuffled afterwards: Spark may repeat a part of the tasks before a shuffle, whose
    rows may then come in another order.

    Args:
        rows: the rows, with the columns of the table.
        columns: the identity columns to be filled.
        table: the table's location, for errors.
        where: the rows that get a value, by the name of the identity column; in others it keeps its value.
            A column that isn't in it gets a value in all rows.

    Returns:
        The rows; evaluation fails where a value would be no 64-bit integer.
    """
    if not columns:
        return rows
    stride = _stride(rows)
    number = "identity_number"
    while number.lower() in {name.lower() for name in rows.columns}:
        number += "_"
    position = F.monotonically_increasing_id()
    task = F.shiftright(position, _TASK_BITS)
    row = position.bitwiseAND(F.lit((1 << _TASK_BITS) - 1))
    too_many = F.raise_error(F.lit(f"more tasks than expected: {stride}")).cast("long")
    numbered = rows.withColumn(
        number, F.when(task < stride, row * F.lit(stride) + task).otherwise(too_many)
    )
    made = {column.name: _value(F.col(quoted(number)), column, table) for column in columns}
    for name, is_made in (where or {}).items():
        if name in made:
            made[name] = F.when(is_made, made[name]).otherwise(F.col(quoted(name)))
    return numbered.select(
        [made[name].alias(name) if name in made else F.col(quoted(name)) for name in rows.columns]
    )


def _value(number: Column, column: IdentityColumn, table: str) -> Column:
    mark, step = column.high_water_mark, column.step
    is_before_start = (
        mark is not None and (mark < column.start) == (step > 0) and mark != column.start
    )
    first = column.start if mark is None or is_before_start else mark + step
    end = _LONG - 1 if step > 0 else -_LONG
    # The numbers whose value is a 64-bit integer; -1 for none.
    last = (end - first) // step if -_LONG <= first < _LONG else -1
    error = ConstraintViolationError(
        f"the identity column {column.name!r} has no value left for some of the rows: it would be no "
        "64-bit integer (each task leaves values to the others, by far the most after a shuffle)",
        table=table,
        columns=(column.name,),
    )
    if last < 0:
        return F.raise_error(F.lit(error_text(error))).cast("long")
    fails = F.raise_error(F.lit(error_text(error))).cast("long")
    # The product may be beyond 64 bits where the sum isn't.
    kind = "long" if abs(end - first) < _LONG else "decimal(20, 0)"
    product = number.cast(kind) * F.lit(step).cast(kind)
    value = (F.lit(first).cast(kind) + product).cast("long")
    return F.when(number <= F.lit(min(last, _LONG - 1)), value).otherwise(fails)


def _stride(rows: DataFrame) -> int:
    """A number that the tasks that will write the rows don't exceed.

    A plan without a shuffle contains the number of its tasks. Adaptive execution decides on the tasks after
    a shuffle later: it merges small partitions, and may split large ones, so the result is eight times the
    planned number. Its plan doesn't count tasks without a shuffle, such as those of a scan that is joined
    with a broadcast aggregate. So the result is never less than a number of tasks that few jobs exceed.
    """
    execution: Any = rows._jdf.queryExecution()  # noqa: SLF001
    plan = execution.executedPlan()
    if plan.getClass().getSimpleName() != "AdaptiveSparkPlanExec":
        return max(1, int(execution.toRdd().getNumPartitions()))
    planned = int(plan.outputPartitioning().numPartitions())
    shuffled = int(str(rows.sparkSession.conf.get("spark.sql.shuffle.partitions")))
    return max(8 * max(planned, shuffled), _MOST_TASKS)

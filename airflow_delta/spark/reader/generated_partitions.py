"""Conditions on generated partition columns that follow from conditions on the columns they are made from.

A table may be partitioned by ``day``, generated as ``CAST(at AS DATE)``. Then ``at >= '2026-03-01'``
implies a condition on ``day``, by which partitions are skipped even if files lack statistics of ``at``.

=====================================================  =================================================
the partition column is generated as                   implied by
=====================================================  =================================================
``CAST(x AS DATE)``, ``trunc(x, …)``                   ``=``, ``<``, …, ``<=>`` and ``IN`` of ``x`` with
                                                       constants
``year(x)``; with it ``month``, ``day`` and ``hour``   the same, of all these columns together
another expression over one column                     ``=``, ``<=>`` and ``IN``
=====================================================  =================================================

The date of a ``timestamp`` depends on the time zone of the session that wrote it, which nobody knows. So
constants are moved by `_ZONES_DIFFER`, and expressions of the last row that depend on a zone aren't used.

Spec: PROTOCOL.md, "Generated Columns".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import reduce
from operator import and_, ge, le
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812
from pyspark.sql.pandas.types import to_arrow_type

from airflow_delta.engine.features.protocol import supported_features
from airflow_delta.spark.reader.catalyst import Tree, is_fixed, kind
from airflow_delta.spark.reader.columns import frame_schema
from airflow_delta.spark.reader.driver_tables import driver_frame

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from airflow_delta.engine import Snapshot

__all__ = ["GeneratedPartitions", "generated_partitions"]

_GENERATION = "delta.generationExpression"

_ZONES_DIFFER = timedelta(days=2)
"""More than the local times of two zones differ: each is within 18 hours of UTC, and may be set back."""

_MOST_VALUES = 100
"""The longest ``IN`` whose constants are all evaluated."""

_PARTS = ("year", "month", "day", "hour")
"""Parts of a time, by which a table may be partitioned together."""

_PART_KINDS = {"Year": "year", "Month": "month", "DayOfMonth": "day", "Hour": "hour"}
_LOWER = frozenset({"EqualTo", "EqualNullSafe", "In", "GreaterThan", "GreaterThanOrEqual"})
_UPPER = frozenset({"EqualTo", "EqualNullSafe", "In", "LessThan", "LessThanOrEqual"})
_EQUAL = _LOWER & _UPPER


@dataclass(frozen=True, slots=True)
class _Function:
    """A generated partition column.

    Attributes:
        column: its name.
        expression: its generation expression.
        form: ``date`` if its value is a date that grows with its source, one of `_PARTS`, or ``other``.
        data_type: the type of its values.
    """

    column: str
    expression: str
    form: str
    data_type: T.DataType


@dataclass(frozen=True, slots=True)
class GeneratedPartitions:
    """The generated partition columns of a table.

    Attributes:
        spark: the session.
        sources: the columns that they are made from, by name.
        functions: the partition columns made from each of these.
    """

    spark: SparkSession
    sources: Mapping[str, T.StructField]
    functions: Mapping[str, Sequence[_Function]]

    def implied(self, source: str, comparison: str, values: Sequence[pa.Scalar]) -> Any | None:
        """The condition on partition columns that follows from a comparison with constants.

        Args:
            source: the column that is compared.
            comparison: the kind of Catalyst's node, such as ``LessThan``, with the column on the left.
            values: the constants; several only for ``In``.

        Returns:
            A `pyarrow.compute.Expression`; None if nothing follows.
        """
        functions = self.functions.get(source, ())
        if not functions or not values or len(values) > _MOST_VALUES:
            return None
        parts = [*self._ranges(source, functions, comparison, values)]
        if comparison in _EQUAL:
            parts += self._equalities(source, functions, values)
        return reduce(and_, parts) if parts else None

    def _ranges(
        self,
        source: str,
        functions: Sequence[_Function],
        comparison: str,
        values: Sequence[pa.Scalar],
    ) -> Iterator[Any]:
        chains = _chains(functions)
        if not chains:
            return
        has_zone = isinstance(self.sources[source].dataType, T.TimestampType)
        apart = _ZONES_DIFFER if has_zone else timedelta()
        try:
            times = [value.as_py() for value in values]
            bounds = (min(times) - apart, max(times) + apart)
        except (OverflowError, ValueError):
            # Python's times end with the year 9999.
            return
        for kinds, bound, compare in ((_LOWER, bounds[0], ge), (_UPPER, bounds[1], le)):
            if comparison not in kinds:
                continue
            for chain in chains:
                found = self._evaluated(source, chain, pa.array([bound], values[0].type))
                if found is not None and None not in found[0]:
                    yield _in_order(chain, found[0], compare)

    def _equalities(
        self, source: str, functions: Sequence[_Function], values: Sequence[pa.Scalar]
    ) -> Iterator[Any]:
        for function in functions:
            if function.form != "other":
                continue
            # As they are, because not all are values of Python's.
            found = self._evaluated(source, [function], pa.array(values, values[0].type))
            if found is not None:
                column = pc.field(function.column)
                wanted = pa.array([value for (value,) in found], _arrow_type(function.data_type))
                yield column.isin(wanted.drop_null()) | column.is_null()

    def _evaluated(
        self, source: str, functions: Sequence[_Function], values: pa.Array
    ) -> list[Sequence[Any]] | None:
        """The values of partition columns for values of their source, by Spark; None if it has none."""
        field = self.sources[source]
        try:
            given = pa.table({source: values.cast(_arrow_type(field.dataType))})
            rows = driver_frame(self.spark, given, T.StructType([field])).select(
                [F.expr(each.expression).cast(each.data_type) for each in functions]
            )
            return [tuple(row) for row in rows.collect()]
        except (PySparkException, ValueError, OverflowError):
            # The expression fails for a value, or a result is no value of Python's.
            return None


def generated_partitions(spark: SparkSession, snapshot: Snapshot) -> GeneratedPartitions | None:
    """Find the generated partition columns of a table; None if there are none that help.

    Args:
        spark: the session.
        snapshot: the table.
    """
    if "generatedColumns" not in supported_features(snapshot.protocol):
        # Then writers may ignore the expressions.
        return None
    columns = frame_schema(snapshot.schema)
    functions: dict[str, list[_Function]] = {}
    for field in snapshot.schema:
        expression = field.metadata.get(_GENERATION)
        if field.name in snapshot.metadata.partition_columns and isinstance(expression, str):
            found = _function(spark, columns, field.name, expression)
            if found is not None:
                functions.setdefault(found[0], []).append(found[1])
    if not functions:
        return None
    return GeneratedPartitions(spark, {name: columns[name] for name in functions}, functions)


def _function(
    spark: SparkSession, columns: T.StructType, name: str, expression: str
) -> tuple[str, _Function] | None:
    """A generated column and the name of its source; None if it can't be used."""
    nothing = spark.createDataFrame([], columns)
    try:
        plan = nothing.select(F.expr(expression).alias(name))._jdf.queryExecution().analyzed()  # noqa: SLF001
    except PySparkException:
        return None
    node = plan.projectList().apply(0).child()
    # By their ids: nodes have the spelling of the expression, which may differ in case.
    output = plan.child().output()
    known = {output.apply(i).exprId().id(): column for i, column in enumerate(columns.names)}
    names = {
        known[each.exprId().id()] for each in _nodes(node) if kind(each) == "AttributeReference"
    }
    if len(names) != 1 or not is_fixed(node, spark):
        return None
    (source,) = names
    form = _form(node, columns[name].dataType)
    if form == "other" and not _is_exact(node, columns[source], columns[name]):
        return None
    return source, _Function(name, expression, form, columns[name].dataType)


def _form(node: Tree, data_type: T.DataType) -> str:
    if not isinstance(data_type, (T.DateType, T.IntegerType)):
        # As a text, a greater number isn't the greater one.
        return "other"
    if _is_date(node):
        return "date"
    if kind(node) == "TruncDate" and _is_date(node.date()) and kind(node.format()) == "Literal":
        return "date"
    part = _PART_KINDS.get(kind(node))
    if part is not None and (_is_date(node.child()) or kind(node.child()) == "AttributeReference"):
        return part
    return "other"


def _is_date(node: Tree) -> bool:
    """Whether a node is a date or time column, cast to a date."""
    if kind(node) == "AttributeReference":
        return _type(node) == "date"
    return (
        kind(node) == "Cast"
        and _type(node) == "date"
        and kind(node.child()) == "AttributeReference"
        and _type(node.child()) in ("date", "timestamp", "timestamp_ntz")
    )


def _is_exact(node: Tree, source: T.StructField, column: T.StructField) -> bool:
    """Whether equal values of the source give one value, which any session compares as equal."""
    inexact = (T.FloatType, T.DoubleType, T.StructType, T.ArrayType, T.MapType)
    if isinstance(source.dataType, inexact) or isinstance(column.dataType, inexact):
        return False
    # A node without a zone may get one by a cast within the expression.
    return not any(_type(each) == "timestamp" for each in _nodes(node))


def _chains(functions: Sequence[_Function]) -> list[Sequence[_Function]]:
    """Columns whose values together, compared from the first on, grow with their source."""
    dates = [[function] for function in functions if function.form == "date"]
    parts = {function.form: function for function in functions}
    chain: list[_Function] = []
    for part in _PARTS:
        if part not in parts:
            break
        chain.append(parts[part])
    return [*dates, *([chain] if chain else [])]


def _in_order(chain: Sequence[_Function], values: Sequence[Any], compare: Any) -> Any:
    """The condition that values of columns, compared in order, are at least, or at most, others."""
    column = pc.field(chain[0].column)
    value = pc.scalar(pa.scalar(values[0], _arrow_type(chain[0].data_type)))
    if len(chain) == 1:
        found = compare(column, value)
    else:
        strictly = column > value if compare is ge else column < value
        found = strictly | ((column == value) & _in_order(chain[1:], values[1:], compare))
    return found | column.is_null()


def _arrow_type(data_type: T.DataType) -> pa.DataType:
    return to_arrow_type(data_type, timezone="UTC")


def _nodes(node: Tree) -> Iterator[Tree]:
    yield node
    children = node.children()
    for index in range(children.length()):
        yield from _nodes(children.apply(index))


def _type(node: Tree) -> str:
    return str(node.dataType().simpleString())

"""Evaluate a predicate on rows.

pyarrow evaluates the expression, with the nulls and NaNs of Arrow: a row for which it is false or null
doesn't match.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from airflow_delta.engine.arrow.python_arrays import scalar_of
from airflow_delta.engine.errors import InvalidArgumentError

__all__ = ["RowPredicate"]

_MASK = "mask"


class RowPredicate:
    """Finds the rows for which a predicate is true. Several threads may use it.

    Args:
        expression: a `pyarrow.compute.Expression`.
        columns: the columns that it names, with the types of the table.
        table: the table's location, for messages.

    Raises:
        InvalidArgumentError: the expression can't be evaluated on such columns, or isn't a condition.
    """

    def __init__(self, expression: Any, columns: list[pa.Field], *, table: str) -> None:
        # Not pyarrow.acero, which loads the datasets of pyarrow, and these load pandas.
        from pyarrow import _acero as acero

        self._acero = acero
        self._options = acero.ProjectNodeOptions([expression], [_MASK])
        # A plan needs a column. The name is none that a table can have with another meaning: a predicate
        # without columns refers to no name.
        self.schema = pa.schema(columns or [pa.field(_MASK, pa.null())])
        try:
            found = self._project(pa.Table.from_batches([], self.schema)).type
        except (pa.ArrowException, ValueError, TypeError) as error:
            raise InvalidArgumentError(
                f"the predicate {expression} can't be evaluated on the columns of the table: {error}",
                table=table,
            ) from error
        if found not in (pa.bool_(), pa.null()):
            raise InvalidArgumentError(
                f"the predicate {expression} is of the type {found}: expected a condition",
                table=table,
            )

    def mask(self, rows: pa.RecordBatch) -> pa.Array:
        """Whether each row matches, without nulls.

        Args:
            rows: the `schema`'s columns.

        Raises:
            ArrowException: a function of the expression fails for a value, such as a division by zero.
        """
        found = self._project(pa.Table.from_batches([rows])).combine_chunks()
        if found.type == pa.null():
            return pa.repeat(scalar_of(False, pa.bool_()), len(found))
        return found.fill_null(scalar_of(False, pa.bool_()))

    def _project(self, rows: pa.Table) -> pa.ChunkedArray:
        source = self._acero.Declaration("table_source", self._acero.TableSourceNodeOptions(rows))
        plan = self._acero.Declaration("project", self._options, [source])
        return plan.to_table(use_threads=False)[_MASK]

"""Report the datasets of a task to OpenLineage.

Airflow's provider for OpenLineage calls the methods ``get_openlineage_…`` of an operator when a try starts,
succeeds and fails. It usually does so in a forked process, where clients of object stores don't work. So
`with_lineage` collects the datasets before, at the end of ``execute``, and these methods only convert them.

Without the provider, or if it is disabled, nothing is collected. An error in lineage never fails a task: it
is logged, and the event lacks what couldn't be found. A store that doesn't answer is such an error: the
task waits for the columns of its tables only as long as Airflow's provider would wait.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar, cast

from airflow_delta.hooks.bounded_call import BoundedCall
from airflow_delta.hooks.delta import DeltaHook
from airflow_delta.hooks.lineage.datasets import Lineage
from airflow_delta.operators.lineage.rules import Result, reads_table
from airflow_delta.version_compat import (
    AirflowSkipException,
    AirflowTaskTimeout,
    BaseOperator,
    is_openlineage_enabled,
    openlineage_timeout,
)

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage

    from airflow_delta.operators.table_commits import TableCommit

__all__ = ["LineageTask", "with_lineage"]

_ExecuteT = TypeVar("_ExecuteT", bound=Callable[..., Any])


class LineageTask(BaseOperator):
    """A task that reports what it reads and writes."""

    _lineage: Lineage | None = None

    earlier_commit: TableCommit | None = None
    """The commits of earlier tries that a retry has found in the log, where its result may lack them."""

    def datasets(self, result: Result, /) -> Lineage:
        """The datasets that the task reads and writes; see `airflow_delta.operators.lineage.rules`.

        :param result: the task's result; None before its end, and if it failed.
        """
        return reads_table(self, result)

    def hook(self) -> DeltaHook:
        """Create the hook for the table."""
        raise NotImplementedError

    def get_openlineage_facets_on_start(self) -> OperatorLineage[Any, Any]:
        """The datasets that the task is going to read and write."""
        return _converted(self.datasets(None))

    def get_openlineage_facets_on_complete(
        self,
        task_instance: Any,  # noqa: ARG002  (OpenLineage's signature)
    ) -> OperatorLineage[Any, Any]:
        """The datasets that the task has read and written, with versions, columns and statistics."""
        return _converted(self._lineage or self.datasets(None))

    def get_openlineage_facets_on_failure(
        self,
        task_instance: Any,  # noqa: ARG002  (OpenLineage's signature)
    ) -> OperatorLineage[Any, Any]:
        """The datasets that the task was going to read and write."""
        return _converted(self.datasets(None))


def with_lineage(execute: _ExecuteT) -> _ExecuteT:
    """Decorate the method of an operator that returns its result: collect the datasets of the task."""

    @wraps(execute)
    def collected(self: LineageTask, *arguments: Any, **named: Any) -> Any:
        """Execute the task, and collect its datasets."""
        self._lineage = None
        try:
            result = execute(self, *arguments, **named)
        except AirflowSkipException:
            self._lineage = _collect(self, _of_skipped)
            raise
        self._lineage = _collect(self, lambda task: task.datasets(result))
        return result

    return cast("_ExecuteT", collected)


def _collect(task: LineageTask, find: Callable[[LineageTask], Lineage]) -> Lineage | None:
    """The datasets of a task with their columns; None without OpenLineage, or after an error."""
    from airflow_delta.hooks.lineage.columns import TableColumns

    found: Lineage | None = None
    try:
        if not is_openlineage_enabled():
            return None
        found = datasets = find(task)
        columns = TableColumns(task.hook())
        return BoundedCall(lambda: columns.add(datasets))(openlineage_timeout())
    except (Exception, AirflowTaskTimeout):  # Whatever it is, the work of the task is done.
        task.log.warning(
            "the lineage of the task is incomplete; this doesn't change its result", exc_info=True
        )
        return found


def _of_skipped(task: LineageTask) -> Lineage:
    """What a skipped task has looked at."""
    return Lineage(task.datasets(None).inputs or reads_table(task, None).inputs)


def _converted(lineage: Lineage) -> OperatorLineage[Any, Any]:
    from airflow_delta.hooks.lineage.facets import operator_lineage

    return operator_lineage(lineage)

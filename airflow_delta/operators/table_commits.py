"""Record which task makes a commit, and the commit in the asset events of the task's outlets.

Airflow emits an event for each outlet of a task that succeeds. If an outlet is the asset of the table that
the task commits to, this module puts the commit into the ``extra`` of its event (`TableCommit.to_extra`).
For an `AssetAlias` among the outlets it emits an event of the table's asset, if there is a commit.

A task may make several commits, and a try that dies after a commit emits no event. So an event has all
versions from the first commit of the task in its DAG run to the last. The first try knows its commits by
its result. Later tries also search the log for those of earlier tries, by the run in each ``commitInfo``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar, cast

from airflow_delta.assets import delta_asset
from airflow_delta.hooks.failures import failures_by_policy
from airflow_delta.hooks.table_locations import canonical_uri
from airflow_delta.task_runs import record_task_run, task_run
from airflow_delta.version_compat import (
    AirflowRuntimeError,
    Asset,
    AssetAlias,
    AssetNameRef,
    AssetUriRef,
    BaseOperator,
    Context,
    is_openlineage_enabled,
    is_unknown_asset,
)

if TYPE_CHECKING:
    from airflow_delta.operators.table_task import TableTask

__all__ = [
    "TableCommit",
    "maintenance_commit",
    "maintenance_commits",
    "row_commit",
    "target_commit",
    "with_table_commit",
]

_ExecuteT = TypeVar("_ExecuteT", bound=Callable[..., Any])

_CLOCKS_DIFFER = timedelta(hours=1)
"""The clock of the store may be so far behind the scheduler's."""


@dataclass(frozen=True, slots=True)
class TableCommit:
    """What a task did to a table.

    Attributes:
        table_uri: the table.
        version: the last version that the task committed; if it committed none, the newest that it saw.
        operation: the name of the operation.
        committed: whether the version is a commit of this task in this DAG run, by any of its tries.
        repeated: whether it is the commit of an earlier try.
        metrics: the metrics of the operation, as whole numbers.
        first_version: the first version that the task committed in this DAG run; None: ``version``.
        table_id: the id in the table's metadata; None if the result of the task doesn't have it.
    """

    table_uri: str
    version: int
    operation: str
    committed: bool
    repeated: bool = False
    metrics: Mapping[str, int] = field(default_factory=dict)
    first_version: int | None = None
    table_id: str | None = None

    def with_tries(self, tries: Mapping[int, int | None], *, try_number: int) -> TableCommit:
        """Add the commits that tries of the task have made.

        :param tries: the number of the try that has made each commit, by version.
        :param try_number: the number of the try that has this result.
        """
        if not tries:
            return self
        first = self.version if self.first_version is None else self.first_version
        versions = [*tries, *((first, self.version) if self.committed else ())]
        last = max(versions)
        return replace(
            self,
            version=last,
            committed=True,
            repeated=tries[last] != try_number if last in tries else self.repeated,
            first_version=min(versions),
        )

    def to_extra(self) -> dict[str, Any]:
        """The ``extra`` of an asset event.

        The new versions are those after ``after_version``, up to ``version``: none if there is no commit.
        Those between two commits of the task may be others'.
        """
        first = self.version if self.first_version is None else self.first_version
        known = {} if self.table_id is None else {"table_id": self.table_id}
        return {
            "table_uri": canonical_uri(self.table_uri),
            **known,
            "after_version": first - 1 if self.committed else self.version,
            "version": self.version,
            "operation": self.operation,
            "committed": self.committed,
            "repeated": self.repeated,
            "metrics": dict(self.metrics),
        }


Describe = Callable[[Mapping[str, Any]], "TableCommit | None"]
"""Finds the commit in the result of an operator; None if it did nothing to a table that is known."""


def with_table_commit(
    describe: Describe, *, commits_once: bool = False
) -> Callable[[_ExecuteT], _ExecuteT]:
    """Decorate an operator's ``execute``: record the task in its commits, and its commit in asset events.

    :param describe: finds the commit in the result of the operator.
    :param commits_once: the task makes one commit in a DAG run, which every later try finds itself, by its
        transaction identifier.
    """

    def decorate(execute: _ExecuteT) -> _ExecuteT:
        """Decorate the method."""

        @wraps(execute)
        def recorded(self: BaseOperator, context: Context) -> Any:
            """Execute the task, and record its commit."""
            task = cast("TableTask", self)
            task.earlier_commit = None
            _check_alias(task)
            with record_task_run(context):
                result = execute(self, context)
            commit = describe(result)
            if commit is None:
                return result
            if not commits_once:
                commit = _with_earlier_tries(task, context, commit)
                task.earlier_commit = commit if commit.repeated else None
            _record(self, context, commit)
            return result

        return cast("_ExecuteT", recorded)

    return decorate


def row_commit(operation: str) -> Describe:
    """Describe the commit of an operator that changes rows; a dry run has none.

    :param operation: the name of the operation.
    """

    def describe(result: Mapping[str, Any]) -> TableCommit:
        """Take ``committed``, ``repeated`` and ``metrics`` from the result."""
        version = result["version"]
        # The compaction after a write is the last commit of its task.
        compacted = (result.get("compaction") or {}).get("version")
        return TableCommit(
            result["table_uri"],
            version if compacted is None else compacted,
            operation,
            committed=result.get("committed", False),
            repeated=result.get("repeated", False),
            metrics=result.get("metrics") or {},
            first_version=version,
            table_id=result.get("table_id"),
        )

    return describe


def maintenance_commit(
    operation: str, *, committed: Callable[[Mapping[str, Any]], bool], metrics: tuple[str, ...] = ()
) -> Describe:
    """Describe the commit of an operator whose result has other names.

    :param operation: the name of the operation.
    :param committed: decides from the result whether there is a commit.
    :param metrics: the entries of the result that are its metrics.
    """

    def describe(result: Mapping[str, Any]) -> TableCommit | None:
        """Take the commit from the result; None if there is no table."""
        if result["version"] is None:
            return None
        return TableCommit(
            result["table_uri"],
            result["version"],
            operation,
            committed=committed(result),
            repeated=result.get("repeated", False),
            metrics={name: result[name] for name in metrics if result[name] is not None},
            table_id=result.get("table_id"),
        )

    return describe


def maintenance_commits(operation: str, *, metrics: tuple[str, ...] = ()) -> Describe:
    """Describe the commits of an operator that may make several.

    :param operation: the name of the operation.
    :param metrics: the entries of the result that are its metrics.
    """

    def describe(result: Mapping[str, Any]) -> TableCommit:
        """Take ``first_version`` and ``last_version`` from the result."""
        last = result["last_version"]
        return TableCommit(
            result["table_uri"],
            result["version"] if last is None else last,
            operation,
            committed=last is not None,
            metrics={name: result[name] for name in metrics},
            first_version=result["first_version"],
        )

    return describe


def target_commit(operation: str, *, metrics: tuple[str, ...] = ()) -> Describe:
    """Describe the commit of an operator to its target; None if the target is no Delta table.

    :param operation: the name of the operation.
    :param metrics: the entries of the result that are its metrics.
    """

    def describe(result: Mapping[str, Any]) -> TableCommit | None:
        """Take ``target_uri`` and ``target_version`` from the result."""
        version = result.get("target_version")
        if version is None:
            return None
        found = {name: result[name] for name in metrics if result[name] is not None}
        return TableCommit(
            result["target_uri"],
            version,
            operation,
            committed=True,
            repeated=not result.get("appended", True),
            metrics=found,
        )

    return describe


def _with_earlier_tries(task: TableTask, context: Context, commit: TableCommit) -> TableCommit:
    """Add the commits of earlier tries, if this isn't the first try and somebody wants to know them.

    :raises DeltaError: they can't be found, and the event would leave them out.
    """
    run = None if (instance := context.get("ti")) is None else task_run(instance)
    if run is None or (run["try_number"] or 1) < 2:
        return commit
    if not (task.outlets or is_openlineage_enabled()):
        return commit
    try:
        with failures_by_policy():
            tries = task.hook().commits_of_task(
                commit.table_uri, run, since_ms=_start_of_run(context)
            )
    except Exception:
        if task.outlets:
            raise
        task.log.warning(
            "the lineage of the task may lack the commits of earlier tries; this doesn't change its result",
            exc_info=True,
        )
        return commit
    found = commit.with_tries(tries, try_number=run["try_number"])
    if found.repeated and not commit.repeated:
        task.log.info(
            "earlier tries have committed to %s: version %s is the first commit, %s the last",
            found.table_uri,
            found.first_version,
            found.version,
        )
    return found


def _start_of_run(context: Context) -> int | None:
    """A time before all commits of a DAG run, in epoch milliseconds."""
    run = context.get("dag_run")
    if run is None:
        return None
    # A run has another start after a task was cleared; `run_after` of a test of a DAG may be in the future.
    times = [run.run_after, getattr(run, "start_date", None)]
    first = min(time for time in times if time is not None)
    return int((first - _CLOCKS_DIFFER).timestamp() * 1000)


def _record(task: BaseOperator, context: Context, commit: TableCommit) -> None:
    events = context.get("outlet_events")
    outlets = list(task.outlets or ())
    if events is None or not outlets:
        return
    extra = commit.to_extra()
    found = 0
    for outlet in outlets:
        if isinstance(outlet, AssetAlias):
            found += 1
            if commit.committed:
                _add_to_alias(events[outlet], extra)
        elif _outlet_uri(events, outlet) == extra["table_uri"]:
            found += 1
            events[outlet].extra.update(extra)
    if not found:
        task.log.info(
            "no outlet of the task is the asset of %s, so no asset event has its version; see "
            "airflow_delta.assets.delta_asset",
            extra["table_uri"],
        )


def _outlet_uri(events: Any, outlet: Any) -> str | None:
    """The canonical URI of an asset, or of what refers to one; None for anything else."""
    if isinstance(outlet, Asset | AssetUriRef):
        return canonical_uri(outlet.uri)
    # Airflow knows the asset of a name.
    return canonical_uri(events[outlet].key.uri) if isinstance(outlet, AssetNameRef) else None


def _check_alias(task: TableTask) -> None:
    """Check before the commit that the table can be an asset, if an alias is to get it.

    :raises ArgumentError: it can't.
    """
    if not any(isinstance(outlet, AssetAlias) for outlet in task.outlets or ()):
        return
    uri = task.target_uri if hasattr(task, "target_uri") else task.table_uri
    # Without a target, a task that copies commits nothing.
    if uri is not None:
        delta_asset(uri)


def _add_to_alias(event: Any, extra: Mapping[str, Any]) -> None:
    """Emit an event of the table's asset, under the name that it has in Airflow, through an alias."""
    asset = delta_asset(extra["table_uri"], table_id=extra.get("table_id"))
    try:
        event.add(AssetUriRef(asset.uri), extra=dict(extra))
    except AirflowRuntimeError as error:
        if not is_unknown_asset(error):
            raise
        # There is none yet.
        event.add(asset, extra=dict(extra))

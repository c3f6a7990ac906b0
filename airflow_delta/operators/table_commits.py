"""Record which task makes a commit, and the commit in the asset events of the task's outlets.

Airflow emits an event for each outlet of a task that succeeds. If an outlet is the asset of the table that
the task commits to, this module puts the commit into the ``extra`` of its event (`TableCommit.to_extra`).
For an `AssetAlias` among the outlets it emits an event of the table's asset, if there is a commit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, TypeVar, cast

from airflow_delta.assets import delta_asset
from airflow_delta.hooks.table_locations import canonical_uri
from airflow_delta.task_runs import record_task_run
from airflow_delta.version_compat import (
    AirflowRuntimeError,
    Asset,
    AssetAlias,
    AssetNameRef,
    AssetUriRef,
    BaseOperator,
    Context,
)

__all__ = ["TableCommit", "maintenance_commit", "row_commit", "target_commit", "with_table_commit"]

_ExecuteT = TypeVar("_ExecuteT", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class TableCommit:
    """What a task did to a table.

    Attributes:
        table_uri: the table.
        version: the version that the task committed; if it committed none, the newest that it saw.
        operation: the name of the operation.
        committed: whether the version is a commit of this task in this DAG run, by any of its tries.
        repeated: whether it is the commit of an earlier try.
        metrics: the metrics of the operation, as whole numbers.
    """

    table_uri: str
    version: int
    operation: str
    committed: bool
    repeated: bool = False
    metrics: Mapping[str, int] = field(default_factory=dict)

    def to_extra(self) -> dict[str, Any]:
        """The ``extra`` of an asset event.

        The new versions are those after ``after_version``, up to ``version``: none if there is no commit.
        """
        return {
            "table_uri": canonical_uri(self.table_uri),
            "after_version": self.version - 1 if self.committed else self.version,
            "version": self.version,
            "operation": self.operation,
            "committed": self.committed,
            "repeated": self.repeated,
            "metrics": dict(self.metrics),
        }


Describe = Callable[[Mapping[str, Any]], "TableCommit | None"]
"""Finds the commit in the result of an operator; None if it did nothing to a table that is known."""


def with_table_commit(describe: Describe) -> Callable[[_ExecuteT], _ExecuteT]:
    """Decorate an operator's ``execute``: record the task in its commits, and its commit in asset events.

    :param describe: finds the commit in the result of the operator.
    """

    def decorate(execute: _ExecuteT) -> _ExecuteT:
        """Decorate the method."""

        @wraps(execute)
        def recorded(self: BaseOperator, context: Context) -> Any:
            """Execute the task, and record its commit."""
            with record_task_run(context):
                result = execute(self, context)
            commit = describe(result)
            if commit is not None:
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
        return TableCommit(
            result["table_uri"],
            result["version"],
            operation,
            committed=result.get("committed", False),
            repeated=result.get("repeated", False),
            metrics=result.get("metrics") or {},
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


def _add_to_alias(event: Any, extra: Mapping[str, Any]) -> None:
    """Emit an event of the table's asset, under the name that it has in Airflow, through an alias."""
    asset = delta_asset(extra["table_uri"])
    try:
        event.add(AssetUriRef(asset.uri), extra=dict(extra))
    except AirflowRuntimeError:  # There is none yet.
        event.add(asset, extra=dict(extra))

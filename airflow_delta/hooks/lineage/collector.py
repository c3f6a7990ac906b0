"""Report to Airflow which tables a hook reads and writes, for tasks of the user's own code.

Airflow's provider for OpenLineage makes datasets of the assets that hooks have reported, if the operator of
the task, such as that of ``@task``, reports none itself. `asset_uris` describes the assets of tables.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar, cast

from airflow_delta.hooks.lineage.asset_uris import PREFIX, SCHEMES, TABLE_URI, VERSION
from airflow_delta.hooks.table_locations import canonical_uri
from airflow_delta.version_compat import hook_lineage_collector

if TYPE_CHECKING:
    from airflow_delta.hooks.delta.access import TableAccess

__all__ = ["Direction", "collect_table", "collects"]

Direction: TypeAlias = Literal["input", "output"]
"""Whether a table is read or written."""

_COMMITS = ("commits", "committed", "converted", "num_commits", "repeated")
"""The entries of reports that say whether there is a commit."""

_MethodT = TypeVar("_MethodT", bound=Callable[..., Any])


def collect_table(
    hook: TableAccess, table_uri: str, version: int | None, direction: Direction
) -> None:
    """Report a table, if something reads the reports. An error is only logged.

    :param hook: the hook that reads or writes the table.
    :param table_uri: the table.
    :param version: its version; None if it isn't known.
    :param direction: ``input`` or ``output``.
    """
    try:
        collector = hook_lineage_collector()
        uri = canonical_uri(table_uri)
        if collector is None or not (PREFIX + uri).startswith(SCHEMES):
            return
        add = collector.add_input_asset if direction == "input" else collector.add_output_asset
        add(context=hook, uri=PREFIX + uri, asset_extra={TABLE_URI: uri, VERSION: version})
        hook.reported_tables.add(table_uri)
    except Exception:  # Whatever it is, the work on the table is done.
        hook.log.warning("%s isn't in the lineage of the task", table_uri, exc_info=True)


def collects(direction: Direction) -> Callable[[_MethodT], _MethodT]:
    """Decorate a method of `DeltaHook` that returns a report: report the table of its first argument.

    A method that could write the table, but has committed nothing, only reads it.

    :param direction: ``input`` or ``output``.
    """

    def decorate(method: _MethodT) -> _MethodT:
        """Decorate the method."""

        @wraps(method)
        def collected(self: TableAccess, table_uri: str, *arguments: Any, **named: Any) -> Any:
            """Call the method, and report the table."""
            report: Mapping[str, Any] = method(self, table_uri, *arguments, **named)
            if self.collects_lineage:
                has_committed = any(report.get(entry) for entry in _COMMITS)
                collect_table(
                    self, table_uri, report.get("version"), direction if has_committed else "input"
                )
            return report

        return cast("_MethodT", collected)

    return decorate

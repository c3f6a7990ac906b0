"""Report to Airflow which tables a hook reads and writes, for tasks of the user's own code.

Airflow's provider for OpenLineage makes datasets of the assets that hooks have reported, if the operator of
the task, such as that of ``@task``, reports none itself. It knows an asset's dataset only if a provider has
registered the scheme of the asset's URI. The assets of tables have schemes of their own here, such as
``delta+s3``, with this package's converter. So they become datasets with their versions, and no other
provider is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar, cast

from airflow_delta.hooks.lineage.datasets import LineageDataset
from airflow_delta.hooks.table_locations import canonical_uri
from airflow_delta.version_compat import hook_lineage_collector

if TYPE_CHECKING:
    from openlineage.client.event_v2 import Dataset

    from airflow_delta.hooks.delta.access import TableAccess

__all__ = ["SCHEMES", "Direction", "collect_table", "collects", "convert_asset"]

Direction: TypeAlias = Literal["input", "output"]
"""Whether a table is read or written."""

_PREFIX = "delta+"
SCHEMES = tuple(_PREFIX + scheme for scheme in ("file", "s3", "gs", "abfss", "hdfs"))
"""The schemes of the assets, as `airflow_delta.provider` registers them."""

_URI, _VERSION = "table_uri", "version"
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
        if collector is None or not (_PREFIX + uri).startswith(SCHEMES):
            return
        add = collector.add_input_asset if direction == "input" else collector.add_output_asset
        add(context=hook, uri=_PREFIX + uri, asset_extra={_URI: uri, _VERSION: version})
        hook.reported_tables.add(table_uri)
    except Exception:
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
                    self, table_uri, report["version"], direction if has_committed else "input"
                )
            return report

        return cast("_MethodT", collected)

    return decorate


def convert_asset(asset: Any, lineage_context: Any) -> Dataset:  # noqa: ARG001  (Airflow's signature)
    """Convert the asset of a table to a dataset of OpenLineage.

    :param asset: the asset.
    :param lineage_context: the hook that has reported it.
    """
    from airflow_delta.hooks.lineage.facets import input_dataset

    uri = asset.extra.get(_URI) or asset.uri.removeprefix(_PREFIX)
    return input_dataset(LineageDataset(uri, asset.extra.get(_VERSION)))

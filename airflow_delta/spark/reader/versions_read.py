"""Find out whether a DataFrame reads the newest version of a table, and which version that was.

A scan keeps the options of its reader in Spark's plan. `read_snapshot` adds two where the user has given
neither a version nor a timestamp: such rows stand for those of the table now. Rows that Spark has
checkpointed have no scan, and aren't found.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from airflow_delta.spark.reader.catalyst import Tree, kind

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from airflow_delta.engine import DeltaTable, Snapshot

__all__ = ["newest_version_options", "newest_versions_read"]

_TABLE = "airflow_delta_table"
_VERSION = "airflow_delta_version"


def newest_version_options(table: DeltaTable, snapshot: Snapshot) -> Mapping[str, str]:
    """The options for the scans of a version that was the newest one.

    Args:
        table: the table.
        snapshot: the version.
    """
    return {_TABLE: table.storage.canonical_location, _VERSION: str(snapshot.version)}


def newest_versions_read(rows: DataFrame, table: DeltaTable) -> frozenset[int]:
    """The versions of a table that a DataFrame reads as its newest.

    Args:
        rows: the DataFrame.
        table: the table.
    """
    # The user may have spelt the location in another way, or as a link.
    location = table.storage.canonical_location
    plan: Tree = rows._jdf.queryExecution().analyzed()  # noqa: SLF001
    inside = plan.subqueriesAll()
    found = set()
    for part in (plan, *(inside.apply(i) for i in range(inside.size()))):
        leaves = part.collectLeaves()
        for leaf in (leaves.apply(i) for i in range(leaves.size())):
            if kind(leaf) != "LogicalRelation" or kind(leaf.relation()) != "HadoopFsRelation":
                continue
            options = leaf.relation().options()
            if options.contains(_TABLE) and options.apply(_TABLE) == location:
                found.add(int(options.apply(_VERSION)))
    return frozenset(found)

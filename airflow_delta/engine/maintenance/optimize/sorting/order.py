"""The columns by which the rows of files are sorted: those of a Z-order, or the clustering columns.

The tags of files show how they were sorted, so that the next run doesn't sort them again:

===================  =================================================================================
``ZCUBE_ID``         of clustered files: which were sorted together, a *cube*. As in Delta Spark
``ZCUBE_ZORDER_BY``  of clustered files: the names of the clustering columns. As in Delta Spark
``Z_ORDER``          of files in Z-order: the names of the columns, and which files were sorted together.
                     Other engines ignore it
===================  =================================================================================
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from airflow_delta.engine.errors import (
    InvalidArgumentError,
    InvalidTableError,
    UnsupportedFeatureError,
)
from airflow_delta.engine.features.clustering import DOMAIN, FEATURE, parse_clustering_columns
from airflow_delta.engine.features.clustering_choice import without_statistics
from airflow_delta.engine.features.column_changes.column_paths import ColumnName, column_path
from airflow_delta.engine.features.column_mapping import mapping_mode, physical_paths
from airflow_delta.engine.features.protocol import supported_features
from airflow_delta.engine.features.schema_walk import SchemaPath
from airflow_delta.engine.features.statistics_columns import has_bounds, leaf_columns
from airflow_delta.engine.maintenance.optimize.sorting.curves import MOST_HILBERT, MOST_Z_ORDER
from airflow_delta.engine.model.schema import ArrayType, MapType
from airflow_delta.engine.model.sql_names import sql_name
from airflow_delta.engine.snapshot.snapshot import Snapshot

__all__ = [
    "CUBE_COLUMNS_TAG",
    "CUBE_TAG",
    "PROVIDER",
    "Z_ORDER_TAG",
    "FileMarks",
    "SortOrder",
    "clustering_order",
    "clustering_paths_of",
    "z_order",
]

CUBE_TAG, CUBE_COLUMNS_TAG = "ZCUBE_ID", "ZCUBE_ZORDER_BY"

Z_ORDER_TAG = "Z_ORDER"

PROVIDER = "liquid"
"""The ``clusteringProvider`` of Delta Spark's clustering, which is also this one's."""


@dataclass(frozen=True, slots=True)
class FileMarks:
    """What an ``add`` says about the order of its rows.

    Attributes:
        tags: its tags about that.
        provider: its ``clusteringProvider``.
    """

    tags: Mapping[str, str | None]
    provider: str | None = None


@dataclass(frozen=True, slots=True)
class SortOrder:
    """By which columns rows are sorted.

    Attributes:
        columns: the logical paths of the columns, in order.
        physical: their physical paths.
        is_clustering: whether they are the clustering columns; else those of a Z-order.
    """

    columns: tuple[SchemaPath, ...]
    physical: tuple[SchemaPath, ...]
    is_clustering: bool

    @property
    def names(self) -> list[str]:
        """The names of the columns, as in SQL."""
        return [sql_name(path) for path in self.columns]

    def new_marks(self) -> FileMarks:
        """The marks of files that are sorted together."""
        unique = str(uuid.uuid4())
        if self.is_clustering:
            tags = {CUBE_TAG: unique, CUBE_COLUMNS_TAG: _json(self.names)}
            return FileMarks(tags, PROVIDER)
        return FileMarks({Z_ORDER_TAG: _json({"by": self.names, "id": unique})})

    def is_of_columns(self, tag: str | None) -> bool:
        """Whether a tag of a file says that it was sorted by these columns.

        Args:
            tag: the `CUBE_COLUMNS_TAG` or the `Z_ORDER_TAG` of the file.
        """
        try:
            found = json.loads(tag or "null")
        except (ValueError, RecursionError):
            return False
        if not self.is_clustering:
            return isinstance(found, dict) and found.get("by") == self.names
        # Delta Spark writes logical names, which a column may have lost since. Physical ones are as good.
        return found in (self.names, [sql_name(path) for path in self.physical])


def clustering_paths_of(snapshot: Snapshot) -> tuple[SchemaPath, ...]:
    """The physical paths of the clustering columns of a version; empty if it isn't clustered.

    Raises:
        InvalidTableError: the domain can't be read.
    """
    domain = snapshot.domains.get(DOMAIN)
    if domain is None or FEATURE not in supported_features(snapshot.protocol):
        return ()
    return parse_clustering_columns(domain.configuration, table=snapshot.table)


def clustering_order(snapshot: Snapshot) -> SortOrder | None:
    """How a version is clustered; None if it isn't.

    Raises:
        InvalidTableError: a clustering column doesn't exist or has no order, or the domain can't be read.
        UnsupportedFeatureError: there are more columns than a Hilbert curve can have.
    """
    physical = clustering_paths_of(snapshot)
    if not physical:
        return None
    logical = {own: path for path, own in _physical_paths(snapshot).items()}
    leaves = leaf_columns(snapshot.schema)
    columns: tuple[SchemaPath, ...] = tuple(logical.get(path, ()) for path in physical)
    for path, column in zip(physical, columns, strict=True):
        if column not in leaves or isinstance(leaves[column], (ArrayType, MapType)):
            raise InvalidTableError(
                f"the clustering column {sql_name(path)} of the domain {DOMAIN} doesn't exist, or has a "
                "type without an order: cluster the table by other columns (table.alter.cluster_by)",
                table=snapshot.table,
            )
    if len(columns) > MOST_HILBERT:
        raise UnsupportedFeatureError(
            f"the table has {len(columns)} clustering columns, and the engine clusters by at most "
            f"{MOST_HILBERT}: cluster it by fewer (table.alter.cluster_by)",
            table=snapshot.table,
        )
    return SortOrder(columns, physical, is_clustering=True)


def z_order(snapshot: Snapshot, chosen: Sequence[ColumnName]) -> SortOrder:
    """Check the columns of a Z-order.

    Args:
        snapshot: the version.
        chosen: the names of the columns, from a user.

    Raises:
        InvalidArgumentError: the table is clustered; these are no names of columns, or too many; or a
            column doesn't exist, is a partition column, is listed twice, or gets no statistics.
    """
    if isinstance(chosen, str) or not isinstance(chosen, Sequence):
        raise _refused(chosen, f"expected a list of columns, such as {[chosen]}", snapshot)
    if FEATURE in supported_features(snapshot.protocol):
        problem = (
            "the table has the feature clustering, which replaces a Z-order; leave z_order_by out, and "
            "choose clustering columns by table.alter.cluster_by"
        )
        raise _refused(chosen, problem, snapshot)
    if len(chosen) > MOST_Z_ORDER:
        raise _refused(chosen, f"expected at most {MOST_Z_ORDER} columns", snapshot)
    columns = tuple(column_path(name, "z_order_by") for name in chosen)
    for number, path in enumerate(columns):
        if path in columns[:number]:
            raise _refused(chosen, f"{sql_name(path)} is listed twice", snapshot)
        unfit = _problem(snapshot, path)
        if unfit is not None:
            raise _refused(chosen, unfit, snapshot)
    physical = _physical_paths(snapshot)
    return SortOrder(columns, tuple(physical[path] for path in columns), is_clustering=False)


def _problem(snapshot: Snapshot, path: SchemaPath) -> str | None:
    """Why files can't be sorted by a column."""
    leaves, name = leaf_columns(snapshot.schema), sql_name(path)
    if path not in leaves:
        possible = ", ".join(sql_name(each) for each, type_ in leaves.items() if has_bounds(type_))
        return f"{name} is no column of the table, or is a struct; possible columns are {possible}"
    if path[0] in snapshot.metadata.partition_columns:
        return f"{name} is a partition column, which has one value in each file"
    if not has_bounds(leaves[path]):
        return f"{name} is of the type {leaves[path]}, which has no least and greatest values"
    if without_statistics([path], snapshot.schema, snapshot.properties):
        return (
            f"{name} gets no statistics, so no query would skip files by it; move it forward, or change "
            "delta.dataSkippingNumIndexedCols or delta.dataSkippingStatsColumns"
        )
    return None


def _physical_paths(snapshot: Snapshot) -> dict[SchemaPath, SchemaPath]:
    mode = mapping_mode(snapshot.protocol, snapshot.metadata, table=snapshot.table)
    return physical_paths(snapshot.schema, mode)


def _refused(chosen: object, problem: str, snapshot: Snapshot) -> InvalidArgumentError:
    return InvalidArgumentError(f"z_order_by={chosen!r}: {problem}", table=snapshot.table)


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)

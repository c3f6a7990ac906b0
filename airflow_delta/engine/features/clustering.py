"""Clustered tables: which columns their rows are clustered by.

Spec: PROTOCOL.md, "Clustered Table". The columns are in the metadata domain `DOMAIN`, by their
physical names. The specification's example lists bare names; the writers in use list each column
as a path of names, so that it may lie inside a struct::

    {"clusteringColumns": ["col-1", "col-2"]}          the example: two top-level columns
    {"clusteringColumns": [["col-1"], ["col-2", "x"]]} in use: a top-level and a nested column

Both are read.
"""

from __future__ import annotations

import json
from typing import Any

from airflow_delta.engine.errors import InvalidTableError
from airflow_delta.engine.features.schema_walk import SchemaPath

__all__ = ["DOMAIN", "parse_clustering_columns"]

DOMAIN = "delta.clustering"
"""The metadata domain that holds the clustering columns."""


def parse_clustering_columns(configuration: str, *, table: str) -> tuple[SchemaPath, ...]:
    """The physical paths of the clustering columns, in their order.

    Args:
        configuration: the domain's configuration.
        table: the table's location, for messages.

    Raises:
        InvalidTableError: the configuration is not of either form.
    """
    try:
        columns = json.loads(configuration)["clusteringColumns"]
        if isinstance(columns, list):
            return tuple(_path(column) for column in columns)
        raise TypeError  # noqa: TRY301
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise InvalidTableError(
            f"the domain {DOMAIN} holds {configuration!r}: expected a JSON object whose "
            "'clusteringColumns' lists column names, or lists of names",
            table=table,
        ) from error


def _path(column: Any) -> SchemaPath:
    names = [column] if isinstance(column, str) else column
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        raise TypeError
    return tuple(names)

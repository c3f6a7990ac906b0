"""The clustering columns of a table, in the metadata domain `DOMAIN`.

The domain lists the columns by physical names. The specification's example has bare names. The writers in
use list each column as a path of names, so that it may lie inside a struct::

    {"clusteringColumns": ["col-1", "col-2"]}          the example: two top-level columns
    {"clusteringColumns": [["col-1"], ["col-2", "x"]]} in use: a top-level and a nested column

The engine reads both forms, and writes the second, because the writers in use only understand that.

PROTOCOL.md, "Clustered Table".
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from airflow_delta.engine.errors import InvalidTableError
from airflow_delta.engine.features.schema_walk import SchemaPath, all_fields
from airflow_delta.engine.model.actions import DomainMetadata
from airflow_delta.engine.model.schema import ArrayType, MapType, StructType

__all__ = [
    "DOMAIN",
    "FEATURE",
    "check_clustering_columns",
    "clustering_domain",
    "parse_clustering_columns",
]

FEATURE = "clustering"
"""The feature's name in the protocol."""

DOMAIN = "delta.clustering"
"""The metadata domain that holds the clustering columns."""


def clustering_domain(columns: Sequence[SchemaPath]) -> DomainMetadata:
    """Make the metadata domain for some clustering columns.

    Args:
        columns: their physical paths, in order; may be empty.
    """
    configuration = {"clusteringColumns": [list(path) for path in columns], "domainName": DOMAIN}
    return DomainMetadata(DOMAIN, json.dumps(configuration, separators=(",", ":")))


def check_clustering_columns(
    columns: Sequence[SchemaPath],
    schema: StructType,
    *,
    partition_columns: Sequence[str],
    table: str,
) -> None:
    """Check that a table can be clustered by some columns.

    Args:
        columns: their physical paths.
        schema: the table's schema with physical names.
        partition_columns: the table's partition columns.
        table: the table's location, for messages.

    Raises:
        InvalidTableError: a column doesn't exist, is listed twice, or is a struct, an array or a map, which
            have no statistics; or the table is partitioned.
    """
    if columns and partition_columns:
        raise InvalidTableError(
            f"the table is partitioned by {list(partition_columns)}, so it can't be clustered: expected "
            "one of the two",
            table=table,
        )
    types = {path: field.data_type for path, field in all_fields(schema)}
    for number, path in enumerate(columns):
        name = ".".join(path)
        if path in columns[:number]:
            problem = "is listed twice"
        elif path not in types:
            problem = "is no column of the table"
        elif isinstance(types[path], (StructType, ArrayType, MapType)):
            problem = f"is of the type {types[path]}, of which no statistics are kept"
        else:
            continue
        raise InvalidTableError(
            f"the clustering column {name} {problem}: expected different columns of primitive types",
            table=table,
            column=name,
        )


def parse_clustering_columns(configuration: str, *, table: str) -> tuple[SchemaPath, ...]:
    """Read the physical paths of the clustering columns, in their order.

    Args:
        configuration: the domain's configuration.
        table: the table's location, for messages.

    Raises:
        InvalidTableError: the configuration has neither form.
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

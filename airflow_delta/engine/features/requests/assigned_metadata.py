"""Assign the ids and names that a feature needs, and that users don't choose.

* Column mapping needs an id and a physical name for each column, and the highest id that was assigned;
* "Iceberg Compatibility V2" needs ids of the contents of arrays and maps;
* row tracking needs names for its two hidden columns.

PROTOCOL.md, the sections of these features.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from airflow_delta.engine.features.column_mapping import MAX_COLUMN_ID, assign_mapping
from airflow_delta.engine.features.nested_ids import assign_nested_ids, highest_nested_id
from airflow_delta.engine.features.row_tracking import (
    MATERIALIZED_ROW_COMMIT_VERSION_COLUMN,
    MATERIALIZED_ROW_ID_COLUMN,
)
from airflow_delta.engine.model.properties import TableProperties
from airflow_delta.engine.model.schema import StructField, StructType

__all__ = ["assign_metadata"]

# The prefixes are those of the reference implementation.
_HIDDEN_COLUMNS = {
    MATERIALIZED_ROW_ID_COLUMN: "_row-id-col-",
    MATERIALIZED_ROW_COMMIT_VERSION_COLUMN: "_row-commit-version-col-",
}


def assign_metadata(
    schema: StructType,
    configuration: Mapping[str, str],
    *,
    mapped: bool,
    name_of: Callable[[StructField], str],
    unique: Callable[[], str],
    table: str,
) -> tuple[StructType, dict[str, str]]:
    """Add missing ids and names to a schema and properties, as far as the properties need them.

    Args:
        schema: the schema.
        configuration: the table properties.
        mapped: whether column mapping is in force.
        name_of: makes a column's physical name; see `column_mapping.assign_mapping`.
        unique: makes a unique text, such as a UUID.
        table: the table's location, for messages.

    Raises:
        InvalidTableError: a property or an existing id is invalid.
    """
    properties = TableProperties(configuration, table)
    assigned = dict(configuration)
    if mapped:
        last = properties.column_mapping_max_column_id or 0
        schema, last = assign_mapping(
            schema, name_of=name_of, last=max(last, highest_nested_id(schema))
        )
        if properties.iceberg_compat_v2_enabled:
            schema, last = assign_nested_ids(schema, last=last)
        assigned[MAX_COLUMN_ID] = str(last)
    if properties.row_tracking_enabled:
        for key, start in _HIDDEN_COLUMNS.items():
            assigned.setdefault(key, f"{start}{unique()}")
    return schema, assigned

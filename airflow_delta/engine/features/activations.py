"""Decide whether a table's metadata use a feature; for the rows of the registry.

PROTOCOL.md, "Active Features".
"""

from __future__ import annotations

from airflow_delta.engine.features.feature import Activation
from airflow_delta.engine.features.schema_walk import all_fields, all_types
from airflow_delta.engine.model.properties import TableProperties
from airflow_delta.engine.model.schema import DataType, StructType

__all__ = ["column_key", "column_type", "flag"]


def column_key(*prefixes: str) -> Activation:
    """Active if the metadata of any column have a key that begins with one of the prefixes."""

    def _active(_: TableProperties, schema: StructType) -> bool:
        return any(
            key.startswith(prefixes) for _, field in all_fields(schema) for key in field.metadata
        )

    return _active


def column_type(data_type: DataType) -> Activation:
    """Active if any column, at any depth, has the type."""

    def _active(_: TableProperties, schema: StructType) -> bool:
        return any(found == data_type for _, found in all_types(schema))

    return _active


def flag(name: str) -> Activation:
    """Active if a property that `TableProperties` doesn't have is ``true``."""

    def _active(properties: TableProperties, _: StructType) -> bool:
        return properties.raw.get(name, "").strip().lower() == "true"

    return _active

"""Decide whether a prepared commit can follow a concurrent change of the metadata.

Most changes of the metadata conflict with commits that were prepared before them. A commit can adopt a
change that turns something on and requires nothing of files that are already written:

==========================================  =========================================================
change                                      why files that were written before it stay valid
==========================================  =========================================================
row tracking turned on                      files get their row ids when they are committed
column mapping turned on, by name           the columns keep their names as physical names
deletion vectors turned on                  writers may make deletion vectors, but needn't
in-commit timestamps turned on              a commit gets its timestamp when it is made
``delta.checkpointPolicy`` set to ``v2``    it is about checkpoints
an identifier in Unity Catalog              it is about the catalog
==========================================  =========================================================

A commit that only moves high water marks of identity columns can be followed too. It has a tag; see
`conflicts`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from airflow_delta.engine.features.in_commit_timestamps import ENABLEMENT_PROPERTIES
from airflow_delta.engine.features.protocol import supported_features
from airflow_delta.engine.features.row_tracking import (
    MATERIALIZED_ROW_COMMIT_VERSION_COLUMN,
    MATERIALIZED_ROW_ID_COLUMN,
)
from airflow_delta.engine.model.actions import Metadata, Protocol
from airflow_delta.engine.model.properties import TableProperties

__all__ = ["can_adopt"]

_TURNED_ON = {
    "delta.enableRowTracking": "rowTracking",
    "delta.enableDeletionVectors": "deletionVectors",
    "delta.enableInCommitTimestamps": "inCommitTimestamp",
}
"""Properties that may become true, each with the feature that the table must then support."""

_WITH = {
    MATERIALIZED_ROW_ID_COLUMN: "delta.enableRowTracking",
    MATERIALIZED_ROW_COMMIT_VERSION_COLUMN: "delta.enableRowTracking",
    **dict.fromkeys(ENABLEMENT_PROPERTIES, "delta.enableInCommitTimestamps"),
}
"""Properties that may change, each with the property that must then be true."""

_ALWAYS_ADOPTED = frozenset(
    {"delta.columnMapping.maxColumnId", "io.unitycatalog.tableId", "ucTableId"}
)

_MAPPING_KEYS = frozenset(
    {
        "delta.columnMapping.id",
        "delta.columnMapping.physicalName",
        "delta.columnMapping.nested.ids",
    }
)


def can_adopt(before: Metadata, after: Metadata, protocol: Protocol, *, table: str) -> bool:
    """Whether a commit that was prepared for some metadata may follow a change of it.

    Args:
        before: the metadata for which the commit was prepared.
        after: the metadata after the concurrent change.
        protocol: the protocol after the concurrent change.
        table: the table's location, for messages.

    Raises:
        InvalidTableError: a property can't be read.
    """
    like_before = replace(
        after, configuration=before.configuration, schema_string=before.schema_string
    )
    if like_before != before:
        return False
    named = _maps_by_name(before, after, protocol, table)
    return _configuration_is_harmless(before, after, protocol, table, named=named) and (
        before.schema_string == after.schema_string
        or (named and _without_mapping(before) == _without_mapping(after))
    )


def _maps_by_name(before: Metadata, after: Metadata, protocol: Protocol, table: str) -> bool:
    """Whether column mapping by name was turned on."""
    modes = [
        TableProperties(metadata.configuration, table).column_mapping_mode
        for metadata in (before, after)
    ]
    return modes == ["none", "name"] and "columnMapping" in supported_features(protocol)


def _configuration_is_harmless(
    before: Metadata, after: Metadata, protocol: Protocol, table: str, *, named: bool
) -> bool:
    old, new = before.configuration, after.configuration
    if old.keys() - new.keys():
        return False
    properties, features = TableProperties(new, table), supported_features(protocol)

    def _harmless(key: str) -> bool:
        if key in _TURNED_ON:
            return _TURNED_ON[key] in features and properties.flag(key)
        if key in _WITH:
            return properties.flag(_WITH[key])
        if key == "delta.columnMapping.mode":
            return named
        if key == "delta.checkpointPolicy":
            return "v2Checkpoint" in features and properties.checkpoint_policy == "v2"
        return key in _ALWAYS_ADOPTED

    return all(_harmless(key) for key in new if old.get(key) != new[key])


def _without_mapping(metadata: Metadata) -> Any:
    """The schema, as JSON values, without the ids and physical names of column mapping."""
    return _strip_mapping(json.loads(metadata.schema_string or "null"))


def _strip_mapping(node: Any) -> Any:
    if isinstance(node, list):
        return [_strip_mapping(item) for item in node]
    if not isinstance(node, Mapping):
        return node
    return {
        key: {name: each for name, each in value.items() if name not in _MAPPING_KEYS}
        if key == "metadata" and isinstance(value, Mapping)
        else _strip_mapping(value)
        for key, value in node.items()
    }

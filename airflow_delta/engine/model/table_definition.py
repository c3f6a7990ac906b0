"""The actions ``protocol`` and ``metaData``. The newest one of each counts.

``features/`` checks whether they contradict each other, and knows the meaning of features and properties.

PROTOCOL.md, "Protocol Evolution" and "Change Metadata".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from airflow_delta.engine.model import json_fields
from airflow_delta.engine.model.json_record import (
    JsonField,
    JsonRecord,
    fields,
    optional,
    required,
)

__all__ = ["Format", "Metadata", "Protocol"]


def _features(obj: Mapping[str, Any], key: str, where: str) -> frozenset[str] | None:
    names = json_fields.optional_strings(obj, key, where)
    return None if names is None else frozenset(names)


@dataclass(frozen=True, slots=True)
class Protocol(JsonRecord):
    """The versions and features that a client must implement for the table ("Protocol Evolution").

    Attributes:
        min_reader_version: the minimum reader version.
        min_writer_version: the minimum writer version.
        reader_features: the features that readers must know; None if the action has no such list.
        writer_features: the features that writers must know; None if the action has no such list.
    """

    min_reader_version: int
    min_writer_version: int
    reader_features: frozenset[str] | None = None
    writer_features: frozenset[str] | None = None

    log_fields = fields(
        min_reader_version=required("minReaderVersion", int),
        min_writer_version=required("minWriterVersion", int),
        # Sorted, so that equal protocols have equal texts.
        reader_features=JsonField("readerFeatures", _features, sorted),
        writer_features=JsonField("writerFeatures", _features, sorted),
    )


def _provider(obj: Mapping[str, Any], key: str, where: str) -> str:
    found = json_fields.optional(obj, key, str, where)
    return "parquet" if found is None else found


@dataclass(frozen=True, slots=True)
class Format(JsonRecord):
    """The encoding of the data files ("Format Specification"); today always parquet."""

    provider: str = "parquet"
    options: Mapping[str, str] = field(default_factory=dict)

    log_fields = fields(
        provider=JsonField("provider", _provider),
        options=JsonField("options", json_fields.string_map, dict),
    )


def _format(obj: Mapping[str, Any], key: str, where: str) -> Format:
    found = obj.get(key)
    return Format() if found is None else Format.from_json(found, f"{where}.{key}")


def _columns(obj: Mapping[str, Any], key: str, where: str) -> tuple[str, ...]:
    return json_fields.optional_strings(obj, key, where) or ()


@dataclass(frozen=True, slots=True)
class Metadata(JsonRecord):
    """Identity, schema, partitioning and properties of the table ("Change Metadata").

    Only the id is required, as in the reference implementation. Early writers omitted empty fields, so
    partition columns and configuration are empty by default, and the format is parquet.

    Attributes:
        id: the table's unique identifier.
        name: the user's name for the table.
        description: the user's description.
        format: the encoding of the data files.
        schema_string: the schema as JSON, see `schema_json`; None, if the writer omitted it, means a schema
            without columns.
        partition_columns: logical names; the order matters.
        created_time: epoch ms.
        configuration: the table properties, see `properties`.
    """

    id: str
    name: str | None = None
    description: str | None = None
    format: Format = field(default_factory=Format)
    schema_string: str | None = None
    partition_columns: tuple[str, ...] = ()
    created_time: int | None = None
    configuration: Mapping[str, str] = field(default_factory=dict)

    log_fields = fields(
        id=required("id", str),
        name=optional("name", str),
        description=optional("description", str),
        format=JsonField("format", _format, Format.to_json),
        schema_string=optional("schemaString", str),
        partition_columns=JsonField("partitionColumns", _columns, list),
        created_time=optional("createdTime", int),
        configuration=JsonField("configuration", json_fields.string_map, dict),
    )

"""The actions of the log as frozen values: JSON in, JSON out.

Spec: PROTOCOL.md, "Actions". One class per action, fields named as in the protocol but in snake
case. ``from_json`` reads the object below the action's name (``{"txn": <this>}``), ignores fields
the protocol doesn't know and raises `CorruptLogError` naming the field that is wrong; ``to_json``
writes it back under the protocol's names, leaving out what has no value.

The actions of single files are defined in `file_actions` and offered here too, so that this module
has the whole vocabulary of the log.

The classes keep mappings as plain dicts, so that they can be pickled; treat them as read-only.
What follows from the contents of an action (whether a protocol's versions and features fit
together, say) is judged in ``features/``, not here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from airflow_delta.engine.errors import CorruptLogError
from airflow_delta.engine.model.file_actions import AddCdcFile, AddFile, RemoveFile
from airflow_delta.engine.model.json_fields import (
    json_object,
    nullable_string_map,
    optional,
    optional_strings,
    present,
    required,
    string_map,
)

__all__ = [
    "AddCdcFile",
    "AddFile",
    "CheckpointMetadata",
    "CommitInfo",
    "DomainMetadata",
    "Format",
    "Metadata",
    "Protocol",
    "RemoveFile",
    "Sidecar",
    "Txn",
]

_T = TypeVar("_T", str, int, bool)


@dataclass(frozen=True, slots=True)
class Protocol:
    """What a client must implement to read or write the table ("Protocol Evolution").

    Attributes:
        min_reader_version: the least reader version.
        min_writer_version: the least writer version.
        reader_features: features readers must know; None where the action has no such list.
        writer_features: features writers must know; None where the action has no such list.
    """

    min_reader_version: int
    min_writer_version: int
    reader_features: frozenset[str] | None = None
    writer_features: frozenset[str] | None = None

    @classmethod
    def from_json(cls, obj: Mapping[str, Any], where: str) -> Protocol:
        """Read a ``protocol`` action.

        Raises:
            CorruptLogError: a field is missing or of the wrong type. Facts: where.
        """
        obj = json_object(obj, where)
        return cls(
            min_reader_version=required(obj, "minReaderVersion", int, where),
            min_writer_version=required(obj, "minWriterVersion", int, where),
            reader_features=_optional_set(obj, "readerFeatures", where),
            writer_features=_optional_set(obj, "writerFeatures", where),
        )

    def to_json(self) -> dict[str, Any]:
        """The action's content; features are sorted, so that equal protocols have equal texts."""
        return present(
            {
                "minReaderVersion": self.min_reader_version,
                "minWriterVersion": self.min_writer_version,
                "readerFeatures": _sorted_or_none(self.reader_features),
                "writerFeatures": _sorted_or_none(self.writer_features),
            }
        )


@dataclass(frozen=True, slots=True)
class Format:
    """The encoding of the data files ("Format Specification"); today always parquet."""

    provider: str = "parquet"
    options: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def from_json(cls, obj: Mapping[str, Any], where: str) -> Format:
        """Read the ``format`` of a ``metaData`` action; without a provider it is parquet.

        Raises:
            CorruptLogError: a field is of the wrong type. Facts: where.
        """
        obj = json_object(obj, where)
        provider = optional(obj, "provider", str, where)
        return cls(
            provider="parquet" if provider is None else provider,
            options=string_map(obj, "options", where),
        )

    def to_json(self) -> dict[str, Any]:
        """The format as the log holds it."""
        return {"provider": self.provider, "options": dict(self.options)}


@dataclass(frozen=True, slots=True)
class Metadata:
    """Identity, schema, partitioning and properties of the table ("Change Metadata").

    Attributes:
        id: the table's unique identifier.
        name: given by the user.
        description: given by the user.
        format: the encoding of the data files.
        schema_string: the schema as JSON, see `schema_json`; None in tables whose writers left it
            out, which means a schema without columns.
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

    @classmethod
    def from_json(cls, obj: Mapping[str, Any], where: str) -> Metadata:
        """Read a ``metaData`` action.

        As in the reference implementation just the id is indispensable: early writers left out what
        is empty, so partition columns and configuration default to none, and the format to parquet.

        Raises:
            CorruptLogError: the id is missing, or a field is of the wrong type. Facts: where.
        """
        obj = json_object(obj, where)
        format_ = obj.get("format")
        return cls(
            id=required(obj, "id", str, where),
            name=optional(obj, "name", str, where),
            description=optional(obj, "description", str, where),
            format=Format() if format_ is None else Format.from_json(format_, f"{where}.format"),
            schema_string=optional(obj, "schemaString", str, where),
            partition_columns=optional_strings(obj, "partitionColumns", where) or (),
            created_time=optional(obj, "createdTime", int, where),
            configuration=string_map(obj, "configuration", where),
        )

    def to_json(self) -> dict[str, Any]:
        """The action's content."""
        return present(
            {
                "id": self.id,
                "name": self.name,
                "description": self.description,
                "format": self.format.to_json(),
                "schemaString": self.schema_string,
                "partitionColumns": list(self.partition_columns),
                "createdTime": self.created_time,
                "configuration": dict(self.configuration),
            }
        )


@dataclass(frozen=True, slots=True)
class CommitInfo:
    """Where a commit came from ("Commit Provenance Information").

    Writers may store anything here, so reading never fails: a field of an unexpected type is None,
    and `raw` has everything as it was written.

    Attributes:
        version: of the commit; not part of the action, but known to whoever read the commit.
        timestamp: the writer's clock, epoch ms.
        operation: such as ``WRITE`` or ``MERGE``.
        operation_parameters: by name; values of any JSON type.
        operation_metrics: by name; values of any JSON type.
        in_commit_timestamp: the commit's timestamp by the In-Commit Timestamps feature, epoch ms.
        engine_info: the program that wrote the commit.
        txn_id: unique to the transaction.
        read_version: the version the transaction had read.
        isolation_level: the isolation the transaction ran under.
        is_blind_append: whether the transaction added files without reading any.
        user_metadata: given by the user.
        raw: the action as it was read.
    """

    version: int
    timestamp: int | None = None
    operation: str | None = None
    operation_parameters: Mapping[str, Any] | None = None
    operation_metrics: Mapping[str, Any] | None = None
    in_commit_timestamp: int | None = None
    engine_info: str | None = None
    txn_id: str | None = None
    read_version: int | None = None
    isolation_level: str | None = None
    is_blind_append: bool | None = None
    user_metadata: str | None = None
    raw: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_json(cls, obj: Any, *, version: int) -> CommitInfo:
        """Read the ``commitInfo`` of a version. Any JSON value will do; see the class."""
        raw: Mapping[str, Any] = obj if isinstance(obj, Mapping) else {}
        return cls(
            version=version,
            timestamp=_or_none(raw, "timestamp", int),
            operation=_or_none(raw, "operation", str),
            operation_parameters=_mapping_or_none(raw, "operationParameters"),
            operation_metrics=_mapping_or_none(raw, "operationMetrics"),
            in_commit_timestamp=_or_none(raw, "inCommitTimestamp", int),
            engine_info=_or_none(raw, "engineInfo", str),
            txn_id=_or_none(raw, "txnId", str),
            read_version=_or_none(raw, "readVersion", int),
            isolation_level=_or_none(raw, "isolationLevel", str),
            is_blind_append=_or_none(raw, "isBlindAppend", bool),
            user_metadata=_or_none(raw, "userMetadata", str),
            raw=raw,
        )

    def to_json(self) -> dict[str, Any]:
        """The action's content: `raw`, overlaid with the fields that have a value."""
        known = {
            "timestamp": self.timestamp,
            "operation": self.operation,
            "operationParameters": self.operation_parameters,
            "operationMetrics": self.operation_metrics,
            "inCommitTimestamp": self.in_commit_timestamp,
            "engineInfo": self.engine_info,
            "txnId": self.txn_id,
            "readVersion": self.read_version,
            "isolationLevel": self.isolation_level,
            "isBlindAppend": self.is_blind_append,
            "userMetadata": self.user_metadata,
        }
        return {**self.raw, **present(known)}


@dataclass(frozen=True, slots=True)
class Txn:
    """How far an application has come with its writes ("Transaction Identifiers").

    Attributes:
        app_id: the application's identifier.
        version: its progress; may also decrease.
        last_updated: epoch ms.
    """

    app_id: str
    version: int
    last_updated: int | None = None

    @classmethod
    def from_json(cls, obj: Mapping[str, Any], where: str) -> Txn:
        """Read a ``txn`` action.

        Raises:
            CorruptLogError: a field is missing or of the wrong type. Facts: where.
        """
        obj = json_object(obj, where)
        return cls(
            app_id=required(obj, "appId", str, where),
            version=required(obj, "version", int, where),
            last_updated=optional(obj, "lastUpdated", int, where),
        )

    def to_json(self) -> dict[str, Any]:
        """The action's content."""
        return present(
            {"appId": self.app_id, "version": self.version, "lastUpdated": self.last_updated}
        )


@dataclass(frozen=True, slots=True)
class DomainMetadata:
    """The configuration of a named metadata domain ("Domain Metadata").

    Attributes:
        domain: the name; ``delta.`` in front marks those that only the protocol defines.
        configuration: opaque text, often JSON.
        removed: whether the action deletes the domain.
    """

    domain: str
    configuration: str
    removed: bool = False

    @property
    def is_system_controlled(self) -> bool:
        """Whether the domain belongs to the protocol, so that users may not change it."""
        return self.domain.startswith("delta.")

    @classmethod
    def from_json(cls, obj: Mapping[str, Any], where: str) -> DomainMetadata:
        """Read a ``domainMetadata`` action.

        Raises:
            CorruptLogError: a field is missing or of the wrong type. Facts: where.
        """
        obj = json_object(obj, where)
        return cls(
            domain=required(obj, "domain", str, where),
            configuration=required(obj, "configuration", str, where),
            removed=required(obj, "removed", bool, where),
        )

    def to_json(self) -> dict[str, Any]:
        """The action's content."""
        return {
            "domain": self.domain,
            "configuration": self.configuration,
            "removed": self.removed,
        }


@dataclass(frozen=True, slots=True)
class Sidecar:
    """A file that holds file actions of a V2 checkpoint ("Sidecar File Information").

    Attributes:
        path: URI-encoded; as a rule just the name of a file in ``_delta_log/_sidecars``.
        size_in_bytes: of the file.
        modification_time: epoch ms.
        tags: further metadata; None where the action has none.
    """

    path: str
    size_in_bytes: int
    modification_time: int
    tags: Mapping[str, str | None] | None = None

    @classmethod
    def from_json(cls, obj: Mapping[str, Any], where: str) -> Sidecar:
        """Read a ``sidecar`` action.

        Raises:
            CorruptLogError: a field is missing or of the wrong type. Facts: where.
        """
        obj = json_object(obj, where)
        return cls(
            path=required(obj, "path", str, where),
            size_in_bytes=required(obj, "sizeInBytes", int, where),
            modification_time=required(obj, "modificationTime", int, where),
            tags=nullable_string_map(obj, "tags", where),
        )

    def to_json(self) -> dict[str, Any]:
        """The action's content."""
        return present(
            {
                "path": self.path,
                "sizeInBytes": self.size_in_bytes,
                "modificationTime": self.modification_time,
                "tags": _dict_or_none(self.tags),
            }
        )


@dataclass(frozen=True, slots=True)
class CheckpointMetadata:
    """The version a V2 checkpoint stands for ("Checkpoint Metadata"), and tags of its writer."""

    version: int
    tags: Mapping[str, str | None] | None = None

    @classmethod
    def from_json(cls, obj: Mapping[str, Any], where: str) -> CheckpointMetadata:
        """Read a ``checkpointMetadata`` action.

        Raises:
            CorruptLogError: the version is missing, or a field of the wrong type. Facts: where.
        """
        obj = json_object(obj, where)
        return cls(
            version=required(obj, "version", int, where),
            tags=nullable_string_map(obj, "tags", where),
        )

    def to_json(self) -> dict[str, Any]:
        """The action's content."""
        return present({"version": self.version, "tags": _dict_or_none(self.tags)})


def _optional_set(obj: Mapping[str, Any], key: str, where: str) -> frozenset[str] | None:
    values = optional_strings(obj, key, where)
    return None if values is None else frozenset(values)


def _sorted_or_none(names: frozenset[str] | None) -> list[str] | None:
    return None if names is None else sorted(names)


def _dict_or_none(mapping: Mapping[str, Any] | None) -> dict[str, Any] | None:
    return None if mapping is None else dict(mapping)


def _or_none(raw: Mapping[str, Any], key: str, kind: type[_T]) -> _T | None:
    try:
        return optional(raw, key, kind, "commitInfo")
    except CorruptLogError:  # provenance is free-form; `raw` keeps what was written
        return None


def _mapping_or_none(raw: Mapping[str, Any], key: str) -> Mapping[str, Any] | None:
    value = raw.get(key)
    return value if isinstance(value, Mapping) else None

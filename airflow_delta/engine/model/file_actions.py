"""The actions of single files: ``add``, ``remove`` and ``cdc``.

Spec: PROTOCOL.md, "Add File and Remove File" and "Add CDC File". These classes are for the edges,
where a transaction is handed the few files that a job has written. File actions in bulk never take
this form: a table has millions of them, and they stay in Arrow tables (``arrow/action_schema.py``).

A logical file is a data file together with the deletion vector that hides some of its rows, so its
key is the pair of `path` and the vector's ``unique_id``. A ``remove`` must repeat both as they
stand in the ``add``, to the letter.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from airflow_delta.engine.model.dv_descriptor import DeletionVectorDescriptor
from airflow_delta.engine.model.json_fields import (
    json_object,
    nullable_string_map,
    optional,
    present,
    required,
    required_string_map,
)

__all__ = ["AddCdcFile", "AddFile", "RemoveFile"]


@dataclass(frozen=True, slots=True)
class AddFile:
    """A logical file that joins the table ("Add File and Remove File").

    Attributes:
        path: as in the log, URI-encoded; see `paths`.
        partition_values: serialised values by physical column name, see `partition_values`.
        size: bytes.
        modification_time: epoch ms.
        data_change: False where the action only rearranges data.
        stats: the statistics as JSON text.
        tags: further metadata.
        deletion_vector: the rows of the file that are no longer in the table.
        base_row_id: the default row id of the first row.
        default_row_commit_version: the first version that added the path.
        clustering_provider: the implementation that clustered the file.
    """

    path: str
    partition_values: Mapping[str, str | None]
    size: int
    modification_time: int
    data_change: bool
    stats: str | None = None
    tags: Mapping[str, str | None] | None = None
    deletion_vector: DeletionVectorDescriptor | None = None
    base_row_id: int | None = None
    default_row_commit_version: int | None = None
    clustering_provider: str | None = None

    @classmethod
    def from_json(cls, obj: Mapping[str, Any], where: str) -> AddFile:
        """Read an ``add`` action.

        Raises:
            CorruptLogError: a field is missing or of the wrong type. Facts: where.
        """
        obj = json_object(obj, where)
        return cls(
            path=required(obj, "path", str, where),
            partition_values=required_string_map(obj, "partitionValues", where),
            size=required(obj, "size", int, where),
            modification_time=required(obj, "modificationTime", int, where),
            data_change=required(obj, "dataChange", bool, where),
            stats=optional(obj, "stats", str, where),
            tags=nullable_string_map(obj, "tags", where),
            deletion_vector=_deletion_vector(obj, where),
            base_row_id=optional(obj, "baseRowId", int, where),
            default_row_commit_version=optional(obj, "defaultRowCommitVersion", int, where),
            clustering_provider=optional(obj, "clusteringProvider", str, where),
        )

    def to_json(self) -> dict[str, Any]:
        """The action's content."""
        return present(
            {
                "path": self.path,
                "partitionValues": dict(self.partition_values),
                "size": self.size,
                "modificationTime": self.modification_time,
                "dataChange": self.data_change,
                "stats": self.stats,
                "tags": _dict_or_none(self.tags),
                "deletionVector": _descriptor_json(self.deletion_vector),
                "baseRowId": self.base_row_id,
                "defaultRowCommitVersion": self.default_row_commit_version,
                "clusteringProvider": self.clustering_provider,
            }
        )


@dataclass(frozen=True, slots=True)
class RemoveFile:
    """A logical file that leaves the table ("Add File and Remove File").

    Attributes:
        path: as in the log, URI-encoded; the same text as in the file's ``add``.
        data_change: False where the action only rearranges data.
        deletion_timestamp: epoch ms. In the log None counts as 0, long expired; a transaction
            puts the time of its commit in its place.
        extended_file_metadata: whether partition values, size and tags are present.
        partition_values: as in the ``add``.
        size: bytes.
        stats: the statistics as JSON text.
        tags: as in the ``add``.
        deletion_vector: as in the ``add``; part of the logical file's key.
        base_row_id: as in the ``add``.
        default_row_commit_version: as in the ``add``.
    """

    path: str
    data_change: bool
    deletion_timestamp: int | None = None
    extended_file_metadata: bool | None = None
    partition_values: Mapping[str, str | None] | None = None
    size: int | None = None
    stats: str | None = None
    tags: Mapping[str, str | None] | None = None
    deletion_vector: DeletionVectorDescriptor | None = None
    base_row_id: int | None = None
    default_row_commit_version: int | None = None

    @classmethod
    def from_json(cls, obj: Mapping[str, Any], where: str) -> RemoveFile:
        """Read a ``remove`` action.

        Raises:
            CorruptLogError: a field is missing or of the wrong type. Facts: where.
        """
        obj = json_object(obj, where)
        return cls(
            path=required(obj, "path", str, where),
            data_change=required(obj, "dataChange", bool, where),
            deletion_timestamp=optional(obj, "deletionTimestamp", int, where),
            extended_file_metadata=optional(obj, "extendedFileMetadata", bool, where),
            partition_values=nullable_string_map(obj, "partitionValues", where),
            size=optional(obj, "size", int, where),
            stats=optional(obj, "stats", str, where),
            tags=nullable_string_map(obj, "tags", where),
            deletion_vector=_deletion_vector(obj, where),
            base_row_id=optional(obj, "baseRowId", int, where),
            default_row_commit_version=optional(obj, "defaultRowCommitVersion", int, where),
        )

    def to_json(self) -> dict[str, Any]:
        """The action's content."""
        return present(
            {
                "path": self.path,
                "deletionTimestamp": self.deletion_timestamp,
                "dataChange": self.data_change,
                "extendedFileMetadata": self.extended_file_metadata,
                "partitionValues": _dict_or_none(self.partition_values),
                "size": self.size,
                "stats": self.stats,
                "tags": _dict_or_none(self.tags),
                "deletionVector": _descriptor_json(self.deletion_vector),
                "baseRowId": self.base_row_id,
                "defaultRowCommitVersion": self.default_row_commit_version,
            }
        )


@dataclass(frozen=True, slots=True)
class AddCdcFile:
    """A file of changed rows ("Add CDC File"); it changes no data of the table itself.

    Attributes:
        path: as in the log, URI-encoded; below ``_change_data``.
        partition_values: serialised values by physical column name.
        size: bytes.
        tags: further metadata.
    """

    path: str
    partition_values: Mapping[str, str | None]
    size: int
    tags: Mapping[str, str | None] | None = None

    @classmethod
    def from_json(cls, obj: Mapping[str, Any], where: str) -> AddCdcFile:
        """Read a ``cdc`` action. Its ``dataChange`` is false by definition, and not looked at.

        Raises:
            CorruptLogError: a field is missing or of the wrong type. Facts: where.
        """
        obj = json_object(obj, where)
        return cls(
            path=required(obj, "path", str, where),
            partition_values=required_string_map(obj, "partitionValues", where),
            size=required(obj, "size", int, where),
            tags=nullable_string_map(obj, "tags", where),
        )

    def to_json(self) -> dict[str, Any]:
        """The action's content."""
        return present(
            {
                "path": self.path,
                "partitionValues": dict(self.partition_values),
                "size": self.size,
                "dataChange": False,
                "tags": _dict_or_none(self.tags),
            }
        )


def _deletion_vector(obj: Mapping[str, Any], where: str) -> DeletionVectorDescriptor | None:
    value = obj.get("deletionVector")
    if value is None:
        return None
    return DeletionVectorDescriptor.from_json(value, f"{where}.deletionVector")


def _descriptor_json(descriptor: DeletionVectorDescriptor | None) -> dict[str, Any] | None:
    return None if descriptor is None else descriptor.to_json()


def _dict_or_none(mapping: Mapping[str, Any] | None) -> dict[str, Any] | None:
    return None if mapping is None else dict(mapping)

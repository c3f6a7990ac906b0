"""The file actions ``add``, ``remove`` and ``cdc``.

These classes are only for the few files of one commit. All files of a table, which may be millions, stay in
Arrow tables (``arrow/action_schema.py``).

A logical file is a data file together with a deletion vector for some of its rows. So its key is the pair
of `path` and the deletion vector's ``unique_id``. A ``remove`` must repeat both exactly as in the ``add``.

PROTOCOL.md, "Add File and Remove File" and "Add CDC File".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from airflow_delta.engine.model.dv_descriptor import DeletionVectorDescriptor
from airflow_delta.engine.model.json_record import (
    JsonRecord,
    fields,
    nested,
    optional,
    optional_map,
    required,
    required_map,
    write_fields,
)

__all__ = ["AddCdcFile", "AddFile", "RemoveFile"]


@dataclass(frozen=True, slots=True)
class AddFile(JsonRecord):
    """A logical file that is added to the table ("Add File and Remove File").

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

    log_fields = fields(
        path=required("path", str),
        partition_values=required_map("partitionValues"),
        size=required("size", int),
        modification_time=required("modificationTime", int),
        data_change=required("dataChange", bool),
        stats=optional("stats", str),
        tags=optional_map("tags"),
        deletion_vector=nested("deletionVector", DeletionVectorDescriptor),
        base_row_id=optional("baseRowId", int),
        default_row_commit_version=optional("defaultRowCommitVersion", int),
        clustering_provider=optional("clusteringProvider", str),
    )


@dataclass(frozen=True, slots=True)
class RemoveFile(JsonRecord):
    """A logical file that is removed from the table ("Add File and Remove File").

    A transaction only needs `path`, `data_change` and, if the file has one, `deletion_vector`. It fills in
    the rest from the file's ``add``.

    Attributes:
        path: as in the log, URI-encoded; the same text as in the file's ``add``.
        data_change: False where the action only rearranges data.
        deletion_timestamp: epoch ms. A transaction replaces None by the time of its commit; in the log None
            means 0, which has long expired.
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

    log_fields = fields(
        path=required("path", str),
        deletion_timestamp=optional("deletionTimestamp", int),
        data_change=required("dataChange", bool),
        extended_file_metadata=optional("extendedFileMetadata", bool),
        partition_values=optional_map("partitionValues"),
        size=optional("size", int),
        stats=optional("stats", str),
        tags=optional_map("tags"),
        deletion_vector=nested("deletionVector", DeletionVectorDescriptor),
        base_row_id=optional("baseRowId", int),
        default_row_commit_version=optional("defaultRowCommitVersion", int),
    )


@dataclass(frozen=True, slots=True)
class AddCdcFile(JsonRecord):
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

    log_fields = fields(
        path=required("path", str),
        partition_values=required_map("partitionValues"),
        size=required("size", int),
        tags=optional_map("tags"),
    )

    def to_json(self) -> dict[str, Any]:
        """The object as in the log. ``dataChange`` is always false."""
        return {**write_fields(self.log_fields, self), "dataChange": False}

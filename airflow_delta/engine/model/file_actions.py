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
    """A logical file that leaves the table ("Add File and Remove File").

    A transaction needs only `path`, `data_change` and, where the file has one, `deletion_vector`. It
    fills in the rest from the file's ``add``.

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
        """The object as the log holds it; ``dataChange`` is false by definition."""
        return {**write_fields(self.log_fields, self), "dataChange": False}

"""The actions that only V2 checkpoints contain: ``checkpointMetadata`` and ``sidecar``.

PROTOCOL.md, "Checkpoint Metadata" and "Sidecar File Information".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from airflow_delta.engine.model.json_record import JsonRecord, fields, optional_map, required

__all__ = ["CheckpointMetadata", "Sidecar"]


@dataclass(frozen=True, slots=True)
class Sidecar(JsonRecord):
    """A file with file actions of a V2 checkpoint ("Sidecar File Information").

    Attributes:
        path: the URI-encoded path; usually only the name of a file in ``_delta_log/_sidecars``.
        size_in_bytes: the size of the file.
        modification_time: in epoch ms.
        tags: further metadata; None if the action has none.
    """

    path: str
    size_in_bytes: int
    modification_time: int
    tags: Mapping[str, str | None] | None = None

    log_fields = fields(
        path=required("path", str),
        size_in_bytes=required("sizeInBytes", int),
        modification_time=required("modificationTime", int),
        tags=optional_map("tags"),
    )


@dataclass(frozen=True, slots=True)
class CheckpointMetadata(JsonRecord):
    """The version of a V2 checkpoint ("Checkpoint Metadata"), and tags of its writer."""

    version: int
    tags: Mapping[str, str | None] | None = None

    log_fields = fields(version=required("version", int), tags=optional_map("tags"))

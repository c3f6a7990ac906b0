"""The classes of all actions of the log.

There is one frozen class per action, with the protocol's field names in snake case. ``from_json`` reads the
object below the action's name (``{"txn": <this>}``). It ignores unknown fields, and raises a
`CorruptLogError` that names a wrong field. ``to_json`` writes the object under the protocol's names,
without fields that have no value.

Mappings are plain dicts, so that actions can be pickled; treat them as read-only. ``features/`` checks
whether the contents of actions contradict each other.

PROTOCOL.md, "Actions".
"""

from __future__ import annotations

from airflow_delta.engine.model.checkpoint_actions import CheckpointMetadata, Sidecar
from airflow_delta.engine.model.commit_info import CommitInfo
from airflow_delta.engine.model.file_actions import AddCdcFile, AddFile, RemoveFile
from airflow_delta.engine.model.table_definition import Format, Metadata, Protocol
from airflow_delta.engine.model.txn_and_domain import DomainMetadata, Txn

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

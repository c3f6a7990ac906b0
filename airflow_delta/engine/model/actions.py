"""The actions of the log as frozen values: the whole vocabulary, to import from one place.

Spec: PROTOCOL.md, "Actions". One class per action, fields named as in the protocol but in snake
case. ``from_json`` reads the object below the action's name (``{"txn": <this>}``), ignores fields
the protocol doesn't know and raises `CorruptLogError` naming the field that is wrong; ``to_json``
writes it back under the protocol's names, leaving out what has no value.

The classes keep mappings as plain dicts, so that they can be pickled; treat them as read-only.
What follows from the contents of an action (whether a protocol's versions and features fit
together, say) is judged in ``features/``, not here.
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

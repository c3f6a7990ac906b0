"""The actions of checkpoints that aren't about files, and how a reader knows their rows."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

__all__ = ["SMALL_KINDS"]

SMALL_KINDS: Mapping[str, str] = MappingProxyType(
    {
        "protocol": "minReaderVersion",
        "metaData": "id",
        "txn": "appId",
        "domainMetadata": "domain",
        "sidecar": "path",
        "checkpointMetadata": "version",
    }
)
"""By kind, a field that every such action has: where it is null, there is none (PROTOCOL.md,
"Checkpoint Schema"). Readers hand out the actions of a row group kind by kind in this order."""

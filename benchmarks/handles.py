"""Open a table with the engine or with the peer, whose modules are imported at the first call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow_delta.engine import DeltaTable

__all__ = ["our_table", "peer_table"]


def our_table(uri: str) -> DeltaTable:
    """The engine's handle."""
    from airflow_delta.engine import DeltaTable

    return DeltaTable(uri)


def peer_table(uri: str, **options: object) -> Any:
    """That of `deltalake`, which opens the table."""
    from deltalake import DeltaTable

    return DeltaTable(uri, **options)

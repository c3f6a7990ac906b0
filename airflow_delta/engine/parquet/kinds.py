"""The actions of checkpoints that aren't about files, and how a reader knows their rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

__all__ = ["SINGLE_KINDS", "SMALL_KINDS", "repeated", "repeated_action"]

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

SINGLE_KINDS = frozenset({"protocol", "metaData", "checkpointMetadata"})
"""The kinds that a checkpoint has one action of at most. Of the others it has one at most for each value
of the field in `SMALL_KINDS`, because it holds the reconciled actions (PROTOCOL.md, "Action
Reconciliation")."""


def repeated_action(actions: Iterable[tuple[str, Mapping[str, Any]]]) -> str | None:
    """What a checkpoint says twice; None where it doesn't, as it must not.

    Nothing says which of two actions would count, so a checkpoint that has two is damaged.

    Args:
        actions: the kinds of `SMALL_KINDS` with their JSON objects; others are passed over.

    Returns:
        A finding for an error, such as "it has more than one protocol action".
    """
    seen: set[tuple[str, Any]] = set()
    for kind, action in actions:
        if kind not in SMALL_KINDS:
            continue
        value = None if kind in SINGLE_KINDS else str(action.get(SMALL_KINDS[kind]))
        if (kind, value) in seen:
            return repeated(kind, value)
        seen.add((kind, value))
    return None


def repeated(kind: str, value: str | None = None) -> str:
    """The finding that an action stands in a checkpoint twice, for an error."""
    of = "" if value is None else f" of {SMALL_KINDS[kind]} {value[:_MOST_SHOWN]!r}"
    return f"it has more than one {kind} action{of}, expected one"


_MOST_SHOWN = 100

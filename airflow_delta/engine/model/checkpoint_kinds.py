"""The kinds of actions in a checkpoint that aren't file actions, and the rule that none is there twice.

Spec: PROTOCOL.md, "Checkpoint Schema" and "Action Reconciliation".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

__all__ = ["CHECKPOINT_KINDS", "SINGLE_KINDS", "describe_repetition", "find_repeated_action"]

CHECKPOINT_KINDS: Mapping[str, str] = MappingProxyType(
    {
        "protocol": "minReaderVersion",
        "metaData": "id",
        "txn": "appId",
        "domainMetadata": "domain",
        "sidecar": "path",
        "checkpointMetadata": "version",
    }
)
"""The non-file kinds, each with a required field of its action. Where that field is null, the row
holds no such action. Readers yield the actions of a row group kind by kind, in this order."""

SINGLE_KINDS = frozenset({"protocol", "metaData", "checkpointMetadata"})
"""The kinds of which a checkpoint has at most one action. Of the other kinds it has at most one for
each value of the field in `CHECKPOINT_KINDS`, because it holds the reconciled actions."""

_MAX_SHOWN = 100


def find_repeated_action(actions: Iterable[tuple[str, Mapping[str, Any]]]) -> str | None:
    """Find an action that a checkpoint contains twice.

    Such a checkpoint is damaged: nothing says which of the two actions counts.

    Args:
        actions: kinds with their JSON objects. Kinds that aren't in `CHECKPOINT_KINDS` are ignored.

    Returns:
        The finding for an error, such as "it has more than one protocol action"; None if no action
        is repeated.
    """
    seen: set[tuple[str, Any]] = set()
    for kind, action in actions:
        if kind not in CHECKPOINT_KINDS:
            continue
        value = None if kind in SINGLE_KINDS else str(action.get(CHECKPOINT_KINDS[kind]))
        if (kind, value) in seen:
            return describe_repetition(kind, value)
        seen.add((kind, value))
    return None


def describe_repetition(kind: str, value: str | None = None) -> str:
    """Describe, for an error, that a checkpoint contains an action twice.

    Args:
        kind: the kind of the action.
        value: the value that both actions have in the field of `CHECKPOINT_KINDS`; None for a kind
            of `SINGLE_KINDS`.
    """
    of = "" if value is None else f" of {CHECKPOINT_KINDS[kind]} {value[:_MAX_SHOWN]!r}"
    return f"it has more than one {kind} action{of}, expected one"

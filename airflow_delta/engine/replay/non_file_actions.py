"""Reconcile the non-file actions: protocol, metadata, transactions and domains.

PROTOCOL.md, "Action Reconciliation": the newest ``protocol`` and ``metaData`` hold, the newest
``txn`` of each ``appId`` (even if its version decreased, which PROTOCOL-2019 allows), and the
newest ``domainMetadata`` of each domain, unless it is a removal. ``commitInfo`` and ``cdc`` belong
to their commit, not to the state.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from airflow_delta.engine.model.actions import DomainMetadata, Metadata, Protocol, Txn

__all__ = ["NonFileState", "reconcile_non_file_actions"]


@dataclass(frozen=True, slots=True)
class NonFileState:
    """The reconciled non-file actions; protocol and metadata are None if no action set them.

    Attributes:
        transactions: by ``appId``.
        domains: by domain, without removed ones.
    """

    protocol: Protocol | None = None
    metadata: Metadata | None = None
    transactions: Mapping[str, Txn] = field(default_factory=lambda: MappingProxyType({}))
    domains: Mapping[str, DomainMetadata] = field(default_factory=lambda: MappingProxyType({}))


def reconcile_non_file_actions(
    actions: Iterable[tuple[str, Mapping[str, Any], str]], base: NonFileState | None = None
) -> NonFileState:
    """Apply non-file actions to a state, oldest first.

    Args:
        actions: triples of the action's name, its JSON object and its location, for errors.
        base: the state before them; None if there is none.

    Raises:
        CorruptLogError: an action lacks a field or has one of the wrong type.
    """
    base = base or NonFileState()
    protocol, metadata = base.protocol, base.metadata
    transactions, domains = dict(base.transactions), dict(base.domains)
    for kind, value, where in actions:
        match kind:
            case "protocol":
                protocol = Protocol.from_json(value, where)
            case "metaData":
                metadata = Metadata.from_json(value, where)
            case "txn":
                txn = Txn.from_json(value, where)
                transactions[txn.app_id] = txn
            case "domainMetadata":
                domain = DomainMetadata.from_json(value, where)
                if domain.removed:
                    domains.pop(domain.domain, None)
                else:
                    domains[domain.domain] = domain
    return NonFileState(
        protocol, metadata, MappingProxyType(transactions), MappingProxyType(domains)
    )

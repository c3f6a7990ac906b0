"""Check which metadata domains a commit may change.

Domains whose names begin with ``delta.`` belong to the protocol. Users can't stage them (see
`OptimisticTransaction.set_domain`). Only the code that implements a domain's feature changes it:

====================  ===================  ===========================================================
domain                feature              staged by
====================  ===================  ===========================================================
``delta.clustering``  ``clustering``       operations that set the clustering columns
``delta.rowTracking`` ``rowTracking``      none: the stage `row_tracking` sets it
another ``delta.…``   unknown              none; it stays as it is
====================  ===================  ===========================================================

Each of them may be removed when the table no longer supports its feature.

PROTOCOL.md, "Domain Metadata".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from airflow_delta.engine.features import clustering, row_tracking
from airflow_delta.engine.features.protocol import supported_features
from airflow_delta.engine.model.actions import DomainMetadata
from airflow_delta.engine.transaction.context import CommitContext
from airflow_delta.engine.transaction.staged import Actions

__all__ = ["check_domains"]

_FEATURE = "domainMetadata"

_OWNERS: Mapping[str, str] = {
    clustering.DOMAIN: clustering.FEATURE,
    row_tracking.DOMAIN: row_tracking.FEATURE,
}
"""The feature of each domain of the protocol that the engine understands."""

_COMPUTED = frozenset({row_tracking.DOMAIN})
"""Domains that are computed from the rest of the commit, so that no operation can stage them."""


def check_domains(actions: Actions, context: CommitContext) -> Actions:
    """Check the metadata domains of the commit.

    Returns:
        The actions. A removed domain gets its last configuration.

    Raises:
        ConstraintViolationError: the table can't have metadata domains; the commit may not change one of
            them; or it removes one that the table doesn't have.
    """
    if not actions.domains:
        return actions
    # The commit that drops the feature also removes the domains.
    supported = context.supported
    if context.base and all(domain.removed for domain in actions.domains.values()):
        supported |= supported_features(context.base.protocol)
    if _FEATURE not in supported:
        raise context.violation(
            f"it sets the metadata domains {sorted(actions.domains)}, and the table lacks the feature "
            f"{_FEATURE}; add it to the protocol first"
        )
    checked = {name: _check_domain(domain, context) for name, domain in actions.domains.items()}
    return replace(actions, domains=MappingProxyType(checked))


def _check_domain(domain: DomainMetadata, context: CommitContext) -> DomainMetadata:
    if domain.is_system_controlled:
        _check_owner(domain, context)
    if not domain.removed:
        return domain
    existing = context.domains.get(domain.domain)
    if existing is None:
        raise context.violation(
            f"it removes the metadata domain {domain.domain!r}, and the table has "
            f"{sorted(context.domains) or 'none'}"
        )
    # "Writers should preserve an accurate pre-image of the configuration."
    return replace(domain, configuration=existing.configuration)


def _check_owner(domain: DomainMetadata, context: CommitContext) -> None:
    name = domain.domain
    owner = _OWNERS.get(name)
    if owner is None:
        problem = "belongs to the protocol and is unknown to the engine"
    elif domain.removed and owner not in context.supported:
        return
    elif name in _COMPUTED:
        problem = f"only the feature {owner} sets"
    elif owner not in context.supported:
        problem = f"needs the feature {owner}, which the table lacks"
    elif domain.removed:
        problem = f"can't be removed while the table supports the feature {owner}"
    else:
        return
    raise context.violation(f"it changes the metadata domain {name!r}, which {problem}")

"""Who may set which metadata domain.

Spec: PROTOCOL.md, "Domain Metadata". Domains whose names begin with ``delta.`` belong to the protocol:
users can't stage them (see `OptimisticTransaction.set_domain`), and of the engine's own parts only those
that implement a domain's feature change it:

====================  ===================  ===========================================================
domain                feature              staged by
====================  ===================  ===========================================================
``delta.clustering``  ``clustering``       whoever sets the clustering columns
``delta.rowTracking`` ``rowTracking``      nobody: the stage `row_tracking` counts the ids
another ``delta.…``   unknown              nobody; it stays as it is
====================  ===================  ===========================================================

Any of them may be removed once the table doesn't support its feature any more.
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
"""The features of the protocol's domains that the engine understands."""

_COUNTED = frozenset({row_tracking.DOMAIN})
"""Domains that follow from the rest of a commit, so that nobody can stage them."""


def check_domains(actions: Actions, context: CommitContext) -> Actions:
    """The domains may be set, or are there to be removed.

    Returns:
        The actions; a removed domain has the configuration that it had.

    Raises:
        ConstraintViolationError: the table has no metadata domains; one of them isn't to be changed
            by this commit, or isn't there to be removed.
    """
    if not actions.domains:
        return actions
    # The commit that drops the feature takes the domains along.
    supported = context.supported
    if context.base and all(domain.removed for domain in actions.domains.values()):
        supported |= supported_features(context.base.protocol)
    if _FEATURE not in supported:
        raise context.violation(
            f"it sets the metadata domains {sorted(actions.domains)}, and the table lacks the feature "
            f"{_FEATURE}; add it to the protocol first"
        )
    checked = {name: _checked(domain, context) for name, domain in actions.domains.items()}
    return replace(actions, domains=MappingProxyType(checked))


def _checked(domain: DomainMetadata, context: CommitContext) -> DomainMetadata:
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
        problem = "belongs to the protocol, and the engine doesn't know what it means"
    elif domain.removed and owner not in context.supported:
        return
    elif name in _COUNTED:
        problem = f"is kept by the feature {owner} alone"
    elif owner not in context.supported:
        problem = f"needs the feature {owner}, which the table lacks"
    elif domain.removed:
        problem = f"stays as long as the table supports the feature {owner}"
    else:
        return
    raise context.violation(f"it changes the metadata domain {name!r}, which {problem}")

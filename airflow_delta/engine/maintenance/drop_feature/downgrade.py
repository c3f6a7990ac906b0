"""Commit the removal of a feature from a table's protocol.

PROTOCOL.md, "Supported Features", lets protocols only grow; RFC checkpoint-protection describes the
exception. The stage ``transaction/prepare/dropped_features.py`` checks again that nothing needs the
feature, for the exact version that the commit follows. Writers that commit by the former protocol get a
conflict with this commit.
"""

from __future__ import annotations

from dataclasses import replace

from airflow_delta.engine.commit.registry import CommitOwners
from airflow_delta.engine.features import row_tracking
from airflow_delta.engine.features.dropping import metadata_without
from airflow_delta.engine.maintenance.drop_feature.plan import DropFeaturePlan
from airflow_delta.engine.snapshot.snapshot import Snapshot
from airflow_delta.engine.storage.base import Storage
from airflow_delta.engine.transaction.intent import DropFeatures, SystemDomain
from airflow_delta.engine.transaction.result import CommitResult
from airflow_delta.engine.transaction.transaction import OptimisticTransaction

__all__ = ["FEATURE_NAME", "OPERATION", "TRUNCATE_HISTORY", "commit_downgrade"]

OPERATION = "DROP FEATURE"
"""Delta Spark's name for the commit."""

FEATURE_NAME = "featureName"
"""The operation's parameter that names the feature."""

TRUNCATE_HISTORY = "truncateHistory"
"""The operation's parameter for whether the history with the feature was cleaned up before."""


def commit_downgrade(
    storage: Storage, owners: CommitOwners, base: Snapshot, plan: DropFeaturePlan
) -> CommitResult:
    """Commit a protocol without the features of a plan.

    Args:
        storage: where the table is.
        owners: the known commit owners.
        base: the version that the plan was made for.
        plan: a plan without preparations.

    Raises:
        ConstraintViolationError: the table uses the feature again.
        CommitConflictError: a concurrent commit changed protocol or metadata; if the history was searched,
            also if it changed files.
        DeltaError: see `OptimisticTransaction.commit`.
    """
    transaction = OptimisticTransaction(
        storage,
        base,
        OPERATION,
        operation_parameters={
            FEATURE_NAME: plan.feature,
            TRUNCATE_HISTORY: plan.way == "truncated",
        },
        owners=owners,
    )
    # Users can't shrink a protocol or change system domains, so the intent allows it.
    transaction.declare(DropFeatures(plan.dropped, hides_history=plan.way == "hidden"))
    if plan.way == "truncated":
        # Any concurrent commit is a conflict: even if a use is gone again, its commit stays in the
        # history.
        transaction.read_table()
    transaction.set_protocol(plan.protocol)
    # Even if unchanged, so that a concurrent change of the metadata is a conflict.
    transaction.set_metadata(metadata_without(plan.dropped, base.metadata, table=base.table))
    for domain in base.domains.values():
        if _belongs_to(domain.domain, plan.feature):
            transaction.declare(SystemDomain(replace(domain, removed=True)))
    return transaction.commit()


def _belongs_to(domain: str, feature: str) -> bool:
    """Whether a metadata domain is removed with a feature."""
    return feature == "domainMetadata" or (domain, feature) == (
        row_tracking.DOMAIN,
        row_tracking.FEATURE,
    )

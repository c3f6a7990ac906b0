"""The commit that takes a feature out of a table's protocol.

PROTOCOL.md, "Supported Features", has protocols grow only; checkpoint-protection.md is about the
exception. The stage ``transaction/prepare/dropped_features.py`` looks once more whether nothing needs the
feature, at the very version that the commit follows. Whoever is about to commit by the former protocol
meets this commit as a conflict.
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
"""What Delta Spark calls the commit."""

FEATURE_NAME = "featureName"
"""The operation's parameter that names the feature."""

TRUNCATE_HISTORY = "truncateHistory"
"""The operation's parameter that tells whether the history with the feature was cleaned up before."""


def commit_downgrade(
    storage: Storage, owners: CommitOwners, base: Snapshot, plan: DropFeaturePlan
) -> CommitResult:
    """Take the features of a plan out of the protocol.

    Args:
        storage: where the table is.
        owners: the commit owners that there are.
        base: the version that the plan was made for.
        plan: one without preparations.

    Raises:
        ConstraintViolationError: traces have come back.
        CommitConflictError: a commit made meanwhile changed protocol or metadata; or also files, where the
            history has been looked through.
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
    # For users protocols only grow, and the protocol's domains are its own.
    transaction.declare(DropFeatures(plan.dropped, hides_history=plan.way == "hidden"))
    if plan.way == "truncated":
        # A trace that came and went meanwhile is in a commit that stays.
        transaction.read_table()
    transaction.set_protocol(plan.protocol)
    # As they are or not: a change of them meanwhile is a conflict.
    transaction.set_metadata(metadata_without(plan.dropped, base.metadata, table=base.table))
    for domain in base.domains.values():
        if _goes_along(domain.domain, plan.feature):
            transaction.declare(SystemDomain(replace(domain, removed=True)))
    return transaction.commit()


def _goes_along(domain: str, feature: str) -> bool:
    """Whether a metadata domain goes with a feature."""
    return feature == "domainMetadata" or (domain, feature) == (
        row_tracking.DOMAIN,
        row_tracking.FEATURE,
    )

"""Commit the steps after which a table no longer uses a feature; see `preparation`.

Each step is one commit, or one conversion. It is based on the version that it was planned for, and has
Delta Spark's name for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from airflow_delta.engine.clock import now_ms
from airflow_delta.engine.commit.registry import CommitOwners
from airflow_delta.engine.features.dropping import disable_feature, without_recorded_types
from airflow_delta.engine.features.feature import Drop
from airflow_delta.engine.features.registry import FEATURES
from airflow_delta.engine.features.type_widening import changed_columns
from airflow_delta.engine.maintenance.drop_feature.preparation import StepKind
from airflow_delta.engine.maintenance.drop_feature.row_ids import remove_row_ids
from airflow_delta.engine.maintenance.drop_feature.unmapping import OPERATION as UNMAPPING
from airflow_delta.engine.maintenance.drop_feature.unmapping import unmap_columns
from airflow_delta.engine.maintenance.drop_feature.vector_tombstones import (
    OPERATION as VECTOR_TOMBSTONES,
)
from airflow_delta.engine.maintenance.drop_feature.vector_tombstones import (
    find_unkept_vectors,
    make_vector_tombstones,
)
from airflow_delta.engine.model.actions import Metadata
from airflow_delta.engine.snapshot.snapshot import Snapshot
from airflow_delta.engine.storage.base import Storage
from airflow_delta.engine.transaction.conversion import convert_to_file_system
from airflow_delta.engine.transaction.intent import Tombstones
from airflow_delta.engine.transaction.transaction import OptimisticTransaction

__all__ = ["STEPS", "Prepare", "turn_off"]

Prepare: TypeAlias = Callable[[Storage, CommitOwners, Snapshot], int]
"""Does a step, and returns its version. It gets the table, the commit owners, and the newest version."""


def turn_off(storage: Storage, owners: CommitOwners, base: Snapshot, feature: str) -> int:
    """Set or remove the properties by which writers use a feature.

    Returns:
        The version.

    Raises:
        DeltaError: see `OptimisticTransaction.commit`.
    """
    drop = FEATURES[feature].drop
    assert isinstance(drop, Drop)
    changes = drop.disabling_properties
    parameters: Mapping[str, Any]
    if None in changes.values():
        operation, parameters = "UNSET TBLPROPERTIES", {"properties": [*changes], "ifExists": True}
    else:
        operation, parameters = "SET TBLPROPERTIES", {"properties": dict(changes)}
    return _commit_metadata(
        storage, owners, base, disable_feature(feature, base.metadata), operation, parameters
    )


def _hand_back(storage: Storage, owners: CommitOwners, base: Snapshot) -> int:
    return convert_to_file_system(storage, lambda: base, owners).version


def _unmap_columns(storage: Storage, owners: CommitOwners, base: Snapshot) -> int:
    transaction = OptimisticTransaction(storage, base, UNMAPPING, owners=owners)
    unmap_columns(transaction)
    return transaction.commit().version


def _forget_types(storage: Storage, owners: CommitOwners, base: Snapshot) -> int:
    metadata = without_recorded_types(base.metadata, table=base.table)
    columns = [".".join(path) for path in changed_columns(base.schema)]
    return _commit_metadata(storage, owners, base, metadata, "DROP FEATURE", {"columns": columns})


def _take_row_ids(storage: Storage, owners: CommitOwners, base: Snapshot) -> int:
    return remove_row_ids(storage, owners, base)


def _keep_vectors(storage: Storage, owners: CommitOwners, base: Snapshot) -> int:
    transaction = OptimisticTransaction(storage, base, VECTOR_TOMBSTONES, owners=owners)
    files = make_vector_tombstones(find_unkept_vectors(base), now_ms=now_ms())
    transaction.declare(Tombstones(tuple(files)))
    return transaction.commit().version


def _commit_metadata(
    storage: Storage,
    owners: CommitOwners,
    base: Snapshot,
    metadata: Metadata,
    operation: str,
    parameters: Mapping[str, Any],
) -> int:
    transaction = OptimisticTransaction(
        storage, base, operation, operation_parameters=parameters, owners=owners
    )
    transaction.set_metadata(metadata)
    return transaction.commit().version


STEPS: Mapping[StepKind, Prepare] = {
    "hand back": _hand_back,
    "unmap columns": _unmap_columns,
    "forget types": _forget_types,
    "take row ids": _take_row_ids,
    "keep vectors": _keep_vectors,
}
"""The steps that need neither the feature's name nor a rewriter."""

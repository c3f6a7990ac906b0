"""The stages of a commit, in their order."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from airflow_delta.engine.transaction.context import CommitContext
from airflow_delta.engine.transaction.intent import CloneVersion
from airflow_delta.engine.transaction.prepare.append_only import check_append_only
from airflow_delta.engine.transaction.prepare.change_data import check_change_data
from airflow_delta.engine.transaction.prepare.cloned_files import check_cloned_files
from airflow_delta.engine.transaction.prepare.clustering import check_clustering
from airflow_delta.engine.transaction.prepare.deletion_vectors import check_deletion_vectors
from airflow_delta.engine.transaction.prepare.domains import check_domains
from airflow_delta.engine.transaction.prepare.dropped_features import check_dropped_features
from airflow_delta.engine.transaction.prepare.enforcement import check_enforcement, check_nulls
from airflow_delta.engine.transaction.prepare.existing_files import check_existing_files
from airflow_delta.engine.transaction.prepare.field_metadata import check_field_metadata
from airflow_delta.engine.transaction.prepare.iceberg_compat import check_iceberg
from airflow_delta.engine.transaction.prepare.identity import advance_identity_marks
from airflow_delta.engine.transaction.prepare.in_commit_timestamps import record_timestamps
from airflow_delta.engine.transaction.prepare.logical_files import match_logical_files
from airflow_delta.engine.transaction.prepare.new_files import check_new_files
from airflow_delta.engine.transaction.prepare.ownership import check_managed
from airflow_delta.engine.transaction.prepare.partition_values import check_partition_values
from airflow_delta.engine.transaction.prepare.restored_files import check_restored_files
from airflow_delta.engine.transaction.prepare.row_tracking import assign_row_ids
from airflow_delta.engine.transaction.prepare.tags import commit_tags
from airflow_delta.engine.transaction.prepare.validity import (
    check_files,
    check_table,
    check_transactions,
)
from airflow_delta.engine.transaction.prepare.value_types import check_values
from airflow_delta.engine.transaction.staged import Actions

__all__ = ["STAGES", "Prepared", "Stage", "prepare"]

Stage: TypeAlias = Callable[[Actions, CommitContext], Actions]
"""One feature's rule for a commit; a check returns the actions that it was given."""

STAGES: tuple[Stage, ...] = (
    # What it lets pass can be relied on to have the types that it should have.
    check_values,
    check_table,
    check_managed,
    check_field_metadata,
    check_enforcement,
    check_transactions,
    check_files,
    check_new_files,
    check_domains,
    check_append_only,
    check_change_data,
    check_partition_values,
    check_nulls,
    check_iceberg,
    # These may read the table's live files, from here on.
    match_logical_files,
    check_restored_files,
    check_cloned_files,
    check_dropped_features,
    check_deletion_vectors,
    check_clustering,
    # These complete the commit; what is left can refuse it only for what they need themselves.
    assign_row_ids,
    check_existing_files,
    advance_identity_marks,
    record_timestamps,
)
"""Every stage: what is cheap and finds the commonest mistakes comes first."""

_OF_NEW_FILES: frozenset[Stage] = frozenset(
    {
        check_enforcement,
        check_new_files,
        check_change_data,
        check_partition_values,
        check_nulls,
        check_iceberg,
        check_deletion_vectors,
        check_clustering,
    }
)
"""Stages that judge files as nobody has seen them in the table before, by rules that they were to be
written by. A restore passes them by: it writes no files, but brings back those that the table had under the
metadata that it had then (`check_restored_files`), also where their writer was careless. A clone has the
files that another table has under the same metadata (`check_cloned_files`)."""

_OF_OWN_ROWS: frozenset[Stage] = frozenset({check_append_only})
"""Stages about the rows that a table keeps. A clone keeps none: it has those of another table, which may
have rearranged its files by now."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A commit that may be made.

    Attributes:
        actions: what is to be written.
        context: the table after it; its metadata may differ from what the transaction staged.
        tags: what ``commitInfo.tags`` tells other writers about it.
    """

    actions: Actions
    context: CommitContext
    tags: Mapping[str, str]


def prepare(actions: Actions, context: CommitContext) -> Prepared:
    """Take the actions of one attempt through all stages.

    Args:
        actions: what the transaction staged.
        context: the table as these actions would leave it.

    Raises:
        ConstraintViolationError: the actions break a rule of the protocol or of the table.
        UnsupportedFeatureError: the table needs something of writers that neither the engine does
            nor the writer of the files declares.
        InvalidTableError: protocol and metadata contradict the specification or each other.
        CorruptLogError: the table's live files can't be read.
        StorageError: the store failed.
    """
    prepared = actions
    passed_by = frozenset[Stage]()
    if actions.restored_version is not None:
        passed_by = _OF_NEW_FILES
    elif isinstance(actions.purpose, CloneVersion):
        passed_by = _OF_NEW_FILES | _OF_OWN_ROWS
    for stage in STAGES:
        if stage in passed_by:
            continue
        prepared = stage(prepared, context)
        if prepared.metadata is not None and prepared.metadata is not context.metadata:
            context = replace(context, metadata=prepared.metadata)
    return Prepared(prepared, context, commit_tags(actions, prepared, context))

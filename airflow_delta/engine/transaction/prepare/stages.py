"""`prepare`: run the stages of a commit, in their order (`STAGES`)."""

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

__all__ = ["STAGES", "Prepared", "Stage", "check_definition", "prepare"]

Stage: TypeAlias = Callable[[Actions, CommitContext], Actions]
"""One feature's rule for a commit. A check returns the actions unchanged."""

STAGES: tuple[Stage, ...] = (
    # The later stages rely on the types that this one checks.
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
    # From here on, stages may read the table's live files.
    match_logical_files,
    check_restored_files,
    check_cloned_files,
    check_dropped_features,
    check_deletion_vectors,
    check_clustering,
    # From here on, stages complete the commit. They refuse it only if they lack what they need.
    assign_row_ids,
    check_existing_files,
    advance_identity_marks,
    record_timestamps,
)
"""Every stage. Cheap ones, and those that find common mistakes, come first."""

_DEFINITION_STAGES: tuple[Stage, ...] = (
    check_values,
    check_table,
    check_field_metadata,
    check_domains,
    check_iceberg,
    check_clustering,
)
"""Those of the stages that refuse a definition of the table, whatever its files."""

_NEW_FILE_STAGES: frozenset[Stage] = frozenset(
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
"""Stages that check whether new files were written by the rules. A restore skips them: it only brings back
files that the table had under the same metadata (`check_restored_files`), even if their writer broke a
rule. A clone skips them: the other table has the same files under the same metadata
(`check_cloned_files`)."""

_OWN_ROW_STAGES: frozenset[Stage] = frozenset({check_append_only})
"""Stages about rows that the table keeps. A clone skips them: it replaces all rows by those of another
table, whose files may be rearranged since the last clone."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A commit that has passed all stages.

    Attributes:
        actions: the actions to write.
        context: the table after the commit. Its metadata may differ from what the transaction staged.
        tags: the ``commitInfo.tags``, which are for other writers.
    """

    actions: Actions
    context: CommitContext
    tags: Mapping[str, str]


def check_definition(actions: Actions, context: CommitContext) -> None:
    """Check new protocol, metadata and domains before there are files.

    Args:
        actions: what the transaction has staged so far.
        context: the table as these actions would leave it.

    Raises:
        DeltaError: see `prepare`.
    """
    for stage in _DEFINITION_STAGES:
        stage(actions, context)


def prepare(actions: Actions, context: CommitContext) -> Prepared:
    """Run all stages on the actions of one attempt.

    Args:
        actions: what the transaction staged.
        context: the table as these actions would leave it.

    Raises:
        ConstraintViolationError: the actions break a rule of the protocol or of the table.
        UnsupportedFeatureError: the table needs something of writers that the engine doesn't do, and that
            the writer of the files doesn't declare.
        InvalidTableError: protocol and metadata contradict the specification or each other.
        CorruptLogError: the table's live files can't be read.
        StorageError: the store failed.
    """
    prepared = actions
    skipped = frozenset[Stage]()
    if actions.restored_version is not None:
        skipped = _NEW_FILE_STAGES
    elif isinstance(actions.purpose, CloneVersion):
        skipped = _NEW_FILE_STAGES | _OWN_ROW_STAGES
    for stage in STAGES:
        if stage in skipped:
            continue
        prepared = stage(prepared, context)
        if prepared.metadata is not None and prepared.metadata is not context.metadata:
            context = replace(context, metadata=prepared.metadata)
    return Prepared(prepared, context, commit_tags(actions, prepared, context))

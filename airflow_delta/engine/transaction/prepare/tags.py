"""Compute ``commitInfo.tags``, facts about a commit that other writers need.

==================================  =================================================================
tag                                 meaning
==================================  =================================================================
``delta.identity.schemaUpdate``     the commit changes nothing in the metadata but high water marks of
                                    identity columns (as in Delta Spark)
``delta.rowTracking.preserved``     whether all updated or copied rows kept their row ids (PROTOCOL.md,
                                    "Writer Requirements for Row Tracking")
``rowTrackingEnablementOnly``       the commit only enables row tracking, so that Delta Spark's concurrent
                                    commits can follow it
==================================  =================================================================
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from airflow_delta.engine.features.identity import ONLY_MARKS_TAG
from airflow_delta.engine.features.row_tracking import (
    ENABLED,
    ENABLEMENT_ONLY_TAG,
    FEATURE,
    MATERIALIZED_ROW_COMMIT_VERSION_COLUMN,
    MATERIALIZED_ROW_ID_COLUMN,
    PRESERVED_TAG,
)
from airflow_delta.engine.transaction.context import CommitContext
from airflow_delta.engine.transaction.staged import Actions

__all__ = ["commit_tags"]


def commit_tags(staged: Actions, prepared: Actions, context: CommitContext) -> Mapping[str, str]:
    """The tags of a commit.

    Args:
        staged: what the transaction staged.
        prepared: the same actions after all stages.
        context: the table after the commit.

    Raises:
        InvalidTableError: a property is neither true nor false.
    """
    tags = {}
    untouched = staged.protocol is None and staged.metadata is None
    if prepared.identity_marks and untouched and prepared.metadata is not None:
        tags[ONLY_MARKS_TAG] = "true"
    if FEATURE in context.supported and context.properties.row_tracking_enabled:
        tags[PRESERVED_TAG] = "true" if _preserves_row_ids(prepared, context) else "false"
        if _only_enables_row_tracking(prepared, context):
            tags[ENABLEMENT_ONLY_TAG] = "true"
    return tags


def _only_enables_row_tracking(actions: Actions, context: CommitContext) -> bool:
    if actions.metadata is None or context.base is None or actions != _only_metadata(actions):
        return False
    before, after = context.base.metadata, actions.metadata
    if replace(after, configuration=before.configuration) != before:
        return False
    old, new = before.configuration, after.configuration
    changed = {name for name in {**old, **new} if old.get(name) != new.get(name)}
    hidden = {MATERIALIZED_ROW_ID_COLUMN, MATERIALIZED_ROW_COMMIT_VERSION_COLUMN}
    return ENABLED in changed and changed <= {ENABLED, *hidden}


def _only_metadata(actions: Actions) -> Actions:
    return Actions(metadata=actions.metadata)


def _preserves_row_ids(actions: Actions, context: CommitContext) -> bool:
    """Whether no row has lost its id.

    A file that keeps its path keeps the ids of its rows. If the commit removes some files and adds others,
    rows may have moved. Only the writer of the files knows whether they kept their ids.
    """
    if FEATURE in context.enforced or context.restored_version is not None:
        return True
    added = {context.path_key(file) for file in actions.adds}
    removed = {context.path_key(file) for file in actions.removes}
    return not (added - removed and removed - added)

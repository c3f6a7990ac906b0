"""Check that a table no longer uses the features that a commit drops.

Earlier commits have removed the uses of the features (``maintenance/drop_feature``). This stage checks
again, on the version that the attempt follows, because concurrent commits may have added new ones.

If older versions with the feature must be hidden, the commit sets its own version as the one below which
checkpoints are protected. Each attempt sets it anew. It never decreases.

RFC checkpoint-protection.
"""

from __future__ import annotations

from dataclasses import replace

from airflow_delta.engine.features.dropping import (
    PROTECTION,
    PROTECTION_BOUNDARY,
    find_metadata_uses,
)
from airflow_delta.engine.snapshot.feature_usage import files_with
from airflow_delta.engine.transaction.context import CommitContext
from airflow_delta.engine.transaction.intent import DropFeatures
from airflow_delta.engine.transaction.staged import Actions

__all__ = ["check_dropped_features"]

_DOMAINS = "domainMetadata"


def check_dropped_features(actions: Actions, context: CommitContext) -> Actions:
    """Refuse to drop features that the table uses, and protect the checkpoints that hide its history.

    Returns:
        The actions. If history must be hidden, their metadata name the version below which checkpoints are
        protected.

    Raises:
        ConstraintViolationError: something in the table uses a dropped feature.
        InvalidTableError: the schema or a property can't be read.
        CorruptLogError: the table's live files can't be read.
        StorageError: the store failed.
    """
    dropped, base = actions.purpose, context.base
    if not isinstance(dropped, DropFeatures) or base is None:
        return actions
    for feature in sorted(dropped.features):
        uses = [*find_metadata_uses(feature, context.metadata, table=context.table)]
        if count := files_with(feature, base).num_rows:
            uses.append(f"{count} data files need it")
        if feature == _DOMAINS and (left := context.domains.keys() - _removed(actions)):
            uses.append(f"there are the metadata domains {sorted(left)}")
        if uses:
            raise context.violation(
                f"it drops the feature {feature}, but {'; '.join(uses)}; prepare the table again"
            )
    if not dropped.hides_history:
        return actions
    boundary = max(context.version, base.properties.require_checkpoint_protection_before_version)
    assert PROTECTION in context.supported
    configuration = {**context.metadata.configuration, PROTECTION_BOUNDARY: str(boundary)}
    return replace(actions, metadata=replace(context.metadata, configuration=configuration))


def _removed(actions: Actions) -> set[str]:
    return {name for name, domain in actions.domains.items() if domain.removed}

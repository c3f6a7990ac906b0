"""Plan the steps after which a table's newest version no longer uses a feature.

The first step of `plan_preparations` is the next one to do; after it the table is opened and planned again.
So it doesn't matter at which step a run is interrupted, or what others commit concurrently.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc

from airflow_delta.engine.features.dropping import (
    TYPE_WIDENING,
    disable_feature,
    find_metadata_uses,
)
from airflow_delta.engine.features.feature import Drop
from airflow_delta.engine.features.managed_commits import FEATURE as MANAGED_COMMIT
from airflow_delta.engine.features.registry import FEATURES
from airflow_delta.engine.features.row_tracking import FEATURE as ROW_TRACKING
from airflow_delta.engine.features.type_widening import changed_columns
from airflow_delta.engine.maintenance.drop_feature.narrow_types import find_files_with_narrow_types
from airflow_delta.engine.maintenance.drop_feature.rewrite import Rewritable, Rewrite
from airflow_delta.engine.maintenance.drop_feature.row_ids import BATCH
from airflow_delta.engine.maintenance.drop_feature.vector_tombstones import find_unkept_vectors
from airflow_delta.engine.model.sizes import size_text
from airflow_delta.engine.snapshot.feature_usage import files_with
from airflow_delta.engine.snapshot.snapshot import Snapshot
from airflow_delta.engine.storage.file_access import FileAccess

__all__ = ["Preparation", "StepKind", "plan_preparations"]

StepKind = Literal[
    # Set or remove the properties by which writers use the feature, so that there are no new uses.
    "turn off",
    # Take the table back from its commit owner, and drop ``managedCommit``.
    "hand back",
    # Have data files rewritten, by somebody who reads and writes rows; see `rewrite`.
    "rewrite files",
    # Turn column mapping off, in a table without files.
    "unmap columns",
    # Remove the records of changed types from the schema.
    "forget types",
    # Add all files with row ids again, without them.
    "take row ids",
    # Make tombstones for the deletion vectors of removed files: a vacuum that doesn't know deletion
    # vectors keeps the files of tombstones.
    "keep vectors",
]
"""What a step does."""

_REWRITTEN: Mapping[str, Rewritable] = {
    "deletionVectors": "deletionVectors",
    "columnMapping": "columnMapping",
    **dict.fromkeys(TYPE_WIDENING, "typeWidening"),
}


@dataclass(frozen=True, slots=True)
class Preparation:
    """A step.

    Attributes:
        kind: what it does.
        description: the same as a sentence without a full stop.
        rewrite: the files to rewrite; None for all other steps.
        commits: how many commits it takes.
    """

    kind: StepKind
    description: str
    rewrite: Rewrite | None = None
    commits: int = 1


def plan_preparations(base: Snapshot, feature: str, access: FileAccess) -> Iterator[Preparation]:
    """Yield the steps that are needed before a feature can leave the protocol.

    Args:
        base: the newest version, which supports the feature.
        feature: a feature that can be dropped.
        access: opens the table's files.

    Raises:
        InvalidTableError: the schema or a property can't be read.
        CorruptLogError: the live files can't be read, or a data file can't.
        StorageError: the store failed.
    """
    if feature == MANAGED_COMMIT:
        yield Preparation("hand back", "take the table back from its commit owner")
        return
    off = disable_feature(feature, base.metadata)
    active = bool(find_metadata_uses(feature, base.metadata, table=base.table))
    if off is not base.metadata and (active or feature == ROW_TRACKING):
        yield Preparation("turn off", _describe_changes(feature))
    rewritten = _REWRITTEN.get(feature)
    if rewritten is not None:
        files = (
            find_files_with_narrow_types(base, access)
            if feature in TYPE_WIDENING
            else files_with(feature, base)
        )
        if files.num_rows:
            yield _plan_rewrite(rewritten, base, files)
        elif feature == "columnMapping" and active:
            yield Preparation("unmap columns", "turn column mapping off, since there are no files")
    if feature in TYPE_WIDENING and changed_columns(base.schema):
        yield Preparation("forget types", "remove the records of changed types from the schema")
    if feature == ROW_TRACKING and (count := files_with(feature, base).num_rows):
        yield Preparation(
            "take row ids", f"add {count} files again, without row ids", commits=-(-count // BATCH)
        )
    if feature == "deletionVectors" and (vectors := find_unkept_vectors(base)):
        yield Preparation(
            "keep vectors",
            f"record {len(vectors)} files of deletion vectors as removed, so that any vacuum keeps them "
            "until they expire",
        )


def _plan_rewrite(feature: Rewritable, base: Snapshot, files: pa.Table) -> Preparation:
    size = int(pc.sum(files["size"]).as_py() or 0)
    rewrite = Rewrite(feature, base.version, files.num_rows, size)
    return Preparation(
        "rewrite files",
        f"have {files.num_rows:,} data files of {size_text(size)} rewritten without {feature}",
        rewrite,
    )


def _describe_changes(feature: str) -> str:
    drop = FEATURES[feature].drop
    assert isinstance(drop, Drop)
    changes = (
        f"remove {name}" if value is None else f"set {name} to {value}"
        for name, value in drop.disabling_properties.items()
    )
    return " and ".join(changes)

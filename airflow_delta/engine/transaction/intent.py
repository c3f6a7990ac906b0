"""The intents of the engine's own operations: their commits may do what those of users can't.

A restore, a clone or the removal of a feature breaks rules that hold for every other commit. Such an
operation declares its intent to the transaction (`OptimisticTransaction.declare`). The stages of
``prepare`` then allow what the intent needs, and make sure that the commit does just that:

=================  ============================================================================
`RestoreVersion`   the commit leaves the files of an earlier version (``prepare/restored_files.py``)
`CloneVersion`     the commit leaves copies of another table's files (``prepare/cloned_files.py``)
`DropFeatures`     the protocol loses features (``prepare/dropped_features.py``)
`Tombstones`       the commit removes deletion vectors that never were data files
`EmptyVersion`     the commit may hold nothing
`SystemDomain`     the commit sets or removes a metadata domain of the protocol
`CheckedRows`      the rows of the table keep the rules that the commit adds
=================  ============================================================================
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from airflow_delta.engine.model.actions import DomainMetadata, RemoveFile

if TYPE_CHECKING:
    import pyarrow as pa

    from airflow_delta.engine.snapshot.snapshot import Snapshot

__all__ = [
    "CheckedRows",
    "CloneVersion",
    "DropFeatures",
    "EmptyVersion",
    "Intent",
    "Purpose",
    "RestoreVersion",
    "SystemDomain",
    "Tombstones",
]


@dataclass(frozen=True, slots=True)
class RestoreVersion:
    """The commit restores an earlier version. Any concurrent commit that changes the table is a conflict.

    Attributes:
        version: the version, whose files and metadata the table has afterwards.
    """

    version: Snapshot


@dataclass(frozen=True, slots=True)
class CloneVersion:
    """The commit makes the table a clone. Any concurrent commit that changes the table is a conflict.

    Attributes:
        version: the version of the other table.
        keys: the keys of the files that the table has afterwards, copies of those of the version; see
            `replay.file_key`.
    """

    version: Snapshot
    keys: pa.ChunkedArray


@dataclass(frozen=True, slots=True)
class DropFeatures:
    """The commit removes features from the table's protocol.

    Attributes:
        features: their names.
        hides_history: whether protected checkpoints hide the versions before the commit. The commit then
            records the version before which no history needs to be kept.
    """

    features: frozenset[str]
    hides_history: bool


@dataclass(frozen=True, slots=True)
class Tombstones:
    """The commit removes deletion vectors that stood in no data file action.

    A vacuum that doesn't know deletion vectors then keeps these files as long as removed data files.

    Attributes:
        files: a removal for each file, below the table's root.
    """

    files: tuple[RemoveFile, ...]


@dataclass(frozen=True, slots=True)
class EmptyVersion:
    """The commit may hold no action but ``commitInfo``: the engine needs a version to checkpoint."""


@dataclass(frozen=True, slots=True)
class SystemDomain:
    """The commit sets or removes a metadata domain, also one that belongs to the protocol.

    Attributes:
        action: the domain.
    """

    action: DomainMetadata


@dataclass(frozen=True, slots=True)
class CheckedRows:
    """The rows of the version on which the transaction is based keep every rule that the commit adds.

    The engine doesn't see rows, so somebody else has checked them. The version counts as read whole: any
    file that is added or removed concurrently is a conflict.
    """


Purpose: TypeAlias = RestoreVersion | CloneVersion | DropFeatures | Tombstones | EmptyVersion
"""What a commit as a whole is for: at most one of these."""

Intent: TypeAlias = Purpose | SystemDomain | CheckedRows
"""What can be declared to a transaction."""

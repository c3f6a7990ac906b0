"""Find other files that give the same version, after a file of the log couldn't be read.

Checkpoints and compactions are an optimisation: other files of the log contain the same. So a
damaged one is left out, with a `DeltaWarning` that names it. In the case of a checkpoint, the state
starts from the one before, finally from the first commit; in the case of a compaction, the
commits are read. If files vanish between listing and reading because a cleanup runs, the log is
listed once more.
"""

from __future__ import annotations

import warnings
from dataclasses import replace
from functools import partial

from airflow_delta.engine.checkpoint.read import was_replaced
from airflow_delta.engine.errors import (
    CorruptLogError,
    DeltaWarning,
    ObjectNotFoundError,
    VersionNotFoundError,
)
from airflow_delta.engine.log.files import (
    Checkpoint,
    ClassicCheckpoint,
    CompactedCommits,
    UnbackfilledCommit,
)
from airflow_delta.engine.log.older_segments import OlderSegments
from airflow_delta.engine.log.segment import LogSegment, load_segment
from airflow_delta.engine.remedies import PUT_FILE_BACK
from airflow_delta.engine.storage.base import Storage

__all__ = ["SegmentRecovery", "with_table"]


class SegmentRecovery:
    """Finds segments for one version, without the files that turned out unusable.

    Args:
        storage: where the log is.

    Attributes:
        excluded: the paths of checkpoints and compactions that turned out damaged.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self.excluded: set[str] = set()
        self._gone: set[str] = set()
        self._older: OlderSegments | None = None

    def find_other_files(
        self, segment: LogSegment, error: CorruptLogError | ObjectNotFoundError
    ) -> tuple[LogSegment, bool]:
        """Find a segment of the same version, without the file that an error is about.

        Returns:
            The segment, and whether it replaces a damaged file: then protocol and metadata must be the
            same as before.

        Raises:
            CorruptLogError, ObjectNotFoundError: the error itself, if nothing can be left out any more.
        """
        # An error about an action has the location of the action instead of a path.
        path = getattr(error, "path", None) or getattr(error, "where", None) or ""
        compaction = next((c for c in segment.compactions if path.startswith(c.path)), None)
        stale = _is_of_absence(error) or (
            _is_of_checkpoint(path) and self._was_replaced(segment.checkpoint)
        )
        if stale and path not in self._gone:
            self._gone.add(path)
            return self._reload(segment), False
        if compaction is not None:
            return self._without_compaction(segment, compaction, error), True
        if segment.checkpoint_actions is not None:
            # Before an older checkpoint is used, read the checkpoint itself: the hint is less
            # reliable.
            return replace(segment, checkpoint_actions=None), False
        if segment.checkpoint is not None and _is_of_checkpoint(path):
            return self._without_checkpoint(segment, segment.checkpoint, error), True
        raise with_table(error, segment.table)

    def _was_replaced(self, checkpoint: Checkpoint | None) -> bool:
        """Whether the checkpoint isn't damaged, but was replaced or deleted while it was read.

        A deleted checkpoint's sidecars may be gone as well.
        """
        try:
            if isinstance(checkpoint, ClassicCheckpoint):
                return was_replaced(self._storage, checkpoint)
            if checkpoint is not None:
                self._storage.head(checkpoint.path)
        except ObjectNotFoundError:
            return True
        return False

    def _without_checkpoint(
        self,
        segment: LogSegment,
        checkpoint: Checkpoint,
        error: CorruptLogError | ObjectNotFoundError,
    ) -> LogSegment:
        """Start from an older checkpoint, because this one can't be read."""
        warnings.warn(
            f"{segment.table}: the checkpoint {checkpoint.path} of version {checkpoint.version} can't "
            f"be used ({error.message}); reading the log from an older one. Write a new checkpoint",
            DeltaWarning,
            stacklevel=4,
        )
        logged, unbackfilled = _split_unbackfilled(segment)
        if self._older is None:
            self._older = OlderSegments(
                self._storage,
                logged,
                verified=segment.verified,
                excluded=frozenset(filter(_is_of_checkpoint, self.excluded)),
            )
        self.excluded.add(checkpoint.path)
        older = self._older.without(checkpoint.path).extended(unbackfilled)
        return self._with_usable_compactions(older)

    def _without_compaction(
        self,
        segment: LogSegment,
        compaction: CompactedCommits,
        error: CorruptLogError | ObjectNotFoundError,
    ) -> LogSegment:
        """Read the commits that a compaction covers, because it can't be read."""
        warnings.warn(
            f"{segment.table}: the compaction {compaction.path} can't be used ({error.message}); "
            "reading the commits instead. Delete it, and compact the log again",
            DeltaWarning,
            stacklevel=4,
        )
        self.excluded.add(compaction.path)
        return self._with_usable_compactions(segment)

    def _reload(self, segment: LogSegment) -> LogSegment:
        """Find the files of the version again; the version itself must stay the same."""
        self._older = None
        version = segment.version
        load = partial(
            load_segment,
            self._storage,
            excluded_checkpoints=frozenset(filter(_is_of_checkpoint, self.excluded)),
            verified=segment.verified,
        )
        try:
            found = load(version=version)
        except VersionNotFoundError as error:
            # They weren't backfilled: the files that the commit owner returned still make up the
            # version.
            rest = [commit for commit in segment.commits if commit.version > error.latest]
            if not rest or not all(isinstance(commit, UnbackfilledCommit) for commit in rest):
                raise
            found = load(version=error.latest).extended(rest)
        return self._with_usable_compactions(found)

    def _with_usable_compactions(self, segment: LogSegment) -> LogSegment:
        usable = tuple(file for file in segment.compactions if file.path not in self.excluded)
        return replace(segment, compactions=usable)


def _split_unbackfilled(segment: LogSegment) -> tuple[int, tuple[UnbackfilledCommit, ...]]:
    """The newest version of a segment that was in the log when it was found, and the commits after it."""
    rest: list[UnbackfilledCommit] = []
    for commit in reversed(segment.commits):
        if not isinstance(commit, UnbackfilledCommit):
            break
        rest.append(commit)
    return segment.version - len(rest), tuple(reversed(rest))


def with_table(
    error: CorruptLogError | ObjectNotFoundError, table: str
) -> CorruptLogError | ObjectNotFoundError:
    """The error with the table's location, and a remedy if it is about a single action.

    The readers of actions know neither. An error that has a table is returned as it is.
    """
    if error.table is not None:
        return error
    remedy = f"; {PUT_FILE_BACK}" if "where" in error.facts else ""
    return type(error)(f"{error.message}{remedy}", table=table, **error.facts)


def _is_of_absence(error: CorruptLogError | ObjectNotFoundError) -> bool:
    """Whether a file is gone; a checkpoint without one of its sidecars counts as damaged."""
    return isinstance(error, ObjectNotFoundError) or isinstance(
        error.__cause__, ObjectNotFoundError
    )


def _is_of_checkpoint(path: str) -> bool:
    return ".checkpoint." in path or "/_sidecars/" in path

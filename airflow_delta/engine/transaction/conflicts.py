"""Decide whether a concurrent commit conflicts with the commit of a transaction.

Optimistic concurrency: if another writer makes the version that a transaction wanted to make, the
transaction looks at each concurrent commit, in order. It may commit after them if none of them changed what
it relies on. `RULES` lists the rules with their errors, each a function whose docstring says what
conflicts. A later in-commit timestamp is no conflict: ours becomes later still.

docs/reference/transactions.md has the rules for users.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from airflow_delta.engine.arrow.python_arrays import array_of
from airflow_delta.engine.errors import (
    CommitConflictError,
    ConcurrentAppendError,
    ConcurrentDeleteDeleteError,
    ConcurrentDeleteReadError,
    ConcurrentTransactionError,
    MetadataChangedError,
    ProtocolChangedError,
    UnsupportedFeatureError,
)
from airflow_delta.engine.features.identity import ONLY_MARKS_TAG
from airflow_delta.engine.features.protocol import Operation, check_writable, supported_features
from airflow_delta.engine.features.registry import FEATURES
from airflow_delta.engine.features.row_tracking import DOMAIN as ROW_TRACKING_DOMAIN
from airflow_delta.engine.model.actions import AddFile, RemoveFile
from airflow_delta.engine.model.lazy import lazy_property
from airflow_delta.engine.replay.file_filter import path_keys
from airflow_delta.engine.snapshot.snapshot import Snapshot
from airflow_delta.engine.transaction.isolation import IsolationLevel, appends_matter
from airflow_delta.engine.transaction.metadata_changes import can_adopt
from airflow_delta.engine.transaction.reads import Reads, may_have_been_read
from airflow_delta.engine.transaction.staged import Actions
from airflow_delta.engine.transaction.winning_commits import WinningCommit

__all__ = ["CurrentCommit", "check_conflicts"]


@dataclass(frozen=True)
class CurrentCommit:
    """The commit of our transaction, whose version another writer has made.

    Attributes:
        base: the version that it is based on, before all concurrent commits.
        actions: the prepared actions.
        reads: what its transaction has read.
        isolation: its isolation level.
        enforced: see `CommitContext`.
    """

    base: Snapshot
    actions: Actions
    reads: Reads
    isolation: IsolationLevel
    enforced: frozenset[str] = frozenset()

    # These are compared with every concurrent commit, so they are computed once.

    @lazy_property
    def read_keys(self) -> pa.ChunkedArray:
        """The files that were read."""
        chunks = [chunk for paths in self.reads.paths for chunk in paths.chunks]
        return path_keys(pa.chunked_array(chunks, pa.string()), table=self.base.table)

    @lazy_property
    def added_keys(self) -> pa.ChunkedArray:
        """The files that it adds."""
        return path_keys(_paths(self.actions.adds), table=self.base.table)

    @lazy_property
    def re_added_keys(self) -> pa.ChunkedArray:
        """The files that it adds without a change of their data."""
        again = [file for file in self.actions.adds if not file.data_change]
        return path_keys(_paths(again), table=self.base.table)

    @lazy_property
    def removed_keys(self) -> pa.ChunkedArray:
        """The files that it removes."""
        return path_keys(_paths(self.actions.removes), table=self.base.table)


def check_conflicts(current: CurrentCommit, concurrent: WinningCommit) -> None:
    """Check one concurrent commit.

    Raises:
        CommitConflictError: the subclass names the kind of conflict; run the operation again.
        InvalidTableError: protocol and metadata of the concurrent commit contradict each other.
    """
    for rule, error in RULES:
        found = rule(current, concurrent)
        if found:
            operation = concurrent.info.operation or "unknown operation"
            raise error(
                f"version {concurrent.version} ({operation}), committed concurrently by another writer, "
                f"{found}; run the operation again on the new version",
                table=concurrent.table,
                version=concurrent.version,
            )


def _protocol(current: CurrentCommit, concurrent: WinningCommit) -> str | None:
    """A change of the protocol conflicts if we change it too, or if it applies to what we have prepared.

    A downgrade always does. An upgrade does if the engine can't commit to the new protocol, or if a new
    feature has rules for actions that were prepared without it.
    """
    if concurrent.protocol is None:
        return None
    if current.actions.protocol is not None:
        return "changed the protocol, as this one does"
    before, after = map(supported_features, (concurrent.protocol_before, concurrent.protocol))
    if before - after:
        return f"dropped the features {sorted(before - after)}"
    binding = {
        name for name in after - before if name not in FEATURES or not FEATURES[name].concurrent
    }
    if binding:
        return f"added the features {sorted(binding)}, which apply to what was prepared before"
    try:
        check_writable(
            concurrent.protocol,
            concurrent.metadata_after,
            table=concurrent.table,
            operation=Operation.APPEND if current.actions.adds else Operation.COMMIT,
            enforced=current.enforced,
        )
    except UnsupportedFeatureError as error:
        return f"changed the protocol, and {error.message}"
    return None


def _metadata(current: CurrentCommit, concurrent: WinningCommit) -> str | None:
    """A change of the metadata conflicts unless our commit can adopt it, and sets no metadata itself.

    See `metadata_changes`. Moved high water marks of identity columns can always be adopted.
    """
    if concurrent.metadata is None:
        return None
    if current.actions.metadata is None:
        tags = concurrent.info.raw.get("tags")
        if isinstance(tags, dict) and str(tags.get(ONLY_MARKS_TAG)).lower() == "true":
            return None
        if can_adopt(
            concurrent.metadata_before,
            concurrent.metadata,
            concurrent.protocol_after,
            table=concurrent.table,
        ):
            return None
    return "changed the metadata"


def _domain(current: CurrentCommit, concurrent: WinningCommit) -> str | None:
    """A domain conflicts if we set, remove or read it too, or restore an earlier version.

    The domain of row tracking is merged instead.
    """
    staged = current.actions.domains.keys() - {ROW_TRACKING_DOMAIN}
    if current.actions.restored_version is not None:
        # It leaves the domains of an earlier version, which a new domain must not join.
        staged |= concurrent.domains - {ROW_TRACKING_DOMAIN}
    shared = concurrent.domains & (staged | current.reads.domains)
    return f"set the metadata domain {min(shared)!r}" if shared else None


def _transaction(current: CurrentCommit, concurrent: WinningCommit) -> str | None:
    """A ``txn`` conflicts if we have read that of the same application."""
    shared = concurrent.app_ids & current.reads.app_ids
    return f"set the transaction of the application {min(shared)!r}" if shared else None


def _append(current: CurrentCommit, concurrent: WinningCommit) -> str | None:
    """Added files conflict if we might have read them, and the isolation level requires us to see them.

    Reads are known by partition: a file added to a partition that a predicate may match is a conflict,
    whatever its rows. In a table without partitions every added file is.
    """
    adds = concurrent.files.adds
    if not adds.num_rows or concurrent.info.operation in _RE_ADDING:
        return None
    if not appends_matter(
        current.isolation,
        blind=concurrent.is_blind_append,
        metadata_changed=current.actions.metadata is not None,
    ):
        return None
    path = may_have_been_read(
        adds,
        current.reads,
        concurrent.protocol_before,
        concurrent.metadata_before,
        table=concurrent.table,
    )
    return None if path is None else f"added the file {path!r}, which should have been read"


_RE_ADDING = frozenset({"ROW TRACKING BACKFILL", "ROW TRACKING UNBACKFILL"})
"""Operations of Delta Spark that add existing files again, to set or remove their row ids."""


def _delete_read(current: CurrentCommit, concurrent: WinningCommit) -> str | None:
    """Removed files conflict if we read one of them, whatever its deletion vector, or the whole table."""
    removed = concurrent.files.removes["path"]
    if current.reads.whole_table:
        read = removed[0].as_py() if len(removed) else None
    else:
        read = _first_shared(concurrent.files.removes, current, lambda: current.read_keys)
    return None if read is None else f"removed the file {read!r}, which was read"


def _delete_delete(current: CurrentCommit, concurrent: WinningCommit) -> str | None:
    """Removed files conflict if we remove one of them."""
    # By path alone: two changes of one file conflict whatever deletion vectors they know it with.
    both = _first_shared(concurrent.files.removes, current, lambda: current.removed_keys)
    return None if both is None else f"removed the file {both!r}, which is removed here too"


def _removed_added(current: CurrentCommit, concurrent: WinningCommit) -> str | None:
    """Removed files conflict if we add one of them: it would come back."""
    # A commit that adds an existing file again, with new statistics for example, relies on the file.
    both = _first_shared(concurrent.files.removes, current, lambda: current.added_keys)
    return None if both is None else f"removed the file {both!r}, which is added here"


def _added_added(current: CurrentCommit, concurrent: WinningCommit) -> str | None:
    """Added files conflict if we add one with the same path: one has overwritten the other.

    That holds for a live file too, of which both record something new: our add has what we read before,
    and would undo theirs. New or removed row ids are an exception for commits that change data, since each
    attempt copies the row ids of the live file.
    """
    ids_only = concurrent.info.operation in _RE_ADDING
    both = _first_shared(
        concurrent.files.adds,
        current,
        lambda: current.re_added_keys if ids_only else current.added_keys,
    )
    return None if both is None else f"added the file {both!r}, which is added here too"


def _first_shared(
    theirs: pa.Table, current: CurrentCommit, mine: Callable[[], pa.ChunkedArray]
) -> str | None:
    """The first of the files of a concurrent commit that is among ours, however the paths are spelled."""
    paths = theirs["path"]
    if not len(paths):
        return None
    shared = paths.filter(pc.is_in(path_keys(paths, table=current.base.table), value_set=mine()))
    return shared[0].as_py() if len(shared) else None


def _paths(files: Sequence[AddFile | RemoveFile]) -> pa.ChunkedArray:
    return pa.chunked_array([array_of([file.path for file in files], pa.string())])


RULES: tuple[
    tuple[Callable[[CurrentCommit, WinningCommit], str | None], type[CommitConflictError]], ...
] = (
    (_protocol, ProtocolChangedError),
    (_metadata, MetadataChangedError),
    (_domain, ConcurrentTransactionError),
    (_transaction, ConcurrentTransactionError),
    (_append, ConcurrentAppendError),
    (_delete_read, ConcurrentDeleteReadError),
    (_delete_delete, ConcurrentDeleteDeleteError),
    (_removed_added, ConcurrentDeleteReadError),
    (_added_added, ConcurrentAppendError),
)
"""The rules with their errors. The first rule that finds a conflict decides."""

"""Does a commit that was made meanwhile get in the way of ours?

Optimistic concurrency: a transaction that lost the race for a version looks at every winner, in order,
and may commit after them if none of them touched what it relies on. `RULES` is the table of conflicts
(edge cases E6 to E8), in the order in which they are told:

==========================  ============================================================  =============
the winner                  is in the way if                                              error
==========================  ============================================================  =============
upgraded the protocol       we set a protocol too; or the engine can't commit to the      ProtocolChanged
                            new one; or a new feature binds what was prepared before it
downgraded the protocol     always                                                        ProtocolChanged
changed the metadata        always, but for changes that what was prepared can follow     MetadataChanged
                            (`metadata_changes`, new identity marks), while we set none
set or removed a domain     we set, remove or looked up the same one, or bring back an    Concurrent-
                            earlier version; setting that of row tracking doesn't count,  Transaction
                            it is counted on
set a ``txn``               we looked up that of the same application                     Concurrent-
                                                                                          Transaction
added files                 one may match what we read, and the isolation level cares     ConcurrentAppend
                            (`isolation`)
added files                 we add one of them too, by path: they are two files, and one  ConcurrentAppend
                            has overwritten the other; but not where it was there before,
                            and both only tell something else of it
removed files               we read one of them, by path, whatever its deletion vector,   Concurrent-
                            or the whole table                                            DeleteRead
removed files               we remove one of them, by path                                Concurrent-
                                                                                          DeleteDelete
removed files               we add one of them, by path: it would come back               Concurrent-
                                                                                          DeleteRead
has a later timestamp       never: ours is made later still
==========================  ============================================================  =============

What was read is told by partitions: a file that was added to a partition that a predicate may match is a
conflict, whatever its rows; in a table without partitions any added file is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from airflow_delta.engine.arrow.action_schema import DELETION_VECTOR_TYPE
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
from airflow_delta.engine.replay.file_key import file_keys
from airflow_delta.engine.snapshot.snapshot import Snapshot
from airflow_delta.engine.transaction.isolation import IsolationLevel, appends_matter
from airflow_delta.engine.transaction.metadata_changes import can_adopt
from airflow_delta.engine.transaction.read_files import may_have_been_read
from airflow_delta.engine.transaction.staged import Actions, Reads
from airflow_delta.engine.transaction.winners import Winner

__all__ = ["Loser", "check_conflicts"]


@dataclass(frozen=True)
class Loser:
    """A commit that came too late for its version.

    Attributes:
        base: the version that it is based on, before all the winners.
        actions: what it would have committed, prepared.
        reads: what its transaction had looked at.
        isolation: the level that it runs at.
        enforced: see `CommitContext`.
    """

    base: Snapshot
    actions: Actions
    reads: Reads
    isolation: IsolationLevel
    enforced: frozenset[str] = frozenset()

    # Each is compared with every winner.

    @lazy_property
    def read_keys(self) -> pa.ChunkedArray:
        """The files that were read."""
        chunks = [chunk for paths in self.reads.paths for chunk in paths.chunks]
        return _path_keys(pa.chunked_array(chunks, pa.string()), self.base.table)

    @lazy_property
    def added_keys(self) -> pa.ChunkedArray:
        """The files that it adds."""
        return _path_keys(_paths(self.actions.adds), self.base.table)

    @lazy_property
    def removed_keys(self) -> pa.ChunkedArray:
        """The files that it removes."""
        return _path_keys(_paths(self.actions.removes), self.base.table)


def check_conflicts(loser: Loser, winner: Winner) -> None:
    """Check one winner.

    Raises:
        CommitConflictError: the subclass says what kind of conflict; run the operation again.
        InvalidTableError: the table that the winner left contradicts itself.
    """
    for rule, error in RULES:
        found = rule(loser, winner)
        if found:
            raise error(
                f"version {winner.version} ({winner.info.operation or 'unknown operation'}), committed "
                f"meanwhile by another writer, {found}; run the operation again on the new version",
                table=winner.table,
                version=winner.version,
            )


def _protocol(loser: Loser, winner: Winner) -> str | None:
    if winner.protocol is None:
        return None
    if loser.actions.protocol is not None:
        return "changed the protocol, as this one does"
    before, after = map(supported_features, (winner.protocol_before, winner.protocol))
    if before - after:
        return f"dropped the features {sorted(before - after)}"
    binding = {
        name for name in after - before if name not in FEATURES or not FEATURES[name].concurrent
    }
    if binding:
        return f"added the features {sorted(binding)}, which bind what was prepared before"
    try:
        check_writable(
            winner.protocol,
            winner.metadata_after,
            table=winner.table,
            operation=Operation.APPEND if loser.actions.adds else Operation.COMMIT,
            enforced=loser.enforced,
        )
    except UnsupportedFeatureError as error:
        return f"changed the protocol, and {error.message}"
    return None


def _metadata(loser: Loser, winner: Winner) -> str | None:
    if winner.metadata is None:
        return None
    if loser.actions.metadata is None:
        tags = winner.info.raw.get("tags")
        if isinstance(tags, dict) and str(tags.get(ONLY_MARKS_TAG)).lower() == "true":
            return None
        if can_adopt(
            winner.metadata_before, winner.metadata, winner.protocol_after, table=winner.table
        ):
            return None
    return "changed the metadata"


def _domain(loser: Loser, winner: Winner) -> str | None:
    staged = loser.actions.domains.keys() - {ROW_TRACKING_DOMAIN}
    if loser.actions.restored is not None:
        # It leaves the domains of another version: one that is new would be among them.
        staged |= winner.domains - {ROW_TRACKING_DOMAIN}
    shared = winner.domains & (staged | loser.reads.domains)
    return f"set the metadata domain {min(shared)!r}" if shared else None


def _transaction(loser: Loser, winner: Winner) -> str | None:
    shared = winner.app_ids & loser.reads.app_ids
    return f"set the transaction of the application {min(shared)!r}" if shared else None


def _append(loser: Loser, winner: Winner) -> str | None:
    adds = winner.files.adds
    if not adds.num_rows or winner.info.operation in _RESTATING:
        return None
    if not appends_matter(
        loser.isolation,
        blind=winner.is_blind_append,
        metadata_changed=loser.actions.metadata is not None,
    ):
        return None
    path = may_have_been_read(
        adds, loser.reads, winner.protocol_before, winner.metadata_before, table=winner.table
    )
    return None if path is None else f"added the file {path!r}, which should have been read"


_RESTATING = frozenset({"ROW TRACKING BACKFILL", "ROW TRACKING UNBACKFILL"})
"""Operations of Delta Spark that add files that are there already, to give them row ids or take them."""


def _delete_read(loser: Loser, winner: Winner) -> str | None:
    removed = winner.files.removes["path"]
    if loser.reads.whole_table:
        read = removed[0].as_py() if len(removed) else None
    else:
        read = _first_shared(winner.files.removes, loser, lambda: loser.read_keys)
    return None if read is None else f"removed the file {read!r}, which was read"


def _delete_delete(loser: Loser, winner: Winner) -> str | None:
    # By path alone: two changes of one file conflict whatever deletion vectors they know it with.
    both = _first_shared(winner.files.removes, loser, lambda: loser.removed_keys)
    return None if both is None else f"removed the file {both!r}, which is removed here too"


def _revived(loser: Loser, winner: Winner) -> str | None:
    # Whoever adds a file that is there already, as with new statistics, relies on its being there.
    both = _first_shared(winner.files.removes, loser, lambda: loser.added_keys)
    return None if both is None else f"removed the file {both!r}, which is added here"


def _twice(loser: Loser, winner: Winner) -> str | None:
    both = _shared(winner.files.adds, loser, lambda: loser.added_keys)
    if not len(both):
        return None
    # Hardly ever reached, so that the look at all live files costs nothing.
    live = _path_keys(loser.base.files(columns=["path"])["path"], loser.base.table)
    new = both.filter(pc.invert(pc.is_in(_path_keys(both, loser.base.table), value_set=live)))
    return f"added the file {new[0].as_py()!r}, which is added here too" if len(new) else None


def _first_shared(
    theirs: pa.Table, loser: Loser, mine: Callable[[], pa.ChunkedArray]
) -> str | None:
    """The first of a winner's files that is among some of the loser's, by whatever spelling."""
    shared = _shared(theirs, loser, mine)
    return shared[0].as_py() if len(shared) else None


def _shared(theirs: pa.Table, loser: Loser, mine: Callable[[], pa.ChunkedArray]) -> pa.ChunkedArray:
    """Those of a winner's files that are among some of the loser's, by whatever spelling."""
    paths = theirs["path"]
    if not len(paths):
        return paths
    return paths.filter(pc.is_in(_path_keys(paths, loser.base.table), value_set=mine()))


def _paths(files: Sequence[AddFile | RemoveFile]) -> pa.ChunkedArray:
    return pa.chunked_array([array_of([file.path for file in files], pa.string())])


def _path_keys(paths: pa.ChunkedArray, table: str) -> pa.ChunkedArray:
    """The same text for all spellings of a path."""
    vectors = pa.chunked_array([pa.nulls(len(paths), DELETION_VECTOR_TYPE)])
    files = pa.Table.from_arrays([paths, vectors], names=["path", "deletionVector"])
    return file_keys(files, table=table)


RULES: tuple[tuple[Callable[[Loser, Winner], str | None], type[CommitConflictError]], ...] = (
    (_protocol, ProtocolChangedError),
    (_metadata, MetadataChangedError),
    (_domain, ConcurrentTransactionError),
    (_transaction, ConcurrentTransactionError),
    (_append, ConcurrentAppendError),
    (_delete_read, ConcurrentDeleteReadError),
    (_delete_delete, ConcurrentDeleteDeleteError),
    (_revived, ConcurrentDeleteReadError),
    (_twice, ConcurrentAppendError),
)
"""What conflicts, and as which error: the first rule that finds something decides."""

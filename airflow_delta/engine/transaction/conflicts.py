"""Does a commit that was made meanwhile get in the way of ours?

Optimistic concurrency: a transaction that lost the race for a version looks at every winner, in
order, and may commit after them if none of them touched what it relies on. `RULES` is the table of
conflicts (edge cases E6); each rule tells one kind of winner's action from harmless ones.
"""

from __future__ import annotations

from collections.abc import Callable

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
)
from airflow_delta.engine.replay.file_key import file_keys
from airflow_delta.engine.transaction.staged import Reads, StagedActions
from airflow_delta.engine.transaction.winners import Winner

__all__ = ["check_conflicts"]


def check_conflicts(staged: StagedActions, reads: Reads, winner: Winner) -> None:
    """Check one winner.

    Raises:
        CommitConflictError: the subclass says what kind of conflict; run the operation again.
    """
    for rule, error in RULES:
        found = rule(staged, reads, winner)
        if found:
            raise error(
                f"version {winner.version} ({winner.info.operation or 'unknown operation'}), committed "
                f"meanwhile by another writer, {found}; run the operation again on the new version",
                table=winner.table,
                version=winner.version,
            )


def _protocol(staged: StagedActions, reads: Reads, winner: Winner) -> str | None:
    return "changed the protocol" if winner.changes_protocol else None


def _metadata(staged: StagedActions, reads: Reads, winner: Winner) -> str | None:
    return "changed the metadata" if winner.changes_metadata else None


def _transaction(staged: StagedActions, reads: Reads, winner: Winner) -> str | None:
    # A transaction that sets an application's version has decided so by the version it saw.
    shared = winner.app_ids & (reads.app_ids | set(staged.transactions))
    return f"set the transaction of the application {min(shared)!r}" if shared else None


def _domain(staged: StagedActions, reads: Reads, winner: Winner) -> str | None:
    shared = winner.domains & set(staged.domains)
    return f"set the metadata domain {min(shared)!r}" if shared else None


def _append(staged: StagedActions, reads: Reads, winner: Winner) -> str | None:
    if not reads.whole_table or winner.files.adds.num_rows == 0:
        return None
    return "added files to the table that this transaction had read as a whole"


def _delete_read(staged: StagedActions, reads: Reads, winner: Winner) -> str | None:
    if not reads.whole_table or winner.files.removes.num_rows == 0:
        return None
    return f"removed the file {winner.files.removes['path'][0].as_py()!r}, which was read"


def _delete_delete(staged: StagedActions, reads: Reads, winner: Winner) -> str | None:
    # By path alone: two changes of one file conflict whatever deletion vectors they know it with.
    paths = pa.chunked_array([array_of([file.path for file in staged.removes], pa.string())])
    removed = winner.files.removes["path"]
    mine, theirs = (_path_keys(each, winner.table) for each in (paths, removed))
    both = removed.filter(pc.is_in(theirs, value_set=mine))
    return f"removed the file {both[0].as_py()!r}, which is removed here too" if len(both) else None


def _path_keys(paths: pa.ChunkedArray, table: str) -> pa.ChunkedArray:
    """The same text for all spellings of a path."""
    vectors = pa.chunked_array([pa.nulls(len(paths), DELETION_VECTOR_TYPE)])
    files = pa.Table.from_arrays([paths, vectors], names=["path", "deletionVector"])
    return file_keys(files, table=table)


RULES: tuple[
    tuple[Callable[[StagedActions, Reads, Winner], str | None], type[CommitConflictError]], ...
] = (
    (_protocol, ProtocolChangedError),
    (_metadata, MetadataChangedError),
    (_domain, ConcurrentTransactionError),
    (_transaction, ConcurrentTransactionError),
    (_delete_delete, ConcurrentDeleteDeleteError),
    (_append, ConcurrentAppendError),
    (_delete_read, ConcurrentDeleteReadError),
)
"""What conflicts, and as which error: the first rule that finds something decides."""

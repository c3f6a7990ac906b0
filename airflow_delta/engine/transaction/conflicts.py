"""Does a commit that was made meanwhile get in the way of ours?

Optimistic concurrency: a transaction that lost the race for a version looks at every winner, in
order, and may commit after them if none of them touched what it relies on. `RULES` is the table of
conflicts (edge cases E6); each rule tells one kind of winner's action from harmless ones.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from airflow_delta.engine.arrow.action_schema import FileActions
from airflow_delta.engine.errors import (
    CommitConflictError,
    ConcurrentAppendError,
    ConcurrentDeleteDeleteError,
    ConcurrentDeleteReadError,
    ConcurrentTransactionError,
    MetadataChangedError,
    ProtocolChangedError,
)
from airflow_delta.engine.transaction.staged import Reads, StagedActions

__all__ = ["Winner", "check_conflicts"]


@dataclass(frozen=True, slots=True)
class Winner:
    """A commit that took the version before ours.

    Attributes:
        version: the version it made.
        operation: what its ``commitInfo`` says it did.
        is_blind_append: whether it only added files and read nothing.
        files: its file actions.
        changes_protocol: whether it has a ``protocol`` action.
        changes_metadata: whether it has a ``metaData`` action.
        app_ids: the applications whose ``txn`` it set.
        domains: the domains whose ``domainMetadata`` it set.
    """

    version: int
    operation: str | None
    is_blind_append: bool
    files: FileActions
    changes_protocol: bool
    changes_metadata: bool
    app_ids: frozenset[str]
    domains: frozenset[str]


def check_conflicts(staged: StagedActions, reads: Reads, winner: Winner, *, table: str) -> None:
    """Check one winner.

    Raises:
        CommitConflictError: the subclass says what kind of conflict; run the operation again.
    """
    for rule, error in RULES:
        found = rule(staged, reads, winner)
        if found:
            raise error(
                f"version {winner.version} ({winner.operation or 'unknown operation'}), committed "
                f"meanwhile by another writer, {found}; run the operation again on the new version",
                table=table,
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
    mine = pa.array([file.path for file in staged.removes], pa.string())
    removed = winner.files.removes["path"]
    both = removed.filter(pc.is_in(removed, value_set=mine))
    return f"removed the file {both[0].as_py()!r}, which is removed here too" if len(both) else None


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

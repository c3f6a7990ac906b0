"""Commit something once, however often it is asked for.

A task that is tried again doesn't know whether its first try has committed. So it gives its commit a
transaction identifier (PROTOCOL.md, "Transaction Identifiers"): the name of an application, and a number
that is the same for each try. Whoever finds the pair in the log finds the commit.

The pair itself counts, and not whether its number is above the last one, as streams count: tasks that are
run for older dates come with smaller numbers, and are no repetition. The price is a search of the commits
that are there, which are kept as long as ``delta.logRetentionDuration`` says; one `TransactionSearch`
reads each of them once. The newest number of an application is known for good, or where the table has
``delta.setTransactionRetentionDuration`` for that long and as long as the commit is there. No search is
needed where that is the number that is asked for, or the application is new and identifiers don't expire,
or the caller says that numbers only ascend, and this one is above.

Between the search and the commit another try may commit. The transaction has looked the application up,
so that this is a conflict; and whatever the conflict, the search is made again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from airflow_delta.engine.errors import (
    CommitConflictError,
    ConcurrentTransactionError,
    ObjectNotFoundError,
)
from airflow_delta.engine.log.commit_file import read_commit_info
from airflow_delta.engine.model.actions import CommitInfo
from airflow_delta.engine.model.arguments import check_mapping
from airflow_delta.engine.snapshot.snapshot import Snapshot
from airflow_delta.engine.snapshot.transactions import TransactionSearch
from airflow_delta.engine.transaction.result import CommitResult, is_checkpoint_due
from airflow_delta.engine.transaction.transaction import OptimisticTransaction

__all__ = ["Stage", "commit_once", "earlier_commit"]

Stage: TypeAlias = Callable[[OptimisticTransaction], Mapping[str, int] | None]
"""Stages the actions of a commit, and returns its metrics, if any."""

_ROUNDS = 50
"""So often other commits of the application may come in between."""


def commit_once(
    begin: Callable[[], OptimisticTransaction],
    app_id: str,
    version: int,
    stage: Stage,
    *,
    search: TransactionSearch,
    ascending: bool = False,
) -> CommitResult:
    """Make a commit, unless there is one with the same transaction identifier.

    Args:
        begin: begins a transaction on the newest version of the table.
        app_id: the application.
        version: the application's number of what is committed.
        stage: stages it, and returns its metrics, if any. Called again, with another transaction,
            where a commit of the application came in between.
        search: of the table.
        ascending: see `TransactionSearch.version_of`.

    Returns:
        The commit that was made; or the earlier one, as ``repeated``.

    Raises:
        ConcurrentTransactionError: again and again another commit of the application, or one that
            touches what ``stage`` has looked up, came in between.
        DeltaError: see `OptimisticTransaction.commit`; or what ``stage`` raises.
    """

    def _earlier(transaction: OptimisticTransaction) -> CommitResult | None:
        # Set before the search: what is committed after the version that is searched is a conflict.
        transaction.set_transaction(app_id, version)
        return earlier_commit(transaction.base, app_id, version, search=search, ascending=ascending)

    rounds = 0
    while True:
        rounds += 1
        transaction = begin()
        if (earlier := _earlier(transaction)) is not None:
            return earlier
        try:
            return transaction.commit(operation_metrics=_staged(stage, transaction))
        except CommitConflictError as conflict:
            if isinstance(conflict, ConcurrentTransactionError) and rounds < _ROUNDS:
                continue
            # Another try may have made the commit that is in the way, or one beside it.
            if (earlier := _earlier(begin())) is not None:
                return earlier
            raise


def earlier_commit(
    newest: Snapshot,
    app_id: str,
    version: int,
    *,
    search: TransactionSearch,
    ascending: bool = False,
) -> CommitResult | None:
    """The commit that carries a transaction identifier, as ``repeated``; None where there is none.

    Args:
        newest: the newest version of the table.
        app_id: the application.
        version: the application's number of what was committed.
        search: of the table.
        ascending: see `TransactionSearch.version_of`.
    """
    earlier = search.version_of(newest, app_id, version, ascending=ascending)
    return None if earlier is None else _repeated(newest, earlier)


def _staged(stage: Stage, transaction: OptimisticTransaction) -> Mapping[str, int] | None:
    metrics = stage(transaction)
    if metrics is not None:
        expected = "metrics, a mapping of names to whole numbers, or None"
        check_mapping("what stage returns", metrics, expected, table=transaction.table)
    return metrics


def _repeated(newest: Snapshot, version: int) -> CommitResult:
    # Whoever has made it may have failed before it could have the checkpoint made.
    due = is_checkpoint_due(version, newest.properties)
    try:
        path = newest.segment.path_of(version)
        told = read_commit_info(newest.storage, version, path=path) or {}
    except ObjectNotFoundError:
        return CommitResult(version, None, checkpoint_due=due, repeated=True)
    info = CommitInfo.from_json(told, version=version)
    at = info.timestamp_ms if info.in_commit_timestamp_ms is None else info.in_commit_timestamp_ms
    return CommitResult(version, at, checkpoint_due=due, repeated=True)

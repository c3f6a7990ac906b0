"""Make a commit exactly once, however often it is requested.

A task that is tried again doesn't know whether its first try has committed. So it gives its commit a
transaction identifier (PROTOCOL.md, "Transaction Identifiers"): the name of an application, and a number
that is the same for each try. A later try finds the identifier in the log, and so the commit
(`TransactionSearch`).
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
"""The maximum number of concurrent commits of the same application that are tolerated."""


def commit_once(
    begin: Callable[[], OptimisticTransaction],
    app_id: str,
    version: int,
    stage: Stage,
    *,
    search: TransactionSearch,
    ascending: bool = False,
) -> CommitResult:
    """Commit, unless the log has a commit with the same transaction identifier.

    Args:
        begin: begins a transaction on the newest version of the table.
        app_id: the application.
        version: the application's number for the commit.
        stage: stages the actions, and returns the metrics, if any. It is called again, with another
            transaction, after a concurrent commit of the application.
        search: the search of the table's commits.
        ascending: see `TransactionSearch.version_of`.

    Returns:
        The commit that was made; or the existing one, as ``repeated``.

    Raises:
        ConcurrentTransactionError: too many concurrent commits of the application, or commits that change
            what ``stage`` has read.
        DeltaError: see `OptimisticTransaction.commit`; or what ``stage`` raises.
    """

    def _find_earlier(transaction: OptimisticTransaction) -> CommitResult | None:
        # Set before the search, so that a commit after the searched version is a conflict.
        transaction.set_transaction(app_id, version)
        return earlier_commit(transaction.base, app_id, version, search=search, ascending=ascending)

    rounds = 0
    while True:
        rounds += 1
        transaction = begin()
        if (earlier := _find_earlier(transaction)) is not None:
            return earlier
        try:
            return transaction.commit(operation_metrics=_call_stage(stage, transaction))
        except CommitConflictError as conflict:
            if isinstance(conflict, ConcurrentTransactionError) and rounds < _ROUNDS:
                continue
            # The conflicting commit, or another one, may be that of a concurrent try.
            if (earlier := _find_earlier(begin())) is not None:
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
    """The commit with a transaction identifier, as ``repeated``; None if there is none.

    Only an equal number counts, because tasks that run for older dates commit with smaller ones.

    Args:
        newest: the newest version of the table.
        app_id: the application.
        version: the application's number for the commit.
        search: the search of the table's commits.
        ascending: see `TransactionSearch.version_of`.
    """
    earlier = search.version_of(newest, app_id, version, ascending=ascending)
    return None if earlier is None else _result_of(newest, earlier)


def _call_stage(stage: Stage, transaction: OptimisticTransaction) -> Mapping[str, int] | None:
    metrics = stage(transaction)
    if metrics is not None:
        expected = "metrics, a mapping of names to whole numbers, or None"
        check_mapping("what stage returns", metrics, expected, table=transaction.table)
    return metrics


def _result_of(newest: Snapshot, version: int) -> CommitResult:
    """The result of an earlier commit, as ``repeated``."""
    # The try that committed may have failed before it wrote the checkpoint.
    due = is_checkpoint_due(version, newest.properties)
    try:
        path = newest.segment.path_of(version)
        fields = read_commit_info(newest.storage, version, path=path) or {}
    except ObjectNotFoundError:
        return CommitResult(version, None, checkpoint_due=due, repeated=True)
    info = CommitInfo.from_json(fields, version=version)
    at = info.timestamp_ms if info.in_commit_timestamp_ms is None else info.in_commit_timestamp_ms
    return CommitResult(version, at, checkpoint_due=due, repeated=True)

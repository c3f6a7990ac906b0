"""Begin and end the commit of an operation that changes rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeVar

from airflow_delta.engine.errors import CommitConflictError, ConstraintViolationError, DeltaError
from airflow_delta.engine.features.protocol import Operation, check_writable
from airflow_delta.engine.features.row_tracking import FEATURE as ROW_TRACKING
from airflow_delta.engine.transaction.staged import check_txn
from airflow_delta.spark.runtime.call_sites import without_call_sites
from airflow_delta.spark.writer.new_files import NewFiles, commit_files
from airflow_delta.spark.writer.target import ENFORCED, WriteTarget, target_of

if TYPE_CHECKING:
    from airflow_delta.engine import DeltaTable

__all__ = [
    "begin_change",
    "begin_once",
    "commit_change",
    "earlier_version",
    "earlier_version_if_known",
    "redone",
]

_Result = TypeVar("_Result")

_ATTEMPTS = 5
"""The most attempts of a change, if other writers change what it has read."""


def begin_change(
    table: DeltaTable,
    operation: str,
    parameters: Mapping[str, object],
    *,
    user_metadata: str | None = None,
    removes: bool,
) -> WriteTarget:
    """Begin a transaction that changes rows of an existing table.

    Args:
        table: the table.
        operation: the name of the operation in the commit.
        parameters: its parameters.
        user_metadata: a text for ``commitInfo.userMetadata``.
        removes: whether rows may be removed or changed, which an append-only table refuses.

    Raises:
        ConstraintViolationError: the table is append-only.
        UnsupportedFeatureError: the table needs a writer feature that isn't supported here.
        DeltaError: the table can't be read.
    """
    # Rows that are written anew keep their row ids; where rows change, the change data files say so.
    enforced = ENFORCED | {"changeDataFeed", ROW_TRACKING}
    transaction = table.transaction(
        operation,
        operation_parameters=parameters,
        user_metadata=user_metadata,
        enforces=sorted(enforced),
    )
    base = transaction.base
    if removes and base.properties.append_only:
        raise ConstraintViolationError(
            f"the table is append-only (delta.appendOnly=true), and {operation} changes or removes rows: "
            "set the property to false first",
            table=table.uri,
        )
    check_writable(
        base.protocol,
        base.metadata,
        table=table.uri,
        operation=Operation.APPEND,
        enforced=enforced,
    )
    return target_of(transaction)


def begin_once(
    begin: Callable[[], WriteTarget], table: DeltaTable, txn: tuple[str, int] | None
) -> WriteTarget | int:
    """Begin a change, unless an earlier call has made it.

    The table may have changed since then, so that it refuses what it has accepted.

    Args:
        begin: begins the transaction.
        table: the table.
        txn: the transaction identifier of the change.

    Returns:
        The begun change; or the version of the commit that has set the transaction identifier.

    Raises:
        InvalidArgumentError: it can't be a transaction identifier.
        DeltaError: what ``begin`` raises, if there is no such commit.
    """
    try:
        target = begin()
    except DeltaError:
        if (earlier := earlier_version_if_known(table, txn)) is not None:
            return earlier
        raise
    earlier = earlier_version(table, txn)
    return target if earlier is None else earlier


def earlier_version_if_known(table: DeltaTable, txn: tuple[str, int] | None) -> int | None:
    """Like `earlier_version`, after another error: None also if the log can't be read."""
    try:
        return earlier_version(table, txn)
    except DeltaError:
        return None


def earlier_version(table: DeltaTable, txn: tuple[str, int] | None) -> int | None:
    """The version of the commit that has set a transaction identifier; None if there is none.

    Called after the transaction has begun, so that a later commit of the identifier is a conflict.

    Raises:
        InvalidArgumentError: it can't be a transaction identifier.
    """
    if txn is None:
        return None
    check_txn(txn, table=table.uri)
    return table.version_of_transaction(*txn)


def redone(change: Callable[[], _Result]) -> _Result:
    """Make a change, and repeat it on the newest version if another writer was faster.

    The change reads the newest version each time, so the result is the same as if it had begun after the
    other writer's commit. A failed attempt leaves nothing behind.

    Args:
        change: the whole change, from the beginning of its transaction to the commit.

    Raises:
        CommitConflictError: other writers were faster each time.
    """
    with without_call_sites():
        for _ in range(_ATTEMPTS - 1):
            try:
                return change()
            except CommitConflictError:
                continue
        return change()


def commit_change(
    target: WriteTarget,
    new_files: NewFiles,
    txn: tuple[str, int] | None,
    metrics: Mapping[str, int],
) -> int:
    """Commit what is staged, and keep the new files if they are, or may be, part of the table.

    Args:
        target: the table, and the transaction.
        new_files: the new files.
        txn: the transaction identifier to set.
        metrics: the ``operationMetrics``.

    Returns:
        The version.

    Raises:
        DeltaError: see `OptimisticTransaction.commit`.
    """
    if txn is not None:
        target.transaction.set_transaction(*txn)
    return commit_files(target.transaction, new_files, metrics)

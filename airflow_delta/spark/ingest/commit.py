"""Commit the new files of a write.

An append reads nothing of the table but the transaction identifier. So if a concurrent run of the same task
commits another number, the append can follow it with the files that it has.

Spec: PROTOCOL.md, "Transaction Identifiers".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from airflow_delta.engine.errors import ConcurrentTransactionError
from airflow_delta.spark.dml.commit import earlier_version
from airflow_delta.spark.writer.new_files import NewFiles, commit_files
from airflow_delta.spark.writer.target import existing_target

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from airflow_delta.engine import OptimisticTransaction
    from airflow_delta.spark.writer.request import WriteRequest
    from airflow_delta.spark.writer.target import WriteTarget

__all__ = ["commit_write"]

_ROUNDS = 50
"""The maximum number of concurrent commits of the same application that an append tolerates."""


def commit_write(
    rows: DataFrame,
    request: WriteRequest,
    target: WriteTarget,
    files: NewFiles,
    metrics: Mapping[str, int],
    *,
    txn: tuple[str, int] | None,
) -> int:
    """Commit the new files, an append also after other commits of its application.

    Args:
        rows: the rows that were written.
        request: what to do.
        target: the table; the removal of what the files replace is staged.
        files: the new files; kept if they are, or may be, part of the table.
        metrics: the ``operationMetrics``.
        txn: the transaction identifier, one of the request's, by which an earlier commit is found.

    Returns:
        The version.

    Raises:
        ConcurrentTransactionError: the write isn't an append to an existing table; or the table has the
            identifier now, or another definition; or there were too many commits of the application.
        DeltaError: see `commit_files`.
    """
    is_append = request.mode == "append" and target.base is not None
    for attempt in range(1, _ROUNDS + 1):
        _stage(request, target.transaction, files)
        try:
            return commit_files(target.transaction, files, metrics)
        except ConcurrentTransactionError:
            # Without ``txn``, the identifiers of the request may depend on those that the table had.
            if not is_append or txn is None or attempt == _ROUNDS:
                raise
            again = existing_target(request, rows)
            is_committed = earlier_version(request.table, txn) is not None
            if is_committed or _definition(again) != _definition(target):
                raise
            target = again
    raise AssertionError("the last attempt returns or raises")


def _stage(request: WriteRequest, transaction: OptimisticTransaction, files: NewFiles) -> None:
    transaction.add_files(files.adds)
    for name, furthest in files.identity_values.items():
        transaction.use_identity_values(name, furthest)
    for app_id, version in request.transactions.items():
        transaction.set_transaction(app_id, version)


def _definition(target: WriteTarget) -> tuple[object, ...]:
    """What the files of a write depend on."""
    return target.protocol, target.metadata, target.clustered_by

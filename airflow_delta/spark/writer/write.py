"""`write`: commit the rows of a DataFrame to a table.

1. Begin a transaction at the version for all checks, and refuse tables that need unsupported writer
   features.
2. Spark writes the rows as Parquet files into a new directory below the table's root.
3. Compute the statistics of each file from its footer.
4. One commit adds the files, with the transaction identifier if there is one. It also creates a new table.

If a step before the commit fails, the log isn't changed, and the files are deleted. After a commit
with unknown outcome they are kept: they may be part of the table.

Spec: PROTOCOL.md, "Add File and Remove File", "Transaction Identifiers".
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_delta.engine import AddFile, DeltaTable
from airflow_delta.engine.errors import (
    CommitConflictError,
    ConstraintViolationError,
    InvalidArgumentError,
    TableAlreadyExistsError,
)
from airflow_delta.engine.model.paths import encode_path, resolve
from airflow_delta.spark.reader.columns import quoted
from airflow_delta.spark.reader.data_files import DataFile, list_data_files, write_data_files
from airflow_delta.spark.rules.row_rules import checked, row_rules
from airflow_delta.spark.runtime.executor_errors import errors_of_executors
from airflow_delta.spark.runtime.locations import hadoop_path
from airflow_delta.spark.writer.partitioning import directory_text, partition_values
from airflow_delta.spark.writer.row_rules import check_rows_fit, stored_columns
from airflow_delta.spark.writer.statistics import file_statistics, indexed_columns
from airflow_delta.spark.writer.target import (
    MODES,
    WriteRequest,
    WriteTarget,
    existing_target,
    new_target,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from airflow_delta.engine import Snapshot
    from airflow_delta.engine.storage.base import Storage

__all__ = ["WriteResult", "write", "write_table"]


@dataclass(frozen=True, slots=True)
class WriteResult:
    """The result of a write.

    Attributes:
        version: the version of the table that has the rows.
        num_files: the number of files that this call added.
        num_rows: the number of rows that it added.
        size_in_bytes: the total size of the files.
        written: False if this call committed nothing: an earlier call had committed this transaction
            identifier, or there were no rows to append.
    """

    version: int
    num_files: int = 0
    num_rows: int = 0
    size_in_bytes: int = 0
    written: bool = True


def write(
    rows: DataFrame,
    uri: str,
    mode: str = "append",
    *,
    partition_by: Sequence[str] = (),
    properties: Mapping[str, str] | None = None,
    txn: tuple[str, int] | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> WriteResult:
    """Write a DataFrame to a Delta table, as one commit.

    Args:
        rows: the rows. The columns must be those of the table, in any order; NOT NULL, and the lengths of
            CHAR and VARCHAR, are checked row by row.
        uri: the table's path or URI; Spark reaches it with the credentials of its own configuration.
        mode: ``append`` adds the rows, ``overwrite`` replaces all rows; both create the table if it doesn't
            exist. ``error`` creates the table, which must not exist.
        partition_by: partition columns of a new table; for an existing one empty, or the table's.
        properties: table properties of a new table.
        txn: application id and version: if they are committed already, the call writes nothing and returns
            that commit's version. So a retry can't write twice.
        storage_options: credentials and settings with which the engine commits.

    Raises:
        InvalidArgumentError: an argument is invalid.
        TableAlreadyExistsError: the mode is ``error`` and the table exists.
        ConstraintViolationError: the rows don't fit the table.
        UnsupportedFeatureError: the table needs a writer feature that isn't supported here.
        CommitConflictError: another writer made a conflicting change.
        CommitOutcomeUnknownError: the store failed; the commit may have been made.
        PySparkException: Spark's own errors.
    """
    return write_table(
        rows,
        uri,
        mode=mode,
        partition_by=partition_by,
        properties=properties,
        txn=txn,
        storage_options=storage_options,
    )


def write_table(
    rows: DataFrame,
    uri: str,
    *,
    mode: str,
    partition_by: Sequence[str] = (),
    properties: Mapping[str, str] | None = None,
    txn: tuple[str, int] | None = None,
    identifiers: Mapping[str, int] | None = None,
    check: Callable[[Snapshot], None] | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> WriteResult:
    """Like `write`, with more arguments.

    Args:
        rows: see `write`.
        uri: see `write`.
        mode: see `write`.
        partition_by: see `write`.
        properties: see `write`.
        txn: see `write`.
        identifiers: other versions by application id that the commit sets, without comparing them with the
            log.
        check: raises an error if an existing table must not be written to. Its argument is the version that
            the transaction is based on, so that any change between the check and the commit is a conflict.
        storage_options: see `write`.

    Raises:
        DeltaError: see `write`; or what ``check`` raises.
        PySparkException: Spark's own errors.
    """
    if mode not in MODES:
        raise InvalidArgumentError(
            f"unknown mode {mode!r}: expected one of {', '.join(MODES)}", table=uri
        )
    table = DeltaTable(uri, storage_options)
    transactions = {**(identifiers or {}), **dict([txn] if txn else [])}
    request = WriteRequest(table, mode, tuple(partition_by), properties or {}, transactions, check)
    target = existing_target(request) if table.exists() else new_target(request, rows)
    if txn and target.exists:
        # After the transaction has begun, so that any later commit is a conflict.
        earlier = table.version_of_transaction(*txn)
        if earlier is not None:
            return WriteResult(earlier, written=False)
    if target.exists and mode == "error":
        raise TableAlreadyExistsError(
            "there is a table already; append to it, or overwrite it", table=uri
        )
    return _write(rows, request, target)


def _write(rows: DataFrame, request: WriteRequest, target: WriteTarget) -> WriteResult:
    storage, transaction = request.table.storage, target.transaction
    directory = f"write-{uuid.uuid4()}"
    try:
        _write_rows(rows, target, hadoop_path(resolve(storage.root, encode_path(directory))))
        written = list_data_files(storage, directory)
        files = [file for file in written if file.num_rows]
        storage.delete([file.info.path for file in written if not file.num_rows])
        transaction.add_files(_adds(files, directory, target))
    except BaseException:
        _delete(storage, directory)
        raise
    if not files and target.exists and not target.replaced and not request.transactions:
        _delete(storage, directory)
        return WriteResult(transaction.read_version or 0, written=False)
    for remove in target.replaced:
        transaction.remove_file(remove)
    for app_id, version in request.transactions.items():
        transaction.set_transaction(app_id, version)
    num_rows = sum(file.num_rows for file in files)
    size = sum(file.info.size for file in files)
    metrics = {"numFiles": len(files), "numOutputRows": num_rows, "numOutputBytes": size}
    try:
        commit = transaction.commit(operation_metrics=metrics)
    except (CommitConflictError, ConstraintViolationError):
        # Only after errors that rule out a commit: otherwise the table may need the files.
        _delete(storage, directory)
        raise
    return WriteResult(commit.version, len(files), num_rows, size)


def _delete(storage: Storage, directory: str) -> None:
    storage.delete([info.path for info in storage.walk(directory)])


def _write_rows(rows: DataFrame, target: WriteTarget, path: str) -> None:
    table = target.transaction.table
    check_rows_fit(rows, target.schema, table=table)
    stored = stored_columns(target.schema, target.partition_by, table=table)
    columns = [rows[quoted(column.name)] for column in stored]
    columns += [
        directory_text(rows[quoted(column.name)], column.data_type).alias(column.name)
        for column in target.partition_fields
    ]
    rules = row_rules(target.schema, target.properties, table=table)
    checked_rows = checked(rows, rules, table=table).select(columns)
    with errors_of_executors():
        write_data_files(checked_rows, path, partition_by=target.partition_by)


def _adds(files: Sequence[DataFile], directory: str, target: WriteTarget) -> list[AddFile]:
    """An ``add`` for each file. A loop over files: those of one write, whose footers were read."""
    stored = stored_columns(target.schema, target.partition_by, table=target.transaction.table)
    columns = indexed_columns(stored, target.properties, also=target.clustered_by)
    return [
        AddFile(
            path=encode_path(file.info.path),
            partition_values=partition_values(
                file.info.path.removeprefix(f"{directory}/").split("/")[:-1],
                target.partition_fields,
                table=target.transaction.table,
            ),
            size=file.info.size,
            modification_time=file.info.modified_ms,
            data_change=True,
            stats=file_statistics(file.footer, columns),
        )
        for file in files
    ]

"""`write`: commit the rows of a DataFrame to a table.

1. Check the arguments, and begin a transaction (`writer.target`). A table that needs unsupported writer
   features is refused.
2. Give the rows the columns of the table (`writer.alignment`), make identities, and add the table's rules
   as checks (`airflow_delta.spark.rules`).
3. Spark writes the rows as Parquet files into a new directory below the table's root (`writer.layout`).
   The checks run in the same pass.
4. Compute the statistics of each file from its footer (`writer.file_writing`), and find what the files
   replace (`replacement`).
5. One commit adds and removes the files, with the transaction identifier if there is one. It also creates
   a new table (`commit`).
6. If a property of the table says so, small files are compacted, in another commit (`auto_compaction`).

If a step before the commit fails, the log isn't changed, and the files are deleted. After a commit
with unknown outcome they are kept: they may be part of the table.

Spec: PROTOCOL.md, "Add File and Remove File", "Transaction Identifiers", "Writer Requirements".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.errors import (
    CommitConflictError,
    DeltaError,
    MetadataChangedError,
    TableAlreadyExistsError,
    TableNotFoundError,
)
from airflow_delta.engine.features.identity import identity_columns
from airflow_delta.engine.model.arguments import check_texts
from airflow_delta.engine.transaction.staged import check_txn
from airflow_delta.spark.dml.commit import earlier_version_if_known
from airflow_delta.spark.dml.conditions import predicate_text
from airflow_delta.spark.ingest.auto_compaction import AutoCompaction, compact_after_write
from airflow_delta.spark.ingest.commit import commit_write
from airflow_delta.spark.ingest.replacement import check_replacement, stage_replacement
from airflow_delta.spark.runtime.call_sites import without_call_sites
from airflow_delta.spark.writer.file_writing import write_new_files
from airflow_delta.spark.writer.new_files import NewFiles
from airflow_delta.spark.writer.request import WriteRequest, check_request
from airflow_delta.spark.writer.target import (
    WriteTarget,
    existing_target,
    new_target,
    replaced_version,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from airflow_delta.engine.commit.owner import CommitOwner

__all__ = ["WriteResult", "write", "write_table"]

_ATTEMPTS = 10
"""The most attempts of a write whose identity values other writers have used."""


@dataclass(frozen=True, slots=True)
class WriteResult:
    """The result of a write.

    Attributes:
        version: the version of the table that has the rows.
        num_files: the number of files that this call added.
        num_rows: the number of rows that it added.
        size_in_bytes: the total size of the files.
        num_removed_files: the number of files that it removed.
        written: False if this call committed nothing: an earlier call had committed this transaction
            identifier, the mode is ``ignore`` and the table exists, or there were no rows to append.
        repeated: True if an earlier call had committed this transaction identifier.
        compaction: the compaction of small files after the write, in commits of its own; None if there was
            none.
    """

    version: int
    num_files: int = 0
    num_rows: int = 0
    size_in_bytes: int = 0
    num_removed_files: int = 0
    written: bool = True
    repeated: bool = False
    compaction: AutoCompaction | None = None


def write(
    rows: DataFrame,
    uri: str,
    mode: str = "append",
    *,
    partition_by: Sequence[str] = (),
    cluster_by: Sequence[str] = (),
    properties: Mapping[str, str] | None = None,
    replace_where: Column | str | None = None,
    partition_overwrite: str = "static",
    merge_schema: bool = False,
    overwrite_schema: bool = False,
    optimize_write: bool | None = None,
    target_file_size: int | None = None,
    txn: tuple[str, int] | None = None,
    user_metadata: str | None = None,
    storage_options: Mapping[str, str] | None = None,
    commit_owners: Mapping[str, CommitOwner] | None = None,
    allowed_outside: Sequence[str] = (),
) -> WriteResult:
    """Write a DataFrame to a Delta table, as one commit.

    Columns are matched by name, ignoring case, and cast as Spark does for an ``INSERT``; see `casts`.
    Columns that the rows lack get their default, generated or identity value, or null. All rules of the
    table are checked: NOT NULL, CHECK constraints, invariants, generated columns, CHAR and VARCHAR lengths.

    Args:
        rows: the rows.
        uri: the table's path or URI; Spark reaches it with the credentials of its own configuration.
        mode: ``append`` adds the rows, ``overwrite`` replaces rows; both create the table if it doesn't
            exist. ``error`` creates the table, which must not exist; ``ignore`` creates it, or does nothing
            if it exists.
        partition_by: partition columns of a new table; for an existing one empty, or the table's.
        cluster_by: clustering columns of a new table.
        properties: table properties of a new table.
        replace_where: with ``overwrite``: a condition; the rows of the table for which it is true are
            replaced. New rows for which it isn't true are refused. A new table ignores it.
        partition_overwrite: with ``overwrite``: ``static`` replaces all rows, ``dynamic`` only those in
            partitions for which there are new rows.
        merge_schema: whether the table gets columns that only the rows have, also inside structs, and,
            with ``delta.enableTypeWidening``, their wider types.
        overwrite_schema: with ``overwrite``: whether the columns of the rows replace those of the table,
            and ``partition_by`` its partition columns.
        optimize_write: whether to shuffle the rows by the partition columns first, so that each partition
            gets few files. None: the property ``delta.autoOptimize.optimizeWrite``; if that isn't set,
            only if the table is partitioned or ``target_file_size`` is given.
        target_file_size: the size in bytes of the parts of such a shuffle; None: ``delta.targetFileSize``,
            or else 128 MiB.
        txn: application id and version: if they are committed already, the call writes nothing and returns
            that commit's version. So a retry can't write twice.
        user_metadata: a text for ``commitInfo.userMetadata``.
        storage_options: credentials and settings with which the engine commits.
        commit_owners: commit owners of managed tables by name, beside those that are installed.
        allowed_outside: locations outside of the table below which it may read files; see `DeltaTable`.

    Raises:
        InvalidArgumentError: an argument is invalid, or two exclude each other; or a setting of the session
            changes what a rule of the table means, or keeps the bounds of an identity column out of the
            files.
        InvalidTableError: a feature of the table doesn't allow its new columns; it has identity columns
            without the feature for them; or Spark can't evaluate one of its rules, defaults or generation
            expressions.
        TableAlreadyExistsError: the mode is ``error`` and the table exists.
        ConstraintViolationError: the rows don't fit the table. The message has the rule, the number of rows
            that break it, and one of them.
        UnsupportedFeatureError: the table needs a writer feature that isn't supported here.
        CommitConflictError: another writer made a conflicting change.
        CommitOutcomeUnknownError: the store failed; the commit may have been made.
        StorageError: Spark can't read a source file, or write the data files; or these have other rows
            than Spark's tasks have written.
        PySparkException: Spark's other errors.
    """
    if txn is not None:
        check_txn(txn, table=uri)
    return write_table(
        rows,
        WriteRequest(
            DeltaTable(uri, storage_options, commit_owners, allowed_outside=allowed_outside),
            mode,
            partition_by=check_texts("partition_by", partition_by, "names of columns", table=uri),
            cluster_by=check_texts("cluster_by", cluster_by, "names of columns", table=uri),
            properties=dict(properties or {}),
            replace_where=replace_where,
            partition_overwrite=partition_overwrite,
            merge_schema=merge_schema,
            overwrite_schema=overwrite_schema,
            optimize_write=optimize_write,
            target_file_size=target_file_size,
            user_metadata=user_metadata,
            transactions=dict([] if txn is None else [txn]),
        ),
        txn=txn,
    )


@without_call_sites()
def write_table(
    rows: DataFrame, request: WriteRequest, *, txn: tuple[str, int] | None = None
) -> WriteResult:
    """Like `write`, for a request.

    Args:
        rows: see `write`.
        request: what to do.
        txn: the transaction identifier, one of the request's, by which an earlier commit is found.

    Raises:
        DeltaError: see `write`; or what the request's ``check`` raises.
        PySparkException: Spark's own errors.
    """
    check_request(request, rows)
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            request = _with_predicate(rows, request)
            target = _target(rows, request)
        except DeltaError:
            # The table may have changed since an earlier call, and refuse what it has accepted.
            version = earlier_version_if_known(request.table, txn)
            if version is None:
                raise
            return _repeated(version)
        if (result := _without_writing(request, target, txn)) is not None:
            return result
        try:
            return _write(rows, request, target, txn)
        except CommitConflictError as error:
            # Perhaps an earlier try of the same write, which went on, was faster.
            if txn and (earlier := _earlier_commit(request, txn)) is not None:
                return earlier
            # The values of identity columns follow the high water mark, so the rows are computed again.
            is_moved_mark = isinstance(error, MetadataChangedError) and identity_columns(
                target.schema
            )
            if attempt == _ATTEMPTS or not is_moved_mark:
                raise
            if replaced_version(request, rows) is not None:
                # Another attempt would be based on the same version, and meet the same conflict.
                raise
    raise AssertionError("the last attempt returns or raises")


def _earlier_commit(request: WriteRequest, txn: tuple[str, int]) -> WriteResult | None:
    version = request.table.version_of_transaction(*txn)
    return None if version is None else _repeated(version)


def _repeated(version: int) -> WriteResult:
    return WriteResult(version, written=False, repeated=True)


def _with_predicate(rows: DataFrame, request: WriteRequest) -> WriteRequest:
    """The request with the text of its condition, if it has one."""
    if request.replace_where is None:
        return request
    text = predicate_text(rows.sparkSession, request.table, request.replace_where)
    return replace(request, predicate=text)


def _target(rows: DataFrame, request: WriteRequest) -> WriteTarget:
    try:
        return existing_target(request, rows)
    except TableNotFoundError:
        return new_target(request, rows)


def _without_writing(
    request: WriteRequest, target: WriteTarget, txn: tuple[str, int] | None
) -> WriteResult | None:
    """The result of a write that has nothing to do; None for others."""
    if target.base is None:
        return None
    if txn:
        # After the transaction has begun, so that any later commit is a conflict.
        earlier = _earlier_commit(request, txn)
        if earlier is not None:
            return earlier
    if request.mode == "ignore":
        return WriteResult(target.base.version, written=False)
    if request.mode == "error":
        raise TableAlreadyExistsError(
            "there is a table already; append to it, or overwrite it", table=request.table.uri
        )
    return None


def _write(
    rows: DataFrame, request: WriteRequest, target: WriteTarget, txn: tuple[str, int] | None
) -> WriteResult:
    check_replacement(rows.sparkSession, request, target)
    with NewFiles(request.table) as files:
        write_new_files(rows, request, target, files)
        removed = stage_replacement(rows.sparkSession, request, target, files)
        has_changed = files.adds or removed.changes_table or target.base is None
        if not has_changed and not request.transactions and not _changes_table(target):
            return WriteResult(target.version, written=False)
        metrics = {**files.metrics, **removed.metrics(request)}
        version = commit_write(rows, request, target, files, metrics, txn=txn)
    return WriteResult(
        version,
        len(files.adds),
        files.num_rows,
        files.size_in_bytes,
        removed.num_files,
        compaction=compact_after_write(request.table, target.metadata, files.adds),
    )


def _changes_table(target: WriteTarget) -> bool:
    return target.base is not None and target.metadata != target.base.metadata

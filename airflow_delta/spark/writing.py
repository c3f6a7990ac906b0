"""`write`: rows of a DataFrame become a commit.

1. The transaction begins: it knows the version that everything is checked against, and refuses
   tables that need more of writers than is done here.
2. Spark writes the rows as parquet files into a directory of their own below the table's root.
3. The statistics of each file come from its footer.
4. One commit adds the files, with the application's transaction identifier where there is one; a
   new table is created by the same commit.

Whatever fails before the commit leaves the log as it was, and the files are deleted. A commit whose
outcome is unknown leaves them: they may be part of the table.

Spec: PROTOCOL.md, "Add File and Remove File", "Transaction Identifiers".
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException

from airflow_delta.engine import AddFile, DeltaTable, OptimisticTransaction, RemoveFile
from airflow_delta.engine.errors import (
    CommitConflictError,
    ConstraintViolationError,
    InvalidArgumentError,
    TableAlreadyExistsError,
    UnsupportedFeatureError,
)
from airflow_delta.engine.features.clustering import DOMAIN, parse_clustering_columns
from airflow_delta.engine.features.column_mapping import mapping_mode
from airflow_delta.engine.features.new_table import protocol_for_new_table
from airflow_delta.engine.model.actions import Metadata, Protocol
from airflow_delta.engine.model.paths import encode_path, resolve
from airflow_delta.engine.model.properties import TableProperties
from airflow_delta.engine.model.schema import StructField, StructType
from airflow_delta.engine.model.schema_json import schema_to_json
from airflow_delta.spark.columns import quoted
from airflow_delta.spark.data_files import DataFile, list_data_files, write_data_files
from airflow_delta.spark.locations import hadoop_path
from airflow_delta.spark.partitioning import directory_text, partition_values
from airflow_delta.spark.row_rules import (
    NOT_NULL_VIOLATION,
    check_rows_fit,
    new_table_schema,
    stored_columns,
    with_not_null_checks,
)
from airflow_delta.spark.statistics import file_statistics, indexed_columns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from airflow_delta.engine.storage.base import Storage

__all__ = ["WriteResult", "is_in_write_directory", "write", "write_table"]

_WRITE_DIRECTORY = re.compile(r"write-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}/")
_MODES = {"append": "Append", "overwrite": "Overwrite", "error": "ErrorIfExists"}


@dataclass(frozen=True, slots=True)
class WriteResult:
    """A write that is part of the table.

    Attributes:
        version: the table's version that has the rows.
        num_files: how many files this call added.
        num_rows: how many rows it added.
        size_in_bytes: the size of the files.
        written: False where nothing was committed: an earlier call had made the commit of this
            transaction identifier, or there were no rows to append.
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
        rows: what to write. The columns must be those of the table, in any order; NOT NULL columns
            are checked row by row.
        uri: the table's path or URI; Spark reaches it with the credentials of its own configuration.
        mode: ``append`` adds the rows, ``overwrite`` puts them in place of all rows; both create the
            table where there is none. ``error`` creates the table, which must not exist.
        partition_by: partition columns of a new table; for an existing one empty, or the table's.
        properties: table properties of a new table.
        txn: application id and version: a call that finds them committed writes nothing and gives
            that commit's version, so that a retry can't write twice.
        storage_options: credentials and settings with which the engine commits.

    Raises:
        InvalidArgumentError: an argument makes no sense.
        TableAlreadyExistsError: the mode is ``error`` and the table exists.
        ConstraintViolationError: the rows don't fit the table.
        UnsupportedFeatureError: the table needs something of writers that isn't done here.
        CommitConflictError: another writer changed the table in a way that matters.
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
    marks: Mapping[str, int] | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> WriteResult:
    """`write`, with more to set.

    Args:
        rows: see `write`.
        uri: see `write`.
        mode: see `write`.
        partition_by: see `write`.
        properties: see `write`.
        txn: see `write`.
        marks: versions to set for further applications, whatever they were.
        storage_options: see `write`.
    """
    if mode not in _MODES:
        raise InvalidArgumentError(
            f"unknown mode {mode!r}: expected one of {', '.join(_MODES)}", table=uri
        )
    table = DeltaTable(uri, storage_options)
    transactions = {**(marks or {}), **dict([txn] if txn else [])}
    request = _Request(table, mode, tuple(partition_by), properties or {}, transactions)
    target = _existing_target(request) if table.exists() else _new_target(request, rows)
    if txn and target.exists:
        # Looked for after the transaction has begun: a commit made later is a conflict.
        earlier = table.version_of_transaction(*txn)
        if earlier is not None:
            return WriteResult(earlier, written=False)
    if target.exists and mode == "error":
        raise TableAlreadyExistsError(
            "there is a table already; append to it, or overwrite it", table=uri
        )
    return _write(rows, request, target)


def is_in_write_directory(path: str) -> bool:
    """Whether a file below a table's root lies where a write has put it.

    Where there is no log such a file is what a write that was killed has left.
    """
    return _WRITE_DIRECTORY.match(path) is not None


@dataclass(frozen=True, slots=True)
class _Request:
    table: DeltaTable
    mode: str
    partition_by: tuple[str, ...]
    properties: Mapping[str, str]
    transactions: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class _Target:
    """The table that the rows go to, as it is or as it will be."""

    transaction: OptimisticTransaction
    schema: StructType
    partition_by: tuple[str, ...]
    properties: TableProperties
    clustered_by: tuple[tuple[str, ...], ...] = ()
    exists: bool = True
    replaced: list[RemoveFile] = field(default_factory=list)

    @property
    def partition_fields(self) -> tuple[StructField, ...]:
        """The partition columns, in order."""
        by_name = {column.name: column for column in self.schema}
        return tuple(by_name[name] for name in self.partition_by)


def _existing_target(request: _Request) -> _Target:
    table = request.table
    transaction = table.transaction("WRITE", operation_parameters=_parameters(request))
    if request.mode == "overwrite":
        snapshot = transaction.read_table()
    else:
        # The very version that the transaction is based on: a change of the schema since then is a
        # conflict that the commit finds.
        snapshot = table.snapshot(version=transaction.read_version)
    _check_no_column_mapping(snapshot.protocol, snapshot.metadata, table.uri)
    partition_by = snapshot.metadata.partition_columns
    if request.partition_by not in ((), partition_by):
        raise InvalidArgumentError(
            f"the table is partitioned by {list(partition_by)}, not by "
            f"{list(request.partition_by)}; leave partition_by out",
            table=table.uri,
        )
    domain = snapshot.domains.get(DOMAIN)
    target = _Target(
        transaction,
        snapshot.schema,
        partition_by,
        snapshot.properties,
        parse_clustering_columns(domain.configuration, table=table.uri) if domain else (),
    )
    if request.mode != "overwrite":
        return target
    now = _now_ms()
    # A loop over files: a transaction takes its actions one by one.
    adds = snapshot.files().to_pylist()
    removes = [_remove(AddFile.from_json(_add_json(add), "add"), now) for add in adds]
    return replace(target, replaced=removes)


def _new_target(request: _Request, rows: DataFrame) -> _Target:
    uri, properties = request.table.uri, dict(request.properties)
    schema = new_table_schema(rows)
    unknown = [name for name in request.partition_by if schema.field(name) is None]
    if unknown or len(set(request.partition_by)) < len(request.partition_by):
        raise InvalidArgumentError(
            f"partition_by={list(request.partition_by)}: expected different columns of the rows, "
            f"which have {', '.join(schema.names)}",
            table=uri,
        )
    protocol, stored = protocol_for_new_table(schema, properties, table=uri)
    metadata = Metadata(
        id=str(uuid.uuid4()),
        schema_string=schema_to_json(schema),
        partition_columns=request.partition_by,
        created_time=_now_ms(),
        configuration=stored,
    )
    _check_no_column_mapping(protocol, metadata, uri)
    transaction = OptimisticTransaction(
        request.table.storage, None, "WRITE", operation_parameters=_parameters(request)
    )
    transaction.set_protocol(protocol)
    transaction.set_metadata(metadata)
    return _Target(
        transaction, schema, request.partition_by, TableProperties(stored, uri), exists=False
    )


def _parameters(request: _Request) -> dict[str, object]:
    return {"mode": _MODES[request.mode], "partitionBy": list(request.partition_by)}


def _check_no_column_mapping(protocol: Protocol, metadata: Metadata, uri: str) -> None:
    """The engine commits mapped files that others have written; files made here aren't mapped."""
    mode = mapping_mode(protocol, metadata, table=uri)
    if mode != "none":
        raise UnsupportedFeatureError(
            f"the table has column mapping of mode {mode!r}, and data files aren't written with "
            "physical column names; write to a table without it",
            table=uri,
            features=("columnMapping",),
        )


def _write(rows: DataFrame, request: _Request, target: _Target) -> WriteResult:
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
    except (CommitConflictError, ConstraintViolationError, UnsupportedFeatureError):
        # Only what is known not to have committed: anything else may have, and needs its files.
        _delete(storage, directory)
        raise
    return WriteResult(commit.version, len(files), num_rows, size)


def _delete(storage: Storage, directory: str) -> None:
    storage.delete([info.path for info in storage.walk(directory)])


def _write_rows(rows: DataFrame, target: _Target, path: str) -> None:
    table = target.transaction.table
    check_rows_fit(rows, target.schema, table=table)
    stored = stored_columns(target.schema, target.partition_by, table=table)
    columns = [rows[quoted(column.name)] for column in stored]
    columns += [
        directory_text(rows[quoted(column.name)], column.data_type).alias(column.name)
        for column in target.partition_fields
    ]
    checked = with_not_null_checks(rows, target.schema).select(columns)
    try:
        write_data_files(checked, path, partition_by=target.partition_by)
    except PySparkException as error:
        _, found, rest = str(error).partition(NOT_NULL_VIOLATION)
        if not found:
            raise
        column = rest.split()[0]
        raise ConstraintViolationError(
            f"the rows have a null in the column {column}, which is NOT NULL",
            table=table,
            columns=(column,),
        ) from error


def _adds(files: Sequence[DataFile], directory: str, target: _Target) -> list[AddFile]:
    """An ``add`` for each file. A loop over files: those of one write, whose footers were read."""
    stored = stored_columns(target.schema, target.partition_by, table=target.transaction.table)
    columns = indexed_columns(stored, target.properties, also=target.clustered_by)
    return [
        AddFile(
            path=encode_path(file.info.path),
            partition_values=partition_values(
                file.info.path.removeprefix(f"{directory}/").split("/")[:-1],
                target.partition_fields,
            ),
            size=file.info.size,
            modification_time=file.info.modified_ms,
            data_change=True,
            stats=file_statistics(file.footer, columns),
        )
        for file in files
    ]


def _add_json(add: Mapping[str, object]) -> dict[str, object]:
    """A row of the engine's table of adds as the JSON of the action: maps as objects."""
    maps = ("partitionValues", "tags")
    return {
        name: dict(value) if name in maps and isinstance(value, list) else value
        for name, value in add.items()
        if value is not None
    }


def _remove(add: AddFile, now_ms: int) -> RemoveFile:
    return RemoveFile(
        path=add.path,
        data_change=True,
        deletion_timestamp=now_ms,
        extended_file_metadata=True,
        partition_values=add.partition_values,
        size=add.size,
        stats=add.stats,
        tags=add.tags,
        deletion_vector=add.deletion_vector,
        base_row_id=add.base_row_id,
        default_row_commit_version=add.default_row_commit_version,
    )


def _now_ms() -> int:
    return int(datetime.now(timezone.utc).timestamp() * 1000)

"""The target of a write: an existing table, or one that the write creates.

Both are a transaction that has begun, so that the commit finds the changes of other writers
from here on, with what the rows must be like.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from airflow_delta.engine import DeltaTable, OptimisticTransaction, RemoveFile
from airflow_delta.engine.errors import (
    InvalidArgumentError,
    InvalidTableError,
    UnsupportedFeatureError,
)
from airflow_delta.engine.features.clustering import DOMAIN, parse_clustering_columns
from airflow_delta.engine.features.column_mapping import mapping_mode
from airflow_delta.engine.features.column_names import check_column_names
from airflow_delta.engine.features.protocol import Operation, check_writable
from airflow_delta.engine.features.requests.new_table import new_table
from airflow_delta.engine.model.actions import Metadata, Protocol
from airflow_delta.engine.model.properties import TableProperties
from airflow_delta.engine.model.schema import StructField, StructType
from airflow_delta.engine.transaction.creation import begin_creation
from airflow_delta.spark.writer.log_actions import live_files, removal
from airflow_delta.spark.writer.row_rules import new_table_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from airflow_delta.engine import Snapshot

__all__ = ["MODES", "WriteRequest", "WriteTarget", "existing_target", "new_target"]

MODES = {"append": "Append", "overwrite": "Overwrite", "error": "ErrorIfExists"}
"""The modes of a write, and their names in a commit, as in Delta Spark."""


@dataclass(frozen=True, slots=True)
class WriteRequest:
    """A write to be made; see `airflow_delta.spark.writer.write.write_table`."""

    table: DeltaTable
    mode: str
    partition_by: tuple[str, ...]
    properties: Mapping[str, str]
    transactions: Mapping[str, int]
    check: Callable[[Snapshot], None] | None = None


@dataclass(frozen=True, slots=True)
class WriteTarget:
    """The table to which the rows are written.

    Attributes:
        transaction: the transaction; for a new table, protocol and metadata are staged.
        schema: the table's.
        partition_by: its partition columns.
        properties: its properties.
        clustered_by: the paths of its clustering columns.
        exists: False for a new table.
        replaced: the ``remove`` actions of the files that the write replaces.
    """

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


def existing_target(request: WriteRequest) -> WriteTarget:
    """Begin a write to an existing table.

    Raises:
        InvalidArgumentError: the requested partitioning isn't the table's.
        UnsupportedFeatureError: the table needs a writer feature that isn't supported here.
        DeltaError: the table can't be read, or the request's ``check`` refuses it.
    """
    table = request.table
    overwrites = request.mode == "overwrite"
    transaction = table.transaction(
        "WRITE",
        operation_parameters=_parameters(request),
        # All rows are deleted and others inserted: the add and remove actions are the changes,
        # without cdc files.
        enforces=["changeDataFeed"] if overwrites else (),
    )
    # The version that the transaction is based on: the commit finds later changes of the schema as
    # conflicts.
    snapshot = transaction.read_table() if overwrites else transaction.base
    if request.check is not None:
        request.check(snapshot)
    _check_rows_can_be_made(snapshot.protocol, snapshot.metadata, table.uri)
    partition_by = snapshot.metadata.partition_columns
    if request.partition_by not in ((), partition_by):
        raise InvalidArgumentError(
            f"the table is partitioned by {list(partition_by)}, not by "
            f"{list(request.partition_by)}; leave partition_by out",
            table=table.uri,
        )
    domain = snapshot.domains.get(DOMAIN)
    target = WriteTarget(
        transaction,
        snapshot.schema,
        partition_by,
        snapshot.properties,
        parse_clustering_columns(domain.configuration, table=table.uri) if domain else (),
    )
    if not overwrites:
        return target
    removes = [removal(add, data_change=True) for add in live_files(snapshot.files())]
    return replace(target, replaced=removes)


def new_target(request: WriteRequest, rows: DataFrame) -> WriteTarget:
    """Begin to create a table with the columns of a DataFrame.

    Raises:
        InvalidArgumentError: the partition columns aren't different columns of the rows, or a
            property is invalid.
        InvalidTableError: the protocol doesn't have a column's type, or not for partition columns; or a
            column's name needs column mapping.
        UnsupportedFeatureError: the properties need a feature that isn't supported here.
    """
    uri, properties = request.table.uri, dict(request.properties)
    schema = new_table_schema(rows)
    unknown = [name for name in request.partition_by if schema.field(name) is None]
    if unknown or len(set(request.partition_by)) < len(request.partition_by):
        raise InvalidArgumentError(
            f"partition_by={list(request.partition_by)}: expected different columns of the rows, "
            f"which have {', '.join(schema.names)}",
            table=uri,
        )
    _check_names(schema, request.partition_by, uri)
    made = new_table(
        schema,
        properties,
        partition_by=request.partition_by,
        unique=lambda: str(uuid.uuid4()),
        table=uri,
    )
    _check_rows_can_be_made(made.protocol, made.metadata(id=""), uri)
    transaction = begin_creation(
        request.table.storage, made, "WRITE", operation_parameters=_parameters(request)
    )
    return WriteTarget(
        transaction,
        made.schema,
        request.partition_by,
        TableProperties(made.configuration, uri),
        exists=False,
    )


def _parameters(request: WriteRequest) -> dict[str, object]:
    return {"mode": MODES[request.mode], "partitionBy": list(request.partition_by)}


def _check_names(schema: StructType, partition_by: tuple[str, ...], uri: str) -> None:
    """Refuse names that need column mapping; the engine's own error would advise to enable it."""
    stored = StructType(tuple(column for column in schema if column.name not in partition_by))
    try:
        check_column_names(stored, table=uri)
    except InvalidTableError as error:
        raise InvalidTableError(
            f"the names of the columns {list(error.columns)} have a character that needs column mapping, "
            "and data files aren't written with physical column names: rename them in the rows",
            table=uri,
            columns=error.columns,
        ) from error


def _check_rows_can_be_made(protocol: Protocol, metadata: Metadata, uri: str) -> None:
    """Refuse tables that the commit would refuse, and tables with column mapping.

    Files written here follow no feature's rules for rows, and have no physical column names.
    """
    check_writable(protocol, metadata, table=uri, operation=Operation.APPEND)
    mode = mapping_mode(protocol, metadata, table=uri)
    if mode != "none":
        raise UnsupportedFeatureError(
            f"the table has column mapping of mode {mode!r}, and data files aren't written with "
            "physical column names; write to a table without it",
            table=uri,
            features=("columnMapping",),
        )

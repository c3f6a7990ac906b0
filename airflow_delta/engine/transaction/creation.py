"""Create an empty table: version 0 is its protocol, its metadata and its metadata domains.

What they are is decided by `features.new_table`; here they become a commit.

PROTOCOL.md, "Change Metadata" and "Partition Columns"; edge cases E17, E18.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from airflow_delta.engine.commit.registry import CommitOwners
from airflow_delta.engine.errors import TableAlreadyExistsError, TableNotFoundError
from airflow_delta.engine.features.column_changes.column_paths import ColumnName, column_path
from airflow_delta.engine.features.managed_commits import request_owner
from airflow_delta.engine.features.requests.new_table import NewTable, new_table
from airflow_delta.engine.log.newest import find_latest_version
from airflow_delta.engine.model.arguments import check_list, check_text, check_type
from airflow_delta.engine.model.schema import StructType
from airflow_delta.engine.model.schema_arguments import check_fields
from airflow_delta.engine.model.sql_names import sql_name
from airflow_delta.engine.snapshot.table_schema import table_schema
from airflow_delta.engine.storage.base import Storage
from airflow_delta.engine.transaction.intent import SystemDomain
from airflow_delta.engine.transaction.transaction import OptimisticTransaction
from airflow_delta.engine.transaction.unique import unique_text

__all__ = ["begin_creation", "create_table"]


def create_table(
    storage: Storage,
    schema: StructType,
    *,
    partition_by: Sequence[str] = (),
    cluster_by: Sequence[ColumnName] = (),
    properties: Mapping[str, str] | None = None,
    owner: str | None = None,
    conf: Mapping[str, str] | None = None,
    name: str | None = None,
    description: str | None = None,
    owners: CommitOwners | None = None,
) -> None:
    """Commit version 0 of a table.

    Args:
        storage: where the table is to be.
        schema: the columns.
        partition_by: partition columns, in order.
        cluster_by: clustering columns, in order; a column inside a struct as a list of names.
        properties: table properties; ``delta.feature.<name>=supported`` adds a feature.
        owner: the name of the commit owner that gets the table; None for what the properties say.
        conf: what the owner is to know of the table; the engine adds the table's id.
        name: a name for the metadata.
        description: a description for the metadata.
        owners: the commit owners that there are; those that are installed unless given.

    Raises:
        TableAlreadyExistsError: there is a table.
        InvalidArgumentError: an argument isn't of the type above; the partition columns aren't
            different columns, or are all there are; the table can't be clustered by the clustering
            columns; or a property is unknown, has a value that it can't have, or is for commits to
            write; or properties and ``owner`` both name a commit owner.
        InvalidTableError: schema, partitioning and properties don't fit together, or there are remains
            of a former table's log.
        UnsupportedFeatureError: the properties ask for a feature that the engine can't write.
        CommitOwnerError: the commit owner that the properties name isn't known here, can't be reached, or
            doesn't agree.
        CommitOutcomeUnknownError: the store failed; the table may have been created.
        StorageError: the store failed, and no table was created.
    """
    table = storage.root
    check_type("schema", schema, StructType, "a StructType", table=table)
    check_fields("schema", schema.fields, table=table)
    check_list("cluster_by", cluster_by, "a list of columns, such as ['id']", table=table)
    check_text("name", name, optional=True, table=table)
    check_text("description", description, optional=True, table=table)
    wanted = {} if properties is None else properties
    if owner is not None or conf is not None:
        wanted = request_owner(wanted, owner, conf, table=table)
    _check_is_free(storage)
    made = new_table(
        schema,
        wanted,
        partition_by=partition_by,
        cluster_by=cluster_by,
        unique=unique_text,
        table=table,
    )
    transaction = begin_creation(
        storage,
        made,
        "CREATE TABLE",
        operation_parameters={
            "isManaged": "false",
            "description": description,
            "partitionBy": list(made.partition_columns),
            "clusterBy": [sql_name(column_path(column)) for column in cluster_by],
            "properties": made.configuration,
        },
        name=name,
        description=description,
        owners=owners,
    )
    transaction.commit()


def begin_creation(
    storage: Storage,
    made: NewTable,
    operation: str,
    *,
    operation_parameters: Mapping[str, Any],
    name: str | None = None,
    description: str | None = None,
    user_metadata: str | None = None,
    enforces: Iterable[str] = (),
    owners: CommitOwners | None = None,
) -> OptimisticTransaction:
    """A transaction that has all staged that makes a new table; data files may join it.

    Args:
        storage: where the table is to be.
        made: what it is.
        operation: what the commit calls itself, such as ``"CREATE TABLE"``.
        operation_parameters: its parameters, for ``commitInfo``.
        name: a name for the metadata.
        description: a description for the metadata.
        user_metadata: a text for ``commitInfo.userMetadata``.
        enforces: the features whose rules about rows the writer of the data files has enforced.
        owners: the commit owners that there are; those that are installed unless given.

    Raises:
        InvalidTableError: a partition column is of no primitive type, or there are remains of a former
            table's log.
    """
    metadata = made.metadata(
        id=unique_text(),
        name=name,
        description=description,
        created_time=time.time_ns() // 1_000_000,
    )
    table_schema(metadata, table=storage.root)
    transaction = OptimisticTransaction(
        storage,
        None,
        operation,
        operation_parameters=operation_parameters,
        user_metadata=user_metadata,
        enforces=enforces,
        owners=owners,
    )
    transaction.set_protocol(made.protocol)
    transaction.set_metadata(metadata)
    for domain in made.domains:
        transaction.declare(SystemDomain(domain))
    return transaction


def _check_is_free(storage: Storage) -> None:
    try:
        find_latest_version(storage)
    except TableNotFoundError:
        return
    raise TableAlreadyExistsError("there is a table already", table=storage.root, version=0)

"""Create an empty table.

Version 0 contains the protocol, the metadata and the metadata domains. `features.requests.new_table`
computes them from the user's arguments; this module commits them.

PROTOCOL.md, "Change Metadata" and "Partition Columns".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from airflow_delta.engine.clock import now_ms
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
        storage: the storage of the new table.
        schema: the columns.
        partition_by: partition columns, in order.
        cluster_by: clustering columns, in order; a column inside a struct is a list of names.
        properties: table properties; ``delta.feature.<name>=supported`` adds a feature.
        owner: the name of the commit owner that gets the table; None if the properties name it, if any.
        conf: the owner's configuration for the table; the engine adds the table's id.
        name: a name for the metadata.
        description: a description for the metadata.
        owners: the known commit owners; by default those that are installed.

    Raises:
        TableAlreadyExistsError: the table exists.
        InvalidArgumentError: an argument has the wrong type; a partition column is listed twice or isn't in
            the schema, or no other columns are left; the table can't be clustered by the clustering
            columns; a property is unknown, has an invalid value, or may only be set by commits; or
            ``owner`` and the properties both name a commit owner.
        InvalidTableError: schema, partitioning and properties contradict each other, or files of a former
            table's log are left.
        UnsupportedFeatureError: the properties request a feature that the engine can't write.
        CommitOwnerError: the commit owner isn't known here, can't be reached, or refuses the table.
        CommitOutcomeUnknownError: the store failed; the table may have been created.
        StorageError: the store failed, and no table was created.
    """
    table = storage.root
    check_type("schema", schema, StructType, "a StructType", table=table)
    check_fields("schema", schema.fields, table=table)
    check_list("cluster_by", cluster_by, "a list of columns, such as ['id']", table=table)
    check_text("name", name, optional=True, table=table)
    check_text("description", description, optional=True, table=table)
    requested = {} if properties is None else properties
    if owner is not None or conf is not None:
        requested = request_owner(requested, owner, conf, table=table)
    _check_does_not_exist(storage)
    definition = new_table(
        schema,
        requested,
        partition_by=partition_by,
        cluster_by=cluster_by,
        unique=unique_text,
        table=table,
    )
    transaction = begin_creation(
        storage,
        definition,
        "CREATE TABLE",
        operation_parameters={
            "isManaged": "false",
            "description": description,
            "partitionBy": list(definition.partition_columns),
            "clusterBy": [sql_name(column_path(column)) for column in cluster_by],
            "properties": definition.configuration,
        },
        name=name,
        description=description,
        owners=owners,
    )
    transaction.commit()


def begin_creation(
    storage: Storage,
    definition: NewTable,
    operation: str,
    *,
    operation_parameters: Mapping[str, Any],
    name: str | None = None,
    description: str | None = None,
    user_metadata: str | None = None,
    enforces: Iterable[str] = (),
    owners: CommitOwners | None = None,
) -> OptimisticTransaction:
    """Begin a transaction that creates a table. The caller may stage data files too, before it commits.

    Args:
        storage: the storage of the new table.
        definition: the definition of the table.
        operation: the name of the operation in ``commitInfo``, such as ``"CREATE TABLE"``.
        operation_parameters: its parameters.
        name: a name for the metadata.
        description: a description for the metadata.
        user_metadata: a text for ``commitInfo.userMetadata``.
        enforces: the features whose rules about rows the writer of the data files has enforced.
        owners: the known commit owners; by default those that are installed.

    Raises:
        InvalidTableError: a partition column isn't of a primitive type, or files of a former table's log
            are left.
    """
    metadata = definition.metadata(
        id=unique_text(),
        name=name,
        description=description,
        created_time=now_ms(),
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
    transaction.set_protocol(definition.protocol)
    transaction.set_metadata(metadata)
    for domain in definition.domains:
        transaction.declare(SystemDomain(domain))
    return transaction


def _check_does_not_exist(storage: Storage) -> None:
    try:
        find_latest_version(storage)
    except TableNotFoundError:
        return
    raise TableAlreadyExistsError("there is a table already", table=storage.root, version=0)

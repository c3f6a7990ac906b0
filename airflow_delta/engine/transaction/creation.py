"""Create an empty table: version 0 is its protocol and its metadata.

PROTOCOL.md, "Change Metadata" and "Partition Columns"; edge cases E17, E18.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping, Sequence

from airflow_delta.engine.errors import (
    InvalidArgumentError,
    TableAlreadyExistsError,
    TableNotFoundError,
)
from airflow_delta.engine.features.new_table import protocol_for_new_table
from airflow_delta.engine.log.newest import find_latest_version
from airflow_delta.engine.model.actions import Metadata
from airflow_delta.engine.model.schema import StructType
from airflow_delta.engine.model.schema_json import schema_to_json
from airflow_delta.engine.snapshot.table_schema import table_schema
from airflow_delta.engine.storage.base import Storage
from airflow_delta.engine.transaction.transaction import OptimisticTransaction

__all__ = ["create_table"]


def create_table(
    storage: Storage,
    schema: StructType,
    *,
    partition_by: Sequence[str] = (),
    properties: Mapping[str, str] | None = None,
    name: str | None = None,
    description: str | None = None,
) -> None:
    """Commit version 0 of a table.

    Args:
        storage: where the table is to be.
        schema: the columns.
        partition_by: partition columns, in order.
        properties: table properties; ``delta.feature.<name>=supported`` adds a feature.
        name: a name for the metadata.
        description: a description for the metadata.

    Raises:
        TableAlreadyExistsError: there is a table.
        InvalidArgumentError: the partition columns aren't different columns, or are all there are;
            or a property makes no sense.
        InvalidTableError: schema, partitioning and properties don't fit together, a property holds
            a value that it can't have, or there are remains of a former table's log.
        UnsupportedFeatureError: the properties ask for a feature that the engine can't write.
        CommitOutcomeUnknownError: the store failed; the table may have been created.
        StorageError: the store failed, and no table was created.
    """
    _check_is_free(storage)
    columns = _partition_columns(schema, partition_by, storage.root)
    protocol, stored = protocol_for_new_table(schema, dict(properties or {}), table=storage.root)
    metadata = Metadata(
        id=str(uuid.uuid4()),
        name=name,
        description=description,
        schema_string=schema_to_json(schema),
        partition_columns=columns,
        created_time=time.time_ns() // 1_000_000,
        configuration=stored,
    )
    table_schema(metadata, table=storage.root)
    transaction = OptimisticTransaction(
        storage,
        None,
        "CREATE TABLE",
        operation_parameters={
            "isManaged": "false",
            "description": description,
            "partitionBy": list(columns),
            "properties": stored,
        },
    )
    transaction.set_protocol(protocol)
    transaction.set_metadata(metadata)
    transaction.commit()


def _check_is_free(storage: Storage) -> None:
    try:
        find_latest_version(storage)
    except TableNotFoundError:
        return
    raise TableAlreadyExistsError("there is a table already", table=storage.root, version=0)


def _partition_columns(
    schema: StructType, partition_by: Sequence[str], table: str
) -> tuple[str, ...]:
    columns = tuple(partition_by)
    if isinstance(partition_by, str):
        problem = f"expected a list of columns, such as {[partition_by]}"
    elif unknown := [name for name in columns if schema.field(name) is None]:
        problem = f"{unknown} are no columns of the table, which has {', '.join(schema.names)}"
    elif len(set(columns)) < len(columns):
        problem = "a column can partition a table once"
    elif columns and len(columns) == len(schema.fields):
        problem = "these are all columns; a data file needs one that it holds itself"
    else:
        return columns
    raise InvalidArgumentError(f"partition_by={partition_by!r}: {problem}", table=table)

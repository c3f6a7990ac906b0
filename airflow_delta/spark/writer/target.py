"""The target of a write: an existing table, or one that the write creates or defines anew.

A target has a transaction that has begun, so that the commit finds all later changes of other writers, and
the protocol, metadata and schema that the table will have after the commit.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from airflow_delta.engine import OptimisticTransaction
from airflow_delta.engine.errors import (
    ConstraintViolationError,
    InvalidArgumentError,
    InvalidTableError,
)
from airflow_delta.engine.features.clustering import (
    DOMAIN,
    clustering_domain,
    parse_clustering_columns,
)
from airflow_delta.engine.features.column_mapping import mapping_mode, physical_paths
from airflow_delta.engine.features.feature import Support
from airflow_delta.engine.features.identity import FEATURE as IDENTITY
from airflow_delta.engine.features.identity import START, identity_columns
from airflow_delta.engine.features.negotiation.upgrade import upgrade_protocol
from airflow_delta.engine.features.protocol import Operation, check_writable, supported_features
from airflow_delta.engine.features.registry import FEATURES
from airflow_delta.engine.features.requests.new_table import new_table
from airflow_delta.engine.features.row_tracking import FEATURE as ROW_TRACKING
from airflow_delta.engine.features.schema_walk import SchemaPath
from airflow_delta.engine.model.actions import Metadata, Protocol
from airflow_delta.engine.model.properties import TableProperties
from airflow_delta.engine.model.schema import StructType
from airflow_delta.engine.model.schema_json import parse_schema
from airflow_delta.engine.snapshot.opening import open_snapshot
from airflow_delta.engine.transaction.alter.evolution import evolve_metadata, redefine_metadata
from airflow_delta.engine.transaction.creation import begin_creation
from airflow_delta.engine.transaction.intent import SystemDomain
from airflow_delta.spark.reader.versions_read import newest_versions_read
from airflow_delta.spark.writer.request import WriteRequest
from airflow_delta.spark.writer.rows_schema import new_table_schema, rows_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from airflow_delta.engine import Snapshot

__all__ = [
    "ENFORCED",
    "WriteTarget",
    "check_identity_feature",
    "existing_target",
    "new_target",
    "redefined_target",
    "replaced_version",
    "target_of",
]

ENFORCED = frozenset(
    name for name, feature in FEATURES.items() if feature.append is Support.IF_ENFORCED
)
"""The features whose rules about rows and files this writer keeps."""


@dataclass(frozen=True, slots=True)
class WriteTarget:
    """The table to which the rows are written, as it is after the commit.

    Attributes:
        transaction: the transaction; changes of protocol and metadata are staged.
        protocol: the table's protocol.
        metadata: its metadata.
        schema: its schema, logical names.
        clustered_by: the physical paths of its clustering columns.
        base: the version that the transaction is based on; None for a new table.
    """

    transaction: OptimisticTransaction
    protocol: Protocol
    metadata: Metadata
    schema: StructType
    clustered_by: tuple[SchemaPath, ...] = ()
    base: Snapshot | None = None

    @property
    def table(self) -> str:
        """The table's location."""
        return self.transaction.table

    @property
    def version(self) -> int:
        """The version that the transaction is based on; 0 for a new table."""
        return self.base.version if self.base else 0

    @property
    def partition_by(self) -> tuple[str, ...]:
        """The partition columns."""
        return self.metadata.partition_columns

    @property
    def properties(self) -> TableProperties:
        """The table's properties."""
        return TableProperties(self.metadata.configuration, self.table)

    @property
    def supported(self) -> frozenset[str]:
        """The features that the protocol supports."""
        return supported_features(self.protocol)

    @property
    def mode(self) -> str:
        """The column mapping mode."""
        return mapping_mode(self.protocol, self.metadata, table=self.table)


def target_of(transaction: OptimisticTransaction) -> WriteTarget:
    """The target of a transaction that leaves protocol and metadata as they are.

    Args:
        transaction: a transaction on an existing table.
    """
    base = transaction.base
    return WriteTarget(
        transaction, base.protocol, base.metadata, base.schema, _clustered_by(base), base
    )


def existing_target(request: WriteRequest, rows: DataFrame) -> WriteTarget:
    """Begin a write to an existing table.

    Args:
        request: what to do.
        rows: the rows, whose columns the table may get.

    Raises:
        InvalidArgumentError: the requested partitioning isn't the table's.
        ConstraintViolationError: the table is append-only, and the write would remove rows.
        UnsupportedFeatureError: the table needs a writer feature that isn't supported here.
        InvalidTableError: a feature of the table doesn't allow its new columns, or it has identity columns
            without the feature.
        DeltaError: the table can't be read, or the request's ``check`` refuses it.
    """
    table = request.table
    transaction = _begin(request, rows)
    # Later changes of protocol and metadata are conflicts, which the commit finds.
    base = transaction.read_table() if request.replaces_all else transaction.base
    if request.check is not None:
        request.check(base)
    if request.mode in ("error", "ignore"):
        # Nothing is written to a table that exists.
        return target_of(transaction)
    if request.mode == "overwrite" and base.properties.append_only and base.num_files:
        raise ConstraintViolationError(
            "the table is append-only (delta.appendOnly=true), and an overwrite removes rows: append "
            "instead, or set the property to false first",
            table=table.uri,
        )
    check_writable(
        base.protocol,
        base.metadata,
        table=table.uri,
        operation=Operation.APPEND,
        enforced=ENFORCED,
    )
    target = redefined_target(transaction, _metadata(request, base, rows))
    if request.overwrite_schema:
        target = _without_lost_clustering(target)
    check_identity_feature(target)
    if target.metadata != base.metadata:
        transaction.check_definition()
    return target


def check_identity_feature(target: WriteTarget) -> None:
    """Check that the values of identity columns of new rows can be recorded in the table.

    The commit checks it too, but only after the rows are written.

    Args:
        target: the table to which rows are added.

    Raises:
        InvalidTableError: there are identity columns, and the protocol lacks the feature; or an identity
            column can't be read. Facts: columns.
    """
    columns = tuple(column.name for column in identity_columns(target.schema))
    if columns and IDENTITY not in target.supported:
        raise InvalidTableError(
            f"the columns {list(columns)} are identity columns by their metadata ({START} and others), but "
            f"the protocol lacks the feature {IDENTITY}, so that no high water mark can be kept: add "
            f"it by DeltaTable.alter.add_feature('{IDENTITY}')",
            table=target.table,
            columns=columns,
        )


def redefined_target(transaction: OptimisticTransaction, metadata: Metadata) -> WriteTarget:
    """The target of a transaction that gives an existing table other metadata, which it stages.

    Args:
        transaction: a transaction on an existing table.
        metadata: the table's metadata after the commit. If they are unchanged, nothing is staged.

    Raises:
        UnsupportedFeatureError: the metadata need a feature that isn't supported here.
    """
    base = transaction.base
    if metadata == base.metadata:
        return target_of(transaction)
    protocol = upgrade_protocol(
        base.protocol, metadata, before=base.metadata, table=transaction.table
    )
    transaction.set_metadata(metadata)
    if protocol != base.protocol:
        transaction.set_protocol(protocol)
    schema = parse_schema(metadata.schema_string, transaction.table)
    return WriteTarget(transaction, protocol, metadata, schema, _clustered_by(base), base)


def new_target(request: WriteRequest, rows: DataFrame) -> WriteTarget:
    """Begin to create a table with the columns of a DataFrame.

    Raises:
        InvalidArgumentError: the partition or clustering columns aren't different columns of the rows, or a
            property is invalid.
        InvalidTableError: the protocol doesn't have a column's type, or not for partition columns; or a
            column's name needs column mapping.
        UnsupportedFeatureError: the properties need a feature that isn't supported here.
    """
    uri = request.table.uri
    made = new_table(
        new_table_schema(rows),
        dict(request.properties),
        partition_by=request.partition_by,
        cluster_by=request.cluster_by,
        unique=lambda: str(uuid.uuid4()),
        table=uri,
    )
    metadata = made.metadata(id="")
    check_writable(
        made.protocol, metadata, table=uri, operation=Operation.APPEND, enforced=ENFORCED
    )
    transaction = begin_creation(
        request.table.storage,
        made,
        "WRITE",
        operation_parameters=request.parameters(made.partition_columns),
        user_metadata=request.user_metadata,
        enforces=ENFORCED,
        owners=request.table.commit_owners,
    )
    transaction.check_definition()
    clustered_by = [
        parse_clustering_columns(domain.configuration, table=uri)
        for domain in made.domains
        if domain.domain == DOMAIN
    ]
    return WriteTarget(
        transaction,
        made.protocol,
        metadata,
        made.schema,
        clustered_by[0] if clustered_by else (),
    )


def replaced_version(request: WriteRequest, rows: DataFrame) -> int | None:
    """The version whose rows an overwrite replaces by rows that were read from the table itself.

    A commit after this read is a concurrent one, also if it was made before the overwrite began: its
    changes aren't in the rows, so the overwrite would undo them.

    Args:
        request: what to do.
        rows: the rows to write.

    Returns:
        The version; None for the newest one, whatever the rows are.
    """
    if request.mode != "overwrite":
        return None
    return min(newest_versions_read(rows, request.table), default=None)


def _begin(request: WriteRequest, rows: DataFrame) -> OptimisticTransaction:
    # All rows that an overwrite removes are deleted, and those that it adds are inserted: the add and
    # remove actions are the changes, without cdc files. Rows that it copies keep their row ids.
    overwrites = {"changeDataFeed", ROW_TRACKING} if request.mode == "overwrite" else set()
    table, version = request.table, replaced_version(request, rows)
    arguments: dict[str, Any] = {
        "operation_parameters": request.parameters(request.partition_by),
        "user_metadata": request.user_metadata,
        "enforces": sorted(ENFORCED | overwrites),
    }
    transaction = table.transaction("WRITE", **arguments)
    if version is not None and version < transaction.base.version:
        owners = table.commit_owners
        base = open_snapshot(table.storage, version, owners=owners, verified=True)
        transaction = OptimisticTransaction(
            table.storage, base, "WRITE", owners=owners, **arguments
        )
    partition_by = transaction.base.metadata.partition_columns
    writes = request.mode in ("append", "overwrite")
    if writes and not request.overwrite_schema and request.partition_by not in ((), partition_by):
        raise InvalidArgumentError(
            f"the table is partitioned by {list(partition_by)}, not by "
            f"{list(request.partition_by)}: leave partition_by out, or define the table anew by "
            "mode='overwrite' with overwrite_schema=True",
            table=request.table.uri,
        )
    return transaction


def _metadata(request: WriteRequest, base: Snapshot, rows: DataFrame) -> Metadata:
    """The table's metadata after the write."""
    if request.merge_schema:
        return evolve_metadata(base, new_table_schema(rows))
    if not request.overwrite_schema:
        return base.metadata
    schema = new_table_schema(rows)
    names = {name.lower(): name for name in schema.names}
    partition_by = request.partition_by or tuple(
        names[name.lower()] for name in base.metadata.partition_columns if name.lower() in names
    )
    unknown = [name for name in partition_by if schema.field(name) is None]
    if unknown or len(partition_by) == len(schema.fields):
        raise InvalidArgumentError(
            f"partition_by={list(partition_by)}: expected columns of the rows, and not all of them; the "
            f"rows have {', '.join(rows_schema(rows).names)}",
            table=request.table.uri,
        )
    return redefine_metadata(base, schema, partition_by)


def _clustered_by(base: Snapshot) -> tuple[SchemaPath, ...]:
    domain = base.domains.get(DOMAIN)
    return parse_clustering_columns(domain.configuration, table=base.table) if domain else ()


def _without_lost_clustering(target: WriteTarget) -> WriteTarget:
    """Remove the clustering of a table if the new columns lack one of its clustering columns."""
    known = set(physical_paths(target.schema, target.mode).values())
    if set(target.clustered_by) <= known:
        return target
    target.transaction.declare(SystemDomain(clustering_domain(())))
    return replace(target, clustered_by=())

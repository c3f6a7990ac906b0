"""`enable_iceberg_compat`: Iceberg compatibility for a table with data, whose files are written anew.

Files from before lack what Iceberg needs: partition columns, and ids of elements, keys and values. So one
commit sets the property, removes all files, and adds new ones with the same rows (``dataChange=false``).
Deletion vectors are applied. In Delta Spark this is ``REORG TABLE … APPLY (UPGRADE UNIFORM …)``, in two
commits.

Spec: PROTOCOL.md, "Iceberg Compatibility V1" and "Iceberg Compatibility V2".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_delta.engine import DeltaTable, Snapshot
from airflow_delta.engine.errors import InvalidArgumentError
from airflow_delta.engine.features.iceberg_compat import iceberg_compat_version
from airflow_delta.engine.features.protocol import (
    Operation,
    check_writable,
    supported_features,
)
from airflow_delta.engine.features.row_tracking import FEATURE as ROW_TRACKING
from airflow_delta.engine.transaction.alter.table_settings import set_properties
from airflow_delta.spark.rewrite.files import FileRewriter
from airflow_delta.spark.rewrite.stored_rows import FileForm
from airflow_delta.spark.writer.log_actions import removal
from airflow_delta.spark.writer.new_files import NewFiles, commit_files
from airflow_delta.spark.writer.target import ENFORCED

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from airflow_delta.engine import OptimisticTransaction
    from airflow_delta.engine.commit.owner import CommitOwner

__all__ = ["IcebergCompatResult", "enable_iceberg_compat"]

_VERSIONS = (1, 2)
_DELETION_VECTORS = "delta.enableDeletionVectors"


@dataclass(frozen=True, slots=True)
class IcebergCompatResult:
    """The result of enabling Iceberg compatibility.

    Attributes:
        version: the version of the table with it.
        num_removed_files: the number of files that were written anew.
        num_added_files: the number of new files.
        written: False if it was enabled already.
    """

    version: int
    num_removed_files: int = 0
    num_added_files: int = 0
    written: bool = True


def enable_iceberg_compat(
    spark: SparkSession,
    uri: str,
    version: int = 2,
    *,
    storage_options: Mapping[str, str] | None = None,
    commit_owners: Mapping[str, CommitOwner] | None = None,
    allowed_outside: Sequence[str] = (),
) -> IcebergCompatResult:
    """Enable Iceberg compatibility on a table, and write all of its files anew.

    The table gets column mapping by name if it has none; for version 2, ``delta.enableDeletionVectors``
    becomes false. If the version is in force already, nothing is done.

    Args:
        spark: the session; Spark reads and writes data files with the credentials of its own configuration.
        uri: the table's path or URI.
        version: the version of Iceberg compatibility, 1 or 2.
        storage_options: credentials and settings with which the engine commits.
        commit_owners: commit owners of managed tables by name, beside those that are installed.
        allowed_outside: locations outside of the table below which it may read files; see `DeltaTable`.

    Raises:
        InvalidArgumentError: the version isn't 1 or 2.
        InvalidTableError: the table has what the version excludes, such as a type, or the feature
            ``deletionVectors`` for version 1. The message says what to do.
        UnsupportedFeatureError: the table needs a writer feature that isn't supported here.
        CommitConflictError: another writer has changed the table concurrently.
        CommitOutcomeUnknownError: the store failed; the commit may have been made.
        DeltaError: the table or its files can't be read or written.
        PySparkException: Spark's own errors.
    """
    if version not in _VERSIONS:
        raise InvalidArgumentError(f"version={version!r}: expected 1 or 2", table=uri)
    table = DeltaTable(uri, storage_options, commit_owners, allowed_outside=allowed_outside)
    enforced = ENFORCED | {ROW_TRACKING}
    enabling = {f"delta.enableIcebergCompatV{version}": "true"}
    transaction = table.transaction(
        "SET TBLPROPERTIES",
        operation_parameters={"properties": enabling},
        enforces=sorted(enforced),
    )
    base = transaction.read_table()
    if iceberg_compat_version(supported_features(base.protocol), base.properties) == version:
        return IcebergCompatResult(base.version, written=False)
    check_writable(
        base.protocol,
        base.metadata,
        table=table.uri,
        operation=Operation.APPEND,
        enforced=enforced,
    )
    form = _stage_properties(transaction, base, enabling, version)
    with NewFiles(table) as new_files:
        rewritten = FileRewriter(spark, table, base, after=form).rewrite(
            base.files(), directory=new_files.new_directory()
        )
        added = [file for each in rewritten for file in each.successors]
        transaction.add_files(added)
        for each in rewritten:
            transaction.remove_file(removal(each.file, data_change=False))
        metrics = {"numRemovedFiles": len(rewritten), "numAddedFiles": len(added)}
        committed = commit_files(transaction, new_files, metrics)
        return IcebergCompatResult(committed, len(rewritten), len(added))


def _stage_properties(
    transaction: OptimisticTransaction, base: Snapshot, enabling: Mapping[str, str], version: int
) -> FileForm:
    """Stage the metadata and the protocol, and say what files must be like then."""
    properties = dict(enabling)
    if base.properties.column_mapping_mode == "none":
        properties["delta.columnMapping.mode"] = "name"
    if version > 1 and base.properties.deletion_vectors_enabled:
        properties[_DELETION_VECTORS] = "false"
    alteration = set_properties(base, properties)
    metadata, protocol = alteration.metadata, alteration.protocol or base.protocol
    transaction.set_metadata(metadata)
    if protocol != base.protocol:
        transaction.set_protocol(protocol)
    return FileForm.of(protocol, metadata, table=base.table)

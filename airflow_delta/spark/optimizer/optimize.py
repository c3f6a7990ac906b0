"""`optimize`: give the data files of a table a good size, or sort their rows, with Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.maintenance.optimize.execution import OptimizeResult, commit_rounds
from airflow_delta.engine.maintenance.optimize.plan import plan_optimization
from airflow_delta.engine.maintenance.optimize.settings import OptimizeRequest, OptimizeSettings
from airflow_delta.engine.maintenance.optimize.target import FileTarget
from airflow_delta.spark.optimizer.new_files import DirectoriesOfFiles
from airflow_delta.spark.optimizer.rounds import SparkRounds
from airflow_delta.spark.reader.data_files import WRITE_SETTINGS
from airflow_delta.spark.reader.own_sessions import own_session
from airflow_delta.spark.rewrite.stored_rows import StoredRows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from airflow_delta.engine.commit.owner import CommitOwner
    from airflow_delta.engine.features.column_changes.column_paths import ColumnName
    from airflow_delta.engine.scan.predicates.reading import PredicateLike

__all__ = ["optimize"]

_COMMIT_BYTES = 256 << 30
"""More than in the worker: Spark writes faster, and each commit waits for the slowest task."""

_SETTINGS = {
    **WRITE_SETTINGS,
    # A bin becomes one file.
    "spark.sql.files.maxRecordsPerFile": "0",
}


def optimize(
    spark: SparkSession,
    uri: str,
    where: PredicateLike | None = None,
    *,
    min_file_size: int | None = None,
    max_file_size: int | None = None,
    max_deleted_ratio: float | None = None,
    purge: bool = False,
    z_order_by: Sequence[ColumnName] = (),
    full: bool = False,
    max_bytes: int | None = None,
    commit_bytes: int | None = None,
    min_cube_size: int | None = None,
    storage_options: Mapping[str, str] | None = None,
    commit_owners: Mapping[str, CommitOwner] | None = None,
    allowed_outside: Sequence[str] = (),
) -> OptimizeResult:
    """Rewrite small files, and files with many deleted rows, as files of a good size, with Spark.

    Plan, commits and result are those of `DeltaTable.optimize`, and so are the arguments that aren't
    described here. Only the new files are written by Spark, below a new directory ``optimize-<uuid>`` of
    the table. Either of the two goes on where the other has stopped. `DeltaTable.optimize` with
    ``dry_run`` shows the plan.

    Args:
        spark: the session; Spark reads and writes data files with the credentials of its own configuration.
            Its settings stay as they are.
        uri: the table's path or URI.
        where: see `DeltaTable.optimize`.
        min_file_size: see there.
        max_file_size: see there.
        max_deleted_ratio: see there.
        purge: see there.
        z_order_by: see there.
        full: see there.
        max_bytes: see there.
        commit_bytes: the bytes of files after which what is done is committed; None for 256 GiB.
        min_cube_size: see there.
        storage_options: credentials and settings with which the engine reads the log and commits.
        commit_owners: commit owners of managed tables by name, beside those that are installed.
        allowed_outside: locations outside of the table below which it may read files; see `DeltaTable`.

    Raises:
        InvalidArgumentError: an argument makes no sense; see `DeltaTable.optimize`.
        InvalidTableError: a file has another number of rows than in its statistics, or lacks row ids; or
            the clustering columns, or a property, can't be read.
        UnsupportedFeatureError: the table can't be written, or Spark can't read a file because of its name.
        MetadataChangedError, ProtocolChangedError: others have changed the columns, or the protocol.
        CommitConflictError: others were faster, twenty times in a row.
        CommitOutcomeUnknownError: the store failed, and the last commit may have been made.
        StorageError: Spark can't read or write a file, or the store failed.
        DeltaError: the log is damaged.
        PySparkException: Spark's other errors.
    """
    table = DeltaTable(uri, storage_options, commit_owners, allowed_outside=allowed_outside)
    request = OptimizeRequest(
        where,
        min_file_size,
        max_file_size,
        max_deleted_ratio,
        purge,
        max_bytes,
        _COMMIT_BYTES if commit_bytes is None else commit_bytes,
        z_order_by,
        full,
        min_cube_size,
    )
    snapshot = table.snapshot()
    plan = plan_optimization(snapshot, OptimizeSettings.of(request, snapshot))
    if not plan.num_bins:
        return OptimizeResult(plan)
    target = FileTarget.of(snapshot, max_file_size=plan.settings.max_file_size)
    new_files = DirectoriesOfFiles(table.storage, target)
    session = own_session(spark, _SETTINGS)
    stored = StoredRows(session, table, snapshot)
    rounds = SparkRounds(session, table, stored, target, new_files, plan.settings.order)
    return commit_rounds(table.transaction, snapshot, plan, rounds, new_files)

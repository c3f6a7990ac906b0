"""Convert a directory: commit version 0 with the files that a plan has found.

Of two conversions at the same time one creates version 0, and the other fails. A directory that is a table
already stays as it is, as by the reference implementation.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from airflow_delta.engine.commit.registry import CommitOwners
from airflow_delta.engine.errors import TableNotFoundError
from airflow_delta.engine.log.newest import find_latest_version
from airflow_delta.engine.maintenance.convert.plan import (
    ConvertPlan,
    ConvertRequest,
    plan_conversion,
)
from airflow_delta.engine.model.file_actions import AddFile
from airflow_delta.engine.model.paths import encode_path
from airflow_delta.engine.snapshot.opening import open_newest
from airflow_delta.engine.snapshot.transactions import TransactionSearch
from airflow_delta.engine.storage.base import Storage
from airflow_delta.engine.storage.file_access import FileAccess
from airflow_delta.engine.transaction.creation import begin_creation
from airflow_delta.engine.transaction.once import earlier_commit
from airflow_delta.engine.transaction.staged import check_txn
from airflow_delta.engine.transaction.stale_log import check_no_stale_log

__all__ = ["ConvertResult", "convert_directory"]


@dataclass(frozen=True, slots=True)
class ConvertResult:
    """The result of a conversion.

    Attributes:
        plan: what was planned; None if the directory is a table already.
        version: the version of the table; None for a dry run.
        converted: whether this call has made the table.
        repeated: whether an earlier call with the same transaction identifier has made it.
        reason: why there is nothing to convert, as a sentence; else None.
    """

    plan: ConvertPlan | None
    version: int | None = None
    converted: bool = False
    repeated: bool = False
    reason: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """The report, as plain JSON values.

        Returns:
            ``version``, ``converted``, ``repeated``, ``reason``, and the entries of `ConvertPlan.to_dict`,
            which are None if the directory is a table already.
        """
        planned = ("files", "bytes", "rows", "columns", "partition_columns")
        return {
            "version": self.version,
            "converted": self.converted,
            "repeated": self.repeated,
            **(dict.fromkeys(planned) if self.plan is None else self.plan.to_dict()),
            "reason": self.reason,
        }


def convert_directory(
    access: FileAccess,
    owners: CommitOwners,
    request: ConvertRequest,
    *,
    once: tuple[str, int] | None = None,
    dry_run: bool = False,
) -> ConvertResult:
    """Convert a directory, unless it is a table already.

    Args:
        access: opens the files of the directory.
        owners: the known commit owners.
        request: the caller's arguments.
        once: a transaction identifier by which a later call finds the commit.
        dry_run: only plan.

    Raises:
        TableAlreadyExistsError: another writer has created the table concurrently.
        InvalidTableError: files of a former table's log are left; or see `plan_conversion`.
        CommitOutcomeUnknownError: the store failed; the table may have been created.
        DeltaError: see `plan_conversion`.
    """
    storage = access.storage
    if once is not None:
        check_txn(once, table=storage.root)
    existing = _find_table(storage, owners, once)
    if existing is not None:
        return existing
    check_no_stale_log(storage)
    plan = plan_conversion(access, request)
    if dry_run:
        return ConvertResult(plan)
    definition, partition_columns = plan.definition, plan.definition.partition_columns
    transaction = begin_creation(
        storage,
        definition,
        "CONVERT",
        operation_parameters={
            "numFiles": len(plan.files),
            "partitionedBy": list(partition_columns),
            "collectStats": plan.collects_statistics,
            "sourceFormat": "parquet",
        },
        owners=owners,
    )
    transaction.add_files(_adds(plan))
    if once is not None:
        transaction.set_transaction(*once)
    commit = transaction.commit(operation_metrics={"numConvertedFiles": len(plan.files)})
    return ConvertResult(plan, commit.version, converted=True)


def _find_table(
    storage: Storage, owners: CommitOwners, once: tuple[str, int] | None
) -> ConvertResult | None:
    try:
        version = find_latest_version(storage)
    except TableNotFoundError:
        return None
    if once is not None:
        newest = open_newest(storage, owners=owners)
        commit = earlier_commit(newest, *once, search=TransactionSearch())
        if commit is not None:
            reason = "an earlier try has converted the directory"
            return ConvertResult(None, commit.version, repeated=True, reason=reason)
    return ConvertResult(None, version, reason="the directory is a Delta table already")


def _adds(plan: ConvertPlan) -> Iterator[AddFile]:
    """The files as objects, which a transaction takes; some thousands of rows at a time."""
    names = plan.definition.partition_columns
    order = ("path", "size", "modificationTime", "stats", "partitionValues")
    for batch in plan.files.select(order).to_batches():
        rows = zip(*(column.to_pylist() for column in batch.columns), strict=True)
        for path, size, time, stats, values in rows:
            partition_values = dict(zip(names, values, strict=True))
            yield AddFile(
                encode_path(path), partition_values, size, time, data_change=True, stats=stats
            )

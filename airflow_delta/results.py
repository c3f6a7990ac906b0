"""The types of what tasks return: the dictionary that XCom has of each operator and sensor.

For tasks of your own that take a result, so that a type checker and an editor know its keys::

    from airflow_delta.results import PinResult

    @task
    def count(pin: PinResult) -> int | None:
        return pin["num_rows"]

    count(pin.output)

Each value is an XCom of its own as well: ``pin.output["num_rows"]``. Importing this module imports neither
Airflow nor the engine.
"""

from __future__ import annotations

from typing import Any, TypedDict

__all__ = [
    "BackfillResult",
    "BackfillWaitResult",
    "ChangeFeedResult",
    "ChangesAppended",
    "CheckpointResult",
    "CommitOwnershipResult",
    "CompactionReport",
    "ConvertResult",
    "CopyResult",
    "DeletionPlanResult",
    "DropFeatureResult",
    "EventPinResult",
    "FileCount",
    "LogCompactionResult",
    "MetadataCleanupResult",
    "OptimizePlanResult",
    "OptimizeResult",
    "PinResult",
    "RestoreCheckpoint",
    "RestoreResult",
    "RowChangeResult",
    "RowRuleResult",
    "RowTrackingResult",
    "TableProfileResult",
    "TruncatedHistory",
    "TruncationWaitResult",
    "VacuumResult",
    "VersionWaitResult",
    "WriteTaskResult",
]


class VersionWaitResult(TypedDict):
    """The result of `TableVersionSensor`."""

    table_uri: str
    version: int


class BackfillWaitResult(TypedDict):
    """The result of `BackfillSensor`."""

    table_uri: str
    version: int
    ratified_version: int
    backfilled_version: int
    lag: int


class TruncationWaitResult(TypedDict):
    """The result of `TruncationSensor`."""

    table_uri: str
    version: int
    feature: str
    dropped: bool
    ready_at: str | None
    reason: str | None


class PinResult(TypedDict):
    """The result of `TimeTravelSnapshotOperator`: the version that it pins."""

    table_uri: str
    version: int
    timestamp_ms: int | None
    num_files: int
    size_in_bytes: int
    num_rows: int | None


class EventPinResult(PinResult):
    """The result of `TimeTravelSnapshotOperator` with ``version="triggering_event"``."""

    after_version: int | None


class CopyResult(PinResult):
    """The result of `TimeTravelSnapshotOperator` if it copies the version."""

    target_uri: str
    target_version: int | None
    target_num_files: int
    target_num_rows: int | None
    expires_at: str | None
    deleted_copies: list[str]


class TableProfileResult(PinResult):
    """The result of `TableProfileOperator`."""

    num_partitions: int | None
    counted_by: str
    columns: dict[str, dict[str, Any]]


class ChangeFeedResult(TypedDict):
    """The result of `ChangeFeedOperator` without a target."""

    table_uri: str
    table_id: str
    version: int
    start_version: int
    end_version: int
    num_files: int


class ChangesAppended(ChangeFeedResult):
    """The result of `ChangeFeedOperator` with a target."""

    target_uri: str
    target_version: int | None
    appended: bool
    num_changes: int | None
    counts: dict[str, int] | None


class CheckpointResult(TypedDict):
    """The result of `CheckpointOperator`."""

    table_uri: str
    version: int
    kind: str
    path: str
    written: bool
    reason: str | None
    files: int | None
    bytes: int | None
    rows: int | None
    sidecars_written: int | None
    sidecars_reused: int | None
    duration_ms: int
    engine: str


class LogCompactionResult(TypedDict):
    """The result of `LogCompactionOperator`."""

    table_uri: str
    version: int
    kind: str
    start: int
    end: int
    path: str
    files: int
    bytes: int | None
    rows: int | None
    written: bool
    duration_ms: int


class MetadataCleanupResult(TypedDict):
    """The result of `MetadataCleanupOperator`."""

    table_uri: str
    version: int
    cutoff: str
    cutoff_version: int | None
    checkpoint: int | None
    earliest_version: int
    num_protected_versions: int
    files: int
    bytes: int
    num_deleted: int
    num_spared: int
    deletes: list[dict[str, Any]]
    keeps: list[dict[str, Any]]
    wanted_checkpoint: int | None
    reason: str | None
    dry_run: bool
    duration_ms: int


class ConvertResult(TypedDict):
    """The result of `ConvertToDeltaOperator`."""

    table_uri: str
    version: int | None
    converted: bool
    repeated: bool
    files: int | None
    bytes: int | None
    rows: int | None
    columns: dict[str, str] | None
    partition_columns: list[str] | None
    reason: str | None
    dry_run: bool
    duration_ms: int


class OptimizePlanResult(TypedDict):
    """The files that an optimization rewrites, or why it rewrites nothing."""

    version: int
    files: int
    bytes: int
    new_files: int
    partitions: int
    deleted_rows: int
    live_files: int
    postponed_files: int
    min_file_size: int
    max_file_size: int
    z_order_by: list[str]
    cluster_by: list[str]
    full: bool
    reason: str | None


class OptimizeResult(TypedDict):
    """The result of `OptimizeOperator`."""

    table_uri: str
    version: int
    commits: int
    first_version: int | None
    last_version: int | None
    files_removed: int
    bytes_removed: int
    files_added: int
    bytes_added: int
    files_copied: int
    files_lost: int
    plan: OptimizePlanResult
    dry_run: bool
    duration_ms: int
    engine: str


class FileCount(TypedDict):
    """Files, and how many bytes they have."""

    files: int
    bytes: int


class VacuumResult(TypedDict):
    """The result of `VacuumOperator`."""

    table_uri: str
    version: int
    mode: str
    retention_hours: float
    cutoff: str
    files: int
    bytes: int
    by_kind: dict[str, FileCount]
    examples: list[str]
    num_deleted: int
    bytes_deleted: int
    kept: dict[str, int]
    oldest_restorable: int
    reason: str | None
    dry_run: bool
    duration_ms: int
    engine: str


class RestoreCheckpoint(TypedDict):
    """The checkpoint that a restore writes."""

    version: int
    path: str | None
    written: bool
    reason: str | None


class RestoreResult(TypedDict):
    """The result of `RestoreOperator`."""

    table_uri: str
    table_id: str
    version: int
    restored_version: int | None
    committed: bool
    repeated: bool
    files_restored: int | None
    files_removed: int | None
    bytes_restored: int | None
    bytes_removed: int | None
    files: int | None
    bytes: int | None
    files_missing: list[str] | None
    checkpoint: RestoreCheckpoint | None
    dry_run: bool
    duration_ms: int


class TruncatedHistory(TypedDict):
    """The history that dropping a feature truncates."""

    files: int
    bytes: int
    earliest_version: int


class DropFeatureResult(TypedDict):
    """The result of `DropFeatureOperator`."""

    table_uri: str
    version: int
    feature: str
    way: str
    status: str
    reason: str | None
    steps: list[str]
    ready_at: str | None
    files_to_rewrite: int
    bytes_to_rewrite: int
    cleanup: TruncatedHistory | None
    num_commits: int
    first_version: int | None
    last_version: int | None
    dry_run: bool
    duration_ms: int


class RowChangeResult(TypedDict):
    """The result of `DeleteOperator`, `UpdateOperator` and `MergeOperator`."""

    table_uri: str
    table_id: str | None
    version: int
    committed: bool
    repeated: bool
    metrics: dict[str, int] | None


class CompactionReport(TypedDict):
    """The report of the compaction after a write; see `airflow_delta.spark.ingest.auto_compaction`."""

    version: int | None
    num_removed_files: int
    num_added_files: int
    error: str | None


class WriteTaskResult(RowChangeResult):
    """The result of `WriteOperator`."""

    compaction: CompactionReport | None


class DeletionPlanResult(TypedDict):
    """The result of a dry run of `DeleteOperator`."""

    table_uri: str
    version: int
    num_files: int
    size_in_bytes: int
    max_rows: int | None
    num_whole_files: int
    examples: list[str]


class RowRuleResult(TypedDict):
    """The result of `AddConstraintOperator` and `SetNotNullOperator`."""

    table_uri: str
    version: int
    repeated: bool


class RowTrackingResult(TypedDict):
    """The result of `EnableRowTrackingOperator`."""

    table_uri: str
    version: int
    enabled: bool
    files: int
    files_backfilled: int
    num_commits: int
    first_version: int | None
    last_version: int | None
    steps: list[str]
    dry_run: bool
    duration_ms: int


class BackfillResult(TypedDict):
    """The result of `BackfillOperator`."""

    table_uri: str
    version: int
    ratified_version: int
    backfilled_version: int
    lag: int
    num_backfilled: int
    duration_ms: int


class CommitOwnershipResult(TypedDict):
    """The result of `ConvertToManagedCommitOperator` and `ConvertToFileSystemOperator`."""

    table_uri: str
    version: int
    owner: str | None
    converted: bool

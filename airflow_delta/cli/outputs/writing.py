"""The types of what the subcommands that write print with ``--json``, and on standard error."""

from __future__ import annotations

from typing import Any, Literal, TypedDict

from airflow_delta.results import FileCount, OptimizePlanResult

__all__ = [
    "BackfillReport",
    "CheckpointReport",
    "CleanupReport",
    "CommitReport",
    "CompactionReport",
    "ConvertReport",
    "DropFeatureReport",
    "ErrorLine",
    "OptimizeReport",
    "RestoreReport",
    "VacuumReport",
    "WarningLine",
]


class _Report(TypedDict):
    table_uri: str
    version: int
    dry_run: bool


class CheckpointReport(_Report):
    """Output of ``checkpoint``."""

    kind: str
    path: str
    written: bool
    reason: str | None
    files: int | None
    bytes: int | None
    rows: int | None
    sidecars_written: int | None
    sidecars_reused: int | None


class CompactionReport(_Report):
    """Output of ``compact-log``."""

    kind: str
    start: int | None
    end: int | None
    path: str | None
    files: int
    bytes: int | None
    rows: int | None
    written: bool
    reason: str | None


class BackfillReport(_Report):
    """Output of ``backfill``."""

    ratified_version: int
    backfilled_version: int
    lag: int
    num_backfilled: int


class CleanupReport(_Report):
    """Output of ``cleanup``."""

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


class ConvertReport(TypedDict):
    """Output of ``convert``."""

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


class OptimizeReport(_Report):
    """Output of ``optimize``."""

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


class VacuumReport(_Report):
    """Output of ``vacuum``."""

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


class RestoreReport(_Report):
    """Output of ``restore``."""

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


class DropFeatureReport(_Report):
    """Output of ``drop-feature``."""

    feature: str
    way: str
    status: Literal["dropped", "needs rewrite", "waiting", "planned"]
    reason: str | None
    steps: list[str]
    ready_at: str | None
    files_to_rewrite: int
    bytes_to_rewrite: int
    cleanup: dict[str, int] | None
    num_commits: int
    first_version: int | None
    last_version: int | None


class CommitReport(_Report):
    """Output of the changes of ``alter``."""

    timestamp_ms: int | None
    timestamp: str | None
    num_files_added: int
    num_files_removed: int
    attempts: int
    checkpoint_due: bool
    repeated: bool


class _ErrorFacts(TypedDict):
    type: str
    message: str
    table_uri: str | None
    facts: dict[str, Any]


class ErrorLine(TypedDict):
    """The last line on standard error if the exit status isn't 0.

    There is none if the result itself is the reason: ``doctor`` has found an error (1), or ``drop-feature``
    hasn't dropped the feature yet (3).
    """

    error: _ErrorFacts


class _WarningFacts(TypedDict):
    type: str
    message: str


class WarningLine(TypedDict):
    """Any other line on standard error."""

    warning: _WarningFacts

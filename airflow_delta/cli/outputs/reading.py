"""The types of what the subcommands that read print with ``--json``."""

from __future__ import annotations

from typing import Any, Literal, TypedDict

__all__ = [
    "Check",
    "Commit",
    "Commits",
    "Description",
    "Difference",
    "File",
    "Health",
    "ScanReport",
]


class _Feature(TypedDict):
    name: str
    supported: bool
    active: bool
    can_read: bool
    can_write: bool
    note: str


class _CheckpointStatus(TypedDict):
    version: int | None
    commits_since: int
    interval: int | None
    due: bool | None


class _CleanupStatus(TypedDict):
    files: int | None
    due: bool | None
    reason: str | None


class _VacuumStatus(TypedDict):
    vacuumed_version: int | None
    noted_at: str | None
    due: bool | None
    reason: str | None


class _Maintenance(TypedDict):
    version: int
    checkpoint: _CheckpointStatus
    cleanup: _CleanupStatus
    vacuum: _VacuumStatus


class Description(TypedDict):
    """Output of ``describe``; ``schema`` has the fields of the protocol's schema."""

    table_uri: str
    version: int
    timestamp: str | None
    id: str
    name: str | None
    description: str | None
    num_files: int
    size_in_bytes: int
    num_rows: int | None
    partition_columns: list[str]
    reader_version: int
    writer_version: int
    table_features: list[_Feature]
    properties: dict[str, str]
    maintenance: _Maintenance | None
    schema: list[dict[str, Any]]


class Commit(TypedDict):
    """A line of the output of ``history``."""

    version: int
    timestamp: str | None
    operation: str | None
    operation_parameters: dict[str, Any] | None
    operation_metrics: dict[str, Any] | None
    engine: str | None
    in_commit_timestamp: str | None
    txn_id: str | None
    read_version: int | None
    isolation_level: str | None
    is_blind_append: bool | None
    user_metadata: str | None
    task_run: dict[str, Any] | None


class File(TypedDict):
    """A line of the output of ``files``."""

    path: str
    size_in_bytes: int
    num_rows: int | None
    num_deleted_rows: int
    modification_time: str | None
    partition_values: dict[str, str | None]


class ScanReport(TypedDict):
    """Output of ``scan --output``. Without it each line is a row, an object with the table's columns."""

    table_uri: str
    version: int
    output: str
    format: Literal["csv", "json", "parquet", "arrow"]
    num_rows: int
    bytes_written: int
    dry_run: bool


class _FileSet(TypedDict):
    files: int
    bytes: int
    rows: int | None


class _Counts(TypedDict):
    before: int | None
    after: int | None


class _ColumnChange(TypedDict):
    change: Literal[
        "added",
        "dropped",
        "renamed",
        "type widened",
        "type changed",
        "nullability changed",
        "metadata changed",
    ]
    column: str
    before: Any
    after: Any
    key: str | None


class _Names(TypedDict):
    before: list[str]
    after: list[str]


class _Texts(TypedDict):
    before: str
    after: str


class _PropertyChanges(TypedDict):
    added: dict[str, str]
    removed: dict[str, str]
    changed: dict[str, _Texts]


class _ProtocolChanges(TypedDict):
    reader_version: _Counts
    writer_version: _Counts
    features_added: list[str]
    features_removed: list[str]


class _FileLists(TypedDict, total=False):
    added_file_list: list[File]
    removed_file_list: list[File]


class Difference(_FileLists):
    """Output of ``diff``; the lists of files are there with ``--files``.

    The ids of the table differ if it was replaced between the versions.
    """

    table_uri: str
    from_version: int
    to_version: int
    table_id: _Texts
    files_added: _FileSet
    files_removed: _FileSet
    files_in_both: int
    files_with_other_deletion_vector: int
    rows: _Counts
    schema: list[_ColumnChange]
    partition_columns: _Names
    properties: _PropertyChanges
    protocol: _ProtocolChanges


class _OwnerChanges(TypedDict, total=False):
    relocated_from: str
    relocated_to: str
    accepted_version: int
    given_up_version: int
    dry_run: bool


class Commits(_OwnerChanges):
    """Output of ``commits``; it has the changes of the owner's records that were made.

    If ``dry_run`` is true, ``--accept-log`` has changed nothing, and would make the changes with ``--yes``.
    """

    table_uri: str
    owner: str | None
    standing: str | None
    accepts_commits: bool | None
    ratified_version: int | None
    backfilled_version: int | None
    lag: int | None


class _Finding(TypedDict):
    severity: Literal["error", "warning", "info"]
    code: str
    message: str
    remedy: str
    mend: str


class Check(TypedDict):
    """Output of ``doctor``; ``mend`` is the former name of ``remedy``."""

    table_uri: str
    version: int
    depth: Literal["quick", "log", "files"]
    ok: bool
    num_errors: int
    num_warnings: int
    num_infos: int
    findings: list[_Finding]


class _Gain(TypedDict):
    files: int | None
    bytes: int | None
    reason: str | None


class Health(TypedDict):
    """Output of ``health``."""

    table_uri: str
    version: int
    timestamp: str | None
    age_seconds: int | None
    files: int
    bytes: int
    small_files: int
    small_bytes: int
    files_with_deleted_rows: int
    deleted_rows: int
    tombstones: int
    tombstone_bytes: int
    commits_since_checkpoint: int
    bytes_since_checkpoint: int
    log_files: int
    log_bytes: int
    gains: dict[str, _Gain]

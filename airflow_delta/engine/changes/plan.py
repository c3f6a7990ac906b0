"""`plan_changes`: which files contain the changes between two versions, and which of their rows changed.

The plan only needs the log. Each commit of the range is read, because compacted commits don't contain
changes. The reader of the plan reads the rows, and adds the columns ``_change_type``, ``_commit_version``
and ``_commit_timestamp``.

PROTOCOL.md, "Add CDC File" and "Change Data Files".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from airflow_delta.engine.arrow.json.reader import NonFileAction, ParsedCommits
from airflow_delta.engine.arrow.python_arrays import array_of
from airflow_delta.engine.changes.availability import check_available
from airflow_delta.engine.changes.bounds import Bound, resolve_range
from airflow_delta.engine.changes.file_changes import (
    ACTION_COLUMNS,
    file_changes,
)
from airflow_delta.engine.errors import ChangesNotAvailableError, ObjectNotFoundError
from airflow_delta.engine.features.change_columns import COMMIT_TIMESTAMP, COMMIT_VERSION
from airflow_delta.engine.features.in_commit_timestamps import TimestampSource, timestamp_source
from airflow_delta.engine.model.actions import CommitInfo, Metadata, Protocol
from airflow_delta.engine.model.schema import StructType
from airflow_delta.engine.snapshot.opening import open_earlier
from airflow_delta.engine.snapshot.segment_commits import parse_commit_files
from airflow_delta.engine.snapshot.snapshot import Snapshot
from airflow_delta.engine.snapshot.table_schema import table_schema

__all__ = ["ChangePlan", "plan_changes"]


@dataclass(frozen=True, slots=True)
class ChangePlan:
    """The files to read for the changes of a range of versions.

    Attributes:
        table: the table's location.
        start: the first version.
        end: the last version.
        protocol: the protocol of the last version.
        metadata: the metadata of the last version. All changes are read with its columns.
        files: one row per file and kind of change, in log order, with the columns

            * ``path``: as in the log, URI-encoded; relative to the table or absolute,
            * ``partitionValues``: serialised, by physical column name,
            * ``size``: in bytes; null if a remove lacks it,
            * ``numRecords``: the number of rows in the whole file; null if statistics lack it,
            * ``deletionVector``: the rows to skip,
            * ``selectionVector``: if not null, the only rows to read, without the skipped ones,
            * ``_change_type``: ``insert`` or ``delete``; null for a change data file, which has a column of
              this name itself,
            * ``_commit_version``: the version,
            * ``_commit_timestamp``: its time, in UTC with milliseconds.

            The data files of a table may have a column ``_change_type`` too. It is always null there, and
            must be ignored.
    """

    table: str
    start: int
    end: int
    protocol: Protocol
    metadata: Metadata
    files: pa.Table

    @property
    def schema(self) -> StructType:
        """The schema of the last version, with logical names, without the three columns of changes.

        Raises:
            InvalidTableError: the schema can't be parsed.
        """
        return table_schema(self.metadata, table=self.table)

    def to_dict(self) -> dict[str, Any]:
        """The plan as plain JSON values, with the number of files instead of their names.

        Returns:
            ``start`` and ``end``; ``files`` and ``bytes`` to read (files of unknown size count as empty);
            and ``by_kind``, the number of files with inserted rows (``insert``), with deleted rows
            (``delete``), and with changes of any kind (``change data``).
        """
        kinds = self.files["_change_type"]
        return {
            "start": self.start,
            "end": self.end,
            "files": self.files.num_rows,
            "bytes": pc.sum(self.files["size"]).as_py() or 0,
            "by_kind": {
                "insert": pc.sum(pc.equal(kinds, "insert")).as_py() or 0,
                "delete": pc.sum(pc.equal(kinds, "delete")).as_py() or 0,
                "change data": kinds.null_count,
            },
        }


def plan_changes(newest: Snapshot, start: Bound, end: Bound | None = None) -> ChangePlan:
    """Plan the changes from one version to another, both included.

    Args:
        newest: the newest version of the table.
        start: the first version; or a time, for the first commit at or after it.
        end: the last version; or a time, for the last commit at or before it. None for the newest version.

    Raises:
        InvalidArgumentError: the range ends before it starts, or an end is no version.
        VersionNotFoundError: a version is higher than the newest.
        TimestampOutOfRangeError: a time is outside of the commits' times, or no commit lies between two
            times.
        ChangesNotAvailableError: a cleanup deleted commits of the range; the change data feed was off in
            one of its versions; one changed the schema in another way than by adding columns; or a remove
            lacks partition values.
        UnsupportedFeatureError: a version needs a reader feature that the engine lacks.
        CorruptLogError: a commit breaks the protocol.
    """
    table = newest.table
    versions = resolve_range(newest.timeline, start, end, latest=newest.version, table=table)
    first = open_earlier(newest, versions[0])
    commits = _read(newest, versions)
    protocol, metadata = check_available(
        first.protocol, first.metadata, commits.non_file_actions, versions=versions, table=table
    )
    files = file_changes(commits.files, commits.non_file_actions, table=table)
    _check_partitions(files, metadata, versions, table)
    timed = _with_times(files, newest, commits.non_file_actions)
    return ChangePlan(table, versions[0], versions[-1], protocol, metadata, timed)


def _read(newest: Snapshot, versions: range) -> ParsedCommits:
    commits = newest.timeline.commits
    wanted = [commits[version - commits.first] for version in versions]
    try:
        return parse_commit_files(
            newest.storage, wanted, columns=ACTION_COLUMNS, table=newest.table
        )
    except ObjectNotFoundError as error:
        raise ChangesNotAvailableError(
            f"the changes from version {versions[0]} to {versions[-1]} are no longer available: "
            f"{error.message}",
            table=newest.table,
            start=versions[0],
            end=versions[-1],
        ) from error


def _check_partitions(files: pa.Table, metadata: Metadata, versions: range, table: str) -> None:
    """Refuse removes without partition values, which the deleted rows need."""
    missing = files.filter(files["partitionValues"].is_null())
    if metadata.partition_columns and missing.num_rows:
        path, version = missing["path"][0].as_py(), missing[COMMIT_VERSION][0].as_py()
        raise ChangesNotAvailableError(
            f"the changes from version {versions[0]} to {versions[-1]} aren't available: the remove of "
            f"{path} in version {version} has no partition values, which the deleted rows need",
            table=table,
            start=versions[0],
            end=versions[-1],
            version=version,
        )


def _with_times(
    files: pa.Table, newest: Snapshot, non_file_actions: Sequence[NonFileAction]
) -> pa.Table:
    """The entries with the times of their commits."""
    versions = pc.unique(files[COMMIT_VERSION])
    infos: dict[int, CommitInfo] = {}
    for action in non_file_actions:
        if action.kind == "commitInfo":
            info = CommitInfo.from_json(action.value, version=action.version)
            infos.setdefault(action.version, info)
    times = [_time(newest, version, infos.get(version)) for version in versions.to_pylist()]
    indices = pc.index_in(files[COMMIT_VERSION], value_set=versions)
    column = array_of(times, pa.int64()).cast(pa.timestamp("ms", tz="UTC")).take(indices)
    return files.append_column(COMMIT_TIMESTAMP, column)


def _time(newest: Snapshot, version: int, info: CommitInfo | None) -> int:
    source = timestamp_source(version, newest.protocol, newest.metadata, table=newest.table)
    known = info.in_commit_timestamp_ms if info is not None else None
    if source is TimestampSource.COMMIT_INFO and known is not None:
        # The commit is read already. The timeline would read it again.
        return known
    return newest.timeline.timestamp_ms(version)

"""The plan of the changes between two versions: which files, which rows of them, which kind.

PROTOCOL.md, "Add CDC File" and "Change Data Files". The plan is made from the log alone; reading the
rows is up to a data plane, which must add the columns ``_change_type``, ``_commit_version`` and
``_commit_timestamp`` to them. Compacted commits don't tell changes, so every commit of the range is
read itself.
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
    COMMIT_VERSION,
    file_changes,
)
from airflow_delta.engine.errors import ChangesNotAvailableError, ObjectNotFoundError
from airflow_delta.engine.features.in_commit_timestamps import TimestampSource, timestamp_source
from airflow_delta.engine.model.actions import CommitInfo, Metadata, Protocol
from airflow_delta.engine.model.schema import StructType
from airflow_delta.engine.snapshot.opening import open_earlier
from airflow_delta.engine.snapshot.segment_commits import parse_commit_files
from airflow_delta.engine.snapshot.snapshot import Snapshot
from airflow_delta.engine.snapshot.table_schema import table_schema

__all__ = ["COMMIT_TIMESTAMP", "ChangePlan", "plan_changes"]

COMMIT_TIMESTAMP = "_commit_timestamp"
"""When the version was committed, as time travel and history have it."""


@dataclass(frozen=True, slots=True)
class ChangePlan:
    """What to read for the changes of a range of versions.

    Attributes:
        table: the table's location.
        start: the first version.
        end: the last version.
        protocol: of the last version.
        metadata: of the last version; its columns are those that the changes are told in.
        files: a row per file and kind of change, in log order, with the columns

            * ``path``: as in the log, URI-encoded; relative to the table or absolute,
            * ``partitionValues``: serialised, by physical column name,
            * ``size``: bytes; null where a remove doesn't tell,
            * ``numRecords``: rows of the whole file; null where statistics don't tell,
            * ``deletionVector``: the rows to leave out,
            * ``selectionVector``: where not null, the only rows to take, less those left out,
            * ``_change_type``: ``insert`` or ``delete``; null for a change data file, whose own
              column of that name tells it for each row,
            * ``_commit_version``: the version,
            * ``_commit_timestamp``: its time, in UTC with milliseconds.

            The data files of a table may have a column ``_change_type`` too. It is always null there
            and must be disregarded.
    """

    table: str
    start: int
    end: int
    protocol: Protocol
    metadata: Metadata
    files: pa.Table

    @property
    def schema(self) -> StructType:
        """The schema of the last version, logical names, without the three columns of changes.

        Raises:
            InvalidTableError: the schema can't be parsed.
        """
        return table_schema(self.metadata, table=self.table)

    def to_dict(self) -> dict[str, Any]:
        """The plan as plain JSON values, in which files are counted and not named.

        Returns:
            ``start`` and ``end``; ``files`` and ``bytes`` to read (files of unknown size count as empty);
            and ``by_kind``, how many files hold rows that were inserted (``insert``), rows that were
            deleted (``delete``), and changes of any kind (``change data``).
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
        start: the first version, or the time that it isn't older than.
        end: the last version, or the time that it isn't younger than; None for the newest.

    Raises:
        InvalidArgumentError: the range ends before it starts, or an end makes no sense.
        VersionNotFoundError: a version is beyond the newest.
        TimestampOutOfRangeError: a time is beyond the commits, or no commit lies between two times.
        ChangesNotAvailableError: cleanup has taken commits of the range, the change data feed was
            off in one of its versions, one changed the schema other than by adding columns, or a
            remove doesn't tell the partition of its rows.
        UnsupportedFeatureError: reading a version needs a feature that the engine lacks.
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
            f"the changes from version {versions[0]} to {versions[-1]} can't be told any more: "
            f"{error.message}",
            table=newest.table,
            start=versions[0],
            end=versions[-1],
        ) from error


def _check_partitions(files: pa.Table, metadata: Metadata, versions: range, table: str) -> None:
    """A remove may leave its partition values out; then its rows can't be told."""
    missing = files.filter(files["partitionValues"].is_null())
    if metadata.partition_columns and missing.num_rows:
        path, version = missing["path"][0].as_py(), missing[COMMIT_VERSION][0].as_py()
        raise ChangesNotAvailableError(
            f"the changes from version {versions[0]} to {versions[-1]} can't be told: the remove of "
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
    places = pc.index_in(files[COMMIT_VERSION], value_set=versions)
    column = array_of(times, pa.int64()).cast(pa.timestamp("ms", tz="UTC")).take(places)
    return files.append_column(COMMIT_TIMESTAMP, column)


def _time(newest: Snapshot, version: int, info: CommitInfo | None) -> int:
    source = timestamp_source(version, newest.protocol, newest.metadata, table=newest.table)
    known = info.in_commit_timestamp_ms if info is not None else None
    if source is TimestampSource.COMMIT_INFO and known is not None:
        # The commit has been read already: asking the timeline would read it again.
        return known
    return newest.timeline.timestamp_ms(version)

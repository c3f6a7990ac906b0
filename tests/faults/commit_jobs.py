"""Commits of every kind, as things that a task does to a table and that may be interrupted.

`Job.run` is what the task does; `Job.made` finds in the log what it has done.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from airflow_delta.engine import AddFile, DeltaTable, OptimisticTransaction, RemoveFile
from airflow_delta.engine.errors import DeltaWarning
from airflow_delta.engine.model.schema import LONG, STRING, StructField, StructType
from airflow_delta.engine.transaction.creation import create_table
from tests.log_builder import PROTOCOL, add, metadata, remove
from tests.races.replayed_log import Commit, Log
from tests.table_builder import FAR_FUTURE_MS, Action, Files, commits

__all__ = ["JOBS", "NAME", "RUNS", "Job", "append"]

NAME = "mine"
STATS = '{"numRecords":3,"nullCount":{"id":0}}'
SCHEMA = StructType((StructField("id", LONG, nullable=True), StructField("part", STRING, True)))


@dataclass(frozen=True)
class Job:
    """Something that makes one commit.

    Attributes:
        files: the table before; empty where it creates one.
        run: does it, and tells the version.
        made: whether a commit is the one that it makes.
    """

    files: Files
    run: Callable[[DeltaTable], int]
    made: Callable[[Commit], bool] = lambda commit: commit.info.get("userMetadata") == NAME

    def versions(self, log: Log) -> list[int]:
        """The versions that it has made."""
        return [commit.version for commit in log.commits if self.made(commit)]


def table(*features: str, properties: Mapping[str, str] | None = None) -> Files:
    """A table of three versions, with writer features."""
    protocol: Action = PROTOCOL
    tracks = "rowTracking" in features
    marks: list[Action] = []
    if features:
        fields = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": [*features]}
        protocol = {"protocol": fields}
    if tracks:
        mark = {"domain": "delta.rowTracking", "configuration": '{"rowIdHighWaterMark":8}'}
        marks.append({"domainMetadata": {**mark, "removed": False}})
    history = [
        [protocol, metadata(configuration=properties)],
        [*(_file(n, name, tracks) for n, name in enumerate("abc")), *marks],
        [remove("c", deletionTimestamp=FAR_FUTURE_MS)],
    ]
    infos = [
        {"commitInfo": {"inCommitTimestamp": n + 1, "timestamp": n + 1, "operation": "WRITE"}}
        if properties and "delta.enableInCommitTimestamps" in properties
        else {"commitInfo": {"timestamp": n + 1, "operation": "WRITE"}}
        for n in range(len(history))
    ]
    return commits([[info, *actions] for info, actions in zip(infos, history, strict=True)])


def _file(number: int, name: str, tracks: bool) -> Action:
    numbers = {"baseRowId": 3 * number, "defaultRowCommitVersion": 1} if tracks else {}
    return add(name, stats=STATS, **numbers)


def append(delta: DeltaTable, *, path: str = "new", name: str = NAME) -> int:
    """Add a file, without a look at others."""
    transaction = delta.transaction("WRITE", user_metadata=name)
    transaction.add_file(AddFile(path, {}, 5, 1, data_change=True, stats=STATS))
    return transaction.commit().version


def rewrite(delta: DeltaTable) -> int:
    """Put one file into the place of another, which is read."""
    transaction = delta.transaction("WRITE", user_metadata=NAME)
    assert "a" in transaction.read_files()["path"].to_pylist()
    _replace(transaction)
    return transaction.commit().version


def _replace(transaction: OptimisticTransaction) -> None:
    transaction.remove_file(RemoveFile("a", data_change=True, deletion_timestamp=FAR_FUTURE_MS))
    transaction.add_file(AddFile("new", {}, 5, 1, data_change=True, stats=STATS))


def rewrite_once(delta: DeltaTable) -> int:
    """The same, but not twice."""
    return delta.commit_once("app", 7, "WRITE", _replace, user_metadata=NAME).version


def create(delta: DeltaTable) -> int:
    """Make the table."""
    properties = {"delta.enableRowTracking": "true", "delta.enableInCommitTimestamps": "true"}
    create_table(delta.storage, SCHEMA, partition_by=["part"], properties=properties)
    return 0


def _altered(properties: Mapping[str, str]) -> Callable[[DeltaTable], int]:
    return lambda delta: delta.alter.set_properties(properties).version


def _sets(name: str) -> Callable[[Commit], bool]:
    return lambda commit: (
        commit.version > 0 and any(name in each["configuration"] for each in commit.of("metaData"))
    )


def _lenient(run: Callable[[DeltaTable], int]) -> Callable[[DeltaTable], int]:
    def lenient(delta: DeltaTable) -> int:
        with warnings.catch_warnings():
            # It isn't necessary, and only it.
            warnings.filterwarnings("ignore", ".*checksum", DeltaWarning)
            return run(delta)

    return lenient


_TIMES = {"delta.enableInCommitTimestamps": "true"}
_IDS: dict[str, Any] = {
    "delta.enableRowTracking": "true",
    "delta.rowTracking.materializedRowIdColumnName": "_id",
    "delta.rowTracking.materializedRowCommitVersionColumnName": "_version",
}

JOBS: dict[str, Job] = {
    "create": Job({}, _lenient(create), lambda commit: commit.version == 0),
    "append": Job(table(), _lenient(append)),
    "rewrite": Job(table(), _lenient(rewrite)),
    "rewrite once": Job(table(), _lenient(rewrite_once)),
    "set a property": Job(table(), _lenient(_altered({"owner": "me"})), _sets("owner")),
    "turn timestamps on": Job(table(), _lenient(_altered(_TIMES)), _sets(next(iter(_TIMES)))),
    "append with row ids": Job(
        table("domainMetadata", "rowTracking", properties=_IDS), _lenient(append)
    ),
    "rewrite with timestamps": Job(
        table("inCommitTimestamp", properties=_TIMES), _lenient(rewrite)
    ),
}

RUNS: dict[str, Callable[[DeltaTable], int]] = {name: job.run for name, job in JOBS.items()}

"""Tables of a commit owner, without the engine above it: commits are texts, and the log is read back."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from itertools import count

from airflow_delta.engine.commit.owner import CommitOwner, ManagedTable
from airflow_delta.engine.log.files import COMMITS_DIRECTORY, commit_path
from airflow_delta.engine.storage.base import Storage
from airflow_delta.engine.storage.memory import MemoryStorage
from tests.log_builder import PROTOCOL, metadata

__all__ = [
    "OWNER",
    "commit_text",
    "fresh_storage",
    "hand_over",
    "handing_over",
    "history",
    "in_log",
    "managed",
    "unbackfilled_files",
]

OWNER = "the-owner"
_NUMBERS = count()


def fresh_storage() -> MemoryStorage:
    """A place where nothing is."""
    return MemoryStorage(f"memory://owned-{next(_NUMBERS)}/table")


def managed(storage: Storage, **conf: str) -> ManagedTable:
    """A table that has an id of its own and belongs to `OWNER`."""
    return ManagedTable(storage, OWNER, {"tableId": str(uuid.uuid4()), **conf})


def commit_text(txn_id: str) -> bytes:
    """A commit that tells which transaction has made it."""
    lines = [{"commitInfo": {"txnId": txn_id}}, {"add": {"path": f"{txn_id}.parquet"}}]
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


def handing_over(conf: Mapping[str, str]) -> bytes:
    """A commit that gives a table to `OWNER`."""
    configuration = {
        "delta.managedCommit.commitOwner": OWNER,
        "delta.managedCommit.commitOwnerConf": json.dumps(dict(conf)),
    }
    lines = [
        {"commitInfo": {"txnId": "the hand-over"}},
        PROTOCOL,
        metadata(configuration=configuration),
        {"add": {"path": 'a"metaData".parquet'}},
    ]
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


def hand_over(owner: CommitOwner, table: ManagedTable, version: int = 0) -> None:
    """Give a table to its owner by the commit of a version; those before it are made first."""
    for earlier in range(version):
        table.storage.create(commit_path(earlier), commit_text(f"file system {earlier}"))
    owner.propose(table, version)
    table.storage.create(commit_path(version), handing_over(table.conf))
    owner.take_over(table, version)


def in_log(storage: Storage) -> dict[int, bytes]:
    """The commits in the log, by version."""
    found = [info.path for info in storage.list("_delta_log") if info.path.endswith(".json")]
    return {int(path[-25:-5]): storage.read(path) for path in found}


def unbackfilled_files(storage: Storage) -> list[str]:
    """The paths of what was written to be a commit, ratified or not."""
    return [info.path for info in storage.list(COMMITS_DIRECTORY)]


def history(owner: CommitOwner, table: ManagedTable) -> list[bytes]:
    """The commits of all versions, as a reader finds them who asks the owner before he lists the log."""
    response = owner.get_commits(table)
    found = in_log(table.storage)
    for commit in response.commits:
        found.setdefault(commit.version, table.storage.read(commit.path))
    versions = sorted(found)
    assert versions == [*range(len(versions))], f"a log with a gap: {versions}"
    assert response.latest_table_version < len(versions), response
    return [found[version] for version in versions]

"""Write a version checksum beside a commit or a checkpoint, if its content is certain and cheap.

The file (``log/version_checksum.py``) is optional, and a wrong one is worse than none: Delta Spark
refuses to write a checkpoint that disagrees with it. So only certain facts are written (`_write`), and a
failure to write gives only a `DeltaWarning`. An existing file is kept, unless its ``txnId`` is that
of another commit than the one just made. Then it was left by an earlier commit of the same version
that was rolled back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from airflow_delta.engine.commit.post_commit import warn_after_commit
from airflow_delta.engine.errors import CorruptLogError
from airflow_delta.engine.features.in_commit_timestamps import TimestampSource, timestamp_source
from airflow_delta.engine.features.protocol import supported_features
from airflow_delta.engine.log.commit_file import read_commit_info
from airflow_delta.engine.log.files import checksum_path
from airflow_delta.engine.log.version_checksum import (
    VersionChecksum,
    read_checksum,
    write_checksum,
)
from airflow_delta.engine.model.actions import (
    AddFile,
    CommitInfo,
    DomainMetadata,
    Metadata,
    Protocol,
    RemoveFile,
    Txn,
)
from airflow_delta.engine.model.properties import TableProperties
from airflow_delta.engine.replay.non_file_actions import NonFileState
from airflow_delta.engine.snapshot.next_totals import FileTotals, next_totals
from airflow_delta.engine.snapshot.snapshot import Snapshot
from airflow_delta.engine.storage.base import Storage

__all__ = ["MadeCommit", "leave_checksum", "leave_next_checksum"]


_MANY = 100
"""More transactions or domains than this would make the file large."""


@dataclass(frozen=True, slots=True)
class MadeCommit:
    """A commit that has just been made.

    Attributes:
        version: the version it made.
        info: its ``commitInfo``.
        protocol: the protocol in force after it.
        metadata: the metadata in force after it.
        transactions: the transactions it set, by application.
        domains: the domains it set or removed, by name.
        adds: what it added; at most one of each logical file.
        removes: what it removed; all of them were live.
    """

    version: int
    info: Mapping[str, Any]
    protocol: Protocol
    metadata: Metadata
    transactions: Mapping[str, Txn]
    domains: Mapping[str, DomainMetadata]
    adds: Sequence[AddFile]
    removes: Sequence[RemoveFile]


@dataclass(frozen=True, slots=True)
class _Version:
    """The content of a checksum, apart from the totals."""

    number: int
    table: str
    protocol: Protocol
    metadata: Metadata
    transactions: Mapping[str, Txn]
    domains: Mapping[str, DomainMetadata]


def leave_next_checksum(storage: Storage, base: Snapshot | None, commit: MadeCommit) -> bool:
    """Write the checksum of the version that a commit has made, if it is cheap.

    A failure gives a `DeltaWarning`, because the commit has succeeded.

    Args:
        storage: where the table is.
        base: the version that the commit follows; None for a new table.
        commit: the commit.

    Returns:
        Whether it was written.
    """
    write = partial(_write_next, storage, base, commit)
    return _best_effort(storage, commit.version, write)


def leave_checksum(snapshot: Snapshot, totals: FileTotals) -> bool:
    """Write the checksum of a version whose files have been counted, such as by writing a checkpoint.

    A failure gives a `DeltaWarning`. The protocol of the version must let us write.

    Args:
        snapshot: the version.
        totals: the totals over its live files.

    Returns:
        Whether it was written. False if the version has one, or if its commit is gone.
    """
    segment = snapshot.segment
    if segment.checksum is not None or segment.last_commit is None:
        return False
    write = partial(_write_counted, snapshot, totals, segment.last_commit.path)
    return _best_effort(snapshot.storage, segment.version, write)


def _write_next(storage: Storage, base: Snapshot | None, commit: MadeCommit) -> bool:
    totals = next_totals(base, commit.adds, commit.removes)
    if totals is None:
        return False
    info = CommitInfo.from_json(commit.info, version=commit.version)
    version = _after(base, commit, storage.root)
    if _write(storage, version, totals, info):
        return True
    if not _is_stale(storage, info):
        return False
    storage.delete([checksum_path(commit.version)])
    return _write(storage, version, totals, info)


def _is_stale(storage: Storage, info: CommitInfo) -> bool:
    """Whether the checksum beside the commit just made belongs to another commit."""
    try:
        there = read_checksum(storage, info.version)
    except CorruptLogError:
        return True
    return there is not None and there.txn_id != info.txn_id


def _write_counted(snapshot: Snapshot, totals: FileTotals, path: str) -> bool:
    storage = snapshot.storage
    version = _Version(
        snapshot.version,
        snapshot.table,
        snapshot.protocol,
        snapshot.metadata,
        snapshot.state.non_file_state.transactions,
        snapshot.domains,
    )
    raw = read_commit_info(storage, snapshot.version, path=path)
    info = CommitInfo.from_json(raw or {}, version=snapshot.version)
    return _write(storage, version, totals, info)


def _after(base: Snapshot | None, commit: MadeCommit, table: str) -> _Version:
    """The version that a commit has made from the one before it."""
    non_file_state = NonFileState() if base is None else base.state.non_file_state
    domains = {**non_file_state.domains, **commit.domains}
    return _Version(
        commit.version,
        table,
        commit.protocol,
        commit.metadata,
        {**non_file_state.transactions, **commit.transactions},
        {name: domain for name, domain in domains.items() if not domain.removed},
    )


def _write(storage: Storage, version: _Version, totals: FileTotals, info: CommitInfo) -> bool:
    """Write what is known of a version; nothing if its in-commit timestamp is unknown.

    Many transactions or domains would make the file large. Transactions that expire with time wouldn't be
    true for long. Histograms and ``allFiles`` are never written.
    """
    protocol, metadata, table = version.protocol, version.metadata, version.table
    source = timestamp_source(version.number, protocol, metadata, table=table)
    in_commit = source is TimestampSource.COMMIT_INFO
    if in_commit and info.in_commit_timestamp_ms is None:
        return False
    expire = TableProperties(metadata.configuration, table).set_transaction_retention_ms is not None
    few = not expire and len(version.transactions) <= _MANY
    vectors = "deletionVectors" in supported_features(protocol)
    checksum = VersionChecksum(
        table_size_bytes=totals.size_in_bytes,
        num_files=totals.num_files,
        metadata=metadata,
        protocol=protocol,
        txn_id=info.txn_id,
        in_commit_timestamp=info.in_commit_timestamp_ms if in_commit else None,
        set_transactions=tuple(version.transactions.values()) if few else None,
        domain_metadata=(
            tuple(version.domains.values()) if len(version.domains) <= _MANY else None
        ),
        num_deleted_records=totals.num_deleted_records if vectors else None,
        num_deletion_vectors=totals.num_deletion_vectors if vectors else None,
    )
    return write_checksum(storage, version.number, checksum)


def _best_effort(storage: Storage, version: int, write: Callable[[], bool]) -> bool:
    try:
        return write()
    except Exception as error:  # noqa: BLE001 - the version is there; nothing may make it look failed
        warn_after_commit(
            f"{storage.root}: version {version} is there, but its version checksum can't be written "
            f"({error}); readers do without",
            stacklevel=4,
        )
        return False

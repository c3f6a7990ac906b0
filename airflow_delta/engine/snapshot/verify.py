"""Compare the state that the log gives for a version with the totals that its writer recorded.

A writer may leave a version checksum (``<version>.crc``, see ``log/version_checksum.py``) beside
its commit. Its fields are compared with the state from the checkpoint and the commits. If they
differ, the log, a reader or the writer of the checksum is wrong. Nothing else trusts the file, so a
wrong checksum misleads nobody.

========================================  ========================================================
field                                     rule
========================================  ========================================================
``inCommitTimestampOpt``                  present exactly if the version has such a timestamp
``setTransactions``                       with a retention, expired ones may be missing
``domainMetadata``                        no removed ones
``allFiles``                              all fields except ``dataChange``, which belongs to the
                                          commit and not to the state; statistics by content
``fileSizeHistogram``                     bin i counts the sizes from its boundary up to the next
``deletedRecordCountsHistogramOpt``       ten bins: 0, 1 to 9, 10 to 99, up to 10,000,000 to
                                          2³¹ - 2, and more
========================================  ========================================================

Fields that the file lacks are not checked. Nor are ``txnId`` and a timestamp if a cleanup has
deleted the commit.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from airflow_delta.engine.arrow.numpy_arrays import int64_view
from airflow_delta.engine.arrow.python_arrays import scalar_of
from airflow_delta.engine.errors import CorruptLogError, ObjectNotFoundError
from airflow_delta.engine.features.in_commit_timestamps import TimestampSource, timestamp_source
from airflow_delta.engine.log.commit_file import read_commit_info
from airflow_delta.engine.log.files import checksum_path
from airflow_delta.engine.log.version_checksum import VersionChecksum, read_checksum
from airflow_delta.engine.model.actions import AddFile, CommitInfo, Txn
from airflow_delta.engine.model.plain import plain
from airflow_delta.engine.snapshot.state import LogState

__all__ = ["Difference", "VerifyResult", "verify"]

_K = TypeVar("_K")
_V = TypeVar("_V")

_SHOWN_DIFFERENCES = 100

_DELETED_RECORD_BINS = np.array([0, *(10**n for n in range(8)), 2**31 - 1], np.int64)
"""The lower boundaries of the bins of ``deletedRecordCountsHistogramOpt``."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One value that differs between the checksum and the log.

    Attributes:
        what: the field of the checksum file, with the key of the entry if it has several.
        expected: the value in the checksum; None if it lacks the entry.
        found: the value in the log; None if it lacks the entry.
    """

    what: str
    expected: object
    found: object

    def to_dict(self) -> dict[str, Any]:
        """The difference as plain JSON values."""
        return {"what": self.what, "expected": plain(self.expected), "found": plain(self.found)}


@dataclass(frozen=True, slots=True)
class VerifyResult:
    """The result of comparing a version with its checksum.

    Attributes:
        version: the version.
        checked: the fields of the checksum file that were compared; empty if there is no file.
        differences: the values that differ.
    """

    version: int
    checked: tuple[str, ...]
    differences: tuple[Difference, ...]

    def to_dict(self) -> dict[str, Any]:
        """The result as plain JSON values: at most a hundred differences, and their total number."""
        return {
            "version": self.version,
            "checked": list(self.checked),
            "num_differences": len(self.differences),
            "differences": [
                difference.to_dict() for difference in self.differences[:_SHOWN_DIFFERENCES]
            ],
        }


@dataclass(frozen=True, slots=True)
class _Check:
    """A field of the checksum, and the entries that differ."""

    name: str
    differences: tuple[Difference, ...]


def verify(state: LogState, *, unexpired: Mapping[str, Txn]) -> VerifyResult:
    """Compare a version with its checksum file, if there is one.

    Args:
        state: the state of the version.
        unexpired: its transactions without those whose retention has passed.

    Raises:
        CorruptLogError: the log is damaged, or the checksum file is invalid.
        StorageError: the store failed.
    """
    version = state.segment.version
    checksum = read_checksum(state.storage, version)
    if checksum is None:
        return VerifyResult(version, (), ())
    checks = [
        *_totals(state, checksum),
        *_non_file_actions(state, checksum, unexpired),
        *_commit(state, checksum),
        *_files(state, checksum),
    ]
    return VerifyResult(
        version,
        tuple(check.name for check in checks),
        tuple(difference for check in checks for difference in check.differences),
    )


def _totals(state: LogState, checksum: VersionChecksum) -> Iterator[_Check]:
    """Counts, sums and histograms over the live files."""
    files = state.live_adds(("size", "deletionVector"))
    sizes = _values(files["size"])
    yield _equal("tableSizeBytes", checksum.table_size_bytes, int(sizes.sum()))
    yield _equal("numFiles", checksum.num_files, len(sizes))
    yield _equal("numMetadata", checksum.num_metadata, 1)
    yield _equal("numProtocol", checksum.num_protocol, 1)
    vectors = files["deletionVector"]
    deleted = _values(
        pc.coalesce(pc.struct_field(vectors, "cardinality"), scalar_of(0, pa.int64()))
    )
    if checksum.num_deleted_records is not None:
        yield _equal("numDeletedRecordsOpt", checksum.num_deleted_records, int(deleted.sum()))
    if checksum.num_deletion_vectors is not None:
        count = len(vectors) - vectors.null_count
        yield _equal("numDeletionVectorsOpt", checksum.num_deletion_vectors, count)
    if checksum.deleted_record_counts_histogram is not None:
        bins = _bins(deleted, _DELETED_RECORD_BINS)
        yield _equal(
            "deletedRecordCountsHistogramOpt",
            dict(checksum.deleted_record_counts_histogram),
            {"deletedRecordCounts": _counts(bins, len(_DELETED_RECORD_BINS))},
        )
    if checksum.file_size_histogram is not None:
        yield _file_size_histogram(state, dict(checksum.file_size_histogram), sizes)


def _file_size_histogram(
    state: LogState, histogram: dict[str, Any], sizes: npt.NDArray[np.int64]
) -> _Check:
    boundaries = histogram.get("sortedBinBoundaries")
    if not (
        isinstance(boundaries, list)
        and all(isinstance(boundary, int) for boundary in boundaries)
        and boundaries[:1] == [0]
        and boundaries == sorted(boundaries)
    ):
        raise _damaged(
            state,
            f"the sortedBinBoundaries of fileSizeHistogram are {boundaries!r}: expected ascending "
            "integers from 0 on",
        )
    bins = _bins(sizes, np.array(boundaries, np.int64))
    totals = np.zeros(len(boundaries), np.int64)
    np.add.at(totals, bins, sizes)
    found = {
        "sortedBinBoundaries": boundaries,
        "fileCounts": _counts(bins, len(boundaries)),
        "totalBytes": totals.tolist(),
    }
    return _equal("fileSizeHistogram", {name: histogram.get(name) for name in found}, found)


def _non_file_actions(
    state: LogState, checksum: VersionChecksum, unexpired: Mapping[str, Txn]
) -> Iterator[_Check]:
    non_file_state = state.non_file_state
    if checksum.metadata is not None:
        yield _equal("metadata", checksum.metadata, non_file_state.metadata)
    if checksum.protocol is not None:
        yield _equal("protocol", checksum.protocol, non_file_state.protocol)
    if checksum.set_transactions is not None:
        recorded = {txn.app_id: txn for txn in checksum.set_transactions}
        found = {
            app: txn
            for app, txn in non_file_state.transactions.items()
            if app in recorded or app in unexpired
        }
        yield _same_entries("setTransactions", recorded, found)
    if checksum.domain_metadata is not None:
        domains = {domain.domain: domain for domain in checksum.domain_metadata}
        yield _same_entries("domainMetadata", domains, dict(non_file_state.domains))


def _commit(state: LogState, checksum: VersionChecksum) -> Iterator[_Check]:
    """The fields of the commit itself: the id of its transaction and its in-commit timestamp."""
    commit, non_file_state = state.segment.last_commit, state.non_file_state
    if commit is None or non_file_state.protocol is None or non_file_state.metadata is None:
        return
    try:
        raw = read_commit_info(state.storage, commit.version, path=commit.path)
    except ObjectNotFoundError:
        # A cleanup has deleted it since the listing: treat it as if it had never been there.
        return
    info = CommitInfo.from_json(raw or {}, version=commit.version)
    if checksum.txn_id is not None and info.txn_id is not None:
        yield _equal("txnId", checksum.txn_id, info.txn_id)
    source = timestamp_source(
        commit.version, non_file_state.protocol, non_file_state.metadata, table=state.segment.table
    )
    timestamp = info.in_commit_timestamp_ms if source is TimestampSource.COMMIT_INFO else None
    if checksum.in_commit_timestamp is not None or timestamp is not None:
        yield _equal("inCommitTimestampOpt", checksum.in_commit_timestamp, timestamp)


def _files(state: LogState, checksum: VersionChecksum) -> Iterator[_Check]:
    if checksum.all_files is None:
        return
    # A loop over files: writers list all files only if they are few (50, in practice).
    try:
        recorded = _by_key(AddFile.from_json(file, "allFiles") for file in checksum.all_files)
    except CorruptLogError as error:
        raise _damaged(state, error.message) from error
    rows = state.live_adds().to_pylist()
    live = _by_key(AddFile.from_json(_with_dicts(row), "add") for row in rows)
    yield _same_entries("allFiles", recorded, live)


def _damaged(state: LogState, reason: str) -> CorruptLogError:
    version = state.segment.version
    path = checksum_path(version)
    return CorruptLogError(
        f"the version checksum {path} can't be used: {reason}; the file is optional, delete it",
        table=state.segment.table,
        version=version,
        path=path,
    )


def _with_dicts(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row of Arrow as the JSON object that it represents."""
    maps = {name: dict(row[name]) for name in ("partitionValues", "tags") if row[name] is not None}
    return {**row, "dataChange": False, **maps}


def _by_key(files: Iterable[AddFile]) -> dict[str, tuple[AddFile, object]]:
    """The compared fields of each file, by path and deletion vector."""
    found = {}
    for file in files:
        vector = file.deletion_vector
        key = file.path if vector is None else f"{file.path} {vector.unique_id}"
        plain = replace(file, data_change=False, stats=None, tags=file.tags or None)
        found[key] = plain, _statistics(file.stats)
    return found


def _statistics(text: str | None) -> object:
    try:
        return _without_nulls(json.loads(text)) if text else None
    except (ValueError, RecursionError):
        return text


def _without_nulls(value: object) -> object:
    """JSON without nulls and empty objects, which a checkpoint treats like missing fields."""
    if isinstance(value, dict):
        entries = {key: _without_nulls(item) for key, item in value.items()}
        return {key: item for key, item in entries.items() if item is not None} or None
    return value


def _equal(name: str, expected: object, found: object) -> _Check:
    return _Check(name, () if expected == found else (Difference(name, expected, found),))


def _same_entries(name: str, expected: Mapping[_K, _V], found: Mapping[_K, _V]) -> _Check:
    keys = [*expected, *(key for key in found if key not in expected)]
    return _Check(
        name,
        tuple(
            Difference(f"{name}[{key}]", expected.get(key), found.get(key))
            for key in keys
            if expected.get(key) != found.get(key)
        ),
    )


def _bins(
    values: npt.NDArray[np.int64], boundaries: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """The bin of each value: the last one whose boundary isn't above it."""
    return np.maximum(np.searchsorted(boundaries, values, side="right") - 1, 0)


def _counts(bins: npt.NDArray[np.int64], length: int) -> list[int]:
    counts: list[int] = np.bincount(bins, minlength=length).tolist()
    return counts


def _values(column: pa.ChunkedArray) -> npt.NDArray[np.int64]:
    return np.concatenate([np.empty(0, np.int64), *(int64_view(c) for c in column.chunks)])

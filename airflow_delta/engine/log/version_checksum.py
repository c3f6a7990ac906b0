"""``<version>.crc``: totals of a version, for readers to check their result against.

A writer creates the file beside its commit, if it knows the totals without extra work. The file is
optional: any version may lack it, and nothing may be known from it alone. A reader that takes
protocol, metadata or the in-commit timestamp from it trusts a file that no commit protects.

============================================  ====================================================
``tableSizeBytes``, ``numFiles``              sum and count over the live files
``numMetadata``, ``numProtocol``              always 1
``metadata``, ``protocol``                    the actions in force
``txnId``                                     the commit's ``commitInfo.txnId``
``inCommitTimestampOpt``                      present exactly if the table has them
``setTransactions``, ``domainMetadata``       all in force; None means "unknown", not "none"
``allFiles``                                  the live ``add`` actions, if they are few
``fileSizeHistogram``                         also read by its old name ``histogramOpt``
``numDeletedRecordsOpt``,                     over the deletion vectors of live files
``numDeletionVectorsOpt``,
``deletedRecordCountsHistogramOpt``
============================================  ====================================================
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from airflow_delta.engine.errors import CorruptLogError, ObjectExistsError
from airflow_delta.engine.log.files import checksum_path
from airflow_delta.engine.log.hint_file import UnusableHintError, read_hint
from airflow_delta.engine.model.actions import DomainMetadata, Metadata, Protocol, Txn
from airflow_delta.engine.model.json_fields import json_object, optional, required

if TYPE_CHECKING:
    from airflow_delta.engine.storage.base import Storage

__all__ = ["VersionChecksum", "read_checksum", "write_checksum"]

_T = TypeVar("_T")

_MOST_BYTES = 16 << 20
"""More than a file with two thousand live files and their statistics, as Delta Spark writes it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionChecksum:
    """The content of a version checksum file. None: the field isn't in the file.

    Attributes:
        table_size_bytes: bytes of all live files.
        num_files: count of the live files.
        num_metadata: 1.
        num_protocol: 1.
        metadata: the metadata in force; current writers always include it.
        protocol: the protocol in force; likewise.
        txn_id: the id of the commit that made the version.
        in_commit_timestamp: the commit's in-commit timestamp, in epoch ms.
        set_transactions: every application transaction in force.
        domain_metadata: every domain in force, none of them removed.
        file_size_histogram: ``sortedBinBoundaries``, ``fileCounts``, ``totalBytes``, as JSON.
        all_files: the live ``add`` actions, as JSON.
        num_deleted_records: rows that deletion vectors of live files delete.
        num_deletion_vectors: count of live files with a deletion vector.
        deleted_record_counts_histogram: ``deletedRecordCounts`` in ten bins, as JSON.
    """

    table_size_bytes: int
    num_files: int
    num_metadata: int = 1
    num_protocol: int = 1
    metadata: Metadata | None = None
    protocol: Protocol | None = None
    txn_id: str | None = None
    in_commit_timestamp: int | None = None
    set_transactions: tuple[Txn, ...] | None = None
    domain_metadata: tuple[DomainMetadata, ...] | None = None
    file_size_histogram: Mapping[str, Any] | None = None
    all_files: tuple[Mapping[str, Any], ...] | None = None
    num_deleted_records: int | None = None
    num_deletion_vectors: int | None = None
    deleted_record_counts_histogram: Mapping[str, Any] | None = None

    @classmethod
    def from_json(cls, obj: Mapping[str, Any], where: str) -> VersionChecksum:
        """Read the parsed file; ``where`` names it in errors.

        Raises:
            CorruptLogError: a required field is missing, or a field has the wrong type.
        """
        histogram = "fileSizeHistogram"
        if obj.get(histogram) is None:
            histogram = "histogramOpt"
        return cls(
            table_size_bytes=required(obj, "tableSizeBytes", int, where),
            num_files=required(obj, "numFiles", int, where),
            num_metadata=required(obj, "numMetadata", int, where),
            num_protocol=required(obj, "numProtocol", int, where),
            metadata=_one(obj, "metadata", where, Metadata.from_json),
            protocol=_one(obj, "protocol", where, Protocol.from_json),
            txn_id=optional(obj, "txnId", str, where),
            in_commit_timestamp=optional(obj, "inCommitTimestampOpt", int, where),
            set_transactions=_all(obj, "setTransactions", where, Txn.from_json),
            domain_metadata=_all(obj, "domainMetadata", where, DomainMetadata.from_json),
            file_size_histogram=_one(obj, histogram, where, json_object),
            all_files=_all(obj, "allFiles", where, json_object),
            num_deleted_records=optional(obj, "numDeletedRecordsOpt", int, where),
            num_deletion_vectors=optional(obj, "numDeletionVectorsOpt", int, where),
            deleted_record_counts_histogram=_one(
                obj, "deletedRecordCountsHistogramOpt", where, json_object
            ),
        )

    def to_json(self) -> dict[str, Any]:
        """The JSON object of the file, without fields that are None."""
        fields = {
            "txnId": self.txn_id,
            "tableSizeBytes": self.table_size_bytes,
            "numFiles": self.num_files,
            "numMetadata": self.num_metadata,
            "numProtocol": self.num_protocol,
            "inCommitTimestampOpt": self.in_commit_timestamp,
            "setTransactions": self.set_transactions,
            "domainMetadata": self.domain_metadata,
            "metadata": self.metadata,
            "protocol": self.protocol,
            "fileSizeHistogram": self.file_size_histogram,
            "allFiles": self.all_files,
            "numDeletedRecordsOpt": self.num_deleted_records,
            "numDeletionVectorsOpt": self.num_deletion_vectors,
            "deletedRecordCountsHistogramOpt": self.deleted_record_counts_histogram,
        }
        return {name: _to_json(value) for name, value in fields.items() if value is not None}


def read_checksum(storage: Storage, version: int) -> VersionChecksum | None:
    """Read the checksum of a version; None if there is no such file.

    Raises:
        CorruptLogError: the file is no version checksum. It is optional, so a caller that only
            wants a shortcut continues without it.
        StorageError: the store failed.
    """
    path = checksum_path(version)
    try:
        data = read_hint(storage, path, most_bytes=_MOST_BYTES)
        if data is None:
            return None
        return VersionChecksum.from_json(json_object(json.loads(data), path), path)
    except (ValueError, RecursionError, CorruptLogError, UnusableHintError) as error:
        reason = error.message if isinstance(error, CorruptLogError) else f"{path}: {error}"
        raise CorruptLogError(
            f"the version checksum can't be read: {reason}; the file is optional, delete it",
            table=storage.root,
            version=version,
            path=path,
        ) from error


def write_checksum(storage: Storage, version: int, checksum: VersionChecksum) -> bool:
    """Write the checksum of a version, unless there is one or it would be too large to be read.

    Returns:
        Whether the file was written.

    Raises:
        StorageError: the store failed.
    """
    data = json.dumps(checksum.to_json(), separators=(",", ":"), ensure_ascii=False).encode()
    if len(data) > _MOST_BYTES:
        return False
    try:
        storage.create(checksum_path(version), data)
    except ObjectExistsError:
        return False
    return True


def _one(
    obj: Mapping[str, Any], key: str, where: str, parse: Callable[[Mapping[str, Any], str], _T]
) -> _T | None:
    value = obj.get(key)
    return None if value is None else parse(json_object(value, f"{where}.{key}"), f"{where}.{key}")


def _all(
    obj: Mapping[str, Any], key: str, where: str, parse: Callable[[Mapping[str, Any], str], _T]
) -> tuple[_T, ...] | None:
    values = obj.get(key)
    if values is None:
        return None
    if not isinstance(values, list):
        found = type(values).__name__
        raise CorruptLogError(f"{where}.{key}: expected an array, found {found}", where=where)
    return tuple(
        parse(json_object(value, f"{where}.{key}[{index}]"), f"{where}.{key}[{index}]")
        for index, value in enumerate(values)
    )


def _to_json(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_to_json(item) for item in value]
    if isinstance(value, Metadata | Protocol | Txn | DomainMetadata):
        return value.to_json()
    return value

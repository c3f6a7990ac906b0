"""Decide which files of a partition are deleted, by the engine's own rules.

A partition has all files with certain names, and everything that the log contains about them
(`references`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from airflow_delta.engine.arrow.action_schema import VERSION
from airflow_delta.engine.maintenance.table_files.listing import (
    LISTED_SCHEMA,
    drop_duplicates,
    drop_phantoms,
)
from airflow_delta.engine.maintenance.vacuum.classification import (
    KeptFiles,
    classify_candidates,
    make_is_deleted,
    make_is_expired,
)
from airflow_delta.engine.maintenance.vacuum.lite import find_first_kept
from airflow_delta.engine.maintenance.vacuum.references import References
from airflow_delta.engine.maintenance.vacuum.retention import Retention
from airflow_delta.engine.maintenance.vacuum.scope import Scope
from airflow_delta.spark.checkpoint.key_shuffle import Parcel, StorageAddress
from airflow_delta.spark.runtime.executor_errors import errors_for_driver
from airflow_delta.spark.vacuum.references import (
    CLEANED,
    LIVE,
    NAMED_FILES,
    RECENT,
    REMOVED_FILES,
    STAYS,
)

__all__ = ["DELETABLE", "FOUND_FILES", "Decision", "FileClassifier"]

FOUND_FILES = "found"
"""The kind of parcels with files that were found in the table's directory."""

DELETABLE = pa.schema([*LISTED_SCHEMA, pa.field("kind", pa.string())])
"""The schema of files to be deleted."""

_PATHS = pa.schema([pa.field("path", pa.string())])
_SCHEMAS = {
    FOUND_FILES: LISTED_SCHEMA,
    NAMED_FILES: pa.schema([pa.field(VERSION, pa.int64()), pa.field("path", pa.string())]),
    REMOVED_FILES: pa.schema(
        [
            pa.field(VERSION, pa.int64()),
            pa.field("deletionTimestamp", pa.int64()),
            pa.field("path", pa.string()),
        ]
    ),
}


@dataclass(frozen=True, slots=True)
class Decision:
    """The decision about the files of a partition.

    Attributes:
        files: the files to be deleted, with the schema `DELETABLE`, as Arrow IPC bytes.
        kept: why the others are kept.
        num_found: the number of files that were found.
        lost: the newest version that removed a file which is gone after the vacuum; None if there is none.
        kept_from: the oldest expired version that names a file which stays, because it is too young, or was
            removed within the retention; the first one if one of them can't be read; None if there is none.
    """

    files: bytes
    kept: KeptFiles
    num_found: int
    lost: int | None
    kept_from: int | None


@dataclass(frozen=True, slots=True)
class FileClassifier:
    """Classifies the files of a partition, in tasks; for ``RDD.mapPartitions``.

    Attributes:
        scope: the files that a vacuum may delete.
        retention: how old they must be.
        others: the directories of other tables.
        address: the table's address, for tasks.
        is_listed: whether the files are from a complete listing; else from an inventory.
    """

    scope: Scope
    retention: Retention
    others: tuple[str, ...]
    address: StorageAddress
    is_listed: bool

    def __call__(self, parcels: Iterable[tuple[int, Parcel]]) -> Iterator[Decision]:
        """Yield the decision about the files of a partition."""
        with errors_for_driver():
            yield self._decision(parcels)

    def _decision(self, parcels: Iterable[tuple[int, Parcel]]) -> Decision:
        batches: dict[str, list[pa.RecordBatch]] = defaultdict(list)
        versions: dict[str, list[int]] = {CLEANED: [], STAYS: []}
        for _, (kind, content) in parcels:
            if kind in versions:
                versions[kind].append(int(content))
            else:
                schema = _SCHEMAS.get(kind, _PATHS)
                batches[kind].append(pa.ipc.read_record_batch(pa.py_buffer(content), schema))
        found = drop_duplicates(pa.Table.from_batches(batches[FOUND_FILES], LISTED_SCHEMA))
        live, recent = _references(LIVE, batches), _references(RECENT, batches)
        protected = live | recent
        files, kept = classify_candidates(
            found,
            self.scope,
            protected,
            self.retention.cutoff_ms,
            others=pa.array(self.others, pa.string()),
            is_listed=self.is_listed,
        )
        if self.is_listed:
            files = drop_phantoms(files, self.address.open())
            is_gone = make_is_deleted(found, files, live)
        else:
            is_gone = make_is_expired(protected, self.retention, deleted=files)
        removed = pa.Table.from_batches(batches[REMOVED_FILES], _SCHEMAS[REMOVED_FILES])
        lost = pc.max(removed[VERSION].filter(is_gone(removed, removed["path"]))).as_py()
        lost = max([*versions[CLEANED], *([] if lost is None else [lost])], default=None)
        named = pa.Table.from_batches(batches[NAMED_FILES], _SCHEMAS[NAMED_FILES])
        young = _find_kept_from(found, named, protected, self.retention.cutoff_ms)
        kept_from = min([*versions[STAYS], *([] if young is None else [young])], default=None)
        return Decision(_bytes_of(files), kept, found.num_rows, lost, kept_from)


def _find_kept_from(
    found: pa.Table, named: pa.Table, protected: References, cutoff_ms: int
) -> int | None:
    young = found["path"].filter(
        pc.greater_equal(found["modificationTime"], pa.scalar(cutoff_ms, pa.int64()))
    )
    return find_first_kept(named, young.filter(pc.invert(protected.protect(young))))


def _references(kind: str, batches: dict[str, list[pa.RecordBatch]]) -> References:
    near, far = (
        pa.Table.from_batches(batches[f"{kind} {distance}"], _PATHS)["path"].cast(pa.large_string())
        for distance in ("near", "far")
    )
    return References(near, far)


def _bytes_of(files: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, DELETABLE) as stream:
        stream.write_table(files.cast(DELETABLE))
    content: bytes = sink.getvalue().to_pybytes()
    return content

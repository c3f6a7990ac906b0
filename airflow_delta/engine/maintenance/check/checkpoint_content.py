"""Check the newest checkpoint against the commits it stands for, by reading it through and replaying them.

A checkpoint that can't be read is made up for by an older one. One that says something else than the
commits is worse: readers believe it, and once a cleanup has taken the commits nobody can tell any more
(edge cases J2, J7). So the state of its version is built a second time, from the checkpoint before it or
from version 0, and the two are compared, file by file.

Where the commits are gone already only the version checksum can contradict it.

Tombstones may be missing from a checkpoint when they have expired. So those count that haven't yet.

Spec: PROTOCOL.md, "Checkpoints", "Action Reconciliation".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from airflow_delta.engine.arrow.action_schema import add_schema, remove_schema
from airflow_delta.engine.checkpoint.distinct_files import DistinctFiles
from airflow_delta.engine.checkpoint.read import open_checkpoint
from airflow_delta.engine.errors import (
    CorruptLogError,
    ObjectNotFoundError,
    TableStateError,
)
from airflow_delta.engine.log.files import Checkpoint
from airflow_delta.engine.log.segment import load_segment
from airflow_delta.engine.log.version_checksum import read_checksum
from airflow_delta.engine.maintenance.check.compared_files import FileDifferences, compare_files
from airflow_delta.engine.maintenance.check.findings import (
    CHECKPOINT,
    MAX_NAMED,
    Finding,
    error,
    info,
    join_names,
    plural,
    warning,
)
from airflow_delta.engine.maintenance.check.subject import Subject
from airflow_delta.engine.model.actions import Metadata
from airflow_delta.engine.model.sizes import size_text
from airflow_delta.engine.replay.non_file_actions import NonFileState, reconcile_non_file_actions
from airflow_delta.engine.replay.tombstones import expired, unexpired
from airflow_delta.engine.snapshot.state import LogState

__all__ = ["CHECKS"]

_ADD_COLUMNS = (
    "path",
    "partitionValues",
    "size",
    "modificationTime",
    "deletionVector",
    "baseRowId",
    "defaultRowCommitVersion",
)
_REMOVE_COLUMNS = ("path", "deletionTimestamp", "deletionVector")
_MANY_TOMBSTONES = 10_000
_LARGE_SHARE = 0.5


@dataclass(frozen=True, slots=True)
class _Content:
    """What a version comes to, by its checkpoint or by what is older."""

    non_file_state: NonFileState
    adds: pa.Table
    removes: pa.Table


def _newest_checkpoint(subject: Subject) -> Iterator[Finding]:
    """Whether the newest checkpoint can be read, and says what the commits say."""
    checkpoint = subject.newest_checkpoint
    if checkpoint is None:
        return
    version = checkpoint.version
    try:
        told = _told_by(subject, checkpoint)
    except ObjectNotFoundError:
        return  # a cleanup has taken it, so there is a newer one
    except CorruptLogError as damage:
        missing = isinstance(damage.__cause__, ObjectNotFoundError)
        yield error(
            "sidecar-missing" if missing else "checkpoint-damaged",
            f"the newest checkpoint, of version {version}, can't be used: {damage.message}",
            f"DeltaTable.checkpoint(version={version}) or CheckpointOperator, where older files of the log "
            "are there",
        )
        return
    yield from _against_checksum(subject, checkpoint, told)
    yield from _tombstones(subject, checkpoint, told)
    found = _replayed(subject, checkpoint)
    if found is not None:
        yield from _differences(subject, checkpoint, told, found)


CHECKS = (_newest_checkpoint,)


def _told_by(subject: Subject, checkpoint: Checkpoint) -> _Content:
    """What a checkpoint says.

    Raises:
        CorruptLogError: it is damaged, or holds a file twice.
    """
    reader = open_checkpoint(subject.storage, checkpoint, table=subject.table)
    non_file_state = reconcile_non_file_actions(
        (kind, value, f"{reader.path}: {kind}") for kind, value in reader.non_file_actions()
    )
    if non_file_state.protocol is None or non_file_state.metadata is None:
        lacking = "protocol" if non_file_state.protocol is None else "metaData"
        raise CorruptLogError(f"it has no {lacking} action", path=reader.path)
    distinct = DistinctFiles(path=reader.path, version=reader.version, table=subject.table)
    adds, removes = [], []
    # All columns are read, for each may be damaged, and few are kept.
    for rows in reader.adds():
        distinct.meet(rows)
        adds.append(rows.select(add_schema(_ADD_COLUMNS).names))
    for rows in reader.removes():
        distinct.meet(rows)
        removes.append(rows.select(remove_schema(_REMOVE_COLUMNS).names))
    return _Content(
        non_file_state,
        pa.concat_tables([pa.Table.from_batches([], add_schema(_ADD_COLUMNS)), *adds]),
        pa.concat_tables([pa.Table.from_batches([], remove_schema(_REMOVE_COLUMNS)), *removes]),
    )


def _replayed(subject: Subject, checkpoint: Checkpoint) -> _Content | None:
    """What the log comes to without the checkpoints of a version; None where it lacks what that needs."""
    excluded = [
        each.path for each in subject.listing.checkpoints if each.version == checkpoint.version
    ]
    try:
        segment = load_segment(
            subject.storage, version=checkpoint.version, excluded_checkpoints=excluded
        )
        state = LogState(subject.storage, segment)
        return _Content(
            state.non_file_state, state.live_adds(_ADD_COLUMNS), state.removes(_REMOVE_COLUMNS)
        )
    except (TableStateError, ObjectNotFoundError):
        return None  # gone, or broken, which is told of where commits are read


def _against_checksum(
    subject: Subject, checkpoint: Checkpoint, told: _Content
) -> Iterator[Finding]:
    try:
        checksum = read_checksum(subject.storage, checkpoint.version)
    except CorruptLogError:
        return  # `checksums` tells of it, if it matters
    if checksum is None:
        return
    size = pc.sum(told.adds["size"]).as_py() or 0
    counted = (told.adds.num_rows, size)
    if counted != (checksum.num_files, checksum.table_size_bytes):
        yield error(
            "checksum-disagrees",
            f"the checkpoint {checkpoint.path} has {plural(counted[0], 'live file')} of {size_text(size)}, "
            f"and the checksum of version {checkpoint.version} tells of {checksum.num_files:,} of "
            f"{size_text(checksum.table_size_bytes)}",
            "find out which is right by the commits: delete the checksum, which is optional, or have the "
            f"checkpoint deleted and written anew ({CHECKPOINT})",
        )


def _tombstones(subject: Subject, checkpoint: Checkpoint, told: _Content) -> Iterator[Finding]:
    """Whether the checkpoint is mostly about files that are gone."""
    count, total = told.removes.num_rows, told.removes.num_rows + told.adds.num_rows
    if count < _MANY_TOMBSTONES or count <= _LARGE_SHARE * total:
        return
    share = f"{plural(count, 'tombstone')} of {plural(total, 'file action')} ({count / total:.0%})"
    message = f"the checkpoint of version {checkpoint.version} holds {share}"
    oldest = _oldest_tombstone_ms(subject)
    old = 0 if oldest is None else pc.sum(expired(told.removes, oldest)).as_py() or 0
    if old > _LARGE_SHARE * count:
        yield warning(
            "tombstones-expired",
            f"{message}; {old:,} have expired and only make it larger",
            f"{CHECKPOINT}: a new one leaves them out",
        )
    else:
        yield info(
            "tombstones-many",
            f"{message}: the table is rewritten faster than delta.deletedFileRetentionDuration lets go",
            "a shorter delta.deletedFileRetentionDuration, which also shortens time travel",
        )


def _differences(
    subject: Subject, checkpoint: Checkpoint, told: _Content, found: _Content
) -> Iterator[Finding]:
    files = compare_files(told.adds, found.adds, table=subject.table)
    differing = [
        *_file_texts(files),
        *_non_file_texts(subject, told.non_file_state, found.non_file_state),
    ]
    if differing:
        yield error(
            "checkpoint-disagrees",
            f"the checkpoint {checkpoint.path} isn't what the commits up to version "
            f"{checkpoint.version} come to: {'; '.join(differing)}",
            "readers believe the checkpoint. Keep the commits (delta.enableExpiredLogCleanup=false), find "
            f"out who wrote it, delete it and write it anew: DeltaTable.checkpoint(version="
            f"{checkpoint.version})",
        )
    oldest = _oldest_tombstone_ms(subject)
    if oldest is None:
        return
    needed = unexpired(found.removes, oldest)
    lost = compare_files(told.removes, needed, table=subject.table).missing
    if lost.num_rows:
        yield warning(
            "tombstones-missing",
            f"the checkpoint {checkpoint.path} lacks {plural(lost.num_rows, 'unexpired tombstone')} "
            f"({_paths(lost)}): a vacuum takes these files too early, and older versions with them",
            f"delete it and write it anew: DeltaTable.checkpoint(version={checkpoint.version})",
        )


def _file_texts(files: FileDifferences) -> Iterator[str]:
    for rows, what in ((files.missing, "lacks"), (files.extra, "has wrongly")):
        if rows.num_rows:
            yield f"it {what} {plural(rows.num_rows, 'live file')} ({_paths(rows)})"
    for column, rows in files.differing.items():
        yield f"it has another {column} for {plural(rows.num_rows, 'file')} ({_paths(rows)})"


def _non_file_texts(subject: Subject, told: NonFileState, found: NonFileState) -> Iterator[str]:
    if told.protocol != found.protocol:
        yield f"it has the protocol {told.protocol}, expected {found.protocol}"
    if told.metadata != found.metadata:
        yield f"its metadata differ in {join_names(_differing(told.metadata, found.metadata))}"
    properties = subject.properties
    keeps = properties is None or "delta.setTransactionRetentionDuration" not in properties.raw
    # Engines leave out expired ones.
    transactions = (
        found.transactions
        if keeps
        else {app: txn for app, txn in found.transactions.items() if app in told.transactions}
    )
    yield from _entry_texts("transaction", told.transactions, transactions)
    yield from _entry_texts("domain", told.domains, found.domains)


def _differing(told: Metadata | None, found: Metadata | None) -> list[str]:
    """The fields in which metadata differ."""
    sides = [{} if each is None else each.to_json() for each in (told, found)]
    return sorted(key for key in {*sides[0], *sides[1]} if sides[0].get(key) != sides[1].get(key))


def _entry_texts(what: str, told: Mapping[str, Any], found: Mapping[str, Any]) -> Iterator[str]:
    wrong = sorted(key for key in {*told, *found} if told.get(key) != found.get(key))
    if wrong:
        yield f"it is wrong about {plural(len(wrong), what)} ({join_names(wrong)})"


def _paths(rows: pa.Table) -> str:
    return join_names(rows["path"].slice(0, MAX_NAMED).to_pylist(), rows.num_rows)


def _oldest_tombstone_ms(subject: Subject) -> int | None:
    """When what has just expired was deleted; None where the retention isn't known."""
    if subject.properties is None:
        return None
    return subject.now_ms - subject.properties.deleted_file_retention_ms

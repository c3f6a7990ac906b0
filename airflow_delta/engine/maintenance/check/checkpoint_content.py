"""Check the content of the newest checkpoint against the commits that it replaces.

A damaged checkpoint is replaced by an older one. One with wrong content is worse: readers rely on it, and
once a cleanup has deleted the commits, nobody can find the difference any more. So the state of its version
is built again from the checkpoint before it, or from version 0, and compared file by file. If the commits
are gone, only the version checksum can contradict the checkpoint.

Spec: PROTOCOL.md, "Checkpoints", "Action Reconciliation". Only tombstones that haven't expired must be in a
checkpoint.
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
    """The state of a version, by its checkpoint or by replaying older files."""

    non_file_state: NonFileState
    adds: pa.Table
    removes: pa.Table


def _check_newest_checkpoint(subject: Subject) -> Iterator[Finding]:
    """Whether the newest checkpoint can be read, and has the state that the commits lead to."""
    checkpoint = subject.newest_checkpoint
    if checkpoint is None:
        return
    version = checkpoint.version
    try:
        recorded = _read(subject, checkpoint)
    except ObjectNotFoundError:
        return  # a cleanup has deleted it, so there is a newer one
    except CorruptLogError as damage:
        missing = isinstance(damage.__cause__, ObjectNotFoundError)
        yield error(
            "sidecar-missing" if missing else "checkpoint-damaged",
            f"the newest checkpoint, of version {version}, can't be used: {damage.message}",
            f"DeltaTable.checkpoint(version={version}) or CheckpointOperator, if older files of the log "
            "exist",
        )
        return
    yield from _compare_with_checksum(subject, checkpoint, recorded)
    yield from _check_tombstones(subject, checkpoint, recorded)
    replayed = _replay(subject, checkpoint)
    if replayed is not None:
        yield from _compare(subject, checkpoint, recorded, replayed)


CHECKS = (_check_newest_checkpoint,)


def _read(subject: Subject, checkpoint: Checkpoint) -> _Content:
    """Read the content of a checkpoint.

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
    # All columns are read, since each may be damaged; few are kept.
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


def _replay(subject: Subject, checkpoint: Checkpoint) -> _Content | None:
    """Replay the log without the checkpoints of a version; None if files for that are missing."""
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
        return None  # gone, or damaged, which `commits` reports


def _compare_with_checksum(
    subject: Subject, checkpoint: Checkpoint, recorded: _Content
) -> Iterator[Finding]:
    try:
        checksum = read_checksum(subject.storage, checkpoint.version)
    except CorruptLogError:
        return  # `checksums` reports it, if it matters
    if checksum is None:
        return
    size = pc.sum(recorded.adds["size"]).as_py() or 0
    counted = (recorded.adds.num_rows, size)
    if counted != (checksum.num_files, checksum.table_size_bytes):
        yield error(
            "checksum-disagrees",
            f"the checkpoint {checkpoint.path} has {plural(counted[0], 'live file')} of {size_text(size)}, "
            f"but the checksum of version {checkpoint.version} counts {checksum.num_files:,} of "
            f"{size_text(checksum.table_size_bytes)}",
            "compare with the commits to find out which is right: delete the checksum, which is optional, "
            f"or delete the checkpoint and write it again ({CHECKPOINT})",
        )


def _check_tombstones(
    subject: Subject, checkpoint: Checkpoint, recorded: _Content
) -> Iterator[Finding]:
    """Whether most of the checkpoint is tombstones."""
    count, total = recorded.removes.num_rows, recorded.removes.num_rows + recorded.adds.num_rows
    if count < _MANY_TOMBSTONES or count <= _LARGE_SHARE * total:
        return
    share = f"{plural(count, 'tombstone')} of {plural(total, 'file action')} ({count / total:.0%})"
    message = f"the checkpoint of version {checkpoint.version} holds {share}"
    oldest = _find_oldest_tombstone_ms(subject)
    old = 0 if oldest is None else pc.sum(expired(recorded.removes, oldest)).as_py() or 0
    if old > _LARGE_SHARE * count:
        yield warning(
            "tombstones-expired",
            f"{message}; {old:,} of them have expired and only make it larger",
            f"{CHECKPOINT}: a new one leaves them out",
        )
    else:
        yield info(
            "tombstones-many",
            f"{message}: files are removed faster than delta.deletedFileRetentionDuration lets their "
            "tombstones expire",
            "a shorter delta.deletedFileRetentionDuration, which also shortens time travel",
        )


def _compare(
    subject: Subject, checkpoint: Checkpoint, recorded: _Content, replayed: _Content
) -> Iterator[Finding]:
    files = compare_files(recorded.adds, replayed.adds, table=subject.table)
    differing = [
        *_describe_files(files),
        *_describe_non_file(subject, recorded.non_file_state, replayed.non_file_state),
    ]
    if differing:
        yield error(
            "checkpoint-disagrees",
            f"the checkpoint {checkpoint.path} differs from the commits up to version "
            f"{checkpoint.version}: {'; '.join(differing)}",
            "readers rely on the checkpoint. Keep the commits (delta.enableExpiredLogCleanup=false), find "
            "the writer, delete the checkpoint and write it again: DeltaTable.checkpoint(version="
            f"{checkpoint.version})",
        )
    oldest = _find_oldest_tombstone_ms(subject)
    if oldest is None:
        return
    needed = unexpired(replayed.removes, oldest)
    lost = compare_files(recorded.removes, needed, table=subject.table).missing
    if lost.num_rows:
        yield warning(
            "tombstones-missing",
            f"the checkpoint {checkpoint.path} lacks {plural(lost.num_rows, 'unexpired tombstone')} "
            f"({_join_paths(lost)}): a vacuum deletes these files too early, so older versions are lost",
            f"delete it and write it again: DeltaTable.checkpoint(version={checkpoint.version})",
        )


def _describe_files(files: FileDifferences) -> Iterator[str]:
    for rows, what in ((files.missing, "lacks"), (files.extra, "has wrongly")):
        if rows.num_rows:
            yield f"it {what} {plural(rows.num_rows, 'live file')} ({_join_paths(rows)})"
    for column, rows in files.differing.items():
        yield f"it has another {column} for {plural(rows.num_rows, 'file')} ({_join_paths(rows)})"


def _describe_non_file(
    subject: Subject, recorded: NonFileState, replayed: NonFileState
) -> Iterator[str]:
    if recorded.protocol != replayed.protocol:
        yield f"it has the protocol {recorded.protocol}, expected {replayed.protocol}"
    if recorded.metadata != replayed.metadata:
        fields = _list_differing_fields(recorded.metadata, replayed.metadata)
        yield f"its metadata differ in {join_names(fields)}"
    properties = subject.properties
    keeps = properties is None or "delta.setTransactionRetentionDuration" not in properties.raw
    # Engines leave out expired transaction identifiers.
    transactions = (
        replayed.transactions
        if keeps
        else {app: t for app, t in replayed.transactions.items() if app in recorded.transactions}
    )
    yield from _describe_entries("transaction", recorded.transactions, transactions)
    yield from _describe_entries("domain", recorded.domains, replayed.domains)


def _list_differing_fields(recorded: Metadata | None, replayed: Metadata | None) -> list[str]:
    """Return the fields in which metadata differ."""
    sides = [{} if each is None else each.to_json() for each in (recorded, replayed)]
    return sorted(key for key in {*sides[0], *sides[1]} if sides[0].get(key) != sides[1].get(key))


def _describe_entries(
    what: str, recorded: Mapping[str, Any], replayed: Mapping[str, Any]
) -> Iterator[str]:
    keys = {*recorded, *replayed}
    wrong = sorted(key for key in keys if recorded.get(key) != replayed.get(key))
    if wrong:
        yield f"it differs in {plural(len(wrong), what)} ({join_names(wrong)})"


def _join_paths(rows: pa.Table) -> str:
    return join_names(rows["path"].slice(0, MAX_NAMED).to_pylist(), rows.num_rows)


def _find_oldest_tombstone_ms(subject: Subject) -> int | None:
    """The time before which tombstones have expired; None if the retention isn't known."""
    if subject.properties is None:
        return None
    return subject.now_ms - subject.properties.deleted_file_retention_ms

"""Check a checkpoint before the commits are deleted that could replace it.

`explain_unreliable` reads it to its end, compares its files with each other, and with the version checksum
of its version, if there is one.
"""

from __future__ import annotations

from airflow_delta.engine.checkpoint.read import open_checkpoint
from airflow_delta.engine.errors import (
    CorruptLogError,
    ObjectNotFoundError,
    TableStateError,
    UnsupportedFeatureError,
)
from airflow_delta.engine.features.protocol import check_readable
from airflow_delta.engine.log.completeness import without_action
from airflow_delta.engine.log.files import Checkpoint, checksum_path
from airflow_delta.engine.log.version_checksum import VersionChecksum, read_checksum
from airflow_delta.engine.replay.non_file_actions import reconcile_non_file_actions
from airflow_delta.engine.storage.base import Storage

__all__ = ["explain_unreliable"]


def explain_unreliable(storage: Storage, checkpoint: Checkpoint) -> str | None:
    """Explain why a checkpoint can't replace the commits up to its version, as a sentence; None if it can.

    Args:
        storage: where the table is.
        checkpoint: the checkpoint, which is read whole.

    Raises:
        StorageError: the store failed.
    """
    try:
        _read_through(storage, checkpoint)
    except (TableStateError, UnsupportedFeatureError, ObjectNotFoundError) as error:
        return f"the checkpoint {checkpoint.path} can't be relied on: {error.message}"
    return None


def _read_through(storage: Storage, checkpoint: Checkpoint) -> None:
    """Read a checkpoint to its end.

    Raises:
        CorruptLogError: it is damaged, holds a file twice, or other files than the version has.
        UnsupportedFeatureError: the engine can't read its version.
        InvalidTableError: its protocol and metadata contradict each other.
        ObjectNotFoundError: it is gone.
    """
    import pyarrow.compute as pc

    from airflow_delta.engine.checkpoint.base_check import check_expected_files
    from airflow_delta.engine.checkpoint.distinct_files import DistinctFiles
    from airflow_delta.engine.checkpoint.write import ExpectedFiles

    table, path, version = storage.root, checkpoint.path, checkpoint.version
    reader = open_checkpoint(storage, checkpoint, table=table)
    non_file_state = reconcile_non_file_actions(
        (kind, value, f"{path}: {kind}") for kind, value in reader.non_file_actions()
    )
    if non_file_state.protocol is None or non_file_state.metadata is None:
        missing = "protocol" if non_file_state.protocol is None else "metaData"
        raise without_action(missing, version=version, checkpoint=checkpoint, table=table)
    check_readable(non_file_state.protocol, non_file_state.metadata, table=table)
    distinct = DistinctFiles(path=path, version=version, table=table)
    num_adds = adds_size = 0
    for adds in reader.adds():
        distinct.meet(adds)
        num_adds += adds.num_rows
        adds_size += pc.sum(adds["size"]).as_py() or 0
    for removes in reader.removes():
        distinct.meet(removes)
    checksum = _read_checksum(storage, version)
    if checksum is not None:
        check_expected_files(
            ExpectedFiles(checksum.num_files, checksum.table_size_bytes, checksum_path(version)),
            num_adds=num_adds,
            adds_size=adds_size,
            path=path,
            version=version,
            table=table,
        )


def _read_checksum(storage: Storage, version: int) -> VersionChecksum | None:
    try:
        return read_checksum(storage, version)
    except CorruptLogError:
        return None  # a checksum is optional

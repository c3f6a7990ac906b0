"""Find the files of a version that need a feature, as far as the log shows.

===================  ===============================================================================
feature              files
===================  ===============================================================================
``deletionVectors``  with a deletion vector, or with the path of a removed file that has one
``rowTracking``      with row ids or a row commit version
``columnMapping``    all, unless the mode is ``none``: their column names may differ
any other            none, or only the data files themselves show it
===================  ===============================================================================

A file without a deletion vector can share its path with a removed file that has one: rows were
deleted, and a restore brought them back. For readers without support of deletion vectors the two
are the same file. Whether they take it as live depends on the order in a checkpoint. So this file
must be rewritten as well.

``features/dropping.py`` finds the parts of the metadata that need a feature.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from airflow_delta.engine.features.column_mapping import mapping_mode
from airflow_delta.engine.features.row_tracking import FEATURE as ROW_TRACKING
from airflow_delta.engine.replay.file_filter import path_keys
from airflow_delta.engine.snapshot.snapshot import Snapshot

__all__ = ["files_with", "paths_with_vectors"]

_ROW_IDS = ("baseRowId", "defaultRowCommitVersion")
_REPORTED = ("path", "size")


def files_with(feature: str, snapshot: Snapshot) -> pa.Table:
    """The live files that need a feature.

    Args:
        feature: its name, as in the registry.
        snapshot: the version.

    Returns:
        Their ``path`` and ``size``.

    Raises:
        CorruptLogError: the live or the removed files can't be read.
        StorageError: the store failed.
    """
    if feature == "deletionVectors":
        files = snapshot.files(columns=(*_REPORTED, "deletionVector"))
        need_it = pc.is_valid(files["deletionVector"])
        removed = paths_with_vectors(snapshot.tombstones(), table=snapshot.table)
        if len(removed):
            keys = path_keys(files["path"], table=snapshot.table)
            need_it = pc.or_(need_it, pc.is_in(keys, value_set=removed))
        return files.filter(need_it).select(_REPORTED)
    if feature == ROW_TRACKING:
        files = snapshot.files(columns=(*_REPORTED, *_ROW_IDS))
        numbered = pc.or_(*(pc.is_valid(files[name]) for name in _ROW_IDS))
        return files.filter(numbered).select(_REPORTED)
    if feature == "columnMapping":
        mode = mapping_mode(snapshot.protocol, snapshot.metadata, table=snapshot.table)
        if mode != "none":
            return snapshot.files(columns=_REPORTED)
    return pa.table({"path": pa.array([], pa.string()), "size": pa.array([], pa.int64())})


def paths_with_vectors(actions: pa.Table, *, table: str) -> pa.Array:
    """The paths of files with deletion vectors, in the form of `path_keys`.

    Args:
        actions: adds or removes.
        table: the table's location.
    """
    paths = actions.filter(pc.is_valid(actions["deletionVector"]))["path"]
    return path_keys(paths, table=table).combine_chunks()

"""The files of a version that need a feature, as far as the log tells.

=======================================  ================================================================
feature                                  files
=======================================  ================================================================
``deletionVectors``                      with a deletion vector
``rowTracking``                          with row ids or a row commit version
``columnMapping``                        all, while the mode isn't ``none``: they may call columns otherwise
any other                                none, or only the files themselves can tell
=======================================  ================================================================

What of the metadata needs a feature is in ``features/dropping.py``.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from airflow_delta.engine.features.column_mapping import mapping_mode
from airflow_delta.engine.features.row_tracking import FEATURE as ROW_TRACKING
from airflow_delta.engine.snapshot.snapshot import Snapshot

__all__ = ["files_with"]

_ROW_IDS = ("baseRowId", "defaultRowCommitVersion")
_TOLD = ("path", "size")


def files_with(feature: str, snapshot: Snapshot) -> pa.Table:
    """The live files that need a feature.

    Args:
        feature: its name, as in the registry.
        snapshot: the version.

    Returns:
        Their ``path`` and ``size``.

    Raises:
        CorruptLogError: the live files can't be read.
        StorageError: the store failed.
    """
    if feature == "deletionVectors":
        files = snapshot.files(columns=(*_TOLD, "deletionVector"))
        return files.filter(pc.is_valid(files["deletionVector"])).select(_TOLD)
    if feature == ROW_TRACKING:
        files = snapshot.files(columns=(*_TOLD, *_ROW_IDS))
        numbered = pc.or_(*(pc.is_valid(files[name]) for name in _ROW_IDS))
        return files.filter(numbered).select(_TOLD)
    if feature == "columnMapping":
        mode = mapping_mode(snapshot.protocol, snapshot.metadata, table=snapshot.table)
        if mode != "none":
            return snapshot.files(columns=_TOLD)
    return pa.table({"path": pa.array([], pa.string()), "size": pa.array([], pa.int64())})

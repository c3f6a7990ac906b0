"""Convert the live files of a snapshot to actions of a commit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from airflow_delta.engine import AddFile, RemoveFile

__all__ = ["live_files", "removal"]

_MAPS = ("partitionValues", "tags")


def live_files(adds: pa.Table) -> Iterator[AddFile]:
    """Convert rows of the engine's table of adds to objects.

    Args:
        adds: all columns of ``add``.
    """
    # A Python loop over files: a transaction takes its actions one by one.
    for add in adds.to_pylist():
        yield AddFile.from_json(_json(add), "add")


def removal(add: AddFile, *, data_change: bool) -> RemoveFile:
    """Create the ``remove`` action of a live file from its ``add``; the commit sets the time.

    Args:
        add: the file.
        data_change: whether the action changes the rows of the table.
    """
    return RemoveFile(
        path=add.path,
        data_change=data_change,
        extended_file_metadata=True,
        partition_values=add.partition_values,
        size=add.size,
        stats=add.stats,
        tags=add.tags,
        deletion_vector=add.deletion_vector,
        base_row_id=add.base_row_id,
        default_row_commit_version=add.default_row_commit_version,
    )


def _json(add: Mapping[str, Any]) -> dict[str, Any]:
    """Convert a row to the JSON form of the action, with maps as objects."""
    return {
        name: dict(value) if name in _MAPS and isinstance(value, list) else value
        for name, value in add.items()
        if value is not None
    }

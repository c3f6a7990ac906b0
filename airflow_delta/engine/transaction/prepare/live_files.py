"""Find the live files of the table that have the paths of a commit's files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from airflow_delta.engine.arrow.action_schema import ADD_FIELDS, FILE_KEY_COLUMNS
from airflow_delta.engine.arrow.python_arrays import array_of
from airflow_delta.engine.model.file_actions import AddFile, RemoveFile
from airflow_delta.engine.replay.file_filter import FilesAmong, path_keys
from airflow_delta.engine.replay.file_key import file_keys, keys_of_files
from airflow_delta.engine.transaction.context import CommitContext

__all__ = ["are_live", "live_by_path", "live_of_paths"]


def are_live(files: Sequence[AddFile | RemoveFile], context: CommitContext) -> list[bool]:
    """For each file, whether the table has it before the commit, with the same deletion vector.

    Raises:
        CorruptLogError: the table's live files can't be read.
        StorageError: the store failed.
    """
    if context.base is None or not files:
        return [False] * len(files)
    mine = keys_of_files(files, table=context.table)
    live = file_keys(context.base.files(columns=FILE_KEY_COLUMNS), table=context.table)
    found = set(live.filter(pc.is_in(live, value_set=mine)).to_pylist())
    return [key in found for key in mine.to_pylist()]


def live_by_path(
    files: Iterable[AddFile | RemoveFile], context: CommitContext, columns: Sequence[str]
) -> Mapping[str, Mapping[str, Any]]:
    """Find the live files that have the path of one of some files.

    Args:
        files: the files. Their deletion vectors don't matter.
        context: the table.
        columns: columns of the protocol's ``add``.

    Returns:
        The values of the columns, by `CommitContext.path_key`.

    Raises:
        ConstraintViolationError: the path of a file is no well-formed URI.
        CorruptLogError: the table's live files can't be read.
        StorageError: the store failed.
    """
    keys, live = live_of_paths(files, context, columns)
    # One object for each file of the commit, at most.
    return dict(zip(keys, live.to_pylist(), strict=True))


def live_of_paths(
    files: Iterable[AddFile | RemoveFile], context: CommitContext, columns: Sequence[str]
) -> tuple[list[str], pa.Table]:
    """As `live_by_path`, but as Arrow: the path keys, and a table with a row for each of them."""
    keys = {context.path_key(file) for file in files}
    if context.base is None or not keys:
        nothing = {name: pa.nulls(0, ADD_FIELDS[name]) for name in columns}
        return [], pa.table(nothing)
    wanted = array_of(list(keys), pa.string())
    among = FilesAmong(wanted, table=context.table, by_path=True)
    live = context.base.state.live_adds(("path", *columns), row_filter=among)
    return path_keys(live["path"], table=context.table).to_pylist(), live.select(list(columns))

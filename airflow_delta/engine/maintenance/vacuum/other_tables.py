"""Keep a vacuum away from the files of other tables that lie in this table's directory.

A full listing of an object store shows the logs of other tables (``scope.py``). Other candidates don't:
those of a lite vacuum come from the log, an inventory may be incomplete, and a listing of a file system
leaves linked logs out. Then `drop_other_tables` looks for a ``_delta_log`` in the directory of each file
to be deleted, and in those between it and the root. That is one request for each directory, however many
files it has. Directories below another table aren't looked up.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from airflow_delta.engine.arrow.parallel import map_ordered
from airflow_delta.engine.arrow.python_arrays import array_of
from airflow_delta.engine.errors import NotRegularFileError
from airflow_delta.engine.log.files import LOG_DIRECTORY
from airflow_delta.engine.maintenance.vacuum.classification import KeptFiles
from airflow_delta.engine.storage.base import Storage

__all__ = ["drop_other_tables"]

_WORKERS = 32

_MOST_LEVELS = 128
"""Deeper files stay without a request: nobody writes so deep, and a hostile log can name any path."""


def drop_other_tables(
    files: pa.Table, kept: KeptFiles, storage: Storage, *, is_listed: bool
) -> tuple[pa.Table, KeptFiles]:
    """Drop the files in directories of other tables, and count them among those that stay.

    Args:
        files: what would be deleted, with the column ``path``.
        kept: why the other candidates stay.
        storage: the table's storage.
        is_listed: whether the candidates were found by listing the table's directory.

    Raises:
        StorageError: the store failed.
    """
    # An object store has no links, so that a listing shows all logs.
    if not files.num_rows or (is_listed and storage.capabilities.remote):
        return files, kept
    folders = pc.replace_substring_regex(files["path"], "(?s)(^|/)[^/]*$", "")
    others = _find_in_other_tables({*pc.unique(folders).to_pylist()} - {""}, storage)
    if not others:
        return files, kept
    foreign = pc.is_in(folders, value_set=array_of(sorted(others), pa.string()))
    ours = files.filter(pc.invert(foreign))
    num_foreign = files.num_rows - ours.num_rows
    return ours, replace(kept, other_tables=kept.other_tables + num_foreign)


def _find_in_other_tables(folders: set[str], storage: Storage) -> set[str]:
    """Return the directories that have the log of another table, or lie below one that has."""
    # A loop over directories: each of them is a request to the store.
    deep = {folder for folder in folders if folder.count("/") >= _MOST_LEVELS}
    levels: dict[int, set[str]] = defaultdict(set)
    for folder in folders - deep:
        for level, above in enumerate(_with_parents(folder)):
            levels[level].add(above)
    workers = _WORKERS if storage.capabilities.remote else 1
    inside: set[str] = set()
    for level in sorted(levels):
        below = {folder for folder in levels[level] if folder.rpartition("/")[0] in inside}
        unknown = sorted(levels[level] - below)
        have_logs = map_ordered(partial(_has_log, storage), unknown, workers=workers)
        inside |= below
        inside |= {folder for folder, has_log in zip(unknown, have_logs, strict=True) if has_log}
    return deep | (inside & folders)


def _with_parents(folder: str) -> Iterable[str]:
    """Yield the directories between the root and a directory, then the directory itself."""
    names = folder.split("/")
    return ("/".join(names[:count]) for count in range(1, len(names) + 1))


def _has_log(storage: Storage, folder: str) -> bool:
    log = f"{folder}/{LOG_DIRECTORY}"
    try:
        if any(True for _ in storage.walk(log)):
            return True
        # On a file system the log may be a link, which `walk` leaves out.
        return not storage.capabilities.remote and any(True for _ in storage.list(log))
    except NotRegularFileError:
        # The log is a link, or lies behind one, so it isn't this table's.
        return True

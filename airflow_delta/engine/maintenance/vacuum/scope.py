"""Decide which files of a table's directory a vacuum may touch, and what kind of file each is.

=============================================  ====================================================
a path below the root                          how a vacuum treats it
=============================================  ====================================================
a segment begins with ``_`` or ``.``           hidden: the log, files in the making, files of other
                                               programs; it stays
except ``_change_data`` at the root            change data files ("Change Data Files")
except ``_x=…`` for a partition column ``_x``  the directory of a partition
``metadata`` at the root, with Iceberg         Iceberg's metadata, if the table has it; it stays
below a directory with a ``_delta_log``        of another table; it stays
longer than a file's path can be               invented by a log; it stays (``path_endings.py``)
=============================================  ====================================================

A partition column may appear by its name or by its physical name, since directories are named by either.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from airflow_delta.engine.arrow.python_arrays import array_of, scalar_of
from airflow_delta.engine.features.column_mapping import mapping_mode, partition_fields
from airflow_delta.engine.maintenance.table_files.deletion_vector_files import FILE_NAME
from airflow_delta.engine.maintenance.table_files.path_endings import LONGEST_PATH
from airflow_delta.engine.snapshot.snapshot import Snapshot

__all__ = [
    "CHANGE_DATA",
    "DATA",
    "DELETION_VECTORS",
    "KINDS",
    "Scope",
    "are_in_other_tables",
    "find_kinds",
    "find_roots_of_other_tables",
]

DATA, DELETION_VECTORS, CHANGE_DATA = "data", "deletion vectors", "change data"
KINDS = (DATA, DELETION_VECTORS, CHANGE_DATA)
"""The kinds of files; ``data`` is everything that isn't one of the others."""

_CHANGES = "_change_data/"
_LOG = "/_delta_log/"
_ICEBERG = "delta.universalFormat.enabledFormats"


@dataclass(frozen=True, slots=True)
class Scope:
    """The rules for hidden paths in a table's directory.

    Attributes:
        partitions: the names of partition columns that begin with ``_`` or ``.``.
        iceberg: whether the table has Iceberg's metadata.
    """

    partitions: tuple[str, ...]
    iceberg: bool

    @classmethod
    def of(cls, snapshot: Snapshot) -> Scope:
        """The scope of a table.

        Raises:
            InvalidTableError: a column lacks its physical name.
        """
        mode = mapping_mode(snapshot.protocol, snapshot.metadata, table=snapshot.table)
        columns = snapshot.metadata.partition_columns
        names = {*columns, *partition_fields(snapshot.schema, columns, mode)}
        hidden = tuple(sorted(name for name in names if name.startswith(("_", "."))))
        formats = snapshot.properties.raw.get(_ICEBERG, "").split(",")
        return cls(hidden, "iceberg" in {each.strip().lower() for each in formats})

    def are_hidden(self, paths: pa.ChunkedArray) -> pa.ChunkedArray:
        """Whether each path stays because it is hidden.

        Args:
            paths: below the root, decoded.
        """
        # Cut off the allowed prefixes. A path that still has a hidden segment is hidden.
        open_ = pc.replace_substring_regex(paths, f"^{_CHANGES}", "")
        if self.partitions:
            names = "|".join(map(re.escape, self.partitions))
            open_ = pc.replace_substring_regex(open_, f"(^|/)({names})=", r"\1=")
        mask = pc.match_substring_regex(open_, r"(^|/)[._]")
        too_long = pc.greater(pc.binary_length(paths), scalar_of(LONGEST_PATH, pa.int32()))
        mask = pc.or_(mask, too_long)
        return pc.or_(mask, pc.starts_with(paths, "metadata/")) if self.iceberg else mask


def find_roots_of_other_tables(paths: pa.ChunkedArray) -> pa.Array:
    """Find the directories of other tables whose logs are among the paths, with a trailing slash.

    Args:
        paths: below the root of a table, but for its log.
    """
    logs = paths.filter(pc.match_substring(paths, _LOG))
    return pc.unique(pc.replace_substring_regex(logs, f"(?s){_LOG}.*", "/"))


def are_in_other_tables(paths: pa.ChunkedArray, roots: pa.Array) -> pa.ChunkedArray:
    """Whether each path lies in the directory of another table.

    Args:
        paths: below the root of a table, but for its log.
        roots: the directories of other tables, by `find_roots_of_other_tables`.
    """
    inside = pc.match_substring(paths, _LOG)
    if not len(roots):
        return inside
    # A loop over directories with files. There may be as many other tables, so they aren't compared pair by
    # pair.
    others = {*roots.to_pylist()}
    folders = pc.replace_substring_regex(paths, "(?s)[^/]*$", "")
    foreign = [folder for folder in pc.unique(folders).to_pylist() if _is_in(folder, others)]
    return pc.or_(inside, pc.is_in(folders, value_set=array_of(foreign, pa.string())))


def _is_in(folder: str, roots: set[str]) -> bool:
    """Whether a directory, with a trailing slash, is one of the roots or lies in one."""
    slash = folder.find("/")
    while slash >= 0:
        if folder[: slash + 1] in roots:
            return True
        slash = folder.find("/", slash + 1)
    return False


def find_kinds(paths: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the kind of each file, one of `KINDS`.

    Args:
        paths: below the root, decoded.
    """
    data, vectors, changes = (scalar_of(kind, pa.string()) for kind in KINDS)
    named = pc.if_else(pc.match_substring_regex(paths, FILE_NAME), vectors, data)
    return pc.if_else(pc.starts_with(paths, _CHANGES), changes, named)

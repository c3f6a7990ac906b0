"""Which files of a table's directory a vacuum may look at, and what kind of file each is.

=============================================  ====================================================
a path below the root                          what a vacuum thinks of it
=============================================  ====================================================
a segment begins with ``_`` or ``.``           hidden: the log, files in the making, what other
                                               programs keep there; it stays
except ``_change_data`` at the root            change data files ("Change Data Files")
except ``_x=…`` for a partition column ``_x``  the directory of a partition
``metadata`` at the root, with Iceberg         Iceberg's metadata, for tables that have it; it stays
below a directory with a ``_delta_log``        of another table; it stays
longer than a file's path can be               made up, by a log; it stays (`path_endings`)
=============================================  ====================================================

A partition column may be called by its name or by its physical name, as directories were made under
either.
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
    "kinds_of",
    "of_other_tables",
    "roots_of_other_tables",
]

DATA, DELETION_VECTORS, CHANGE_DATA = "data", "deletion vectors", "change data"
KINDS = (DATA, DELETION_VECTORS, CHANGE_DATA)
"""What files are for; ``data`` is all that isn't one of the others."""

_CHANGES = "_change_data/"
_LOG = "/_delta_log/"
_ICEBERG = "delta.universalFormat.enabledFormats"


@dataclass(frozen=True, slots=True)
class Scope:
    """What is hidden in a table's directory.

    Attributes:
        partitions: the names of partition columns that begin like what is hidden.
        iceberg: whether Iceberg's metadata is there.
    """

    partitions: tuple[str, ...]
    iceberg: bool

    @classmethod
    def of(cls, snapshot: Snapshot) -> Scope:
        """That of a table.

        Raises:
            InvalidTableError: a column lacks its physical name.
        """
        mode = mapping_mode(snapshot.protocol, snapshot.metadata, table=snapshot.table)
        columns = snapshot.metadata.partition_columns
        names = {*columns, *partition_fields(snapshot.schema, columns, mode)}
        hidden = tuple(sorted(name for name in names if name.startswith(("_", "."))))
        formats = snapshot.properties.raw.get(_ICEBERG, "").split(",")
        return cls(hidden, "iceberg" in {each.strip().lower() for each in formats})

    def hidden(self, paths: pa.ChunkedArray) -> pa.ChunkedArray:
        """Which paths stay because they are hidden.

        Args:
            paths: below the root, decoded.
        """
        # What may begin so is taken away; if there is more that begins so, it is hidden.
        open_ = pc.replace_substring_regex(paths, f"^{_CHANGES}", "")
        if self.partitions:
            names = "|".join(map(re.escape, self.partitions))
            open_ = pc.replace_substring_regex(open_, f"(^|/)({names})=", r"\1=")
        mask = pc.match_substring_regex(open_, r"(^|/)[._]")
        too_long = pc.greater(pc.binary_length(paths), scalar_of(LONGEST_PATH, pa.int32()))
        mask = pc.or_(mask, too_long)
        return pc.or_(mask, pc.starts_with(paths, "metadata/")) if self.iceberg else mask


def roots_of_other_tables(paths: pa.ChunkedArray) -> pa.Array:
    """The directories of other tables, with a slash behind them, as far as their logs are among paths.

    Args:
        paths: below the root of a table, but for its log.
    """
    logs = paths.filter(pc.match_substring(paths, _LOG))
    return pc.unique(pc.replace_substring_regex(logs, f"(?s){_LOG}.*", "/"))


def of_other_tables(paths: pa.ChunkedArray, roots: pa.Array) -> pa.ChunkedArray:
    """Which paths lie in the directory of another table.

    Args:
        paths: below the root of a table, but for its log.
        roots: the directories of other tables, by `roots_of_other_tables`.
    """
    inside = pc.match_substring(paths, _LOG)
    if not len(roots):
        return inside
    # A loop over directories with files: there may be as many other tables, so that comparing each with
    # each would take for ever.
    others = {*roots.to_pylist()}
    folders = pc.replace_substring_regex(paths, "(?s)[^/]*$", "")
    foreign = [folder for folder in pc.unique(folders).to_pylist() if _is_in(folder, others)]
    return pc.or_(inside, pc.is_in(folders, value_set=array_of(foreign, pa.string())))


def _is_in(folder: str, roots: set[str]) -> bool:
    """Whether a directory, with a slash behind it, is one of some or lies in one."""
    slash = folder.find("/")
    while slash >= 0:
        if folder[: slash + 1] in roots:
            return True
        slash = folder.find("/", slash + 1)
    return False


def kinds_of(paths: pa.ChunkedArray) -> pa.ChunkedArray:
    """What each file is for, of `KINDS`.

    Args:
        paths: below the root, decoded.
    """
    data, vectors, changes = (scalar_of(kind, pa.string()) for kind in KINDS)
    named = pc.if_else(pc.match_substring_regex(paths, FILE_NAME), vectors, data)
    return pc.if_else(pc.starts_with(paths, _CHANGES), changes, named)

"""Classify the candidates of a vacuum: which files it deletes, and why the others stay.

`classify_candidates` needs three facts about the table: which files it needs, what is hidden in its
directory, and where other tables are. Then each file is classified by itself, so it works on part of the
files as well as on all of them. `make_is_deleted` and `make_is_expired` make the functions with which
``table_files/oldest_restorable.py`` finds the oldest version that stays whole.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from airflow_delta.engine.arrow.python_arrays import array_of, scalar_of
from airflow_delta.engine.maintenance.table_files.locations import are_absolute
from airflow_delta.engine.maintenance.table_files.oldest_restorable import IsGone
from airflow_delta.engine.maintenance.table_files.path_endings import (
    iter_known_endings,
    longest_length,
)
from airflow_delta.engine.maintenance.vacuum.aliases import may_be_aliases
from airflow_delta.engine.maintenance.vacuum.references import References, get_file_names
from airflow_delta.engine.maintenance.vacuum.retention import Retention
from airflow_delta.engine.maintenance.vacuum.scope import (
    Scope,
    are_in_other_tables,
    find_kinds,
    find_roots_of_other_tables,
)
from airflow_delta.engine.replay.tombstones import expired

__all__ = ["KeptFiles", "classify_candidates", "make_is_deleted", "make_is_expired"]

_NEEDED = "needed"


@dataclass(frozen=True, slots=True)
class KeptFiles:
    """The number of candidates that stay, by reason. Each counts for the first reason that applies.

    Attributes:
        hidden: those that a vacuum never touches (``scope.py``). The table's log isn't counted.
        other_tables: those in the directory of another table. If that needs a request
            (``other_tables.py``), only those that would be deleted otherwise.
        referenced: those that the table needs: for the newest version, or for one whose files were removed
            within the retention.
        young: those that the table doesn't need, but that are younger than the retention. If a needed file
            is listed under another name, it counts here as long as it is young.
    """

    hidden: int
    other_tables: int
    referenced: int
    young: int


def classify_candidates(
    found: pa.Table,
    scope: Scope,
    protected: References,
    cutoff_ms: int,
    *,
    others: pa.Array | None = None,
    is_listed: bool = True,
) -> tuple[pa.Table, KeptFiles]:
    """Split the candidates into the files to be deleted, with their kinds, and counts of those that stay.

    Args:
        found: the candidates.
        scope: what is hidden.
        protected: the files that the table needs.
        cutoff_ms: only files written before this time, in epoch ms, are deleted.
        others: the directories of other tables, by `find_roots_of_other_tables`; None to find them among
            the candidates, if these are all files of the table's directory.
        is_listed: whether the candidates are all files of the table's directory; see ``aliases.py``.
    """
    hidden = scope.are_hidden(found["path"])
    roots = find_roots_of_other_tables(found["path"]) if others is None else others
    needed = protected.protect(found["path"])
    visible = found.append_column(_NEEDED, needed).filter(pc.invert(hidden))
    ours = visible.filter(pc.invert(are_in_other_tables(visible["path"], roots)))
    unneeded = ours.filter(pc.invert(ours[_NEEDED])).drop_columns([_NEEDED])
    # Candidates without a time come from commits that are old enough.
    ages = pc.greater_equal(unneeded["modificationTime"], scalar_of(cutoff_ms, pa.int64()))
    old = unneeded.filter(pc.invert(pc.coalesce(ages, scalar_of(False, pa.bool_()))))
    files = old
    # If every needed path is listed, which is quick to find out, none of them has another name.
    are_there = is_listed and not len(protected.far) and _count(needed) == len(protected.near)
    if files.num_rows and not are_there:
        listed = found["path"] if is_listed else None
        files = files.filter(pc.invert(may_be_aliases(files["path"], protected, listed)))
    num_hidden = _count(hidden)
    kept = KeptFiles(
        hidden=num_hidden,
        other_tables=found.num_rows - ours.num_rows - num_hidden,
        # Files that may be other names of needed ones count as needed.
        referenced=ours.num_rows - unneeded.num_rows + old.num_rows - files.num_rows,
        young=unneeded.num_rows - old.num_rows,
    )
    return files.append_column("kind", find_kinds(files["path"])), kept


def make_is_expired(
    protected: References, retention: Retention, *, deleted: pa.Table | None = None
) -> IsGone:
    """Make an `IsGone` for all files that may be deleted: removed long ago, and not needed.

    Args:
        protected: the files that the table needs.
        retention: the retention of the vacuum.
        deleted: the files that the vacuum deletes; None for none.
    """

    def _is_gone(removes: pa.Table, locations: pa.ChunkedArray) -> pa.ChunkedArray:
        old = expired(removes, retention.cutoff_ms - 1)
        needed = protected.protect(locations)
        gone = pc.and_(pc.and_(old, locations.is_valid()), pc.invert(needed))
        return gone if deleted is None else _with_absolute(gone, locations, deleted["path"])

    return _is_gone


def make_is_deleted(found: pa.Table, deleted: pa.Table, live: References) -> IsGone:
    """Make an `IsGone` by a listing: what wasn't found is gone, and what the vacuum deletes.

    Live files count as existing: if one is lost, it wasn't a vacuum that deleted it.

    Args:
        found: the files that were found.
        deleted: those of them that the vacuum deletes.
        live: the files of the newest version.
    """
    there, going = (files["path"].cast(pa.large_string()) for files in (found, deleted))

    def _is_gone(removes: pa.Table, locations: pa.ChunkedArray) -> pa.ChunkedArray:  # noqa: ARG001
        texts = locations.cast(pa.large_string())
        stays = pc.and_not(pc.is_in(texts, value_set=there), pc.is_in(texts, value_set=going))
        gone = pc.and_not(locations.is_valid(), stays)
        # Mostly nothing is gone.
        if pc.any(gone).as_py():
            gone = pc.and_not(gone, live.protect(locations))
        return _with_absolute(gone, locations, deleted["path"])

    return _is_gone


def _with_absolute(
    gone: pa.ChunkedArray, locations: pa.ChunkedArray, deleted: pa.ChunkedArray
) -> pa.ChunkedArray:
    """Add the absolute paths to the mask: those that end with the path of a deleted file are gone.

    Other absolute paths count as existing, because they may be somewhere else.
    """
    far = are_absolute(locations)
    if far is None:
        return gone
    suspects = locations.filter(pc.and_(far, _has_name_of(locations, deleted)))
    # Loops over absolute paths that share a name with a deleted file: mostly none.
    going = {*deleted.filter(_has_name_of(deleted, suspects)).to_pylist()}
    longest = longest_length(going)
    lost = [
        path
        for path in suspects.to_pylist()
        if any(True for _ in iter_known_endings(f"/{path}", going, longest=longest))
    ]
    return pc.if_else(far, pc.is_in(locations, value_set=array_of(lost, pa.string())), gone)


def _has_name_of(paths: pa.ChunkedArray, others: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.is_in(get_file_names(paths), value_set=get_file_names(others))


def _count(mask: pa.ChunkedArray) -> int:
    return int(pc.sum(mask).as_py() or 0)

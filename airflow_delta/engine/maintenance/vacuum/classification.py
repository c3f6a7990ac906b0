"""Which candidates of a vacuum are to be deleted, why the others stay, and what is gone afterwards.

All of it is told file by file, once three things are known that are the table's: what it needs, what is
hidden in its directory, and where other tables are. So it holds for some of the files as it does for all.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from airflow_delta.engine.arrow.python_arrays import array_of, scalar_of
from airflow_delta.engine.maintenance.table_files.locations import is_far
from airflow_delta.engine.maintenance.table_files.oldest_restorable import IsGone
from airflow_delta.engine.maintenance.table_files.path_endings import all_endings, longest_of
from airflow_delta.engine.maintenance.vacuum.aliases import under_other_names
from airflow_delta.engine.maintenance.vacuum.references import References, last_segments
from airflow_delta.engine.maintenance.vacuum.retention import Retention
from airflow_delta.engine.maintenance.vacuum.scope import (
    Scope,
    kinds_of,
    of_other_tables,
    roots_of_other_tables,
)
from airflow_delta.engine.replay.tombstones import expired

__all__ = ["KeptFiles", "is_expired", "is_not_among", "sifted"]

_NEEDED = "needed"


@dataclass(frozen=True, slots=True)
class KeptFiles:
    """Why candidates stay: how many for which reason, each counted for the first that holds.

    Attributes:
        hidden: those that nobody may look at; see `vacuum_scope`. The table's log isn't counted.
        other_tables: those in the directory of another table. Where the store has to be asked for it
            (`vacuum_other_tables`), those that would be deleted else.
        referenced: those that the table needs: the newest version, or one whose files were removed within
            the retention.
        young: those that the table doesn't need, and that are younger than the retention. Another name of
            a needed file counts as this where it is young.
    """

    hidden: int
    other_tables: int
    referenced: int
    young: int


def sifted(
    found: pa.Table,
    scope: Scope,
    protected: References,
    cutoff_ms: int,
    *,
    others: pa.Array | None = None,
    is_listed: bool = True,
) -> tuple[pa.Table, KeptFiles]:
    """The files to be deleted, with their kinds; and why the others stay.

    Args:
        found: the candidates.
        scope: which of them may be looked at.
        protected: the files that the table needs.
        cutoff_ms: how old files must be: written before this time, in epoch ms.
        others: the directories of other tables, by `roots_of_other_tables`; None where all files of the
            table's directory are among the candidates, which show them.
        is_listed: whether the candidates are all files of their names that there are; see
            `vacuum_aliases`.
    """
    hidden = scope.hidden(found["path"])
    roots = roots_of_other_tables(found["path"]) if others is None else others
    needed = protected.protect(found["path"])
    visible = found.append_column(_NEEDED, needed).filter(pc.invert(hidden))
    ours = visible.filter(pc.invert(of_other_tables(visible["path"], roots)))
    unneeded = ours.filter(pc.invert(ours[_NEEDED])).drop_columns([_NEEDED])
    # Without a time they are known to be old.
    ages = pc.greater_equal(unneeded["modificationTime"], scalar_of(cutoff_ms, pa.int64()))
    old = unneeded.filter(pc.invert(pc.coalesce(ages, scalar_of(False, pa.bool_()))))
    files = old
    # As long as each path that is needed is there, which is quickly told, none has another name.
    are_there = is_listed and not len(protected.far) and _count(needed) == len(protected.near)
    if files.num_rows and not are_there:
        listed = found["path"] if is_listed else None
        files = files.filter(pc.invert(under_other_names(files["path"], protected, listed)))
    num_hidden = _count(hidden)
    kept = KeptFiles(
        hidden=num_hidden,
        other_tables=found.num_rows - ours.num_rows - num_hidden,
        # What has another name of a needed file is needed too.
        referenced=ours.num_rows - unneeded.num_rows + old.num_rows - files.num_rows,
        young=unneeded.num_rows - old.num_rows,
    )
    return files.append_column("kind", kinds_of(files["path"])), kept


def is_expired(
    protected: References, retention: Retention, *, deleted: pa.Table | None = None
) -> IsGone:
    """What is gone when all that may go is: what was removed long ago, and isn't needed.

    Args:
        protected: the files that the table needs.
        retention: that of the vacuum.
        deleted: the files that are deleted; None for none.
    """

    def _is_gone(removes: pa.Table, places: pa.ChunkedArray) -> pa.ChunkedArray:
        old = expired(removes, retention.cutoff_ms - 1)
        needed = protected.protect(places)
        gone = pc.and_(pc.and_(old, places.is_valid()), pc.invert(needed))
        return gone if deleted is None else _with_absolute(gone, places, deleted["path"])

    return _is_gone


def is_not_among(found: pa.Table, deleted: pa.Table, live: References) -> IsGone:
    """What is gone when of the files that were found some are deleted.

    Live files count as there: where one is lost, that was no vacuum's doing.

    Args:
        found: the files.
        deleted: those of them that are deleted.
        live: the files of the newest version.
    """
    there, going = (files["path"].cast(pa.large_string()) for files in (found, deleted))

    def _is_gone(removes: pa.Table, places: pa.ChunkedArray) -> pa.ChunkedArray:  # noqa: ARG001
        texts = places.cast(pa.large_string())
        stays = pc.and_not(pc.is_in(texts, value_set=there), pc.is_in(texts, value_set=going))
        gone = pc.and_not(places.is_valid(), stays)
        # Mostly there is nothing left to ask.
        if pc.any(gone).as_py():
            gone = pc.and_not(gone, live.protect(places))
        return _with_absolute(gone, places, deleted["path"])

    return _is_gone


def _with_absolute(
    gone: pa.ChunkedArray, places: pa.ChunkedArray, deleted: pa.ChunkedArray
) -> pa.ChunkedArray:
    """Which files are gone, absolute paths among them: those that end with a file that is deleted.

    What isn't deleted may be somewhere else, and so count as there.
    """
    far = is_far(places)
    if far is None:
        return gone
    suspects = places.filter(pc.and_(far, _has_name_of(places, deleted)))
    # Loops over absolute paths with the name of a file that is deleted: mostly nothing.
    going = {*deleted.filter(_has_name_of(deleted, suspects)).to_pylist()}
    longest = longest_of(going)
    lost = [
        path
        for path in suspects.to_pylist()
        if any(True for _ in all_endings(f"/{path}", going, longest=longest))
    ]
    return pc.if_else(far, pc.is_in(places, value_set=array_of(lost, pa.string())), gone)


def _has_name_of(paths: pa.ChunkedArray, others: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.is_in(last_segments(paths), value_set=last_segments(others))


def _count(mask: pa.ChunkedArray) -> int:
    return int(pc.sum(mask).as_py() or 0)

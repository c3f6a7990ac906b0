"""Row ids and row commit versions of the files that a commit adds.

Spec: PROTOCOL.md, "Writer Requirements for Row Tracking"; edge cases E14, L17. As soon as the table
supports the feature, enabled or not:

=======================================  ========================================================
an ``add`` of a path                     gets
=======================================  ========================================================
that is live (new statistics, another    ``baseRowId`` and ``defaultRowCommitVersion`` of the live
deletion vector, …)                      file; what that lacks, as any other file
that isn't, and comes with both          those: a file that was in the table and is restored. Its ids
                                         have been given out before, and no file has them by now
that is live without them, and comes     those as well, if the commit brings back an earlier version: the
with both                                table has lost the feature since, and its ids
of any other kind                        the ids behind the high water mark, as many as it has
                                         records, and this commit's version; numbers that it comes
                                         with aren't its writer's to choose
=======================================  ========================================================

A ``remove`` has those of the file that it removes by now; see `removed_files`. The high water mark is
kept in a metadata domain, which is part of the commit if it has moved; being worked out anew for each
attempt, it never conflicts with that of another writer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from airflow_delta.engine.features.row_tracking import (
    DOMAIN,
    FEATURE,
    high_water_mark,
    high_water_mark_domain,
)
from airflow_delta.engine.model.file_actions import AddFile
from airflow_delta.engine.transaction.context import CommitContext
from airflow_delta.engine.transaction.prepare.live_files import live_by_path
from airflow_delta.engine.transaction.prepare.row_ids import check_row_ids_are_unique
from airflow_delta.engine.transaction.prepare.statistics import record_counts
from airflow_delta.engine.transaction.staged import Actions

__all__ = ["assign_row_ids"]

_COLUMNS = ("baseRowId", "defaultRowCommitVersion")
_MAX_LONG = (1 << 63) - 1


def assign_row_ids(actions: Actions, context: CommitContext) -> Actions:
    """Number the rows of added files, where the table supports row tracking.

    Raises:
        ConstraintViolationError: a file comes with ids that another one has; its statistics don't
            tell how many it needs, or no ids are left.
        InvalidTableError: the high water mark can't be read.
        CorruptLogError: the table's live files can't be read.
        StorageError: the store failed.
    """
    if FEATURE not in context.supported or context.properties.row_tracking_suspended:
        # Some tables have them all the same, left over from times with the feature: who rewrites such a
        # file shall not have to know. They mean nothing.
        return replace(actions, adds=tuple(map(_without_ids, actions.adds)))
    return _numbered(actions, context)


def _without_ids(file: AddFile) -> AddFile:
    if file.base_row_id is None and file.default_row_commit_version is None:
        return file
    return replace(file, base_row_id=None, default_row_commit_version=None)


def _numbered(actions: Actions, context: CommitContext) -> Actions:
    live = live_by_path(actions.adds, context, _COLUMNS)
    told = high_water_mark(context.domains.get(DOMAIN), table=context.table)
    mark = max(told, _mark_brought_back(context))
    known = [_as_known(file, live, context) for file in actions.adds]
    adds, last = _with_ids(known, mark, context)
    restored = [
        file
        for file in known
        if file.base_row_id is not None and not _has_ids(live.get(context.path_key(file)))
    ]
    if restored:
        _check_were_given_out(restored, mark, context)
        check_row_ids_are_unique(adds, actions.removes, mark, context)
    domains = dict(actions.domains)
    if last != told:
        domains[DOMAIN] = high_water_mark_domain(last)
    return replace(
        actions,
        adds=adds,
        domains=MappingProxyType(domains),
    )


def _mark_brought_back(context: CommitContext) -> int:
    """The highest id of the version that is brought back: the table may have lost it since."""
    former = context.restored_version.domains.get(DOMAIN) if context.restored_version else None
    return high_water_mark(former, table=context.table)


def _has_ids(found: Mapping[str, Any] | None) -> bool:
    return found is not None and found[_COLUMNS[0]] is not None


def _as_known(
    file: AddFile, live: Mapping[str, Mapping[str, Any]], context: CommitContext
) -> AddFile:
    """A file with the numbers that it had before, which may be none."""
    found = live.get(context.path_key(file))
    if found is not None and (context.restored_version is None or _has_ids(found)):
        return _as_live(file, live, context)
    if file.base_row_id is not None and file.default_row_commit_version is not None:
        return file
    return _without_ids(file)


def _check_were_given_out(files: Sequence[AddFile], mark: int, context: CommitContext) -> None:
    """The numbers that files come with are among those that the table gave out before."""
    counts = record_counts(files, context, why="their row ids can't be told without it")
    for file, records in zip(files, counts, strict=True):
        first, since = file.base_row_id or 0, file.default_row_commit_version or 0
        if first < 0 or first + records - 1 > mark:
            raise context.violation(
                f"the file {file.path!r} has the baseRowId {first} and {records} records, and the "
                f"highest id that was ever given out is {mark}; leave it out to get new ones"
            )
        if not 0 <= since < context.version:
            raise context.violation(
                f"the file {file.path!r} has the defaultRowCommitVersion {since}: expected that of an "
                "earlier version, in which it was added; leave it out to get this one"
            )


def _with_ids(
    files: Sequence[AddFile], mark: int, context: CommitContext
) -> tuple[tuple[AddFile, ...], int]:
    """The files, those without ids with the next ones, and the high water mark after them."""
    fresh = [file for file in files if file.base_row_id is None]
    counts = iter(record_counts(fresh, context, why="row tracking gives each of them an id"))
    numbered = []
    for file in files:
        first, since = file.base_row_id, file.default_row_commit_version
        if first is None:
            first = mark + 1
            mark += next(counts)
        since = context.version if since is None else since
        numbered.append(replace(file, base_row_id=first, default_row_commit_version=since))
    if mark > _MAX_LONG:
        raise context.violation(
            f"its files need row ids up to {mark}, and the highest is {_MAX_LONG}; the table can't "
            "track more rows"
        )
    return tuple(numbered), mark


def _as_live(
    file: AddFile, live: Mapping[str, Mapping[str, Any]], context: CommitContext
) -> AddFile:
    """A file with the numbers of the live file of its path; itself where there is none.

    Raises:
        ConstraintViolationError: it comes with others.
    """
    found = live.get(context.path_key(file))
    if found is None:
        return file
    base, since = (found[name] for name in _COLUMNS)
    own = (file.base_row_id, file.default_row_commit_version)
    if own == (base, since):
        return file
    for mine, its in zip(own, (base, since), strict=True):
        # What a file from before row tracking lacks it gets now, but not from its writer.
        if its is not None and mine not in (None, its):
            raise context.violation(
                f"the file {file.path!r} has the baseRowId {own[0]} and the defaultRowCommitVersion "
                f"{own[1]}, and in the table it has {base} and {since}; keep those, or leave both out"
            )
    return replace(file, base_row_id=base, default_row_commit_version=since)

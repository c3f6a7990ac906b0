"""Assign row ids and row commit versions to the files that a commit adds.

This applies to all tables that support the feature, enabled or not:

=============================================  ==================================================
the path of the ``add``                        its ``baseRowId`` and ``defaultRowCommitVersion``
=============================================  ==================================================
is live (new statistics, deletion vector, …)   those of the live file; new ones, if that has none
isn't live, and the ``add`` has both           kept: the file is restored. They must have been
                                               assigned before, and no other file may have them
is live without them, the ``add`` has both,    kept: the table has lost the feature, and the ids,
and the commit restores a version              since that version
all others                                     new ones: ids above the high water mark, and this
                                               commit's version
=============================================  ==================================================

The high water mark is in a metadata domain, which the commit sets if it changes. Each attempt computes it
anew, so it never conflicts with those of other writers.

PROTOCOL.md, "Writer Requirements for Row Tracking".
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
    """Assign row ids to the rows of added files, if the table supports row tracking.

    Raises:
        ConstraintViolationError: a file has ids that another file has; its statistics lack ``numRecords``;
            or no ids are left.
        InvalidTableError: the high water mark can't be read.
        CorruptLogError: the table's live files can't be read.
        StorageError: the store failed.
    """
    if FEATURE not in context.supported or context.properties.row_tracking_suspended:
        # Live files may have ids from the time before the feature was dropped. They mean nothing, and
        # writers that copy an add needn't know about them.
        return replace(actions, adds=tuple(map(_without_ids, actions.adds)))
    return _assign(actions, context)


def _without_ids(file: AddFile) -> AddFile:
    if file.base_row_id is None and file.default_row_commit_version is None:
        return file
    return replace(file, base_row_id=None, default_row_commit_version=None)


def _assign(actions: Actions, context: CommitContext) -> Actions:
    live = live_by_path(actions.adds, context, _COLUMNS)
    recorded = high_water_mark(context.domains.get(DOMAIN), table=context.table)
    mark = max(recorded, _restored_mark(context))
    known = [_with_known_ids(file, live, context) for file in actions.adds]
    adds, last = _with_new_ids(known, mark, context)
    restored = [
        file
        for file in known
        if file.base_row_id is not None and not _has_ids(live.get(context.path_key(file)))
    ]
    if restored:
        _check_were_assigned(restored, mark, context)
        check_row_ids_are_unique(adds, actions.removes, mark, context)
    domains = dict(actions.domains)
    if last != recorded:
        domains[DOMAIN] = high_water_mark_domain(last)
    return replace(
        actions,
        adds=adds,
        domains=MappingProxyType(domains),
    )


def _restored_mark(context: CommitContext) -> int:
    """The high water mark of the restored version, if any. The table may have lost its mark since."""
    former = context.restored_version.domains.get(DOMAIN) if context.restored_version else None
    return high_water_mark(former, table=context.table)


def _has_ids(found: Mapping[str, Any] | None) -> bool:
    return found is not None and found[_COLUMNS[0]] is not None


def _with_known_ids(
    file: AddFile, live: Mapping[str, Mapping[str, Any]], context: CommitContext
) -> AddFile:
    """The file with the row ids and the version that it had before, if any."""
    found = live.get(context.path_key(file))
    if found is not None and (context.restored_version is None or _has_ids(found)):
        return _with_live_ids(file, live, context)
    if file.base_row_id is not None and file.default_row_commit_version is not None:
        return file
    return _without_ids(file)


def _check_were_assigned(files: Sequence[AddFile], mark: int, context: CommitContext) -> None:
    """Check that the table has assigned the row ids and versions of restored files before."""
    counts = record_counts(files, context, why="their row ids can't be checked without it")
    for file, records in zip(files, counts, strict=True):
        first, since = file.base_row_id or 0, file.default_row_commit_version or 0
        if first < 0 or first + records - 1 > mark:
            raise context.violation(
                f"the file {file.path!r} has the baseRowId {first} and {records} records, but the highest "
                f"row id ever assigned is {mark}; omit baseRowId to get new ones"
            )
        if not 0 <= since < context.version:
            raise context.violation(
                f"the file {file.path!r} has the defaultRowCommitVersion {since}: expected the earlier "
                "version in which it was added; omit it to get this version"
            )


def _with_new_ids(
    files: Sequence[AddFile], mark: int, context: CommitContext
) -> tuple[tuple[AddFile, ...], int]:
    """The files, with new ids for those that lack them, and the new high water mark."""
    fresh = [file for file in files if file.base_row_id is None]
    counts = iter(record_counts(fresh, context, why="row tracking assigns an id to each of them"))
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
            f"its files need row ids up to {mark}, but the highest possible one is {_MAX_LONG}; the table "
            "can't track more rows"
        )
    return tuple(numbered), mark


def _with_live_ids(
    file: AddFile, live: Mapping[str, Mapping[str, Any]], context: CommitContext
) -> AddFile:
    """The file with the row ids and the version of the live file of its path, if there is one.

    Raises:
        ConstraintViolationError: it has others.
    """
    found = live.get(context.path_key(file))
    if found is None:
        return file
    base, since = (found[name] for name in _COLUMNS)
    own = (file.base_row_id, file.default_row_commit_version)
    if own == (base, since):
        return file
    for mine, its in zip(own, (base, since), strict=True):
        # If the live file is older than row tracking and has none, the file's own ones are ignored.
        if its is not None and mine not in (None, its):
            raise context.violation(
                f"the file {file.path!r} has the baseRowId {own[0]} and the defaultRowCommitVersion "
                f"{own[1]}, but in the table it has {base} and {since}; keep those, or omit both"
            )
    return replace(file, base_row_id=base, default_row_commit_version=since)

"""Keep a table's log and its entry in the commit store in agreement.

* `backfill` copies ratified commits into the log and records how far it has come.
* `catch_up` records the versions that only the log has. The file ``<version>.json`` proves its version and,
  because backfills are sequential, all versions before it.
* `check_backfilled` refuses a log that lacks versions that were backfilled: files were lost, or the table's
  directory was restored from a backup. They may come back; `acceptance` lets an owner give them up.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType

from airflow_delta.engine.commit.backfill_files import (
    backfill_commits,
    check_copies,
    find_newest_version,
    is_backfilled,
)
from airflow_delta.engine.commit.owner import Standing
from airflow_delta.engine.commit.store.commit_store import TableEntry
from airflow_delta.engine.commit.store.table_commit_store import TableCommitStore
from airflow_delta.engine.errors import CorruptLogError, DeltaError
from airflow_delta.engine.log.files import UnbackfilledCommit, commit_path

__all__ = ["backfill", "catch_up", "check_backfilled"]

_LOG = logging.getLogger(__name__)


def catch_up(table_store: TableCommitStore, entry: TableEntry, version: int) -> TableEntry:
    """Record in the commit store what the log proves of a version, and return the table's entry.

    If there is nothing to record, which is nearly always, it costs one request to the log.

    Args:
        table_store: the commit store for the table.
        entry: the table's entry.
        version: the version to be made, or to be backfilled.

    Raises:
        CommitOwnerUnavailableError: the commit store can't be reached.
        CorruptLogError: the log has another commit than the ratified one at a version.
        StorageError: the store failed.
    """
    if entry.standing is not Standing.ACTIVE or version <= entry.latest_version:
        return entry
    storage = table_store.table.storage
    # Commits are backfilled in order: if the first one isn't, no later one is. A writer that bypasses the
    # owner would write this version, too.
    first = entry.commits[0].version if entry.commits else version
    if version == entry.latest_version + 1 and not is_backfilled(storage, first):
        return entry
    with _add_remedy(table_store, entry.latest_version):
        proven = check_copies(storage, entry.commits)
    for candidate in (version, version - 1):
        if candidate > entry.latest_version and is_backfilled(storage, candidate):
            proven = candidate
            break
    if proven is None:
        return entry
    table_store.observe(proven)
    return table_store.load_entry()


def backfill(
    table_store: TableCommitStore,
    commits: Sequence[UnbackfilledCommit],
    contents: Mapping[str, bytes] = MappingProxyType({}),
    *,
    latest: int,
) -> None:
    """Copy ratified commits into the log, and record how many were copied, even if it fails.

    Args:
        table_store: the commit store for the table.
        commits: the oldest commits that the commit store tracks.
        contents: see `backfill_commits`.
        latest: the newest version that is ratified, for errors.

    Raises:
        CommitOwnerUnavailableError: the commit store can't be reached.
        CorruptLogError: see `backfill_commits`.
        StorageError: the store failed.
    """
    copied: list[int] = []
    try:
        with _add_remedy(table_store, latest):
            backfill_commits(
                table_store.table.storage, commits, contents=contents, on_copied=copied.append
            )
    except DeltaError:
        if copied:
            _try_to_observe(table_store, copied[-1])
        raise
    if copied:
        table_store.observe(copied[-1])


def check_backfilled(table_store: TableCommitStore, entry: TableEntry) -> None:
    """Refuse a log that lacks versions recorded as backfilled, unless metadata cleanup deleted them.

    Raises:
        CorruptLogError: the log lacks some. Facts: version, path, owner, latest, found (the newest
            version that the log has; None where it has none).
        StorageError: the store failed.
    """
    storage, version = table_store.table.storage, entry.backfilled_version
    if is_backfilled(storage, version) or find_newest_version(storage, version) is not None:
        return
    found, path = find_newest_version(storage, 0), commit_path(version)
    with _add_remedy(table_store, entry.latest_version):
        raise CorruptLogError(
            f"the owner {table_store.table.owner!r} has recorded the versions up to {version} as "
            f"backfilled, but {path} isn't there, and the newest version in the log is {found}: files "
            "were lost, or the table's directory was restored to an older state",
            table=table_store.table.uri,
            version=version,
            path=path,
            found=found,
        )


@contextmanager
def _add_remedy(table_store: TableCommitStore, latest: int) -> Iterator[None]:
    """Add the latest ratified version and the remedy to errors about a damaged log."""
    try:
        yield
    except CorruptLogError as error:
        owner, facts = table_store.table.owner, error.facts
        raise CorruptLogError(
            f"{error.message}. The newest version that the owner {owner!r} has ratified is {latest}. If "
            "commits are lost for good, `airflow-delta commits --accept-log` or DeltaTable.accept_log "
            "gives up them and all versions after them",
            table=table_store.table.uri,
            **{**facts, "owner": owner, "latest": latest},
        ) from error


def _try_to_observe(table_store: TableCommitStore, version: int) -> None:
    try:
        table_store.observe(version)
    except DeltaError as error:
        # The caller raises the error before this one. The next backfill compares and records the files.
        _LOG.info(
            "%s: version %d is backfilled, but that couldn't be recorded (%s)",
            table_store.table.uri,
            version,
            error,
        )

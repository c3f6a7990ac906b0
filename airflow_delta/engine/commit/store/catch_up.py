"""Keep a table's log and its entry in the commit store in agreement.

* `backfill` copies ratified commits into the log and records how far it has come.
* `catch_up` records the versions that only the log has. The file ``<version>.json`` proves its version and,
  since backfills are sequential, all versions before it.
* `check_backfilled` refuses to go on where the log lacks versions that were backfilled: its directory was
  restored from a backup, or files were lost. They may come back; `acceptance` has an owner give them up.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType

from airflow_delta.engine.commit.backfill_files import (
    backfill_commits,
    check_copies,
    is_backfilled,
    newest_in_log,
)
from airflow_delta.engine.commit.owner import Standing
from airflow_delta.engine.commit.store.commit_store import Entry
from airflow_delta.engine.commit.store.table_entry import TableBooks
from airflow_delta.engine.errors import CorruptLogError, DeltaError
from airflow_delta.engine.log.files import UnbackfilledCommit, commit_path

__all__ = ["backfill", "catch_up", "check_backfilled"]

_LOG = logging.getLogger(__name__)


def catch_up(books: TableBooks, entry: Entry, version: int) -> Entry:
    """Record in the commit store what the log proves of a version, and return the table's entry.

    It costs one request to the log where there is nothing to record, which is nearly always.

    Args:
        books: the table in the commit store.
        entry: the table's entry.
        version: the version to be made, or to be backfilled.

    Raises:
        CommitOwnerUnavailableError: the commit store can't be reached.
        CorruptLogError: the log has another commit than the ratified one at a version.
        StorageError: the store failed.
    """
    if entry.standing is not Standing.ACTIVE or version <= entry.latest_version:
        return entry
    storage = books.table.storage
    # Commits are backfilled in order: where the first isn't, none of those after it is. And a writer that
    # goes past the owner would write that version next.
    first = entry.commits[0].version if entry.commits else version
    if version == entry.latest_version + 1 and not is_backfilled(storage, first):
        return entry
    with _remedies(books, entry.latest_version):
        proven = check_copies(storage, entry.commits)
    for candidate in (version, version - 1):
        if candidate > entry.latest_version and is_backfilled(storage, candidate):
            proven = candidate
            break
    if proven is None:
        return entry
    books.observe(proven)
    return books.entry()


def backfill(
    books: TableBooks,
    commits: Sequence[UnbackfilledCommit],
    contents: Mapping[str, bytes] = MappingProxyType({}),
    *,
    latest: int,
) -> None:
    """Copy ratified commits into the log, and record how far that went, even if it failed.

    Args:
        books: the table in the commit store.
        commits: the oldest commits that the ledger tracks.
        contents: see `backfill_commits`.
        latest: the newest version that is ratified, for errors.

    Raises:
        CommitOwnerUnavailableError: the commit store can't be reached.
        CorruptLogError: see `backfill_commits`.
        StorageError: the store failed.
    """
    copied: list[int] = []
    try:
        with _remedies(books, latest):
            backfill_commits(
                books.table.storage, commits, contents=contents, on_copied=copied.append
            )
    except DeltaError:
        if copied:
            _try_to_observe(books, copied[-1])
        raise
    if copied:
        books.observe(copied[-1])


def check_backfilled(books: TableBooks, entry: Entry) -> None:
    """Refuse a log that lacks versions recorded as backfilled, unless metadata cleanup deleted them.

    Raises:
        CorruptLogError: the log lacks some. Facts: version, path, owner, latest, found (the newest
            version that the log has; None where it has none).
        StorageError: the store failed.
    """
    storage, version = books.table.storage, entry.backfilled_version
    if is_backfilled(storage, version) or newest_in_log(storage, version) is not None:
        return
    found, path = newest_in_log(storage, 0), commit_path(version)
    with _remedies(books, entry.latest_version):
        raise CorruptLogError(
            f"the owner {books.table.owner!r} knows that the versions up to {version} are backfilled, but "
            f"{path} isn't there, and the newest version in the log is {found}: files were lost, or the "
            "table's directory was restored to an older state",
            table=books.table.uri,
            version=version,
            path=path,
            found=found,
        )


@contextmanager
def _remedies(books: TableBooks, latest: int) -> Iterator[None]:
    """Add to errors of a damaged log which version the owner has ratified last, and what to do."""
    try:
        yield
    except CorruptLogError as error:
        owner, facts = books.table.owner, error.facts
        raise CorruptLogError(
            f"{error.message}. The newest version that the owner {owner!r} has ratified is {latest}; it "
            "can be made to give up what is lost for good, and all versions after it, by `airflow-delta "
            "commits --accept-log` or LedgerOwner.accept_log",
            table=books.table.uri,
            **{**facts, "owner": owner, "latest": latest},
        ) from error


def _try_to_observe(books: TableBooks, version: int) -> None:
    try:
        books.observe(version)
    except DeltaError as error:
        # The caller raises what failed before. The next backfill compares the files and records them.
        _LOG.info(
            "%s: version %d is backfilled, and not noted (%s)", books.table.uri, version, error
        )

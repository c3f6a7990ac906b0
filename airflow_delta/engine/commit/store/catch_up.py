"""The log and the books of a commit owner, kept together.

Two things go from one to the other. A backfill takes commits from the books to the log, and notes in the
books how far it has come. And where the log is ahead of the books, they catch up: that
``<version>.json`` is there proves the version, and, since backfills are sequential, all before it.

The log may also be behind: a directory that was restored from a backup lacks what was backfilled since,
and files get lost. Nothing goes on then, for what is missing may come back; how the owner is made to give
it up is `acceptance`.
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

__all__ = ["abreast", "backfill", "check_backfilled"]

_LOG = logging.getLogger(__name__)


def abreast(books: TableBooks, entry: Entry, version: int) -> Entry:
    """The entry of a table, after the books have caught up with what the log proves of a version.

    It costs one look at the log where the books are abreast, as they nearly always are.

    Args:
        books: the books of the table.
        entry: its entry.
        version: the version to be made, or to be backfilled.

    Raises:
        CommitOwnerUnavailableError: the books can't be reached.
        CorruptLogError: the log has another commit in the place of a ratified one.
        StorageError: the store failed.
    """
    if entry.standing is not Standing.ACTIVE or version <= entry.latest_version:
        return entry
    storage = books.table.storage
    # Copies are made in order: without one of the first commit there is none of those after it. And a
    # writer who doesn't ask the owner would take that version for the next one.
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
    """Copy ratified commits into the log, and note how far that went, even if it failed.

    Args:
        books: the books of the table.
        commits: the oldest ones that are tracked.
        contents: see `backfill_commits`.
        latest: the newest version that is ratified, for errors.

    Raises:
        CommitOwnerUnavailableError: the books can't be reached.
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
    """Make sure that the log has what the books say it has, or had it before it was cleaned up.

    Raises:
        CorruptLogError: it is behind the books. Facts: version, path, owner, latest, found (the newest
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
    """Say in errors of a damaged log what the owner knows, and what the ways out are."""
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
        # What failed before is the error to tell. The next backfill compares what is there, and notes it.
        _LOG.info(
            "%s: version %d is backfilled, and not noted (%s)", books.table.uri, version, error
        )

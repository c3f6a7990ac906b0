"""Give up ratified commits that are lost (`LedgerOwner.accept_log`).

An owner never has a ratified version made again. Where the file of a ratified commit is lost, or the
table's directory was restored to an older state, nobody could commit to the table any more. Only a user
knows that the file won't come back. So a user gives it up, which

* is refused where nothing is missing: a backfill is enough then;
* keeps the commits whose files are there and that follow the log without a gap;
* is refused unless the user names the version that is left, so that a wrong table is noticed;
* has no effect if a commit was ratified in between.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from airflow_delta.engine.commit.backfill_files import check_copies, is_whole, newest_in_log
from airflow_delta.engine.commit.owner import Standing
from airflow_delta.engine.commit.store.catch_up import backfill
from airflow_delta.engine.commit.store.commit_store import Entry
from airflow_delta.engine.commit.store.ownership import is_handed_over, not_handed_over, owned
from airflow_delta.engine.commit.store.table_entry import TableBooks
from airflow_delta.engine.errors import CorruptLogError
from airflow_delta.engine.log.files import UnbackfilledCommit, commit_path

__all__ = ["accept_log"]


@dataclass(frozen=True, slots=True)
class _Remains:
    """The commits that are left of those that an owner has ratified.

    Attributes:
        newest: the newest version that is left, with all before it.
        lost: the first ratified version that isn't; above the newest ratified one where all are left.
        commits: those up to the newest one that aren't in the log, whose files are there.
        missing: why there isn't more; None where all is there.
    """

    newest: int
    lost: int
    commits: Sequence[UnbackfilledCommit]
    missing: str | None


def accept_log(books: TableBooks, version: int) -> int:
    """Give up ratified commits that are lost; see `LedgerOwner.accept_log`."""
    entry = owned(books, books.entry())
    if entry.standing is Standing.PROPOSED:
        raise not_handed_over(books, entry)
    remains, latest = _remains(books, entry), entry.latest_version
    if remains.missing is None:
        raise books.refusal(
            f"nothing is missing of what the owner {books.table.owner!r} has ratified, up to version "
            f"{latest}, so that there is nothing to be given up: backfill the table",
            version=version,
            latest=latest,
        )
    if version != remains.newest:
        raise books.refusal(
            f"version {version} isn't what is left: that is version {remains.newest}, as "
            f"{remains.missing}. To accept it gives up for good what was ratified as versions "
            f"{remains.lost} to {latest}, so restore before what can be restored",
            version=version,
            latest=latest,
            expected=remains.newest,
        )
    backfill(books, remains.commits, latest=latest)
    if not books.ask(lambda: books.ledger.accept(entry.table_id, version, instead_of=latest)):
        raise books.refusal(
            f"the books of the owner {books.table.owner!r} have changed while version {version} was to be "
            "accepted, so that nothing was given up: stop all writers, and look again",
            version=version,
            latest=latest,
        )
    return latest


def _remains(books: TableBooks, entry: Entry) -> _Remains:
    storage, latest = books.table.storage, entry.latest_version
    newest = newest_in_log(storage, entry.owned_from)
    if newest is None or is_handed_over(storage, entry) is False:
        raise books.refusal(
            f"the log doesn't have version {entry.owned_from}, which handed the table with the id "
            f"{entry.table_id} over, or has another commit there: it isn't the log of this table, or is "
            "older than that, and then the file system manages it",
            version=entry.owned_from,
            latest=latest,
        )
    try:
        check_copies(storage, entry.commits)
    except CorruptLogError as error:
        return _Remains(newest, error.version, (), f"{error.path} isn't what was ratified")
    if newest < entry.backfilled_version:
        known = commit_path(entry.backfilled_version)
        why = f"{known} isn't there, and {newest} is the newest version in the log"
        return _Remains(newest, newest + 1, (), why)
    kept: list[UnbackfilledCommit] = []
    for commit in entry.commits:
        if commit.version <= newest:
            continue
        if not is_whole(storage, commit):
            why = f"{commit.path} is gone or damaged"
            return _Remains(commit.version - 1, commit.version, kept, why)
        kept.append(commit)
    return _Remains(max(newest, latest), latest + 1, kept, None)

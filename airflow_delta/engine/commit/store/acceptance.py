"""Give up ratified commits that are lost (`StoreBackedOwner.accept_log`).

An owner never lets a ratified version be made again. If the file of a ratified commit is lost, or the
table's directory was restored to an older state, nobody can commit to the table any more. Only a user knows
that the file won't come back. `accept_log` gives the lost commits up, and

* refuses if nothing is missing, because a backfill is enough then;
* keeps the commits whose files exist and follow the log without a gap;
* refuses if the user doesn't name the version that is left, so that a wrong table is noticed;
* has no effect if a commit was ratified in between.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from airflow_delta.engine.commit.backfill_files import check_copies, find_newest_version, is_intact
from airflow_delta.engine.commit.owner import Standing
from airflow_delta.engine.commit.store.catch_up import backfill
from airflow_delta.engine.commit.store.commit_store import TableEntry
from airflow_delta.engine.commit.store.ownership import (
    activate_if_owned,
    foresee_ownership,
    is_handed_over,
    make_not_handed_over_error,
)
from airflow_delta.engine.commit.store.table_commit_store import TableCommitStore
from airflow_delta.engine.errors import CorruptLogError
from airflow_delta.engine.log.files import UnbackfilledCommit, commit_path

__all__ = ["accept_log"]


@dataclass(frozen=True, slots=True)
class _RemainingCommits:
    """The ratified commits of a table that still exist.

    Attributes:
        newest: the newest version that exists, with all before it.
        lost: the first ratified version that is lost; if none is, the version after the newest one.
        commits: the commits up to ``newest`` that aren't in the log yet; their files exist.
        missing: which file is missing or damaged; None if none is.
    """

    newest: int
    lost: int
    commits: Sequence[UnbackfilledCommit]
    missing: str | None


def accept_log(table_store: TableCommitStore, version: int, *, dry_run: bool = False) -> int:
    """Give up ratified commits that are lost; see `StoreBackedOwner.accept_log`."""
    owner = table_store.table.owner
    current = foresee_ownership if dry_run else activate_if_owned
    entry = current(table_store, table_store.load_entry())
    if entry.standing is Standing.PROPOSED:
        raise make_not_handed_over_error(table_store, entry)
    remaining, latest = _find_remaining(table_store, entry), entry.latest_version
    if remaining.missing is None:
        raise table_store.make_error(
            f"nothing is missing of what the owner {owner!r} has ratified, up to version {latest}, so "
            "there is nothing to give up: backfill the table",
            version=version,
            latest=latest,
        )
    if version != remaining.newest:
        raise table_store.make_error(
            f"version {version} isn't what is left: that is version {remaining.newest}, because "
            f"{remaining.missing}. To accept it gives up the ratified versions {remaining.lost} to "
            f"{latest} for good, so first restore what can be restored",
            version=version,
            latest=latest,
            expected=remaining.newest,
        )
    if dry_run:
        return latest
    backfill(table_store, remaining.commits, latest=latest)
    if not table_store.accept(version, instead_of=latest):
        raise table_store.make_error(
            f"what the owner {owner!r} has recorded changed while version {version} was to be accepted, so "
            "nothing was given up: stop all writers, and look again",
            version=version,
            latest=latest,
        )
    return latest


def _find_remaining(table_store: TableCommitStore, entry: TableEntry) -> _RemainingCommits:
    storage, latest = table_store.table.storage, entry.latest_version
    newest = find_newest_version(storage, entry.owned_from)
    if newest is None or is_handed_over(storage, entry) is False:
        raise table_store.make_error(
            f"the log doesn't have version {entry.owned_from}, which handed the table with the id "
            f"{entry.table_id} over, or has another commit there: it isn't the log of this table, or is "
            "older than that, and then the file system manages it",
            version=entry.owned_from,
            latest=latest,
        )
    try:
        check_copies(storage, entry.commits)
    except CorruptLogError as error:
        missing = f"{error.path} isn't what was ratified"
        return _RemainingCommits(newest, error.version, (), missing)
    if newest < entry.backfilled_version:
        path = commit_path(entry.backfilled_version)
        missing = f"{path} isn't there, and {newest} is the newest version in the log"
        return _RemainingCommits(newest, newest + 1, (), missing)
    kept: list[UnbackfilledCommit] = []
    for commit in entry.commits:
        if commit.version <= newest:
            continue
        if not is_intact(storage, commit):
            missing = f"{commit.path} is gone or damaged"
            return _RemainingCommits(commit.version - 1, commit.version, kept, missing)
        kept.append(commit)
    return _RemainingCommits(max(newest, latest), latest + 1, kept, None)

"""Make a commit a version of a table whose commit owner has a commit store; for `StoreBackedOwner`.

`make_version` is one attempt:

1. Bring the table's entry up to date with the log, and see whether the version is the next one.
2. Write the un-backfilled commit, and let the commit store ratify it.
3. Backfill it, if the policy says so.

With the policy ``"direct"`` it writes the commit into the log instead of steps 2 and 3. If the commit store
doesn't answer, it finds out by the ``txnId`` of the version's commit which client made the version.

Spec: RFC managed-commits, "Commit Protocol".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from airflow_delta.engine import clock
from airflow_delta.engine.commit.backfill_files import write_unbackfilled
from airflow_delta.engine.commit.filesystem import FileSystemCommitter
from airflow_delta.engine.commit.owner import CommitResponse, Standing
from airflow_delta.engine.commit.post_commit import warn_after_commit
from airflow_delta.engine.commit.store.backfill_policy import BackfillPolicy
from airflow_delta.engine.commit.store.catch_up import backfill, catch_up
from airflow_delta.engine.commit.store.commit_store import TableEntry
from airflow_delta.engine.commit.store.ownership import (
    activate_if_owned,
    make_not_handed_over_error,
)
from airflow_delta.engine.commit.store.table_commit_store import TableCommitStore
from airflow_delta.engine.errors import (
    CommitOutcomeUnknownError,
    CommitOwnerError,
    CommitOwnerUnavailableError,
    CorruptLogError,
    ObjectNotFoundError,
    StorageError,
)
from airflow_delta.engine.log.commit_file import read_commit_info
from airflow_delta.engine.log.files import Commit, LogCommit, UnbackfilledCommit, commit_path

__all__ = ["Proposal", "make_version"]

_RATIFY_ATTEMPTS = 3
"""How many times ratification is tried while the commit store doesn't answer."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """A commit that a client proposes as the next version.

    Attributes:
        version: the proposed version.
        actions: the whole commit file.
        txn_id: the ``txnId`` in its ``commitInfo``.
        releases: whether the commit returns the table to file system commits.
    """

    version: int
    actions: bytes
    txn_id: str
    releases: bool


def make_version(
    table_store: TableCommitStore, proposal: Proposal, policy: BackfillPolicy
) -> CommitResponse:
    """Try to make a version; see `StoreBackedOwner.commit`."""
    version = proposal.version
    entry = activate_if_owned(table_store, table_store.load_entry())
    entry = catch_up(table_store, entry, version)
    if entry.standing is not Standing.PROPOSED and version <= entry.latest_version:
        own = _find_own_older_commit(table_store, entry, proposal)
        return CommitResponse(own, entry.latest_version)
    _check_next(table_store, entry, version)
    if policy.direct:
        return _commit_directly(table_store, entry, proposal)
    if proposal.releases:
        backfill(table_store, entry.commits, latest=entry.latest_version)
    commit = write_unbackfilled(table_store.table.storage, version, proposal.actions)
    lost = _ratify(table_store, commit, proposal)
    if lost is not None:
        return lost
    if proposal.releases:
        return CommitResponse(_try_to_backfill(table_store, [commit], proposal), version)
    if policy.is_due(version):
        due = [*entry.commits, commit]
        return CommitResponse(_try_to_backfill(table_store, due, proposal), version)
    return CommitResponse(commit, version)


def _check_next(table_store: TableCommitStore, entry: TableEntry, version: int) -> None:
    """Make sure that a version above the newest one may be made."""
    owner, latest = table_store.table.owner, entry.latest_version
    if entry.standing is Standing.PROPOSED:
        raise make_not_handed_over_error(table_store, entry)
    if entry.standing is Standing.RELEASED:
        raise table_store.make_error(
            f"the owner {owner!r} doesn't take version {version}: it has given the table back to the file "
            f"system with version {latest}. Backfill that version, if it isn't in the log yet, and open "
            "the table anew",
            version=version,
            latest=latest,
        )
    if version > latest + 1:
        raise table_store.make_error(
            f"the owner {owner!r} doesn't take version {version}: the newest version that it has ratified "
            f"is {latest}, and {commit_path(version - 1)} isn't there to prove that there are more. If its "
            "commit store was restored from a backup, the commits that were ratified since and not "
            "backfilled are lost; open the table anew",
            version=version,
            latest=latest,
        )


def _ratify(
    table_store: TableCommitStore, commit: UnbackfilledCommit, proposal: Proposal
) -> CommitResponse | None:
    """Let the commit store ratify a commit.

    Returns:
        None if the commit is ratified, else the response to a client that was too late.
    """
    failure: CommitOwnerUnavailableError | None = None
    for _ in range(_RATIFY_ATTEMPTS):
        try:
            if table_store.ratify(commit, releases=proposal.releases):
                return None
            break
        except CommitOwnerUnavailableError as error:
            failure = error
    response = _find_ratified(table_store, proposal, failure)
    is_ours = response.commit is not None and response.commit.path == commit.path
    return None if is_ours else response


def _find_ratified(
    table_store: TableCommitStore, proposal: Proposal, failure: CommitOwnerUnavailableError | None
) -> CommitResponse:
    """Find out which client made the version, if the commit store hasn't confirmed that ours did.

    Args:
        table_store: the commit store for the table.
        proposal: our commit.
        failure: why the commit store didn't answer; None if it did. Without an answer it may have ratified
            our commit nevertheless, or may still do so.

    Raises:
        CommitOutcomeUnknownError: it can't be found out.
        CommitOwnerError: nobody has made the version, and ours isn't taken.
        StorageError: the store failed; our commit wasn't ratified.
    """
    version = proposal.version
    try:
        entry = table_store.load_entry()
        if version <= entry.latest_version:
            own = _find_own_commit(table_store, entry, proposal)
            return CommitResponse(own, entry.latest_version)
    except StorageError as error:
        if failure is None:
            raise
        raise _make_unknown_error(table_store, proposal, failure) from error
    except CommitOwnerError:
        if failure is None:
            raise
        return _find_ratified_in_log(table_store, proposal, failure)
    if failure is not None:
        raise _make_unknown_error(table_store, proposal, failure)
    _check_next(table_store, entry, version)
    raise table_store.make_error(
        f"the owner {table_store.table.owner!r} hasn't ratified version {version}, although it is the next "
        f"one: it has recorded the versions up to {entry.backfilled_version} as backfilled; try again",
        version=version,
        latest=entry.latest_version,
    )


def _find_ratified_in_log(
    table_store: TableCommitStore, proposal: Proposal, failure: CommitOwnerUnavailableError
) -> CommitResponse:
    """Find out from the log which client made the version, while the owner can't be reached."""
    try:
        # Another client may have backfilled it.
        commit = _find_own_commit_in_log(table_store, proposal)
    except StorageError as error:
        raise _make_unknown_error(table_store, proposal, failure) from error
    return CommitResponse(commit, proposal.version)


def _make_unknown_error(
    table_store: TableCommitStore, proposal: Proposal, failure: CommitOwnerUnavailableError
) -> CommitOutcomeUnknownError:
    return CommitOutcomeUnknownError(
        f"the owner {table_store.table.owner!r} failed while it was to ratify version {proposal.version} "
        f"({failure.message}), and it is unknown whether it did: once it can be reached again, look for "
        f"txnId {proposal.txn_id} in that version before trying again",
        table=table_store.table.uri,
        version=proposal.version,
        txn_id=proposal.txn_id,
    )


def _find_own_older_commit(
    table_store: TableCommitStore, entry: TableEntry, proposal: Proposal
) -> LogCommit | None:
    """Like `_find_own_commit`, for a version that existed before this attempt."""
    try:
        return _find_own_commit(table_store, entry, proposal)
    except ObjectNotFoundError:
        # Metadata cleanup has deleted the commit since.
        return None


def _find_own_commit(
    table_store: TableCommitStore, entry: TableEntry, proposal: Proposal
) -> LogCommit | None:
    """Return the commit of an existing version if it is ours; None if another client made it.

    Raises:
        StorageError: it can't be read.
    """
    tracked = next((each for each in entry.commits if each.version == proposal.version), None)
    if tracked is None:
        return _find_own_commit_in_log(table_store, proposal)
    return tracked if _is_own(table_store, proposal, tracked.path) else None


def _find_own_commit_in_log(table_store: TableCommitStore, proposal: Proposal) -> LogCommit | None:
    path = commit_path(proposal.version)
    return _describe_in_log(proposal) if _is_own(table_store, proposal, path) else None


def _is_own(table_store: TableCommitStore, proposal: Proposal, path: str) -> bool:
    try:
        info = read_commit_info(table_store.table.storage, proposal.version, path=path)
    except CorruptLogError:
        # It can't be parsed, so it isn't the commit that we wrote.
        return False
    return info is not None and info.get("txnId") == proposal.txn_id


def _describe_in_log(proposal: Proposal) -> Commit:
    """Describe our commit in the log, with this machine's time; readers use in-commit timestamps."""
    version, now_ms = proposal.version, clock.now_ms()
    return Commit(version, commit_path(version), len(proposal.actions), now_ms)


def _commit_directly(
    table_store: TableCommitStore, entry: TableEntry, proposal: Proposal
) -> CommitResponse:
    """Write a commit into the log, which decides whose it is, then record it in the commit store."""
    version, table = proposal.version, table_store.table
    backfill(table_store, entry.commits, latest=entry.latest_version)
    committer = FileSystemCommitter(table.storage, table=table.uri)
    made = committer.commit(version, proposal.actions, txn_id=proposal.txn_id)
    try:
        if made and proposal.releases:
            # A commit store releases a table only together with a commit that it tracks.
            commit = write_unbackfilled(table.storage, version, proposal.actions)
            table_store.ratify(commit, releases=True)
        table_store.observe(version)
    except Exception as error:  # noqa: BLE001 - the version is there; nothing may make it look failed
        warn_after_commit(
            f"{table.uri}: version {version} is there, but the owner {table.owner!r} couldn't record it "
            f"({error}); the next commit does it"
        )
    return CommitResponse(_describe_in_log(proposal) if made else None, version)


def _try_to_backfill(
    table_store: TableCommitStore, commits: Sequence[UnbackfilledCommit], proposal: Proposal
) -> LogCommit:
    """Try to backfill our commit and those before it; return where our commit is afterwards."""
    ours, uri = commits[-1], table_store.table.uri
    try:
        backfill(table_store, commits, {ours.path: proposal.actions}, latest=ours.version)
    except CommitOwnerUnavailableError as error:
        warn_after_commit(
            f"{uri}: version {ours.version} is there and backfilled, but that couldn't be recorded "
            f"({error}); the next backfill does it"
        )
    except Exception as error:  # noqa: BLE001 - the version is there; nothing may make it look failed
        warn_after_commit(
            f"{uri}: version {ours.version} is there, but couldn't be backfilled as it should be "
            f"({error}); the next backfill continues from there"
        )
        return ours
    return _describe_in_log(proposal)

"""Find what is missing in a log, and create the errors that report it.

A version can be rebuilt from a checkpoint, or from version 0, with every commit after that.
Metadata cleanup deletes the start of a log and keeps a checkpoint; anything else that is missing is
damage. The message depends on which of the two it was: load another version, or restore files.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from airflow_delta.engine.errors import CorruptLogError, VersionNotFoundError
from airflow_delta.engine.log.files import Checkpoint, LogCommit, UnbackfilledCommit
from airflow_delta.engine.log.listing import Listing
from airflow_delta.engine.remedies import PUT_COMMIT_BACK_OR_DELETE, PUT_FILE_BACK, PUT_FILES_BACK

__all__ = [
    "check_commits",
    "earliest_version",
    "missing_versions",
    "unreachable",
    "version_not_found",
    "without_action",
]


def earliest_version(listing: Listing) -> int | None:
    """The earliest version from which on every version up to the latest can be rebuilt.

    Args:
        listing: a listing of the whole log.

    Returns:
        0 if no commit is missing; after a cleanup the version of a checkpoint; None if the latest
        version itself can't be rebuilt.
    """
    checkpoints = {checkpoint.version for checkpoint in listing.checkpoints}
    versions = sorted({commit.version for commit in listing.commits} | checkpoints)
    earliest: int | None = None
    expected = 0
    for version in versions:
        # A commit only continues a run of versions; a checkpoint, like version 0, can also begin
        # one.
        is_continued = earliest is not None and version == expected
        if not is_continued:
            earliest = version if version == 0 or version in checkpoints else None
        expected = version + 1
    return earliest


def missing_versions(present: Iterable[int], *, first: int, last: int) -> list[range]:
    """The versions of a range that are missing, as ranges.

    The end of a range may be any number that somebody has written into a file name. So time and
    memory depend only on the versions that are present. Never iterate over such a range, or call
    ``len`` on it.

    Args:
        present: versions, in any order; those outside the range are ignored.
        first: the first version of the range.
        last: the last version of the range.
    """
    missing, expected = [], first
    for version in sorted({version for version in present if first <= version <= last}):
        if version > expected:
            missing.append(range(expected, version))
        expected = version + 1
    if expected <= last:
        missing.append(range(expected, last + 1))
    return missing


def check_commits(commits: Sequence[LogCommit], *, after: int, to: int, table: str) -> None:
    """Refuse commits that don't run from ``after + 1`` to ``to``, or that are empty.

    Raises:
        CorruptLogError: one is missing, or has zero bytes.
    """
    expected = after + 1
    for commit in commits:
        if commit.version != expected:
            raise _gap(expected, commit.version, table)
        if commit.size == 0:
            remedy = (
                PUT_FILE_BACK
                if isinstance(commit, UnbackfilledCommit)
                else PUT_COMMIT_BACK_OR_DELETE
            )
            raise CorruptLogError(
                f"the commit {commit.path} has zero bytes: its writer died while writing, or the "
                f"store lost it; {remedy}",
                table=table,
                version=commit.version,
                path=commit.path,
            )
        expected += 1
    if expected != to + 1:
        raise _gap(expected, to + 1, table)


def unreachable(
    listing: Listing, target: int, excluded: Collection[str], table: str
) -> CorruptLogError | VersionNotFoundError:
    """Create the error about a version that has no checkpoint, and no commits from 0 on.

    Args:
        listing: a listing of the whole log, or of the part that was searched.
        target: the version.
        excluded: paths of checkpoints that proved unreadable.
        table: the table's location.
    """
    earliest, latest = earliest_version(listing), listing.latest
    if earliest is not None and latest is not None and target < earliest:
        return version_not_found(target, earliest, latest, table)
    without = f" (not counting {', '.join(sorted(excluded))})" if excluded else ""
    found = f"the first commit is version {listing.commits[0].version}" if listing.commits else ""
    return CorruptLogError(
        f"the log is truncated: version {target} needs a complete checkpoint or the commits from "
        f"version 0 on, but there is no such checkpoint{without} and "
        f"{found or 'there are no commits'}; {PUT_FILES_BACK}",
        table=table,
        version=target,
    )


def version_not_found(
    version: int, earliest: int | None, latest: int, table: str
) -> VersionNotFoundError:
    """Create the error about a version that the log doesn't cover.

    Args:
        version: the version.
        earliest: the first version that can be rebuilt; None if the latest can't be either.
        latest: the newest version.
        table: the table's location.
    """
    covered = (
        f"the log covers versions {earliest} to {latest}"
        if earliest is not None
        else f"the log is truncated and ends at version {latest}"
    )
    return VersionNotFoundError(
        f"version {version} can't be loaded: {covered}; load one of those",
        table=table,
        version=version,
        earliest=earliest,
        latest=latest,
    )


def without_action(
    missing: str, *, version: int, checkpoint: Checkpoint | None, table: str
) -> CorruptLogError:
    """Create the error about a log without a protocol or without metadata.

    Args:
        missing: the name of the action.
        version: the version that was read.
        checkpoint: the checkpoint from which reading began.
        table: the table's location.
    """
    # The checkpoint isn't damaged as far as one can see. So the log is refused as it is, as other
    # engines do, and no older checkpoint is tried.
    remedy = (
        PUT_FILES_BACK
        if checkpoint is None
        else f"the checkpoint {checkpoint.path} lacks it: delete that, if older files of the log are "
        "there to rebuild the version from, or put it back from a backup"
    )
    return CorruptLogError(
        f"the log up to version {version} has no {missing} action, which every table needs from its "
        f"first version on; {remedy}",
        table=table,
        version=version,
        path=None if checkpoint is None else checkpoint.path,
    )


def _gap(first: int, after: int, table: str) -> CorruptLogError:
    missing = f"commit {first} is" if after == first + 1 else f"commits {first} to {after - 1} are"
    return CorruptLogError(
        f"the log has a gap: {missing} missing while later versions exist; {PUT_FILES_BACK}",
        table=table,
        version=first,
    )

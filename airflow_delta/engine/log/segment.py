"""The log segment of a version: a checkpoint and the commits after it.

* `load_segment` finds the files with as little listing as possible: from the checkpoint that
  ``_last_checkpoint`` points to; for older versions backwards in windows; and from the start of the log
  only if neither helps.
* `build_segment` chooses the files, without I/O. It refuses a log with a gap after the checkpoint, with a
  commit of zero bytes, or with neither version 0 nor a checkpoint.

docs/explanation/how-a-snapshot-is-opened.md has the reasons, also why a log is refused only after a second
listing. Spec: PROTOCOL.md, "Checkpoints", "Last Checkpoint File".
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from airflow_delta.engine.errors import (
    CorruptLogError,
    InvalidArgumentError,
    TableNotFoundError,
    VersionNotFoundError,
)
from airflow_delta.engine.log.compacted import plan_commits, trusted_compactions
from airflow_delta.engine.log.completeness import (
    check_commits,
    earliest_version,
    unreachable,
    version_not_found,
)
from airflow_delta.engine.log.embedded import embedded_actions
from airflow_delta.engine.log.files import (
    LOG_DIRECTORY,
    MAX_VERSION,
    Checkpoint,
    Checksum,
    Commit,
    CompactedCommits,
    LogCommit,
    commit_path,
)
from airflow_delta.engine.log.last_checkpoint import read_last_checkpoint
from airflow_delta.engine.log.listing import Listing, list_backwards, list_log

if TYPE_CHECKING:
    from airflow_delta.engine.storage.base import Storage

__all__ = [
    "LogSegment",
    "build_segment",
    "check_version",
    "load_segment",
    "usable_compactions",
]


@dataclass(frozen=True, slots=True)
class LogSegment:
    """The files to read to rebuild a version.

    Attributes:
        table: the table's root, for messages.
        version: the version that the files rebuild.
        checkpoint: the checkpoint to start from; None if the log is read from version 0.
        commits: the commits after the checkpoint, contiguous, up to ``version``; empty if the
            checkpoint has that version.
        compactions: compactions within these commits that are safe to read instead of them.
        checkpoint_commit: the commit at the checkpoint's version; None if there is no checkpoint or
            a cleanup has deleted the commit.
        checksum: the version checksum of exactly this version, if there is one.
        checkpoint_checksum: the version checksum of the checkpoint's version, if the listing
            contains one.
        checkpoint_actions: the actions of the checkpoint's top level, if the hint repeats them; see
            ``embedded``. None if they must be read.
        verified: whether shortcuts that can't be verified are left out; see `load_segment`.
    """

    table: str
    version: int
    checkpoint: Checkpoint | None
    commits: tuple[LogCommit, ...]
    compactions: tuple[CompactedCommits, ...] = ()
    checkpoint_commit: Commit | None = None
    checksum: Checksum | None = None
    checkpoint_checksum: Checksum | None = None
    checkpoint_actions: tuple[tuple[str, Mapping[str, Any]], ...] | None = field(
        default=None, compare=False, repr=False
    )
    verified: bool = field(default=False, compare=False)

    @property
    def last_commit(self) -> LogCommit | None:
        """The commit of ``version``; None if a cleanup has deleted it."""
        return self.commits[-1] if self.commits else self.checkpoint_commit

    def path_of(self, version: int) -> str:
        """The path of a version's commit, which may be gone: in the log, unless it is un-backfilled."""
        index = version - self.commits[0].version if self.commits else -1
        if 0 <= index < len(self.commits):
            return self.commits[index].path
        return commit_path(version)

    def plan(self) -> tuple[LogCommit | CompactedCommits, ...]:
        """The fewest files to read after the checkpoint, in log order."""
        return plan_commits(self.commits, self.compactions)

    def until(self, version: int) -> LogSegment:
        """This segment for an earlier version, which isn't older than the checkpoint."""
        return replace(
            self,
            version=version,
            commits=tuple(commit for commit in self.commits if commit.version <= version),
            compactions=tuple(file for file in self.compactions if file.end <= version),
            checksum=self.checksum if version == self.version else None,
        )

    def extended(self, commits: Sequence[LogCommit]) -> LogSegment:
        """This segment for a later version, with new or un-backfilled commits.

        Args:
            commits: the commits that follow ``version``, ascending.

        Raises:
            CorruptLogError: they don't follow without a gap, or one has zero bytes.
        """
        if not commits:
            return self
        check_commits(commits, after=self.version, to=commits[-1].version, table=self.table)
        return replace(
            self,
            version=commits[-1].version,
            commits=(*self.commits, *commits),
            checksum=None,
        )


def load_segment(
    storage: Storage,
    *,
    version: int | None = None,
    excluded_checkpoints: Collection[str] = (),
    use_hint: bool = True,
    start: int | None = None,
    verified: bool = False,
) -> LogSegment:
    """Find the files that rebuild a version.

    Args:
        storage: the table's storage.
        version: the version wanted, None for the latest.
        excluded_checkpoints: paths (``checkpoint.path``) of checkpoints that proved unreadable. The
            next best one is used, finally the log from version 0.
        use_hint: read ``_last_checkpoint`` to save listing the start of the log. The result is the
            same without it.
        start: the version to begin listing at: the version of the newest checkpoint up to
            ``version``, or 0. For callers that have seen the log; the result is the same without
            it.
        verified: leave out shortcuts that can't be verified: the actions that the hint repeats, and
            compactions without the checksum that ours have. For callers that delete files or write
            a checkpoint by what they read, because that can't be undone.

    Returns:
        The segment. Un-backfilled commits are not part of it (`LogSegment.extended` adds them).

    Raises:
        TableNotFoundError: there is no log.
        VersionNotFoundError: the log doesn't reach to the version, or no longer reaches back to it.
        CorruptLogError: the log is truncated, has a gap, or holds a commit of zero bytes.
        InvalidArgumentError: the version is not a version.
        StorageError: the store failed.
    """
    check_version(version, table=storage.root)
    excluded = excluded_checkpoints

    def _chosen(listing: Listing) -> LogSegment:
        return _segment_or_reason(storage, listing, version, excluded, verified=verified)

    if start is not None:
        listing = list_log(storage, start=start, end=version)
        if start == 0 or listing.best_checkpoint(version, excluded) is not None:
            return _chosen(listing)
    hint = read_last_checkpoint(storage) if use_hint else None
    if hint is not None and (version is None or hint.version <= version):
        listing = list_log(storage, start=hint.version, end=version)
        # Ignore a hint to a checkpoint that doesn't exist, no longer or not yet, or is unreadable.
        if listing.best_checkpoint(version, excluded) is not None:
            segment = _chosen(listing)
            if verified:
                return segment
            actions = embedded_actions(hint, segment.checkpoint)
            return replace(segment, checkpoint_actions=actions)
    if version is not None and storage.capabilities.start_after:
        return _chosen(list_backwards(storage, version, excluded=excluded))
    return _chosen(list_log(storage, end=version))


def build_segment(
    listing: Listing,
    *,
    table: str,
    version: int | None = None,
    excluded_checkpoints: Collection[str] = (),
) -> LogSegment:
    """Choose the files that rebuild a version from a listing that reaches back to its checkpoint.

    Compactions are left out, because a name doesn't show whether a compaction can be trusted.

    Raises:
        TableNotFoundError: the listing is empty.
        VersionNotFoundError: the version is older or newer than what can be rebuilt.
        CorruptLogError: the log is truncated, has a gap, or holds a commit of zero bytes.
    """
    latest = listing.latest
    if latest is None:
        raise TableNotFoundError(
            f"there is no Delta table: no commit and no checkpoint in {LOG_DIRECTORY}; check the "
            "location, or create the table first",
            table=table,
        )
    target = latest if version is None else version
    if target > latest:
        raise version_not_found(target, earliest_version(listing), latest, table)
    checkpoint = listing.best_checkpoint(target, excluded_checkpoints)
    after = -1 if checkpoint is None else checkpoint.version
    commits = listing.commits_between(after + 1, target)
    if checkpoint is None and (not commits or commits[0].version != 0):
        raise unreachable(listing, target, excluded_checkpoints, table)
    try:
        # Even where a compaction would cover a gap. A checkpoint without the commit of its version can be
        # used: only the time of that commit is unknown.
        check_commits(commits, after=after, to=target, table=table)
    except CorruptLogError:
        # An interrupted cleanup may have left the oldest commits.
        earliest = earliest_version(listing)
        if earliest is not None and target < earliest:
            raise version_not_found(target, earliest, latest, table) from None
        raise
    return LogSegment(
        table=table,
        version=target,
        checkpoint=checkpoint,
        commits=commits,
        checkpoint_commit=next(iter(listing.commits_between(after, after)), None),
        checksum=listing.checksum_of(target),
        checkpoint_checksum=listing.checksum_of(after),
    )


def check_version(version: object, *, table: str) -> None:
    """Refuse what can't be a version: anything but None and an int of at least 0.

    Raises:
        InvalidArgumentError: it is negative, too large, a bool or of another type.
    """
    if version is None:
        return
    if isinstance(version, bool) or not isinstance(version, int):
        raise InvalidArgumentError(
            f"a version is a whole number: expected int, found {type(version).__name__} "
            f"{version!r}",
            table=table,
            version=version,
        )
    if not 0 <= version <= MAX_VERSION:
        raise InvalidArgumentError(
            f"there is no version {version}: versions begin at 0 and end at {MAX_VERSION}",
            table=table,
            version=version,
        )


def _segment_or_reason(
    storage: Storage,
    listing: Listing,
    version: int | None,
    excluded: Collection[str],
    *,
    verified: bool,
) -> LogSegment:
    """The segment from a listing; or an error that is based on a listing of the whole log.

    A listing that ends at the wanted version can't distinguish a version that doesn't exist yet
    from a gap, and doesn't show which versions exist instead. And one listing alone doesn't prove
    damage; see the module.
    """
    target, seen = version, None
    while True:
        try:
            segment = build_segment(
                listing, table=storage.root, version=target, excluded_checkpoints=excluded
            )
        except (TableNotFoundError, VersionNotFoundError):
            if version is None or seen is not None:
                raise
        except CorruptLogError as error:
            if seen is not None and error.version <= seen:
                raise
        else:
            segment = replace(segment, verified=verified)
            return _with_compactions(storage, segment, listing)
        seen = -1 if listing.latest is None else listing.latest
        target = seen if version is None else version
        listing = list_log(storage)


def _with_compactions(storage: Storage, segment: LogSegment, listing: Listing) -> LogSegment:
    """Add the compactions that lie within the segment's commits and can be trusted."""
    usable = usable_compactions(segment, listing)
    trusted = trusted_compactions(storage, usable, pledged_only=segment.verified)
    return replace(segment, compactions=trusted)


def usable_compactions(segment: LogSegment, listing: Listing) -> tuple[CompactedCommits, ...]:
    """The compactions that lie within a segment's commits; not all of them can be trusted."""
    return tuple(
        file
        for file in listing.compactions
        if segment.commits
        and segment.commits[0].version <= file.start < file.end <= segment.version
    )

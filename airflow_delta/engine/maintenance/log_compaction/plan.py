"""Plan and write a log compaction: one file with the reconciled actions of a range of commits.

PROTOCOL.md, "Log Compaction Files"; RFC managed-commits, "Log Compaction Files". Readers open
``<x>.<y>.compacted.json`` instead of the commits ``x`` to ``y``. ``content.py`` makes its lines.

`plan_log_compaction` chooses the range, if none is given: the commits that readers of the newest version
read one by one, those after the newest checkpoint and the compactions after it. So each commit is compacted
once, and an hourly run costs in proportion to an hour's commits.

`execute_log_compaction` publishes by one exclusive put. There is never half a compaction, an existing one
isn't replaced unless it is empty, and two writers of one range write the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby, takewhile
from operator import attrgetter
from typing import Any

from airflow_delta.engine.arrow.json.exact import NonFileAction
from airflow_delta.engine.errors import (
    InvalidArgumentError,
    ObjectExistsError,
    ObjectNotFoundError,
    VersionNotFoundError,
)
from airflow_delta.engine.features.protocol import Operation, check_writable
from airflow_delta.engine.log.completeness import check_commits, missing_versions
from airflow_delta.engine.log.files import CompactedCommits, LogCommit, compacted_path
from airflow_delta.engine.log.listing import list_log
from airflow_delta.engine.log.segment import LogSegment, check_version
from airflow_delta.engine.maintenance.backfill.backfilled import open_backfilled
from airflow_delta.engine.maintenance.log_compaction.content import reconcile_lines
from airflow_delta.engine.model.actions import Metadata, Protocol
from airflow_delta.engine.model.sizes import size_text
from airflow_delta.engine.progress import report_progress
from airflow_delta.engine.snapshot.opening import open_snapshot
from airflow_delta.engine.snapshot.snapshot import Snapshot
from airflow_delta.engine.storage.base import Storage

__all__ = [
    "FEWEST",
    "MOST_BYTES",
    "LogCompactionPlan",
    "LogCompactionResult",
    "execute_log_compaction",
    "plan_log_compaction",
]

FEWEST = 10
"""The fewest commits that are compacted if no range is given: the default checkpoint interval."""

MOST_BYTES = 256 << 20
"""The most text of commits in one compaction, which are in memory together with it. Of more, the oldest
commits are compacted."""

_RUN_FILES = 64
"""How many commits are read by one call."""

_PARSED = {"protocol": Protocol.from_json, "metaData": Metadata.from_json}


@dataclass(frozen=True, slots=True)
class LogCompactionPlan:
    """The plan of a log compaction.

    Attributes:
        table: the table's location.
        version: the version that the plan was made for: the requested end, or the newest.
        commits: the commits to compact, ascending; none if it isn't worth it.
        reason: why nothing is to be written; None if a compaction is.
    """

    table: str
    version: int
    commits: tuple[LogCommit, ...]
    reason: str | None = None

    @property
    def needed(self) -> bool:
        """Whether a compaction is to be written."""
        return self.reason is None

    @property
    def start(self) -> int | None:
        """The first version of the range."""
        return self.commits[0].version if self.commits else None

    @property
    def end(self) -> int | None:
        """The last version of the range."""
        return self.commits[-1].version if self.commits else None

    @property
    def path(self) -> str | None:
        """The file to write, below the table's root."""
        if not self.commits:
            return None
        return compacted_path(self.commits[0].version, self.commits[-1].version)

    def to_dict(self) -> dict[str, Any]:
        """The plan as plain JSON values, as `LogCompactionResult.to_dict` has them of a dry run."""
        return LogCompactionResult(self, written=False).to_dict()


@dataclass(frozen=True, slots=True)
class LogCompactionResult:
    """The result of a log compaction.

    Attributes:
        plan: what was planned.
        written: whether this call has written a compaction. False for a dry run, if none was needed, and if
            another writer of the same range was faster.
        size_in_bytes: of the compaction.
        num_actions: the number of actions in it.
    """

    plan: LogCompactionPlan
    written: bool
    size_in_bytes: int | None = None
    num_actions: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """The report, as plain JSON values.

        Returns:
            ``version`` (the requested end, or the newest version), ``kind`` (``compaction``), ``start``,
            ``end`` and ``path`` of the compaction below the table (None if the range is empty), ``files``
            (commits in the range), ``bytes`` and ``rows`` (size and actions of the compaction; None if none
            was written), ``written`` and the ``reason`` why nothing is to be written, else None.
        """
        plan = self.plan
        return {
            "version": plan.version,
            "kind": "compaction",
            "start": plan.start,
            "end": plan.end,
            "path": plan.path,
            "files": len(plan.commits),
            "bytes": self.size_in_bytes,
            "rows": self.num_actions,
            "written": self.written,
            "reason": plan.reason,
        }


def plan_log_compaction(
    storage: Storage, *, start: int | None = None, end: int | None = None
) -> LogCompactionPlan:
    """Plan a compaction. Of managed tables only backfilled commits are compacted, as the protocol demands.

    Args:
        storage: where the table is.
        start: the first version of the range; None: see the module.
        end: the last version of the range; None: the newest.

    Raises:
        InvalidArgumentError: the range has fewer than two commits, or more text than `MOST_BYTES`.
        TableNotFoundError: there is no table.
        VersionNotFoundError: the log doesn't reach to the end, or cleanup has deleted a commit.
        NotBackfilledError: the end isn't backfilled.
        UnsupportedFeatureError: the engine lacks a feature that writers need by the protocol at the end of
            the range.
        CorruptLogError: the log is damaged.
        StorageError: the store failed.
    """
    check_version(start, table=storage.root)
    check_version(end, table=storage.root)
    if start is not None and end is not None and start >= end:
        raise InvalidArgumentError(
            f"can't compact from version {start} to {end}: expected a start below the end",
            table=storage.root,
        )
    snapshot = open_backfilled(storage, end)
    check_writable(
        snapshot.protocol,
        snapshot.metadata,
        table=snapshot.table,
        operation=Operation.CHECKPOINT,
    )
    segment = snapshot.segment
    if start is not None:
        commits = _find_commits(storage, segment, start)
    else:
        commits = _find_uncompacted(segment)
        fewest = FEWEST if end is None else 2
        if len(commits) < fewest:
            reason = (
                f"only {len(commits)} commits up to version {segment.version} are covered neither by a "
                f"checkpoint nor by a compaction; at least {fewest} are worth a compaction"
            )
            return LogCompactionPlan(segment.table, segment.version, (), reason)
        if end is None:
            commits = _take_oldest(commits)
    _check_size(commits, segment.table)
    plan = LogCompactionPlan(segment.table, segment.version, commits)
    return _skip_existing(storage, plan)


def execute_log_compaction(storage: Storage, plan: LogCompactionPlan) -> LogCompactionResult:
    """Write the compaction that a plan describes.

    Raises:
        UnsupportedFeatureError: a protocol in force before the end of the range needs a feature that the
            engine lacks, so its commits may not be reconciled by known rules. Nothing was published.
        VersionNotFoundError: the protocol at the start is unknown, because neither the version before the
            range nor its first one can be loaded; nothing was published.
        CorruptLogError: a commit breaks the protocol; nothing was published.
        InvalidTableError: the result doesn't have the effect of the commits; nothing was published.
        ObjectNotFoundError: a commit vanished since the plan was made; nothing was published.
        UnsafeStorageError: the store can't create exclusively; nothing was published.
        StorageError: the store failed; if there is a compaction, it is complete.
    """
    if not plan.needed or plan.path is None:
        return LogCompactionResult(plan, written=False)
    lines = reconcile_lines(
        list(_read_contents(storage, plan)),
        start=plan.commits[0].version,
        end=plan.commits[-1].version,
        table=plan.table,
    )
    _check_protocols(storage, plan.commits[0].version, lines.passed)
    try:
        storage.create(plan.path, lines.text)
    except ObjectExistsError:
        if storage.head(plan.path).size:
            return LogCompactionResult(plan, written=False)
        storage.replace(plan.path, lines.text)
    return LogCompactionResult(
        plan, written=True, size_in_bytes=len(lines.text), num_actions=lines.count
    )


def _check_protocols(storage: Storage, start: int, passed: Sequence[NonFileAction]) -> None:
    """Check that the engine knows every protocol that was in force within the range.

    RFC checkpoint-protection: older commits may need features that the newest protocol no longer lists.
    """
    state: dict[str, Any] = {}
    if start:
        before = _open_before(storage, start)
        state = {"protocol": before.protocol, "metaData": before.metadata}
        _check_protocol(storage, state)
    for version, actions in groupby(passed, key=attrgetter("version")):
        for action in actions:
            where = f"commit {version}: {action.kind}"
            state[action.kind] = _PARSED[action.kind](action.value, where)
        _check_protocol(storage, state)


def _open_before(storage: Storage, start: int) -> Snapshot:
    """Open the version before a range; if a cleanup has deleted it, the first one of the range.

    After a cleanup the log begins with a checkpoint, which has the protocol that the first commit is under.
    """
    try:
        return open_snapshot(storage, start - 1, verified=True)
    except VersionNotFoundError:
        return open_snapshot(storage, start, verified=True)


def _check_protocol(storage: Storage, state: Mapping[str, Any]) -> None:
    if len(state) < len(_PARSED):
        return  # not a table yet: the first commits of the log have only one of the two
    check_writable(
        state["protocol"],
        state["metaData"],
        table=storage.root,
        operation=Operation.CHECKPOINT,
    )


def _find_commits(storage: Storage, segment: LogSegment, start: int) -> tuple[LogCommit, ...]:
    """Find the commits of a range that the caller has chosen, up to the segment's version."""
    end = segment.version
    if start >= end:
        raise VersionNotFoundError(
            f"there is nothing to compact from version {start} on: the log ends at version {end}; "
            "begin the range before that",
            table=segment.table,
            version=start,
            latest=end,
        )
    commits: Sequence[LogCommit] = segment.commits
    if not commits or start < commits[0].version:
        # They are older than the checkpoint. A compaction of them serves time travel.
        commits = list_log(storage, start=start, end=end).commits
    commits = tuple(commit for commit in commits if commit.version >= start)
    missing = missing_versions((commit.version for commit in commits), first=start, last=end)
    if missing:
        count = sum(gap.stop - gap.start for gap in missing)
        raise VersionNotFoundError(
            f"commits {start} to {end} can't be compacted: cleanup has deleted {count} of them "
            f"up to version {missing[-1].stop - 1}; begin the range after that",
            table=segment.table,
            version=missing[0].start,
            earliest=missing[-1].stop,
            latest=end,
        )
    check_commits(commits, after=start - 1, to=end, table=segment.table)
    return commits


def _find_uncompacted(segment: LogSegment) -> tuple[LogCommit, ...]:
    """Find the commits at the end of a segment that no checkpoint and no compaction covers."""
    commits: list[LogCommit] = []
    for file in reversed(segment.plan()):
        if isinstance(file, CompactedCommits):
            break
        commits.append(file)
    return tuple(reversed(commits))


def _take_oldest(commits: tuple[LogCommit, ...]) -> tuple[LogCommit, ...]:
    """Return the oldest commits that may be compacted at once; at least two, whatever their size."""
    sizes = accumulate(commit.size for commit in commits)
    return commits[: max(2, sum(1 for _ in takewhile(MOST_BYTES.__ge__, sizes)))]


def _check_size(commits: Sequence[LogCommit], table: str) -> None:
    size = sum(commit.size for commit in commits)
    if size > MOST_BYTES:
        raise InvalidArgumentError(
            f"commits {commits[0].version} to {commits[-1].version} have {size_text(size)}, and at most "
            f"{size_text(MOST_BYTES)} are compacted at once; choose a shorter range, or write a checkpoint",
            table=table,
        )


def _skip_existing(storage: Storage, plan: LogCompactionPlan) -> LogCompactionPlan:
    assert plan.path is not None
    try:
        size = storage.head(plan.path).size
    except ObjectNotFoundError:
        return plan
    if not size:
        return plan  # an empty file of a dead writer, which readers and listings ignore
    reason = f"{plan.path} exists already"
    return LogCompactionPlan(plan.table, plan.version, plan.commits, reason)


def _read_contents(storage: Storage, plan: LogCompactionPlan) -> Iterator[tuple[int, bytes]]:
    with report_progress("read commits", "commits", len(plan.commits)) as reporter:
        for first in range(0, len(plan.commits), _RUN_FILES):
            run = plan.commits[first : first + _RUN_FILES]
            contents = storage.read_many([commit.path for commit in run])
            reporter.advance(len(run))
            for commit, content in zip(run, contents, strict=True):
                if content is None:
                    raise ObjectNotFoundError(
                        f"{commit.path} vanished after it was listed: a cleanup may be running",
                        table=plan.table,
                        path=commit.path,
                    )
                yield commit.version, content

"""Use log compactions to read fewer files.

A compaction ``<x>.<y>.compacted.json`` holds the reconciled actions of commits ``x`` to ``y``. A state can
be rebuilt from it instead of from those commits. History, commit timestamps and change feeds read the
commits, because a compaction has no ``commitInfo`` and no ``cdc``.

* `trusted_compactions` selects the compactions that may be used, `plan_commits` the files to read;
* `pledged` writes a compaction with a *pledge*: a first line with which the engine promises that the file
  keeps all removes of its range. `check_pledge` verifies the lines after it;
* `unreconciled` is the error about a compaction that has two actions for one file.

docs/explanation/how-a-snapshot-is-opened.md has the reasons. Spec: PROTOCOL.md, "Log Compaction Files",
"Action Reconciliation", "Protocol Evolution".
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING
from zlib import crc32

from airflow_delta.engine.errors import CorruptLogError, ObjectNotFoundError
from airflow_delta.engine.log.files import CompactedCommits, LogCommit

if TYPE_CHECKING:
    from airflow_delta.engine.storage.base import Storage

__all__ = ["check_pledge", "plan_commits", "pledged", "trusted_compactions", "unreconciled"]

_BEGIN = b'{"airflowDeltaCompaction":'
_PLEDGE = re.compile(
    re.escape(_BEGIN) + rb'\{"start":([0-9]{1,19}),"end":([0-9]{1,19}),'
    rb'"keepsRemoved":true,"lines":([0-9]{1,19}),"crc32":([0-9]{1,10})\}\}\r?\n'
)
_HEAD = 256
"""Bytes at the start of a file that are enough for a pledge."""

_THREADS = 8
"""Starts of files that are read at once from a remote store."""


def pledged(start: int, end: int, parts: Sequence[bytes | memoryview], *, lines: int) -> bytes:
    """Build the content of a compaction that keeps every remove and every removed domain.

    Its first line is the pledge. For other readers it is an unrecognized action, which they must ignore. A
    file that was cut off between two lines still has whole lines, so the pledge has the number of lines
    after it and their CRC-32.

    Args:
        start: the first version that it covers.
        end: the last version.
        parts: the actions as lines, one or more in each part, without a line break at the end.
        lines: the total number of lines.
    """
    checksum = 0
    for part in parts:
        checksum = crc32(b"\n", crc32(part, checksum))
    pledge = (
        b'%b{"start":%d,"end":%d,"keepsRemoved":true,"lines":%d,"crc32":%d}}'
        % (_BEGIN, start, end, lines, checksum)
    )  # fmt: skip
    return b"\n".join([pledge, *parts, b""])


def check_pledge(compaction: CompactedCommits, content: bytes, *, table: str) -> None:
    """Refuse the content of a compaction that doesn't match its pledge, or that has none.

    Another writer's compaction from version 0 on is accepted as it is: it has no pledge.

    Args:
        compaction: a compaction that `trusted_compactions` has returned.
        content: all of the file.
        table: the table's location, for errors.

    Raises:
        CorruptLogError: the lines aren't those that were written. Facts: version, path.
    """
    pledge = _pledge_of(compaction, content)
    if pledge is None:
        if compaction.start == 0 and not content.startswith(_BEGIN):
            return
        found = "its first line isn't the pledge with the number and the CRC-32 of the others"
    else:
        rest = memoryview(content)[pledge.end() :]
        lines = content.count(b"\n", pledge.end())
        if (lines, crc32(rest)) == (int(pledge[3]), int(pledge[4])):
            return
        found = (
            f"it has {lines} lines with the CRC-32 {crc32(rest)}, and {int(pledge[3])} with "
            f"{int(pledge[4])} were written"
        )
    raise CorruptLogError(
        f"the compaction {compaction.path} isn't whole: {found}",
        table=table,
        version=compaction.end,
        path=compaction.path,
    )


def unreconciled(finding: str, *, version: int, path: str, table: str) -> CorruptLogError:
    """Create the error about a compaction that isn't the reconciliation of its commits.

    A compaction has each logical file at most once, and likewise each application, each domain, the
    protocol and the metadata. If it doesn't, its lines can't be trusted in any order, and the commits are
    read.

    Args:
        finding: what it contains twice, as a sentence.
        version: the last version that it covers.
        path: the path of the compaction.
        table: the table's location.
    """
    return CorruptLogError(
        f"the compaction {path} isn't reconciled: {finding}. Delete it: its commits are read instead",
        table=table,
        version=version,
        path=path,
        finding=finding,
    )


def trusted_compactions(
    storage: Storage, compactions: Sequence[CompactedCommits], *, pledged_only: bool = False
) -> tuple[CompactedCommits, ...]:
    """Select the compactions that can't bring deleted data back.

    A compaction must keep every remove and every removed domain, however old, because they cancel actions
    from before its range. Some engines drop expired ones, and nothing in the protocol shows that. So these
    are selected:

    * compactions with a pledge;
    * those that start at version 0, because nothing before their range could come back. A remove that one
      of them lacks had expired when it was written, so a vacuum misses nothing within the retention.

    Args:
        storage: the table's storage. The start of a file is read if its name isn't enough.
        compactions: the compactions that the caller can use. Each may cost a request.
        pledged_only: accept none without a pledge, even from version 0 on: it may have lost lines.

    Raises:
        StorageError: the store failed.
    """
    unclear = [file for file in compactions if pledged_only or file.start > 0]
    trusted = {
        compaction.path
        for compaction, head in zip(unclear, _heads(storage, unclear), strict=True)
        if _pledge_of(compaction, head) is not None
    }
    return tuple(file for file in compactions if file.path in trusted or file not in unclear)


def _pledge_of(compaction: CompactedCommits, content: bytes) -> re.Match[bytes] | None:
    """The pledge at the start of a compaction; None if there is none, or one for other versions."""
    pledge = _PLEDGE.match(content)
    if pledge is None or (int(pledge[1]), int(pledge[2])) != (compaction.start, compaction.end):
        return None
    return pledge


def _heads(storage: Storage, compactions: Sequence[CompactedCommits]) -> Iterator[bytes]:
    read = partial(_head, storage)
    if not storage.capabilities.remote or len(compactions) < 2:
        yield from map(read, compactions)
        return
    with ThreadPoolExecutor(_THREADS) as pool:
        yield from pool.map(read, compactions)


def _head(storage: Storage, compaction: CompactedCommits) -> bytes:
    try:
        return storage.read(compaction.path, length=_HEAD)
    except ObjectNotFoundError:
        # A cleanup has deleted it since the listing: treat it as if it had never been there.
        return b""


def plan_commits(
    commits: Sequence[LogCommit], compactions: Iterable[CompactedCommits]
) -> tuple[LogCommit | CompactedCommits, ...]:
    """Find the fewest files that cover a range of commits, in log order and without overlap.

    A compaction that reaches outside the range, over a checkpoint or past the target version, can't
    be used. If two plans need equally many files, the plan whose first file reaches further wins.
    So every call gives the same plan.

    Args:
        commits: the commits to cover, contiguous and ascending.
        compactions: the compactions that may be used, in any order.

    Returns:
        Commits and compactions; together they cover exactly the versions of ``commits``.
    """
    if not commits:
        return ()
    first, last = commits[0].version, commits[-1].version
    starting_at: defaultdict[int, list[CompactedCommits]] = defaultdict(list)
    for compaction in compactions:
        # A compaction of a single commit saves nothing.
        if first <= compaction.start < compaction.end <= last:
            starting_at[compaction.start - first].append(compaction)
    if not starting_at:
        return tuple(commits)

    # Dynamic programming from the end. fewest[i]: the number of files for commits[i:]; choice[i]:
    # the first of these files.
    fewest = [0] * (len(commits) + 1)
    choice: list[LogCommit | CompactedCommits] = list(commits)
    for index in range(len(commits) - 1, -1, -1):
        fewest[index] = fewest[index + 1] + 1
        for compaction in sorted(starting_at.get(index, ()), key=lambda file: file.end):
            count = fewest[compaction.end - first + 1] + 1
            if count <= fewest[index]:
                fewest[index], choice[index] = count, compaction

    plan: list[LogCommit | CompactedCommits] = []
    index = 0
    while index < len(commits):
        file = choice[index]
        plan.append(file)
        index = (file.end if isinstance(file, CompactedCommits) else file.version) - first + 1
    return tuple(plan)

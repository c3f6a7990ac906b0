"""Reading fewer files: log compactions in place of the commits they cover.

A compaction ``<x>.<y>.compacted.json`` holds the reconciled actions of commits ``x`` to ``y`` and
may stand in for them when a state is rebuilt. It never stands in for a commit's ``commitInfo`` or
``cdc`` actions: history, commit timestamps and change feeds read the commits.

**Which compactions are trusted.** A compaction must keep every ``remove`` and every removed domain,
however old: they cancel actions from before its range. Some engines are known to drop those that
had outlived their retention, and a state rebuilt from such a file brings deleted data back. Nothing
that the protocol defines tells one from the other. So a compaction is read

* if it starts at version 0: there is nothing before its range that could come back. The removes it
  lacks, if it lacks any, had expired when it was written, so that vacuum misses nothing that a
  retention period still protects; or
* if its first line is the pledge that our own writer begins with (`pledged`): for these versions, all
  removes and removed domains are there. To everybody else the pledge is an unrecognized action, which
  is never needed to interpret the log and must be ignored.

A file that was cut off between two lines is still one of whole lines, and its pledge still there. So
the pledge counts the lines that follow it and has their CRC-32, and whoever reads the file compares
(`check_pledge`). A pledge without these is none.

A compaction holds each logical file once, and so each application, each domain, the protocol and the
metadata (PROTOCOL.md, "Action Reconciliation"). One that doesn't is no reconciliation of its commits, in
whatever order its lines are. Parsing it ends in an error (`unreconciled`), and the commits are read.

Nothing shows that a line is missing from a compaction without a pledge. So none of these is used where
files are deleted or a checkpoint is written by what is read (``pledged_only``).

Spec: PROTOCOL.md, "Log Compaction Files", "Protocol Evolution".
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
"""Bytes that a pledge certainly fits in."""

_THREADS = 8
"""Heads read at a time from a store behind a network."""


def pledged(start: int, end: int, parts: Sequence[bytes | memoryview], *, lines: int) -> bytes:
    """The content of a compaction that keeps every remove and every removed domain.

    Args:
        start: the first version that it covers.
        end: the last one.
        parts: the actions as lines, one or more in each part, without the end of its last line.
        lines: how many these are together.
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
    """Refuse the content of a compaction that isn't what its pledge says, or that lacks one.

    That of another writer from version 0 on is trusted as it is: it has no pledge to compare with.

    Args:
        compaction: one that is trusted, by `trusted_compactions`.
        content: all of the file.
        table: the table's location, for errors.

    Raises:
        CorruptLogError: there are other lines than were written. Facts: version, path.
    """
    pledge = _pledge_of(compaction, content)
    if pledge is None:
        if compaction.start == 0 and not content.startswith(_BEGIN):
            return
        found = "its first line doesn't vouch for the others"
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
    """The error over a compaction that isn't reconciled, and so isn't what its commits come to.

    Args:
        finding: what it has twice, as a sentence.
        version: the last version that it covers.
        path: of the compaction.
        table: the table's location.
    """
    return CorruptLogError(
        f"the compaction {path} isn't reconciled: {finding}. Its commits say what it should; delete it",
        table=table,
        version=version,
        path=path,
        finding=finding,
    )


def trusted_compactions(
    storage: Storage, compactions: Sequence[CompactedCommits], *, pledged_only: bool = False
) -> tuple[CompactedCommits, ...]:
    """The compactions that can't bring deleted data back. See the module for the rule.

    Args:
        storage: the table's storage; the heads of those are read whose names don't tell.
        compactions: those that are of use to the caller, because each may cost a request.
        pledged_only: take none without a pledge, wherever it starts: it may have lost lines.

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
    """The pledge at the head of a compaction; None where there is none, or one for other versions."""
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
        # Cleaned up since it was listed: as if it had been gone before.
        return b""


def plan_commits(
    commits: Sequence[LogCommit], compactions: Iterable[CompactedCommits]
) -> tuple[LogCommit | CompactedCommits, ...]:
    """The fewest files that cover a range of commits, in log order and without overlap.

    A compaction that reaches out of the range, over a checkpoint or past the target version, is of
    no use. Where two plans need as many files, the one whose first file reaches further wins, so
    that every call plans alike.

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
        # One that covers a single commit saves nothing.
        if first <= compaction.start < compaction.end <= last:
            starting_at[compaction.start - first].append(compaction)
    if not starting_at:
        return tuple(commits)

    # fewest[i]: how many files cover commits[i:]; choice[i]: the first of them. From the end.
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

"""Reading fewer files: log compactions in place of the commits they cover.

A compaction ``<x>.<y>.compacted.json`` holds the reconciled actions of commits ``x`` to ``y`` and
may stand in for them when a state is rebuilt. It never stands in for a commit's ``commitInfo`` or
``cdc`` actions: history, commit timestamps and change feeds read the commits.

**Which compactions are trusted.** A compaction must keep every ``remove`` and every removed domain,
however old: they cancel actions from before its range. Some engines are known to drop those that
had outlived their retention, and a state rebuilt from such a file brings deleted data back. Nothing
in the file tells. So only a compaction that starts at version 0 is read: there is nothing before
its range that could come back. The removes it lacks, if it lacks any, had expired when it was
written, so that vacuum misses nothing that a retention period still protects.

Spec: PROTOCOL.md, "Log Compaction Files".
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from airflow_delta.engine.log.files import CompactedCommits, LogCommit

__all__ = ["plan_commits", "trusted_compactions"]


def trusted_compactions(
    compactions: Iterable[CompactedCommits],
) -> tuple[CompactedCommits, ...]:
    """The compactions that can't bring deleted data back. See the module for the rule."""
    return tuple(compaction for compaction in compactions if compaction.start == 0)


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

"""Check which files the log has: gaps, empty commits, and names that engines interpret differently.

Spec: PROTOCOL.md, "Delta Log Entries".
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from airflow_delta.engine.errors import InvalidTableError, UnsupportedFeatureError
from airflow_delta.engine.log.completeness import earliest_version
from airflow_delta.engine.log.files import LOG_DIRECTORY
from airflow_delta.engine.log.listing import Listing, listing_of
from airflow_delta.engine.maintenance.check.findings import (
    CLEANUP,
    Finding,
    error,
    info,
    join_names,
    join_ranges,
    plural,
    warning,
)
from airflow_delta.engine.maintenance.check.subject import Subject
from airflow_delta.engine.remedies import PUT_COMMIT_BACK_OR_DELETE, PUT_FILE_BACK

__all__ = ["CHECKS"]

_UNPADDED = re.compile(r"[0-9]+\.json")
_DIGITS = 20


def _check_opens(subject: Subject) -> Iterator[Finding]:
    """Whether the newest version can be opened at all."""
    refusal = subject.refusal
    # An unsupported feature isn't damage; `settings` reports it.
    if refusal is not None and not isinstance(refusal, UnsupportedFeatureError | InvalidTableError):
        yield error(
            "version-unreadable",
            f"the newest version, {subject.latest_logged}, can't be opened: {refusal.message}",
            "nothing here, unless another finding names a file to put back",
        )


def _check_missing_commits(subject: Subject) -> Iterator[Finding]:
    """Whether commits are missing between existing ones."""
    gaps = _find_gaps(subject.listing)
    if gaps:
        # A listing may miss a commit made while it ran. A second listing can't miss it.
        again = listing_of(subject.storage.list(LOG_DIRECTORY))
        gaps = [gap for gap in _find_gaps(again) if gap.start < subject.latest_logged]
    newest = subject.newest_checkpoint
    for gap in gaps:
        lost = gap[0] > (-1 if newest is None else newest.version)
        which = f"{_describe_commits(gap)} missing while later versions exist"
        if lost:
            yield error(
                "commit-missing",
                f"{which}, and no checkpoint replaces them: versions from {gap[0]} on can't be read",
                PUT_FILE_BACK,
            )
        else:
            yield warning(
                "commit-missing",
                f"{which}: versions from {gap[0]} to the one before the next checkpoint can't be read",
                f"{PUT_FILE_BACK}; newer versions don't need it",
            )


def _check_commits_of_checkpoints(subject: Subject) -> Iterator[Finding]:
    """Whether commits are missing whose versions have a checkpoint."""
    existing = {commit.version for commit in subject.listing.commits}
    newest = subject.newest_checkpoint
    found = sorted(
        each.version
        for each in set(subject.listing.checkpoints)
        if each.version not in existing and {each.version - 1, each.version + 1} <= existing
    )
    # `checkpoints` reports the newest one.
    found = [version for version in dict.fromkeys(found) if newest and version != newest.version]
    if found:
        yield warning(
            "commit-missing",
            f"{_describe_commits(found)} missing, and only a checkpoint of each version exists: its time "
            "and its changes are unknown",
            f"{PUT_FILE_BACK}; newer versions don't need it",
        )


def _check_unreachable_commits(subject: Subject) -> Iterator[Finding]:
    """Whether there are old commits from which no version can be rebuilt."""
    earliest = earliest_version(subject.listing)
    if earliest is None:
        return
    # If the log has a gap, that is reported instead.
    gaps = _find_gaps(subject.listing)
    first = subject.listing.commits[0].version if subject.listing.commits else earliest
    if not gaps and first < earliest:
        count = sum(commit.version < earliest for commit in subject.listing.commits)
        yield info(
            "commits-unreachable",
            f"{plural(count, 'commit')} from version {first} on belong to no readable version, because the "
            f"log begins with the checkpoint of version {earliest}: an interrupted cleanup has left them",
            CLEANUP,
        )


def _check_empty_commits(subject: Subject) -> Iterator[Finding]:
    """Whether commits have zero bytes."""
    empty = [commit.version for commit in subject.listing.commits if not commit.size]
    newest = subject.newest_checkpoint
    needed = [v for v in empty if newest is None or v > newest.version]
    if needed:
        yield error(
            "commit-empty",
            f"{plural(len(needed), 'commit')} ({join_ranges(needed)}) of zero bytes: a writer died while "
            "writing, or the store lost what it had",
            PUT_COMMIT_BACK_OR_DELETE,
        )
    older = [version for version in empty if version not in needed]
    if older:
        yield warning(
            "commit-empty",
            f"{plural(len(older), 'commit')} ({join_ranges(older)}) of zero bytes: older versions can't be "
            "read",
            f"{PUT_FILE_BACK}; newer versions don't need it",
        )


def _check_ambiguous_names(subject: Subject) -> Iterator[Finding]:
    """Whether there are names that some engines take for commits, and others don't."""
    odd = [
        info_.name
        for info_ in subject.log_files
        if _UNPADDED.fullmatch(info_.name) and len(info_.name) != _DIGITS + len(".json")
    ]
    if odd:
        yield warning(
            "name-ambiguous",
            f"{plural(len(odd), 'file')} in the log ({join_names(odd)}) may be taken for a commit: a "
            "version has 20 digits, but Delta Spark accepts any number of them",
            "nothing here: find out who has written it, and move it away",
        )


CHECKS = (
    _check_opens,
    _check_missing_commits,
    _check_commits_of_checkpoints,
    _check_unreachable_commits,
    _check_empty_commits,
    _check_ambiguous_names,
)


def _find_gaps(listing: Listing) -> list[range]:
    """Return the versions after a commit that are missing before the next commit or checkpoint."""
    commits = {commit.version for commit in listing.commits}
    versions = sorted(commits | {checkpoint.version for checkpoint in listing.checkpoints})
    # After a checkpoint without its commit, a cleanup may have deleted commits: the checkpoint was
    # protected.
    return [
        range(before + 1, after)
        for before, after in pairwise(versions)
        if after > before + 1 and before in commits
    ]


def _describe_commits(versions: Sequence[int]) -> str:
    # Not `len`: it overflows for a gap up to an invented version.
    is_one = versions[0] == versions[-1]
    return f"commit {versions[0]} is" if is_one else f"commits {join_ranges(versions)} are"

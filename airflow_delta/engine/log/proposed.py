"""Commits that were proposed to a commit owner: the files in ``_delta_log/_commits``.

managed-commits.md, "Commit Files". That one is there doesn't mean that it was ratified; but none is
ratified that isn't there. So where there is no file for a later version, the log has them all, and nobody
need be asked: neither the owner, nor the metadata whether there is one.
"""

from __future__ import annotations

from collections.abc import Iterator

from airflow_delta.engine.log.files import (
    COMMITS_DIRECTORY,
    UnbackfilledCommit,
    parse_log_file,
    version_prefix,
)
from airflow_delta.engine.storage.base import Storage

__all__ = ["is_any_proposed", "proposed_commits"]


def proposed_commits(storage: Storage, start: int = 0) -> Iterator[UnbackfilledCommit]:
    """The files that were proposed as versions, ascending by version; several may be of one version.

    Args:
        storage: where the table is.
        start: the first version of interest.

    Raises:
        StorageError: the store failed.
    """
    # The prefix of a version sorts before all names of the version.
    start_after = version_prefix(start) if start else ""
    for info in storage.list(COMMITS_DIRECTORY, start_after=start_after):
        file = parse_log_file(info)
        if isinstance(file, UnbackfilledCommit):
            yield file


def is_any_proposed(storage: Storage, *, after: int) -> bool:
    """Whether there is a file that may have been ratified as a version after one.

    Raises:
        StorageError: the store failed.
    """
    return any(True for _ in proposed_commits(storage, after + 1))

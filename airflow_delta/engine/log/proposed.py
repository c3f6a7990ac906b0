"""Commits that were proposed to a commit owner: the files in ``_delta_log/_commits``.

A file there may not have been ratified, but every ratified commit had its file there. So if there
is no file for a later version, the log has all versions. Then neither the owner nor the metadata
needs to be read.

Spec: RFC managed-commits, "Commit Files".
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
    """The commits that were proposed, ascending by version; one version may have several.

    Args:
        storage: the table's storage.
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
    """Whether there is a proposed commit for a later version, which may have been ratified.

    Raises:
        StorageError: the store failed.
    """
    return any(True for _ in proposed_commits(storage, after + 1))

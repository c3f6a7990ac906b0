"""What a transaction says of the commit that it has made."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["CommitResult"]


@dataclass(frozen=True, slots=True)
class CommitResult:
    """A commit that was made.

    Attributes:
        version: the version it made.
        timestamp_ms: the time in its ``commitInfo``.
        num_files_added: how many ``add`` actions it holds.
        num_files_removed: how many ``remove`` actions it holds.
        attempts: how often it was tried.
    """

    version: int
    timestamp_ms: int
    num_files_added: int
    num_files_removed: int
    attempts: int

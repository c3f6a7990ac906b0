"""A commit owner that answers what a test tells it to, and notes what it was asked."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from airflow_delta.engine.commit.owner import (
    CommitResponse,
    GetCommitsResponse,
    ManagedTable,
    OwnerStatus,
)
from airflow_delta.engine.errors import DeltaError
from airflow_delta.engine.log.files import UnbackfilledCommit

__all__ = ["ScriptedOwner", "tracked"]


def tracked(root: Path, name: str) -> UnbackfilledCommit:
    """What an owner knows of a file in ``_commits``."""
    version, uuid, _ = name.split(".")
    path = f"_delta_log/_commits/{name}"
    size = (root / path).stat().st_size if (root / path).exists() else 1
    return UnbackfilledCommit(int(version), uuid, path, size, 0)


class ScriptedOwner:
    """Tells of commits, and ratifies nothing.

    Args:
        commits: the un-backfilled commits that it tracks.
        latest: the newest version that it says it has ratified.
        before: called before each answer, such as to change the log between a listing and the answer.
        error: raised instead of an answer.
    """

    def __init__(
        self,
        commits: Iterable[UnbackfilledCommit] = (),
        latest: int = -1,
        *,
        before: Callable[[], None] = lambda: None,
        error: DeltaError | None = None,
    ) -> None:
        self.commits = tuple(commits)
        self.latest = latest
        self.before = before
        self.error = error
        self.asked: list[tuple[int, int | None]] = []

    def get_commits(
        self, table: ManagedTable, start_version: int = 0, end_version: int | None = None
    ) -> GetCommitsResponse:
        self.asked.append((start_version, end_version))
        self.before()
        if self.error is not None:
            raise self.error
        end = self.latest if end_version is None else end_version
        commits = tuple(c for c in self.commits if start_version <= c.version <= end)
        return GetCommitsResponse(commits, self.latest)

    def commit(
        self,
        table: ManagedTable,
        version: int,
        actions: bytes,
        *,
        txn_id: str,
        releases: bool = False,
    ) -> CommitResponse:
        raise AssertionError("a reader commits")

    def backfill_to_version(self, table: ManagedTable, version: int | None = None) -> int:
        raise AssertionError("a reader backfills")

    def propose(self, table: ManagedTable, version: int) -> None:
        raise AssertionError("a reader hands a table over")

    def take_over(self, table: ManagedTable, version: int) -> None:
        raise AssertionError("a reader hands a table over")

    def forget(self, table: ManagedTable, version: int) -> None:
        raise AssertionError("a reader hands a table over")

    def status(self, table: ManagedTable) -> OwnerStatus:
        raise AssertionError("a reader asks for the status")

"""A commit owner that can be watched, and that goes wrong on purpose."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from airflow_delta.engine.commit.owner import (
    CommitOwner,
    CommitResponse,
    GetCommitsResponse,
    ManagedTable,
    OwnerStatus,
)
from airflow_delta.engine.commit.store.memory import MemoryCommitStore
from airflow_delta.engine.commit.store.owner import StoreBackedOwner

__all__ = ["WatchedOwner"]


class WatchedOwner:
    """A commit owner over another one.

    Attributes:
        inner: the other one; with a commit store of its own in memory unless given.
        calls: the methods that were called, with the version that each was about, if any.
        fails: what methods raise instead, by name.
        before: what happens just before a method, by name.
        after: what becomes of the answer of a method, by name.
    """

    def __init__(self, inner: CommitOwner | None = None) -> None:
        self.inner = StoreBackedOwner(MemoryCommitStore()) if inner is None else inner
        self.calls: list[tuple[str, int | None]] = []
        self.fails: dict[str, BaseException] = {}
        self.before: dict[str, Callable[[], object]] = {}
        self.after: dict[str, Callable[[Any], Any]] = {}

    def named(self, *names: str) -> list[tuple[str, int | None]]:
        """The calls of some methods."""
        return [call for call in self.calls if call[0] in names]

    def fail(self, error: BaseException) -> None:
        """Have every method raise an error."""
        names = ("commit", "get_commits", "backfill_to_version", "propose", "take_over", "forget")
        self.fails = dict.fromkeys((*names, "status"), error)

    def commit(
        self,
        table: ManagedTable,
        version: int,
        actions: bytes,
        *,
        txn_id: str,
        releases: bool = False,
    ) -> CommitResponse:
        return self._do(
            "commit",
            version,
            lambda: self.inner.commit(table, version, actions, txn_id=txn_id, releases=releases),
        )

    def get_commits(
        self, table: ManagedTable, start_version: int = 0, end_version: int | None = None
    ) -> GetCommitsResponse:
        return self._do(
            "get_commits",
            start_version,
            lambda: self.inner.get_commits(table, start_version, end_version),
        )

    def backfill_to_version(self, table: ManagedTable, version: int | None = None) -> int:
        return self._do(
            "backfill_to_version", version, lambda: self.inner.backfill_to_version(table, version)
        )

    def propose(self, table: ManagedTable, version: int) -> None:
        self._do("propose", version, lambda: self.inner.propose(table, version))

    def take_over(self, table: ManagedTable, version: int) -> None:
        self._do("take_over", version, lambda: self.inner.take_over(table, version))

    def forget(self, table: ManagedTable, version: int) -> None:
        self._do("forget", version, lambda: self.inner.forget(table, version))

    def status(self, table: ManagedTable) -> OwnerStatus:
        return self._do("status", None, lambda: self.inner.status(table))

    def _do(self, name: str, version: int | None, effect: Callable[[], Any]) -> Any:
        self.calls.append((name, version))
        if name in self.before:
            self.before[name]()
        if name in self.fails:
            raise self.fails[name]
        answer = effect()
        return self.after[name](answer) if name in self.after else answer

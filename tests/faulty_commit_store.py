"""A commit store that goes wrong on purpose: at the n-th call of a method, before or after its effect.

    commit_store = FaultyCommitStore(inner, Fault("ratify", 2, How.LOSE_ANSWER))

The faults are those of `faulty_storage`, with a method of `CommitStore` as their operation, and no suffix.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from airflow_delta.engine.commit.store.commit_store import CommitStore, TableEntry
from airflow_delta.engine.errors import CommitOwnerUnavailableError
from airflow_delta.engine.log.files import UnbackfilledCommit
from tests.faulty_storage import Crash, Fault, How

__all__ = ["FaultyCommitStore"]

_Result = TypeVar("_Result")


class FaultyCommitStore:
    """A commit store over another one, with faults.

    Attributes:
        inner: the other one.
        calls: the methods called, in order.
    """

    def __init__(self, inner: CommitStore, *faults: Fault) -> None:
        self.inner = inner
        self.calls: list[str] = []
        self._faults = faults
        self._dead = False

    def find(self, table_id: str) -> TableEntry | None:
        return self._step("find", lambda: self.inner.find(table_id))

    def entries_at(self, location: str) -> list[TableEntry]:
        return self._step("entries_at", lambda: self.inner.entries_at(location))

    def propose(self, table_id: str, location: str, version: int) -> None:
        self._step("propose", lambda: self.inner.propose(table_id, location, version))

    def forget(self, table_id: str, version: int) -> None:
        self._step("forget", lambda: self.inner.forget(table_id, version))

    def activate(self, table_id: str) -> None:
        self._step("activate", lambda: self.inner.activate(table_id))

    def ratify(self, table_id: str, commit: UnbackfilledCommit, *, releases: bool) -> bool:
        return self._step("ratify", lambda: self.inner.ratify(table_id, commit, releases=releases))

    def observe(self, table_id: str, version: int) -> None:
        self._step("observe", lambda: self.inner.observe(table_id, version))

    def relocate(self, table_id: str, location: str) -> None:
        self._step("relocate", lambda: self.inner.relocate(table_id, location))

    def accept(self, table_id: str, version: int, *, instead_of: int) -> bool:
        return self._step(
            "accept", lambda: self.inner.accept(table_id, version, instead_of=instead_of)
        )

    def _step(self, method: str, effect: Callable[[], _Result]) -> _Result:
        if self._dead:
            raise Crash(f"{method}: a dead process does nothing")
        self.calls.append(method)
        due = [fault for fault in self._faults if self._is_due(fault, method)]
        for fault in due:
            if fault.meanwhile is not None:
                fault.meanwhile()
        hows = {fault.how for fault in due}
        if How.FAIL in hows:
            raise CommitOwnerUnavailableError(f"{method}: the books can't be reached")
        if How.CRASH_BEFORE in hows:
            raise self._crash(method)
        result = effect()
        if How.LOSE_ANSWER in hows:
            raise CommitOwnerUnavailableError(f"{method}: the connection broke")
        if How.CRASH_AFTER in hows:
            raise self._crash(method)
        return result

    def _is_due(self, fault: Fault, method: str) -> bool:
        if fault.operation not in ("*", method):
            return False
        count = len(self.calls) if fault.operation == "*" else self.calls.count(method)
        return fault.nth in (0, count)

    def _crash(self, method: str) -> Crash:
        self._dead = True
        return Crash(method)

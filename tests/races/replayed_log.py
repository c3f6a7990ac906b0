"""A log as it is stored, and what its commits come to by brute force; nothing of it is the engine's."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from airflow_delta.engine.storage.base import Storage
from tests.table_builder import Action, State, commit_file, replay

__all__ = ["Commit", "Log"]


@dataclass(frozen=True)
class Commit:
    """A commit as it is in the log.

    Attributes:
        version: the version that it made.
        info: its ``commitInfo``.
        first: the kind of its first action.
        actions: the others by kind.
    """

    version: int
    info: Action
    first: str
    actions: Mapping[str, Sequence[Action]]

    @classmethod
    def parse(cls, version: int, content: bytes) -> Commit:
        """Take a commit file apart."""
        lines = [json.loads(line) for line in content.splitlines()]
        actions: dict[str, list[Action]] = {}
        for line in lines:
            ((kind, value),) = line.items()
            actions.setdefault(kind, []).append(value)
        (info,) = actions.pop("commitInfo")
        return cls(version, info, next(iter(lines[0])), actions)

    def of(self, kind: str) -> Sequence[Action]:
        """The actions of a kind."""
        return self.actions.get(kind, ())


class Log:
    """The commits of a log, from version 0 on, and the state that each has left.

    Attributes:
        commits: those that were there when somebody looked last.
        states: what they come to, by version.
    """

    def __init__(self, storage: Storage) -> None:
        self.commits: list[Commit] = []
        self.states: list[State] = []
        self._storage = storage

    def look(self) -> None:
        """Take in what was committed since."""
        while (content := self._next()) is not None:
            commit = Commit.parse(len(self.commits), content)
            actions = [{kind: each} for kind, some in commit.actions.items() for each in some]
            self.commits.append(commit)
            self.states.append(replay([actions], self.states[-1] if self.states else None))

    def state(self, version: int) -> State:
        """The state at a version that is there."""
        if version >= len(self.states):
            self.look()
        return self.states[version]

    def between(self, after: int, before: int) -> Sequence[Commit]:
        """The commits between two versions, both left out."""
        return self.commits[after + 1 : before]

    def checksum_problems(self, version: int) -> Iterator[str]:
        """The wrong fields of the version checksum of a version; nothing if it has none."""
        content = self._storage.read_many([f"_delta_log/{version:020}.crc"])[0]
        if content is None:
            return
        checksum, state, info = (
            json.loads(content),
            self.states[version],
            self.commits[version].info,
        )
        vectors = [file["deletionVector"] for file in state.files.values()]
        vectors = [vector for vector in vectors if vector is not None]
        expected = {
            "tableSizeBytes": sum(file["size"] for file in state.files.values()),
            "numFiles": len(state.files),
            "numMetadata": 1,
            "numProtocol": 1,
            "txnId": info.get("txnId"),
            "inCommitTimestampOpt": info.get("inCommitTimestamp"),
            "numDeletionVectorsOpt": len(vectors),
            "numDeletedRecordsOpt": sum(vector["cardinality"] for vector in vectors),
        }
        optional = {"numDeletionVectorsOpt", "numDeletedRecordsOpt"} - checksum.keys()
        for name in expected.keys() - optional:
            if checksum.get(name) != expected[name]:
                yield f"{version}.crc: {name} is {checksum.get(name)}, expected {expected[name]}"
        small = [{"protocol": checksum["protocol"]}, {"metaData": checksum["metadata"]}]
        small += [{"txn": txn} for txn in checksum["setTransactions"]]
        small += [{"domainMetadata": domain} for domain in checksum["domainMetadata"]]
        same = replace(state, files={}, tombstones={}, removed_domains=frozenset())
        if replay([small]) != same:
            yield f"{version}.crc contains {small}, expected {same}"

    def _next(self) -> bytes | None:
        return self._storage.read_many([commit_file(len(self.commits))])[0]

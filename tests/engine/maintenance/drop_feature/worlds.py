"""Tables in memory whose clock is the test's."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from typing import Any

from airflow_delta.engine import AddFile, StructField, StructType
from airflow_delta.engine.commit.registry import CommitOwners
from airflow_delta.engine.maintenance.drop_feature.execution import (
    DropFeatureResult,
    drop_feature,
)
from airflow_delta.engine.maintenance.drop_feature.rewrite import Rewriter
from airflow_delta.engine.model.schema import LONG
from airflow_delta.engine.snapshot.opening import open_newest, open_snapshot
from airflow_delta.engine.snapshot.snapshot import Snapshot
from airflow_delta.engine.storage.base import Storage
from airflow_delta.engine.storage.file_access import FileAccess
from airflow_delta.engine.storage.memory import MemoryStorage
from airflow_delta.engine.transaction.creation import create_table
from airflow_delta.engine.transaction.transaction import OptimisticTransaction

__all__ = ["HOUR", "MINUTE", "START", "World"]

MINUTE, HOUR = 60_000, 60 * 60_000
START = 1_800_000_030_000
"""The time of version 0, in epoch ms: half a minute past."""

_SCHEMA = StructType((StructField("id", LONG),))


class World:
    """A table, and the time.

    Attributes:
        now: the time, in epoch ms; a second passes with each look at the clock of the store.
        storage: where the table is, for who may see it fail too.
    """

    def __init__(self, properties: Mapping[str, str], *files: str) -> None:
        self.now = START - 1000
        self.storage: Storage = MemoryStorage(f"memory://{uuid.uuid4()}/table", clock=self._tick)
        create_table(self.storage, _SCHEMA, properties=properties)
        for name in files:
            self.append(name)

    def _tick(self) -> int:
        self.now += 1000
        return self.now

    def begin(self, operation: str) -> OptimisticTransaction:
        return OptimisticTransaction(
            self.storage, open_newest(self.storage), operation, owners=CommitOwners()
        )

    def append(self, name: str, **fields: Any) -> None:
        """Commit a file."""
        transaction = self.begin("WRITE")
        stats = '{"numRecords":3}'
        transaction.add_file(AddFile(name, {}, 1, 1, data_change=True, stats=stats, **fields))
        transaction.commit()

    def commit(self, *actions: dict[str, Any]) -> None:
        """Write a commit as it is."""
        lines = ({"commitInfo": {"timestamp": self.now, "operation": "X"}}, *actions)
        text = "".join(json.dumps(line) + "\n" for line in lines)
        self.storage.create(f"_delta_log/{self.snapshot().version + 1:020}.json", text.encode())

    def drop(
        self,
        feature: str,
        *,
        truncate_history: bool = False,
        rewriter: Rewriter | None = None,
        dry_run: bool = False,
        storage: Storage | None = None,
    ) -> DropFeatureResult:
        """Drop a feature at the time that it is."""
        return drop_feature(
            FileAccess(storage or self.storage),
            CommitOwners(),
            feature,
            truncate_history=truncate_history,
            rewriter=rewriter,
            dry_run=dry_run,
            clock=lambda: self.now,
        )

    def snapshot(self, version: int | None = None) -> Snapshot:
        return open_snapshot(self.storage, version)

    def paths(self, version: int | None = None) -> list[str]:
        """The files of a version."""
        return sorted(self.snapshot(version).files(columns=["path"])["path"].to_pylist())

    def names(self) -> set[str]:
        """The names of the log's files."""
        return {info.path.removeprefix("_delta_log/") for info in self.storage.list("_delta_log/")}

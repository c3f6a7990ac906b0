"""Tables to be cleaned up: their logs along the axes that a cleanup has to do with, and what must be left.

Version ``n`` was made ``n`` days after `START`, at noon. At `NOW` the log is to be kept from `CUTOFF` on,
which is the newest version from before the cut-off. What must be left is told from names alone (`left`),
and from the history by brute force (`check_versions`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone

import pytest

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.errors import VersionNotFoundError
from airflow_delta.engine.maintenance.backfill.backfilled import open_backfilled
from airflow_delta.engine.maintenance.metadata_cleanup.execution import (
    MetadataCleanupResult,
    execute_metadata_cleanup,
)
from airflow_delta.engine.maintenance.metadata_cleanup.plan import (
    MetadataCleanupPlan,
    plan_metadata_cleanup,
)
from tests.laws.histories import protocol
from tests.log_builder import add, metadata, remove
from tests.table_builder import (
    FAR_FUTURE_MS,
    Action,
    Files,
    MemoryTable,
    State,
    checksum,
    classic_checkpoint,
    commits,
    compaction,
    hint,
    lines,
    multipart_checkpoint,
    state_of,
    states,
    v2_checkpoint,
)

DAY = timedelta(days=1)
START = datetime(2024, 3, 1, 12, tzinfo=timezone.utc)
LAST, CUTOFF = 8, 5
NOW = START + 8 * DAY
"""Two days back, which the log is kept, and then midnight: half a day after version 5."""

UUIDS = ("3a0d65cd-4056-49b8-937b-95f9e3ee90e5", "7d17ac10-5cc3-401b-bd1a-9c82dd2ea032")

FORMS: dict[str, Callable[[State, int], Files]] = {
    "classic": classic_checkpoint,
    "parts": lambda state, version: multipart_checkpoint(state, version, parts=2),
    "v2 json": lambda state, version: v2_checkpoint(state, version, form="json", sidecars=2),
    "v2 parquet": lambda state, version: v2_checkpoint(state, version, form="parquet", sidecars=2),
    "v2 of the classic name": lambda state, version: v2_checkpoint(
        state, version, form="classic", sidecars=2
    ),
}
"""Checkpoints of each form."""


def epoch_ms(moment: datetime) -> int:
    return int(moment.timestamp()) * 1000


@dataclass(frozen=True)
class Log:
    """A log by the axes of a cleanup.

    Attributes:
        checkpoints: the versions of complete checkpoints.
        form: which of `FORMS` they have.
        extras: whether there are checksums, compactions, proposed commits, Hadoop's checksums and
            checkpoints that aren't whole.
        timestamps: whether commits have their times in them; their files are all of one time then.
        protected: ``delta.requireCheckpointProtectionBeforeVersion``; None without the feature.
        unknown: versions with a feature that nobody knows, which is dropped after them.
    """

    checkpoints: tuple[int, ...] = (3, 5)
    form: str = "classic"
    extras: bool = False
    timestamps: bool = False
    protected: int | None = None
    unknown: range = range(0)

    @property
    def history(self) -> list[list[Action]]:
        return [self._commit(version) for version in range(LAST + 1)]

    @property
    def start(self) -> int | None:
        """The version that the log must begin with when it has been cleaned up, by the letter."""
        start = max((v for v in self.checkpoints if v <= CUTOFF), default=None)
        if (
            start is None
            or start >= (self.protected or 0)
            or not set(self.unknown) & set(range(start))
        ):
            return start
        return max((v for v in self.checkpoints if v <= self.unknown.start), default=None)

    @property
    def is_protected(self) -> bool:
        """Whether old checkpoints must stay."""
        start = max((v for v in self.checkpoints if v <= CUTOFF), default=0)
        return start < (self.protected or 0)

    def files(self) -> Files:
        history, found = self.history, states(self.history)
        files = commits(history)
        for version in self.checkpoints:
            files |= FORMS[self.form](found[version], version)
        if self.checkpoints:
            parts = 2 if self.form == "parts" else None
            files |= hint(self.checkpoints[0], parts=parts)
        if self.extras:
            files |= self._extras(found)
        return files

    def put(self, table: MemoryTable) -> MemoryTable:
        """Write the files, with their times."""
        files = self.files()
        table.put(files)
        for path in files:
            version = re.search(r"[0-9]{20}", path)
            days = int(version[0]) if version else LAST
            is_commit = re.fullmatch(r"_delta_log/[0-9]{20}\.json", path)
            moment = NOW - DAY if self.timestamps and is_commit else START + days * DAY
            table.storage.set_modified(path, epoch_ms(moment))
        return table

    def _commit(self, version: int) -> list[Action]:
        actions: list[Action] = []
        if self.timestamps:
            at = epoch_ms(START + version * DAY)
            actions.append({"commitInfo": {"inCommitTimestamp": at, "timestamp": at}})
        if version == 0:
            configuration = {"delta.logRetentionDuration": "interval 2 days"}
            if self.timestamps:
                configuration["delta.enableInCommitTimestamps"] = "true"
            if self.protected is not None:
                name = "delta.requireCheckpointProtectionBeforeVersion"
                configuration[name] = str(self.protected)
            actions.append(metadata(configuration=configuration))
        if version in {0, self.unknown.start, self.unknown.stop}:
            actions.append(self._protocol(version))
        actions += [add(f"f{version}"), {"txn": {"appId": "app", "version": version}}]
        if version % 3 == 2:
            actions.append(remove(f"f{version - 1}", deletionTimestamp=FAR_FUTURE_MS))
        return actions

    def _protocol(self, version: int) -> Action:
        features = {"v2Checkpoint"}
        if self.timestamps:
            features.add("inCommitTimestamp")
        if self.protected is not None:
            features.add("checkpointProtection")
        if version in self.unknown:
            features.add("novelty")
        return protocol(features)

    def _extras(self, found: list[State]) -> Files:
        files: Files = {}
        for version in range(LAST + 1):
            files |= checksum(found[version], version)
            files[f"_delta_log/.{version:020}.json.crc"] = b"crc"
            files |= {f"_delta_log/_commits/{version:020}.{uuid}.json": b"{}\n" for uuid in UUIDS}
        files |= compaction(found[3], 3, expired=True)
        for start, end in ((3, 5), (5, 6), (6, 8)):
            content = lines(add(f"f{version}") for version in range(start, end + 1))
            files[f"_delta_log/{start:020}.{end:020}.compacted.json"] = content
        for version in {1, 4, 7}.difference(self.checkpoints):
            stem = f"_delta_log/{version:020}.checkpoint"
            files[f"{stem}.{1:010}.{2:010}.parquet"] = b"part"
            files[f"{stem}.parquet"] = b""
        return files


@contextmanager
def made(log: Log) -> Iterator[MemoryTable]:
    """A table with a log, until the end of the block."""
    with MemoryTable({}) as table:
        yield log.put(table)


def planned(delta: DeltaTable, *, now: datetime = NOW, force: bool = False) -> MetadataCleanupPlan:
    return plan_metadata_cleanup(
        delta.storage, open_backfilled(delta.storage), now_ms=epoch_ms(now), force=force
    )


def clean_up(delta: DeltaTable, *, now: datetime = NOW) -> MetadataCleanupResult:
    return execute_metadata_cleanup(delta.storage, planned(delta, now=now))


def left(files: Iterable[str], start: int, *, protected: bool) -> set[str]:
    """The files that must be left when the log begins at a version, by their names."""
    return {path for path in files if _stays(path, start, protected=protected)}


def _stays(path: str, start: int, *, protected: bool) -> bool:
    match = re.fullmatch(r"_delta_log/(_commits/|_sidecars/)?\.?([0-9]{20})\.(.*)", path)
    if match is None:
        return True
    version, rest = int(match[2]), match[3].removesuffix(".crc") or "crc"
    if match[1] == "_commits/" or rest.endswith("compacted.json"):
        return version > start
    if rest.startswith("checkpoint"):
        # The names of sidecars tell here which checkpoint they are of.
        return protected or version >= start
    return version >= start


def check_versions(
    delta: Callable[[], DeltaTable], log: Log, plan: MetadataCleanupPlan, *, versions: Iterable[int]
) -> None:
    """What the plan has promised can be read, and of the rest it is said that it can't.

    Args:
        delta: opens the table afresh.
        log: what it was made from.
        plan: the plan.
        versions: those to look at.
    """
    expected = states(log.history)
    for version in versions:
        if version >= plan.earliest_version or version in plan.protected_versions:
            assert state_of(delta().snapshot(version)) == expected[version].visible(), version
        else:
            with pytest.raises(
                VersionNotFoundError, match=rf"version {version} can't be loaded"
            ) as e:
                delta().snapshot(version)
            assert e.value.earliest == plan.earliest_version
            assert e.value.latest == LAST

"""Report in numbers, from the log alone, how a table is and what each operation would gain.

A fleet has thousands of tables: a report must be cheap, and must not fail for what an operation would
refuse. So no data file is opened, the table's directory isn't listed, and what can't be known is None, with
the reason. `check` looks for damage; this looks for neglect.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_delta.engine import clock
from airflow_delta.engine.errors import (
    InvalidTableError,
    TableStateError,
    UnsupportedFeatureError,
)
from airflow_delta.engine.log.files import LOG_DIRECTORY
from airflow_delta.engine.maintenance.metadata_cleanup.plan import (
    open_backfilled_part,
    plan_metadata_cleanup,
)
from airflow_delta.engine.maintenance.optimize.candidates import LiveFiles, read_live_files
from airflow_delta.engine.maintenance.optimize.plan import check_optimizable, choose_bins
from airflow_delta.engine.maintenance.optimize.settings import OptimizeRequest, OptimizeSettings
from airflow_delta.engine.maintenance.optimize.target import FileTarget
from airflow_delta.engine.model.times import utc_text
from airflow_delta.engine.progress import report_progress
from airflow_delta.engine.replay.tombstones import unexpired
from airflow_delta.engine.snapshot.snapshot import Snapshot

__all__ = ["Gain", "TableHealth", "read_health"]


@dataclass(frozen=True, slots=True)
class Gain:
    """The gain of an operation.

    Attributes:
        num_files: how many files the table or its log would have less; None if unknown.
        size_in_bytes: the bytes that it would rewrite (optimize), no longer read (checkpoint) or delete;
            None if unknown.
        reason: why that is unknown, or why there is nothing to gain; None for none.
    """

    num_files: int | None
    size_in_bytes: int | None
    reason: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """The gain as plain JSON values: ``files``, ``bytes`` and ``reason``."""
        return {"files": self.num_files, "bytes": self.size_in_bytes, "reason": self.reason}


@dataclass(frozen=True, slots=True)
class TableHealth:
    """The state of a table in numbers.

    Attributes:
        table: the table's location.
        version: the newest version.
        timestamp_ms: when it was committed, in epoch ms; None if that is unknown.
        age_ms: how long ago that was; None likewise.
        num_files: the number of live files.
        size_in_bytes: their total size.
        num_small_files: how many of them are smaller than half of the target size.
        small_bytes: the total size of those.
        num_vectors: how many files have a deletion vector.
        num_deleted_rows: the rows that deletion vectors delete.
        num_tombstones: the removed files that are still in the log, expired or not.
        tombstone_bytes: their total size, as far as it is known.
        commits_since_checkpoint: the commits that readers read after the newest checkpoint.
        bytes_since_checkpoint: their total size.
        log_files: the number of files of the log, checkpoints and their sidecars among them.
        log_bytes: their total size.
        optimize: what `DeltaTable.optimize` would gain.
        checkpoint: what `DeltaTable.checkpoint` would gain.
        cleanup: what `DeltaTable.cleanup_metadata` would gain.
        vacuum: what `DeltaTable.vacuum` would gain by expired tombstones, some of which a vacuum may have
            deleted already.
    """

    table: str
    version: int
    timestamp_ms: int | None
    age_ms: int | None
    num_files: int
    size_in_bytes: int
    num_small_files: int
    small_bytes: int
    num_vectors: int
    num_deleted_rows: int
    num_tombstones: int
    tombstone_bytes: int
    commits_since_checkpoint: int
    bytes_since_checkpoint: int
    log_files: int
    log_bytes: int
    optimize: Gain
    checkpoint: Gain
    cleanup: Gain
    vacuum: Gain

    def to_dict(self) -> dict[str, Any]:
        """The numbers as plain JSON values.

        Returns:
            ``version``, ``timestamp`` (ISO-8601), ``age_seconds``, ``files``, ``bytes``, ``small_files``,
            ``small_bytes``, ``files_with_deleted_rows``, ``deleted_rows``, ``tombstones``,
            ``tombstone_bytes``, ``commits_since_checkpoint``, ``bytes_since_checkpoint``, ``log_files``,
            ``log_bytes``, and ``gains``: for ``optimize``, ``checkpoint``, ``cleanup`` and ``vacuum`` what
            `Gain.to_dict` has.
        """
        return {
            "version": self.version,
            "timestamp": None if self.timestamp_ms is None else utc_text(self.timestamp_ms),
            "age_seconds": None if self.age_ms is None else self.age_ms // 1000,
            "files": self.num_files,
            "bytes": self.size_in_bytes,
            "small_files": self.num_small_files,
            "small_bytes": self.small_bytes,
            "files_with_deleted_rows": self.num_vectors,
            "deleted_rows": self.num_deleted_rows,
            "tombstones": self.num_tombstones,
            "tombstone_bytes": self.tombstone_bytes,
            "commits_since_checkpoint": self.commits_since_checkpoint,
            "bytes_since_checkpoint": self.bytes_since_checkpoint,
            "log_files": self.log_files,
            "log_bytes": self.log_bytes,
            "gains": {
                name: getattr(self, name).to_dict()
                for name in ("optimize", "checkpoint", "cleanup", "vacuum")
            },
        }


def read_health(newest: Snapshot, *, now_ms: int | None = None) -> TableHealth:
    """Report the state of a table.

    Args:
        newest: the newest version.
        now_ms: the time, in epoch ms; by the clock unless given.

    Raises:
        CorruptLogError: the live or the removed files can't be read.
        StorageError: the store failed.
    """
    now_ms = clock.now_ms() if now_ms is None else now_ms
    timestamp = _timestamp(newest)
    live, refusal = _live_files(newest)
    settings = _settings(newest)
    small = live.sizes < (0 if settings is None else settings.min_file_size)
    removes = _gone(newest.state.removes(("path", "size", "deletionTimestamp")), live)
    commits = newest.segment.commits
    with report_progress("list", "files") as reporter:
        log = list(reporter.count(newest.storage.walk(LOG_DIRECTORY)))
    return TableHealth(
        newest.table,
        newest.version,
        timestamp,
        None if timestamp is None else now_ms - timestamp,
        len(live.sizes),
        int(live.sizes.sum()),
        int(small.sum()),
        int(live.sizes[small].sum()),
        int(np.count_nonzero(live.deleted)),
        int(live.deleted.sum()),
        len(removes),
        _sum(removes),
        len(commits),
        sum(commit.size for commit in commits),
        len(log),
        sum(info.size for info in log),
        _optimize_gain(newest, live, settings, refusal),
        Gain(len(commits), sum(commit.size for commit in commits)),
        _cleanup_gain(newest, now_ms),
        _vacuum_gain(newest, removes, now_ms),
    )


def _timestamp(newest: Snapshot) -> int | None:
    try:
        return newest.timestamp_ms
    except TableStateError:  # The commit is gone, and with it its time.
        return None


def _live_files(newest: Snapshot) -> tuple[LiveFiles, str | None]:
    """The live files, and why `DeltaTable.optimize` would refuse them; None if it wouldn't."""
    try:
        return read_live_files(newest, None), None
    except InvalidTableError as refused:  # A partition value. The files can still be counted.
        return read_live_files(newest, None, with_partitions=False), refused.message


def _settings(newest: Snapshot) -> OptimizeSettings | None:
    try:
        return OptimizeSettings.of(OptimizeRequest(), newest)
    except (TableStateError, UnsupportedFeatureError):  # `check` reports the property.
        return None


def _gone(removes: pa.Table, live: LiveFiles) -> pa.Table:
    """The removed files, without those that are live with another deletion vector."""
    is_live = pc.is_in(removes["path"], value_set=live.adds["path"].combine_chunks())
    return removes.filter(pc.invert(is_live))


def _sum(removes: pa.Table) -> int:
    return int(pc.sum(removes["size"]).as_py() or 0)


def _optimize_gain(
    newest: Snapshot, live: LiveFiles, settings: OptimizeSettings | None, refusal: str | None
) -> Gain:
    if settings is None:
        return Gain(None, None, "delta.targetFileSize or the clustering columns can't be read")
    if refusal is not None:
        return Gain(None, None, refusal)
    chosen = choose_bins(live, settings)
    try:
        check_optimizable(newest)
        if len(chosen.bins):
            FileTarget.of(newest, max_file_size=settings.max_file_size)
    except (TableStateError, UnsupportedFeatureError) as refused:
        return Gain(None, None, refused.message)
    files = chosen.bins.files
    # Sorting small files together may also make more files of them than there were.
    return Gain(max(0, len(files) - chosen.num_new_files), int(live.sizes[files].sum()))


def _cleanup_gain(newest: Snapshot, now_ms: int) -> Gain:
    try:
        plan = plan_metadata_cleanup(
            newest.storage, open_backfilled_part(newest), newest=newest, now_ms=now_ms
        )
    except (TableStateError, UnsupportedFeatureError) as unknown:
        return Gain(None, None, unknown.message)
    return Gain(plan.num_files, plan.size_in_bytes, plan.reason)


def _vacuum_gain(newest: Snapshot, removes: pa.Table, now_ms: int) -> Gain:
    try:
        oldest = now_ms - newest.properties.deleted_file_retention_ms
    except TableStateError as unknown:
        return Gain(None, None, unknown.message)
    kept = unexpired(removes, oldest)
    return Gain(len(removes) - len(kept), _sum(removes) - _sum(kept))

"""Plan an optimization: which files are rewritten as one file, and why.

A file is a candidate if it is small, or if many of its rows are deleted. Candidates of one partition are
packed into bins, and each bin becomes one new file of about the target size. So after the run the sizes
of files are between the two limits, except for the last file of each partition. Some bins aren't
rewritten:

* a bin with a single file that has few deleted rows;
* a bin of which earlier runs have written all files for the same target size (`TARGET_SIZE_TAG`): otherwise
  every run would rewrite the last files of a partition.

Clustered files aren't candidates, because they would lose their order if they were merged with others.

If there is a budget of bytes (``max_bytes``), the bins that save the most files per byte come first.

No data file is read. docs/explanation/optimizing.md has the reasons.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_delta.engine.arrow.numpy_arrays import BoolVector, int64_array, validity
from airflow_delta.engine.arrow.python_arrays import scalar_of
from airflow_delta.engine.features.protocol import Operation, check_writable
from airflow_delta.engine.features.row_tracking import FEATURE as ROW_TRACKING
from airflow_delta.engine.maintenance.optimize.candidates import LiveFiles, read_live_files
from airflow_delta.engine.maintenance.optimize.packing import Bins, pack_files
from airflow_delta.engine.maintenance.optimize.rules import ENFORCED
from airflow_delta.engine.maintenance.optimize.settings import OptimizeSettings
from airflow_delta.engine.model.sizes import size_text
from airflow_delta.engine.snapshot.snapshot import Snapshot

__all__ = [
    "BIN",
    "TARGET_SIZE_TAG",
    "OptimizePlan",
    "choose_bins",
    "enforced_features",
    "plan_compaction",
]

BIN = "bin"
"""The column of the plan's files with the number of their bin."""

TARGET_SIZE_TAG = "OPTIMIZE_TARGET_SIZE"
"""The tag of a file with the size for which it was written; Delta Spark knows the same name."""


@dataclass(frozen=True, slots=True)
class OptimizePlan:
    """What an optimization will do.

    Attributes:
        table: the table's location.
        version: the version whose files are rewritten.
        settings: the limits that decide.
        files: the files to rewrite: ``path``, ``size``, ``deletionVector``, and their `BIN`, ascending.
        num_bins: the number of bins. Each becomes one file; several may share one, if their rows take less
            space than before.
        num_deleted_rows: the deleted rows that the new files won't have, as far as they are known.
        num_partitions: the number of partitions with bins.
        num_files: the number of live files that the condition chooses.
        num_postponed: the files of bins that the budget leaves to another run.
        reason: why there is nothing to rewrite, as a sentence; None where there is something.
    """

    table: str
    version: int
    settings: OptimizeSettings
    files: pa.Table = field(repr=False)
    num_bins: int
    num_deleted_rows: int
    num_partitions: int
    num_files: int
    num_postponed: int
    reason: str | None = None

    @property
    def size_in_bytes(self) -> int:
        """The bytes of the files to rewrite."""
        return int(pc.sum(self.files["size"]).as_py() or 0)

    def to_dict(self) -> dict[str, Any]:
        """The plan as plain JSON values.

        Returns:
            ``version``, ``files`` and ``bytes`` to rewrite, ``new_files`` (at most), ``partitions``,
            ``deleted_rows`` that are removed, ``live_files`` that were considered, ``postponed_files``,
            ``min_file_size`` and ``max_file_size``, and the ``reason`` why nothing is rewritten.
        """
        return {
            "version": self.version,
            "files": len(self.files),
            "bytes": self.size_in_bytes,
            "new_files": self.num_bins,
            "partitions": self.num_partitions,
            "deleted_rows": self.num_deleted_rows,
            "live_files": self.num_files,
            "postponed_files": self.num_postponed,
            "min_file_size": self.settings.min_file_size,
            "max_file_size": self.settings.max_file_size,
            "reason": self.reason,
        }


def enforced_features(snapshot: Snapshot) -> tuple[str, ...]:
    """The rules about rows that rewritten files keep: all, because no row changes."""
    tracked = snapshot.row_tracking
    kept = {ROW_TRACKING} if tracked is not None and tracked.enabled else set()
    return tuple(sorted(ENFORCED | kept))


def plan_compaction(snapshot: Snapshot, settings: OptimizeSettings) -> OptimizePlan:
    """Plan a compaction.

    Args:
        snapshot: the newest version.
        settings: the limits.

    Raises:
        UnsupportedFeatureError: the engine can't write the table.
        InvalidTableError: a partition value isn't one of its column's type.
        DeltaError: the log is damaged.
    """
    check_writable(
        snapshot.protocol,
        snapshot.metadata,
        table=snapshot.table,
        operation=Operation.APPEND,
        enforced=frozenset(enforced_features(snapshot)),
    )
    live = read_live_files(snapshot, settings.where)
    worthwhile = choose_bins(live, settings)
    affordable = _within_budget(worthwhile, live, settings.max_bytes)
    return _make_plan(snapshot, settings, live, affordable, len(worthwhile.files))


def choose_bins(live: LiveFiles, settings: OptimizeSettings) -> Bins:
    """The bins that are worth rewriting, whatever the budget.

    Args:
        live: the live files.
        settings: the limits.
    """
    purged = live.with_deleted_rows(settings.max_deleted_ratio)
    is_small = np.zeros(len(purged), np.bool_)
    if not settings.purge:
        is_small = live.live_sizes < settings.min_file_size
    is_clustered = validity(live.adds["clusteringProvider"].combine_chunks())
    chosen = np.flatnonzero((purged | is_small) & ~is_clustered)
    bins = pack_files(chosen, live.partitions, live.live_sizes, most=settings.max_file_size)
    return bins.select(_are_worthwhile(bins, live, purged, settings))


def _are_worthwhile(
    bins: Bins, live: LiveFiles, purged: BoolVector, settings: OptimizeSettings
) -> BoolVector:
    """Which bins are worth rewriting."""
    counts = np.diff(bins.starts)
    is_finished = _are_finished(live, settings)
    unfinished = counts - bins.sums(is_finished.astype(np.int64))
    return (bins.sums(purged.astype(np.int64)) > 0) | ((counts > 1) & (unfinished > 0))


def _are_finished(live: LiveFiles, settings: OptimizeSettings) -> BoolVector:
    """Which files an earlier run has written for the same target size."""
    tags = live.adds["tags"].combine_chunks()
    if tags.null_count == len(tags):
        return np.zeros(len(tags), np.bool_)
    targets = pc.map_lookup(tags, scalar_of(TARGET_SIZE_TAG, pa.string()), "last")
    same = pc.equal(targets, scalar_of(str(settings.max_file_size), pa.string()))
    return validity(pc.if_else(same, same, scalar_of(None, pa.bool_())))


def _within_budget(bins: Bins, live: LiveFiles, budget: int | None) -> Bins:
    """The bins within a budget of bytes."""
    if budget is None:
        return bins
    costs = bins.sums(live.sizes)
    # A bin of a single file saves no file, but deleted rows.
    saved = np.maximum(np.diff(bins.starts) - 1, 0.5)
    order = np.argsort(costs / saved, kind="stable")
    kept = np.zeros(len(bins), np.bool_)
    left = budget
    # A loop over bins until the budget is spent; smaller ones may still fit after a larger one.
    for number in order.tolist():
        cost = int(costs[number])
        if cost <= left:
            kept[number] = True
            left -= cost
    return bins.select(kept)


def _make_plan(
    snapshot: Snapshot,
    settings: OptimizeSettings,
    live: LiveFiles,
    bins: Bins,
    num_worthwhile: int,
) -> OptimizePlan:
    rows = live.adds.take(int64_array(bins.files)).select(["path", "size", "deletionVector"])
    return OptimizePlan(
        snapshot.table,
        snapshot.version,
        settings,
        rows.append_column(BIN, int64_array(bins.bin_of)),
        len(bins),
        int(live.deleted[bins.files].sum()),
        len(np.unique(live.partitions[bins.files])),
        len(live.sizes),
        num_worthwhile - len(bins.files),
        _reason(settings, live, num_worthwhile, bins),
    )


def _reason(
    settings: OptimizeSettings, live: LiveFiles, num_worthwhile: int, bins: Bins
) -> str | None:
    if len(bins):
        return None
    if num_worthwhile:
        budget = size_text(settings.max_bytes or 0)
        return f"no files that belong together have at most {budget} (max_bytes)"
    if not len(live.sizes):
        return "there are no files"
    clustered = live.adds["clusteringProvider"]
    but = (
        ", apart from clustered files, which stay" if clustered.null_count < len(clustered) else ""
    )
    if settings.purge:
        return f"no file has deleted rows{but}"
    return (
        f"no two files of less than {size_text(settings.min_file_size)} are in one partition that "
        f"weren't written together, and no file has too many deleted rows{but}"
    )

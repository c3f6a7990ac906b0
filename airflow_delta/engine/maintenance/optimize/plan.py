"""Plan an optimization: which files are rewritten together, and why.

**Compaction.** A file is a candidate if it is small, or if many of its rows are deleted. Candidates of one
partition are packed into bins. Each bin becomes one new file of about the target size, if that is worth it
(`_are_worthwhile`). Within a budget of bytes (``max_bytes``), the bins that save the most files per byte
come first. A sorted file that isn't small is a bin of its own, which keeps its order.

**Z-order and clustering.** A bin becomes several files, with sorted rows (`sorting.selection`). Other
sorted files with many deleted rows are bins of their own, too.

No data file is read. docs/explanation/optimizing.md has the reasons.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_delta.engine.arrow.numpy_arrays import BoolVector, int64_array, validity
from airflow_delta.engine.arrow.python_arrays import scalar_of
from airflow_delta.engine.features.protocol import Operation, check_writable
from airflow_delta.engine.features.row_tracking import FEATURE as ROW_TRACKING
from airflow_delta.engine.maintenance.optimize.candidates import LiveFiles, read_live_files
from airflow_delta.engine.maintenance.optimize.packing import Bins, pack_files, within_budget
from airflow_delta.engine.maintenance.optimize.rules import ENFORCED
from airflow_delta.engine.maintenance.optimize.settings import OptimizeSettings
from airflow_delta.engine.maintenance.optimize.sorting.order import SortOrder
from airflow_delta.engine.maintenance.optimize.sorting.selection import (
    choose_clustered,
    choose_z_ordered,
    has_order,
    tag_values,
)
from airflow_delta.engine.model.sizes import size_text
from airflow_delta.engine.snapshot.snapshot import Snapshot

__all__ = [
    "BIN",
    "TARGET_SIZE_TAG",
    "ChosenBins",
    "OptimizePlan",
    "check_optimizable",
    "choose_bins",
    "enforced_features",
    "plan_optimization",
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
        num_bins: the number of bins.
        num_sorted: how many of them, the first ones, are sorted. Each of the others becomes one file;
            several may share one, if their rows take less space than before.
        num_new_files: about how many new files there will be.
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
    num_sorted: int
    num_new_files: int
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
            ``version``, ``files`` and ``bytes`` to rewrite, ``new_files`` (about), ``partitions``,
            ``deleted_rows`` that are removed, ``live_files`` that were considered, ``postponed_files``,
            ``min_file_size`` and ``max_file_size``, ``z_order_by`` and ``cluster_by`` (the names of
            columns), ``full``, and the ``reason`` why nothing is rewritten.
        """
        order = self.settings.order
        return {
            "version": self.version,
            "files": len(self.files),
            "bytes": self.size_in_bytes,
            "new_files": self.num_new_files,
            "partitions": self.num_partitions,
            "deleted_rows": self.num_deleted_rows,
            "live_files": self.num_files,
            "postponed_files": self.num_postponed,
            "min_file_size": self.settings.min_file_size,
            "max_file_size": self.settings.max_file_size,
            "z_order_by": order.names if order and not order.is_clustering else [],
            "cluster_by": order.names if order and order.is_clustering else [],
            "full": self.settings.full,
            "reason": self.reason,
        }


def enforced_features(snapshot: Snapshot) -> tuple[str, ...]:
    """The rules about rows that rewritten files keep: all, because no row changes."""
    tracked = snapshot.row_tracking
    kept = {ROW_TRACKING} if tracked is not None and tracked.enabled else set()
    return tuple(sorted(ENFORCED | kept))


@dataclass(frozen=True, slots=True)
class ChosenBins:
    """Bins that are worth rewriting.

    Attributes:
        bins: the bins, within the budget.
        num_sorted: how many of them, the first ones, are sorted.
        num_worthwhile: how many files are worth rewriting, whatever the budget.
        num_new_files: about how many new files there will be.
    """

    bins: Bins
    num_sorted: int
    num_worthwhile: int
    num_new_files: int


def check_optimizable(snapshot: Snapshot) -> None:
    """Check that the engine can write new files into a table.

    Args:
        snapshot: the newest version.

    Raises:
        UnsupportedFeatureError: it can't.
        InvalidTableError: protocol, feature lists and metadata contradict each other.
    """
    check_writable(
        snapshot.protocol,
        snapshot.metadata,
        table=snapshot.table,
        operation=Operation.APPEND,
        enforced=frozenset(enforced_features(snapshot)),
    )


def plan_optimization(snapshot: Snapshot, settings: OptimizeSettings) -> OptimizePlan:
    """Plan an optimization.

    Args:
        snapshot: the newest version.
        settings: the limits.

    Raises:
        UnsupportedFeatureError: the engine can't write the table.
        InvalidTableError: a partition value isn't one of its column's type.
        DeltaError: the log is damaged.
    """
    check_optimizable(snapshot)
    live = read_live_files(snapshot, settings.where)
    return _make_plan(snapshot, settings, live, choose_bins(live, settings))


def choose_bins(live: LiveFiles, settings: OptimizeSettings) -> ChosenBins:
    """The bins that are worth rewriting, within the budget.

    Args:
        live: the live files.
        settings: the limits.
    """
    purged = live.with_deleted_rows(settings.max_deleted_ratio)
    if settings.order is not None and not settings.purge:
        return _choose_sorted(live, settings, settings.order, purged)
    is_small = (live.live_sizes < settings.min_file_size) & (not settings.purge)
    is_candidate = purged | is_small
    # Small files are packed, whatever their order: they are many.
    keeps_order = has_order(live) & ~is_small
    candidates = np.flatnonzero(is_candidate & ~keeps_order)
    bins = pack_files(candidates, live.partitions, live.live_sizes, most=settings.max_file_size)
    bins = bins.select(_are_worthwhile(bins, live, purged, settings))
    bins = bins.join(Bins.single(np.flatnonzero(is_candidate & keeps_order)))
    # A bin of a single file saves no file, but deleted rows.
    saved = np.maximum(np.diff(bins.starts) - 1, 0.5)
    affordable = within_budget(bins, live.sizes, saved, settings.max_bytes)
    return ChosenBins(affordable, 0, len(bins.files), len(affordable))


def _choose_sorted(
    live: LiveFiles, settings: OptimizeSettings, order: SortOrder, purged: BoolVector
) -> ChosenBins:
    """The bins to sort, then sorted files with many deleted rows, one by one."""
    budget = settings.max_bytes
    if order.is_clustering:
        choose = partial(
            choose_clustered,
            live,
            order,
            full=settings.full,
            min_cube_size=settings.min_cube_size,
        )
        every, bins = choose(budget=None), choose(budget=budget)
    else:
        every, unsorted = choose_z_ordered(live, order, full=settings.full)
        bins = within_budget(every, live.sizes, unsorted, budget)
    is_kept = purged.copy()
    is_kept[every.files] = False
    alone = Bins.single(np.flatnonzero(is_kept))
    left = None if budget is None else budget - int(live.sizes[bins.files].sum())
    affordable = within_budget(alone, live.sizes, np.ones(len(alone)), left)
    new_files = -(-bins.sums(live.live_sizes) // settings.max_file_size)
    return ChosenBins(
        bins.join(affordable),
        len(bins),
        len(every.files) + len(alone.files),
        int(np.maximum(new_files, 1).sum()) + len(affordable),
    )


def _are_worthwhile(
    bins: Bins, live: LiveFiles, purged: BoolVector, settings: OptimizeSettings
) -> BoolVector:
    """Which bins are worth rewriting.

    A bin of which a file has many deleted rows is worth it. Any other isn't if it has a single file, or if
    earlier runs have written all its files for the same target size: otherwise every run would rewrite the
    last files of a partition.
    """
    counts = np.diff(bins.starts)
    is_finished = _are_finished(live, settings)
    unfinished = counts - bins.sums(is_finished.astype(np.int64))
    return (bins.sums(purged.astype(np.int64)) > 0) | ((counts > 1) & (unfinished > 0))


def _are_finished(live: LiveFiles, settings: OptimizeSettings) -> BoolVector:
    """Which files an earlier run has written for the same target size."""
    tags = live.adds["tags"].combine_chunks()
    if tags.null_count == len(tags):
        return np.zeros(len(tags), np.bool_)
    same = pc.equal(
        tag_values(live, TARGET_SIZE_TAG), scalar_of(str(settings.max_file_size), pa.string())
    )
    return validity(pc.if_else(same, same, scalar_of(None, pa.bool_())))


def _make_plan(
    snapshot: Snapshot, settings: OptimizeSettings, live: LiveFiles, chosen: ChosenBins
) -> OptimizePlan:
    bins = chosen.bins
    rows = live.adds.take(int64_array(bins.files)).select(["path", "size", "deletionVector"])
    return OptimizePlan(
        snapshot.table,
        snapshot.version,
        settings,
        rows.append_column(BIN, int64_array(bins.bin_of)),
        len(bins),
        chosen.num_sorted,
        chosen.num_new_files,
        int(live.deleted[bins.files].sum()),
        len(np.unique(live.partitions[bins.files])),
        len(live.sizes),
        chosen.num_worthwhile - len(bins.files),
        None if len(bins) else _reason(settings, live, chosen.num_worthwhile),
    )


def _reason(settings: OptimizeSettings, live: LiveFiles, num_worthwhile: int) -> str:
    if num_worthwhile:
        budget = size_text(settings.max_bytes or 0)
        return f"no files that belong together have at most {budget} (max_bytes)"
    if not len(live.sizes):
        return "there are no files"
    if settings.purge:
        return "no file has deleted rows"
    if settings.order is not None:
        by = ", ".join(settings.order.names)
        if settings.order.is_clustering:
            return (
                f"all files are clustered by {by}, or by another provider or other columns, and no file "
                "has too many deleted rows; full=True clusters all anew"
            )
        return f"all files are in Z-order by {by}; full=True sorts them anew"
    return (
        f"no two files of less than {size_text(settings.min_file_size)} are in one partition that "
        "weren't written together, and no file has too many deleted rows"
    )

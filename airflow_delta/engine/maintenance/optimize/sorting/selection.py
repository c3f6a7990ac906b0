"""Choose the files whose rows are sorted together.

**Z-order**: all files of a partition, unless all of them were sorted together before, by the same columns.

**Clustering** is incremental, by the rules of the reference implementation. Files that were sorted together
are a *cube*; a cube of at least ``min_cube_size`` is full. All other cubes are sorted together with the
files that aren't clustered yet, in bins that become cubes. A bin of a single cube is sorted already: the
reference sorts it again in each run, unless there is no other. Files of another clustering provider, or
clustered by other columns, stay as they are; ``full`` sorts every file.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_delta.engine.arrow.numpy_arrays import BoolVector, Int64Vector, int64_view, validity
from airflow_delta.engine.arrow.python_arrays import scalar_of
from airflow_delta.engine.maintenance.optimize.candidates import LiveFiles
from airflow_delta.engine.maintenance.optimize.packing import Bins, pack_in_order
from airflow_delta.engine.maintenance.optimize.sorting.order import (
    CUBE_COLUMNS_TAG,
    CUBE_TAG,
    PROVIDER,
    Z_ORDER_TAG,
    SortOrder,
)

__all__ = ["choose_clustered", "choose_z_ordered", "has_order", "tag_values"]


@dataclass(frozen=True, slots=True)
class _Cubes:
    """The clustered files of a table.

    Attributes:
        cube_of: the number of each file's cube; -1 for files that aren't clustered.
        is_foreign: which files are clustered by another provider, or by other columns.
    """

    cube_of: Int64Vector
    is_foreign: BoolVector

    @classmethod
    def of(cls, live: LiveFiles, order: SortOrder) -> _Cubes:
        """Find the cubes by the tags of the live files."""
        ids, columns = tag_values(live, CUBE_TAG), tag_values(live, CUBE_COLUMNS_TAG)
        provider = live.adds["clusteringProvider"].combine_chunks()
        is_other = pc.fill_null(
            pc.not_equal(provider, scalar_of(PROVIDER, pa.string())), scalar_of(False, pa.bool_())
        )
        has_cube = validity(ids)
        is_foreign = _bools(is_other) | (has_cube & ~_is_of_columns(columns, order))
        return cls(np.where(is_foreign, -1, int64_view(_codes(ids))), is_foreign)

    def sums(self, values: Int64Vector) -> Int64Vector:
        """The sum over the files of each cube."""
        inside = self.cube_of >= 0
        found = np.zeros(int(self.cube_of.max(initial=-1)) + 1, np.int64)
        np.add.at(found, self.cube_of[inside], values[inside])
        return found


def choose_clustered(
    live: LiveFiles, order: SortOrder, *, full: bool, min_cube_size: int, budget: int | None
) -> Bins:
    """The bins of files to cluster.

    Args:
        live: the live files.
        order: the clustering columns.
        full: whether to take every file.
        min_cube_size: the bytes from which on a cube is full.
        budget: the most bytes of all bins; None for any number.
    """
    cubes = _Cubes.of(live, order)
    if full:
        chosen = np.ones(len(live.sizes), np.bool_)
    else:
        is_full = np.append(cubes.sums(live.live_sizes) >= min_cube_size, False)
        chosen = ~cubes.is_foreign & ~is_full[cubes.cube_of]
        if budget is not None:
            chosen &= _affordable(cubes, live.sizes, chosen, budget)
    files = np.flatnonzero(chosen)
    files = files[np.argsort(cubes.cube_of[files], kind="stable")]
    most = min_cube_size + min_cube_size // 2
    bins = pack_in_order(files, live.partitions, live.sizes, most=most)
    return bins if full else bins.select(_num_apart(bins, cubes.cube_of) > 0)


def choose_z_ordered(live: LiveFiles, order: SortOrder, *, full: bool) -> tuple[Bins, Int64Vector]:
    """The bins of files to sort: the partitions.

    Args:
        live: the live files.
        order: the columns.
        full: whether to take partitions whose files were sorted together, too.

    Returns:
        The bins, and how many files of each weren't sorted together with others of it.
    """
    tags = tag_values(live, Z_ORDER_TAG)
    codes = np.where(
        _is_of_columns(tags, order), int64_view(_codes(tags)), -1 - np.arange(len(live.sizes))
    )
    files = np.argsort(live.partitions, kind="stable")
    bins = pack_in_order(files, live.partitions, np.zeros(len(files), np.int64), most=0)
    unsorted = _num_apart(bins, codes)
    kept = np.ones(len(bins), np.bool_) if full else unsorted > 0
    return bins.select(kept), unsorted[kept]


def has_order(live: LiveFiles) -> BoolVector:
    """Which files say that their rows are sorted."""
    return (
        validity(live.adds["clusteringProvider"].combine_chunks())
        | validity(tag_values(live, CUBE_TAG))
        | validity(tag_values(live, Z_ORDER_TAG))
    )


def tag_values(live: LiveFiles, name: str) -> pa.Array:
    """The value of a tag of each file; null without it."""
    tags = live.adds["tags"].combine_chunks()
    if tags.null_count == len(tags):
        return pa.nulls(len(tags), pa.string())
    return pc.map_lookup(tags, scalar_of(name, pa.string()), "last")


def _num_apart(bins: Bins, codes: Int64Vector) -> Int64Vector:
    """How many files of each bin weren't sorted together with its first file; 0 if the bin is sorted.

    Args:
        bins: the bins.
        codes: by the index of a file, the number of what was sorted together; negative if it wasn't sorted.
    """
    first = codes[bins.files[bins.starts[:-1]]]
    differs = np.zeros(len(codes), np.int64)
    differs[bins.files] = (codes[bins.files] != first[bins.bin_of]) | (codes[bins.files] < 0)
    return bins.sums(differs)


def _affordable(cubes: _Cubes, sizes: Int64Vector, chosen: BoolVector, budget: int) -> BoolVector:
    """Which of the chosen files a budget pays for.

    Files that aren't clustered come first, then whole cubes, the smallest ones first.
    """
    loose = np.flatnonzero(chosen & (cubes.cube_of < 0))
    loose = loose[np.argsort(sizes[loose], kind="stable")]
    taken = np.cumsum(sizes[loose]) <= budget
    found = np.zeros(len(sizes), np.bool_)
    found[loose[taken]] = True
    cube_sizes = cubes.sums(np.where(chosen, sizes, 0))
    order = np.argsort(cube_sizes, kind="stable")
    order = order[cube_sizes[order] > 0]
    fitting = np.cumsum(cube_sizes[order]) <= budget - int(sizes[loose[taken]].sum())
    return found | np.isin(cubes.cube_of, order[fitting])


def _is_of_columns(tags: pa.Array, order: SortOrder) -> BoolVector:
    """Which tags say that a file is sorted by the columns."""
    encoded = tags.dictionary_encode()
    # A loop over different texts, of which there is one for each time that files were sorted.
    answers = [order.is_of_columns(text) for text in encoded.dictionary.to_pylist()]
    return np.array([*answers, False], np.bool_)[int64_view(_codes(tags))]


def _codes(texts: pa.Array) -> pa.Array:
    """A number for each text, the same for equal ones; -1 for null."""
    indices = texts.dictionary_encode().indices.cast(pa.int64())
    return pc.fill_null(indices, scalar_of(-1, pa.int64()))


def _bools(values: pa.Array) -> BoolVector:
    return int64_view(values.cast(pa.int64())).astype(np.bool_)

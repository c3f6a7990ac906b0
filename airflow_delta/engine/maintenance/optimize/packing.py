"""Pack files into bins: files of one partition that become one new file.

As in the reference implementation, the files of a partition are sorted by size, and a bin ends where the
next file would make it too large. So small files are packed together, and no file
of a later bin of the partition would fit into an earlier one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from airflow_delta.engine.arrow.numpy_arrays import BoolVector, Int64Vector

__all__ = ["Bins", "pack_files", "pack_in_order", "within_budget"]


@dataclass(frozen=True, slots=True)
class Bins:
    """Bins of files.

    Attributes:
        files: the indexes of the files, bin after bin.
        starts: where each bin starts in ``files``, and, at the end, how many files there are.
    """

    files: Int64Vector
    starts: Int64Vector

    def __len__(self) -> int:
        return len(self.starts) - 1

    @property
    def bin_of(self) -> Int64Vector:
        """The number of the bin of each of the ``files``."""
        return np.repeat(np.arange(len(self)), np.diff(self.starts))

    def sums(self, values: npt.NDArray[np.int64]) -> Int64Vector:
        """The sum over the files of each bin.

        Args:
            values: a number for each file, by its index.
        """
        total = np.concatenate(([0], np.cumsum(values[self.files])))
        return np.asarray(total[self.starts[1:]] - total[self.starts[:-1]], np.int64)

    def select(self, kept: BoolVector) -> Bins:
        """Only some bins.

        Args:
            kept: whether each bin is kept.
        """
        sizes = np.diff(self.starts)[kept]
        return Bins(self.files[kept[self.bin_of]], np.concatenate(([0], np.cumsum(sizes))))

    @classmethod
    def single(cls, files: Int64Vector) -> Bins:
        """A bin for each of some files."""
        return cls(files, np.arange(len(files) + 1))

    def join(self, others: Bins) -> Bins:
        """These bins, and others after them."""
        return Bins(
            np.concatenate((self.files, others.files)),
            np.concatenate((self.starts, others.starts[1:] + len(self.files))),
        )


def pack_files(
    files: Int64Vector, partitions: Int64Vector, sizes: Int64Vector, *, most: int
) -> Bins:
    """Pack files into bins.

    Args:
        files: the indexes of the files to pack.
        partitions: the partition of each file, by its index.
        sizes: the size of each file, by its index.
        most: the most bytes of a bin with more than one file.
    """
    order = files[np.lexsort((sizes[files], partitions[files]))]
    return pack_in_order(order, partitions, sizes, most=most)


def pack_in_order(
    order: Int64Vector, partitions: Int64Vector, sizes: Int64Vector, *, most: int
) -> Bins:
    """Pack files into bins, without changing their order.

    Args:
        order: the indexes of the files to pack, those of a partition one after the other.
        partitions: see `pack_files`.
        sizes: see there.
        most: see there.
    """
    ends = np.cumsum(sizes[order])
    is_last = np.append(partitions[order][1:] != partitions[order][:-1], True)[: len(order)]
    partition_ends = np.flatnonzero(is_last) + 1
    starts = [0]
    # A loop over bins, of which there are fewer than files: each ends where the last one's size allows.
    for end in partition_ends.tolist():
        while starts[-1] < end:
            start = starts[-1]
            before = int(ends[start - 1]) if start else 0
            fitting = int(np.searchsorted(ends[start:end], before + most, side="right"))
            starts.append(start + max(1, fitting))
    return Bins(order, np.array(starts, np.int64))


def within_budget(
    bins: Bins, sizes: Int64Vector, saved: npt.NDArray[Any], budget: int | None
) -> Bins:
    """The bins that a budget pays for, preferring those that save most for their bytes.

    Args:
        bins: the bins.
        sizes: the size of each file, by its index.
        saved: what each bin saves: more than 0.
        budget: the most bytes; None for any number.
    """
    if budget is None:
        return bins
    costs = bins.sums(sizes)
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

"""Pack files into bins: files of one partition that become one new file.

As in the reference implementation, the files of a partition are sorted by size, and a bin ends where the
next file would make it too large. So small files are packed together, and no file
of a later bin of the partition would fit into an earlier one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from airflow_delta.engine.arrow.numpy_arrays import BoolVector, Int64Vector

__all__ = ["Bins", "pack_files"]


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

    def reorder(self, order: Int64Vector) -> Bins:
        """The same bins in another order.

        Args:
            order: the numbers of the bins.
        """
        sizes = np.diff(self.starts)[order]
        starts = np.concatenate(([0], np.cumsum(sizes)))
        shifts = np.repeat(self.starts[:-1][order] - starts[:-1], sizes)
        return Bins(self.files[np.arange(len(self.files)) + shifts], starts)


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

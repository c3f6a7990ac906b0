"""Build columns of lists of lists of longs for many deletion vectors at once.

The value of a vector has one list per group of row indexes, up to its last group; missing groups
are null. All computations are columnar, because a table may have hundreds of thousands of vectors.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

__all__ = ["Groups", "VectorLists", "groups_of"]

_Longs: TypeAlias = npt.NDArray[np.int64]


_NO_GROUP = -1


class Groups(NamedTuple):
    """The groups of some vectors, ascending by vector and group.

    Attributes:
        vector: the number of the vector.
        group: the number of the group in the vector.
        start: the offset of its first member.
        size: the number of members.
    """

    vector: _Longs
    group: _Longs
    start: _Longs
    size: _Longs


def groups_of(vector: _Longs, group: _Longs) -> Groups:
    """Find the groups of members, given the vector and the group of each member.

    Members must be sorted by vector and group.
    """
    begins = np.ones(group.size, dtype=np.bool_)
    begins[1:] = (np.diff(vector) != 0) | (np.diff(group) != 0)
    start = np.flatnonzero(begins)
    return Groups(vector[start], group[start], start, np.diff(start, append=group.size))


class VectorLists:
    """Builds such a column part by part."""

    def __init__(self) -> None:
        self._num_groups: list[_Longs] = []
        self._sizes: list[_Longs] = []
        """`_NO_GROUP` for missing groups."""
        self._members: list[_Longs] = []

    def add(self, num_vectors: int, groups: Groups, members: _Longs) -> None:
        """Add the next vectors, numbered from 0.

        Args:
            num_vectors: the number of vectors.
            groups: their groups; a vector without any becomes an empty list.
            members: the members of all groups, concatenated.
        """
        num_groups = np.zeros(num_vectors, dtype=np.int64)
        num_groups[groups.vector] = (
            groups.group + 1
        )  # the last assignment to a vector is its last group
        sizes = np.full(num_groups.sum(), _NO_GROUP, dtype=np.int64)
        sizes[(np.cumsum(num_groups) - num_groups)[groups.vector] + groups.group] = groups.size
        self._num_groups.append(num_groups)
        self._sizes.append(sizes)
        self._members.append(members)

    @property
    def has_groups(self) -> bool:
        """Whether any vector has a group."""
        return any(sizes.size for sizes in self._sizes)

    def column(self, numbers: _Longs, num_entries: int) -> pa.Array:
        """Build the column. The vectors are the values of the entries with these numbers, ascending.

        The values of other entries are empty lists, not null: PySpark can't slice a column of lists
        with nulls.
        """
        num_groups = np.zeros(num_entries, dtype=np.int64)
        num_groups[numbers] = np.concatenate(self._num_groups)
        sizes = np.concatenate(self._sizes)
        is_null = np.append(sizes == _NO_GROUP, False)
        offsets = _offsets(np.maximum(sizes, 0), is_null)
        lists = pa.ListArray.from_arrays(offsets, np.concatenate(self._members))
        return pa.ListArray.from_arrays(_offsets(num_groups), lists)


def _offsets(sizes: _Longs, is_null: npt.NDArray[np.bool_] | None = None) -> pa.Array:
    """The offsets of lists, some of which may be null."""
    return pa.array(np.concatenate([[0], np.cumsum(sizes)]), mask=is_null).cast(pa.int32())

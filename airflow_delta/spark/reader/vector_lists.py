"""Columns of lists of lists of longs, made of many vectors at once.

A vector's value has a list for each of its groups of positions up to the last that there is; of groups
that aren't there it is null. What is computed here is columnar, for a table has hundreds of thousands of
vectors.
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
    """The groups that some vectors have, by vector and group.

    Attributes:
        vector: the number of the vector.
        group: the number of the group in it.
        start: where its members begin, in the arrays that it was made of.
        size: how many there are.
    """

    vector: _Longs
    group: _Longs
    start: _Longs
    size: _Longs


def groups_of(vector: _Longs, group: _Longs) -> Groups:
    """The groups of members, of each of which the vector and the group are given.

    Vectors ascend, and groups do in each vector.
    """
    begins = np.ones(group.size, dtype=np.bool_)
    begins[1:] = (np.diff(vector) != 0) | (np.diff(group) != 0)
    start = np.flatnonzero(begins)
    return Groups(vector[start], group[start], start, np.diff(start, append=group.size))


class VectorLists:
    """A column of such values, made part by part."""

    def __init__(self) -> None:
        self._num_groups: list[_Longs] = []
        self._sizes: list[_Longs] = []
        """Of groups that aren't there `_NO_GROUP`."""
        self._members: list[_Longs] = []

    def add(self, num_vectors: int, groups: Groups, members: _Longs) -> None:
        """Add the next vectors, numbered from 0.

        Args:
            num_vectors: how many.
            groups: their groups; a vector without any becomes an empty list.
            members: of all groups, one after the other.
        """
        num_groups = np.zeros(num_vectors, dtype=np.int64)
        num_groups[groups.vector] = groups.group + 1  # of a vector the last one stays
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
        """The column: the vectors are the values of entries of these numbers, ascending; others are empty.

        None is null: PySpark can't take a slice of a column of lists in which there are nulls.
        """
        num_groups = np.zeros(num_entries, dtype=np.int64)
        num_groups[numbers] = np.concatenate(self._num_groups)
        sizes = np.concatenate(self._sizes)
        is_null = np.append(sizes == _NO_GROUP, False)
        offsets = _offsets(np.maximum(sizes, 0), is_null)
        lists = pa.ListArray.from_arrays(offsets, np.concatenate(self._members))
        return pa.ListArray.from_arrays(_offsets(num_groups), lists)


def _offsets(sizes: _Longs, is_null: npt.NDArray[np.bool_] | None = None) -> pa.Array:
    """The offsets of lists, of which some may be null."""
    return pa.array(np.concatenate([[0], np.cumsum(sizes)]), mask=is_null).cast(pa.int32())

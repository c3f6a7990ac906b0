"""Curves through a grid: one number for the ranks of several columns, close for points that are close.

* **Z-order**: the bits of the ranks in turn, the highest ones first, the first column's before the others'.
* **Hilbert**: a curve whose neighbouring points are neighbours in the grid. It visits the quadrants of the
  grid, in each of them the quadrants of the quadrant, and so on. The order in which it visits them depends
  on how it entered, its state. So it is the Z-order, translated from the highest bits on by a table from
  state and bits to position and next state. This is the state diagram of Lawder, as in the reference
  implementation.

For one column both are its rank.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from airflow_delta.engine.arrow.numpy_arrays import Int64Vector

__all__ = ["KEY_BITS", "MOST_HILBERT", "MOST_Z_ORDER", "Curve"]

KEY_BITS = 52
"""The most bits of a position."""

MOST_Z_ORDER = 32
"""The most columns of a Z-order."""

MOST_HILBERT = 9
"""The most columns of a Hilbert curve, as in the reference implementation."""

_FINEST, _FINE = 16, 12
"""The bits of the rank of the only column, and of one of several."""

_TABLE_SIZE = 1 << 16
"""The entries of a table that stays in the caches of a processor."""


@dataclass(frozen=True, slots=True)
class Curve:
    """A curve through the ranks of some columns.

    Attributes:
        dimensions: the number of columns.
        is_hilbert: whether it is a Hilbert curve; else Z-order.
    """

    dimensions: int
    is_hilbert: bool

    @property
    def bits(self) -> int:
        """The bits of each rank."""
        if self.dimensions == 1:
            return _FINEST
        return min(_FINE, KEY_BITS // self.dimensions)

    def positions(self, ranks: Sequence[Int64Vector]) -> Int64Vector:
        """The position on the curve of each row.

        Args:
            ranks: the rank of each row, column by column: from 0 to 2 ** `bits` - 1.
        """
        spread = _spread(self.bits, self.dimensions)
        found = np.zeros(len(ranks[0]), np.int64)
        for number, values in enumerate(ranks):
            found |= spread[values] << (self.dimensions - 1 - number)
        return self._translated(found) if self.is_hilbert and self.dimensions > 1 else found

    def _translated(self, z_order: Int64Vector) -> Int64Vector:
        """Positions on the Hilbert curve by those in Z-order."""
        steps = _steps_at_once(self.bits, self.dimensions)
        table = _table(self.dimensions, steps)
        width = steps * self.dimensions
        mask = (1 << width) - 1
        found = np.zeros(len(z_order), np.int64)
        entry = np.zeros(len(z_order), np.int64)
        for shift in range(self.bits * self.dimensions - width, -1, -width):
            entry |= (z_order >> shift) & mask
            translated = table[entry]
            found = (found << width) | (translated & mask)
            entry = translated & ~mask
        return found


@lru_cache(maxsize=8)
def _spread(bits: int, dimensions: int) -> Int64Vector:
    """Each rank with ``dimensions - 1`` zeros before each of its bits."""
    ranks = np.arange(1 << bits)
    found = np.zeros(len(ranks), np.int64)
    for bit in range(bits):
        found |= ((ranks >> bit) & 1) << (bit * dimensions)
    return found


def _steps_at_once(bits: int, dimensions: int) -> int:
    """How many bits of each rank one look-up translates: a divisor of all bits."""
    fitting = (
        steps
        for steps in range(bits, 1, -1)
        if bits % steps == 0 and dimensions << (dimensions * (steps + 1)) <= _TABLE_SIZE
    )
    return next(fitting, 1)


@lru_cache(maxsize=8)
def _table(dimensions: int, steps: int) -> Int64Vector:
    """The next state, and below it the position, by the state and below it the bits of some steps."""
    once = _single_steps(dimensions)
    width = steps * dimensions
    entries = np.arange(dimensions << (dimensions + width))
    state, bits = entries >> width, entries & ((1 << width) - 1)
    found = np.zeros(len(entries), np.int64)
    for shift in range(width - dimensions, -1, -dimensions):
        part = (bits >> shift) & ((1 << dimensions) - 1)
        positions, states = (column[state, part] for column in once)
        found = (found << dimensions) | positions
        state = states
    return (state << width) | found


def _single_steps(dimensions: int) -> tuple[Int64Vector, Int64Vector]:
    """Position and next state, by state and point, for one bit of each rank.

    A state is a reflection ``x2`` and a rotation ``dy``: the number ``dy << dimensions | x2``.
    """
    size = 1 << dimensions
    x2s, dys = _rows(dimensions)
    gray = np.arange(size) ^ (np.arange(size) >> 1)
    row_of = np.argsort(gray)
    states = np.arange(dimensions * size)
    x2, dy = states[:, None] & (size - 1), states[:, None] >> dimensions
    rows = row_of[_rotated(np.arange(size)[None, :] ^ x2, dy, dimensions)]
    next_x2 = _rotated(x2s[rows], dimensions - dy, dimensions) ^ x2
    next_dy = (dys[rows] + dy) % dimensions
    return rows.astype(np.int64), (next_dy << dimensions) | next_x2


def _rows(dimensions: int) -> tuple[Int64Vector, Int64Vector]:
    """The reflection and the rotation of each row of the diagram."""
    sequence = [0, 1, 0, 1]
    for inner in range(2, dimensions + 1):
        half = 1 << (inner - 1)
        sequence[-1] = sequence[-2] + half
        sequence += [value ^ half for value in reversed(sequence)]
    pairs = np.array(sequence, np.int64).reshape(-1, 2)
    changed = pairs[:, 0] ^ pairs[:, 1]
    return pairs[:, 0], dimensions - 1 - np.log2(changed).astype(np.int64)


def _rotated(values: Any, by: Any, dimensions: int) -> Any:
    """Rotate the lowest bits of values to the left."""
    by = by % dimensions
    return ((values << by) | (values >> (dimensions - by))) & ((1 << dimensions) - 1)

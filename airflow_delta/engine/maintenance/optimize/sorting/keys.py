"""The sort key of each row: its position on the curve in the high bits, and random low bits.

The random bits spread rows with equal values over as many files as they need.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from airflow_delta.engine.arrow.numpy_arrays import int64_array
from airflow_delta.engine.data_files.request import ScanRequest
from airflow_delta.engine.data_files.scan import Scan
from airflow_delta.engine.features.schema_walk import SchemaPath
from airflow_delta.engine.maintenance.optimize.sorting.curves import KEY_BITS, Curve
from airflow_delta.engine.maintenance.optimize.sorting.ranks import Ranks, make_ranks, shortened

__all__ = [
    "NOISE_BITS",
    "SAMPLE_ROWS",
    "Keys",
    "SortKeys",
    "column_at",
    "sample_request",
    "sample_rows",
]

Keys = npt.NDArray[np.uint64]

SAMPLE_ROWS = 1 << 18
"""About the most rows of a sample."""

NOISE_BITS = 64 - KEY_BITS
"""The random low bits of a key."""


def sample_rows(scan: Scan, paths: Sequence[SchemaPath], num_rows: int) -> list[pa.Array]:
    """Read a sample of the rows of some files.

    Args:
        scan: the files, with at least the columns at the top of the paths.
        paths: the columns.
        num_rows: how many rows the files have.

    Returns:
        The values of each column, in the same rows; of texts the first bytes.

    Raises:
        DeltaError: a file can't be read; see `Scan`.
    """
    chance = np.random.default_rng(num_rows)
    none = [pa.nulls(0, field.type) for field in scan.schema]
    empty = pa.RecordBatch.from_arrays(none, schema=scan.schema)
    parts = [[shortened(column_at(empty, path))] for path in paths]
    for rows in scan:
        chosen = None
        if num_rows > SAMPLE_ROWS:
            share = SAMPLE_ROWS / num_rows
            chosen = int64_array(np.flatnonzero(chance.random(rows.num_rows) < share))
        for part, path in zip(parts, paths, strict=True):
            values = column_at(rows, path)
            part.append(shortened(values if chosen is None else values.take(chosen)))
    return [pa.concat_arrays(part) for part in parts]


def sample_request(paths: Sequence[SchemaPath]) -> ScanRequest:
    """What `sample_rows` needs to read of some columns."""
    return ScanRequest(tuple(dict.fromkeys(path[0] for path in paths)))


def column_at(rows: pa.RecordBatch, path: SchemaPath) -> pa.Array:
    """A column, also one inside structs: null where a struct around it is null."""
    values = rows.column(path[0])
    return pc.struct_field(values, list(path[1:])) if path[1:] else values


@dataclass(frozen=True, slots=True)
class SortKeys:
    """Computes sort keys.

    Attributes:
        paths: the columns.
        curve: the curve through them.
        ranks: the ranks of each.
    """

    paths: tuple[SchemaPath, ...]
    curve: Curve
    ranks: tuple[Ranks, ...]

    @classmethod
    def of(
        cls, paths: Sequence[SchemaPath], sample: Sequence[pa.Array], *, is_hilbert: bool
    ) -> SortKeys:
        """Make the keys by a sample.

        Args:
            paths: the columns, in order.
            sample: from `sample_rows`.
            is_hilbert: whether to use a Hilbert curve; else Z-order.
        """
        curve = Curve(len(paths), is_hilbert)
        return cls(
            tuple(paths), curve, tuple(make_ranks(values, bits=curve.bits) for values in sample)
        )

    def of_rows(self, rows: pa.RecordBatch, chance: np.random.Generator) -> Keys:
        """The key of each of some rows.

        Args:
            rows: the rows.
            chance: makes the noise.
        """
        return self.of_columns([column_at(rows, path) for path in self.paths], chance)

    def of_columns(self, columns: Sequence[pa.Array], chance: np.random.Generator) -> Keys:
        """The key of each row of some columns; see `of_rows`."""
        return self.with_noise(
            columns, chance.integers(0, 1 << NOISE_BITS, len(columns[0]), np.uint16)
        )

    def with_noise(self, columns: Sequence[pa.Array], noise: npt.NDArray[Any]) -> Keys:
        """The key of each row of some columns, with given noise.

        Args:
            columns: the values of each column.
            noise: a number for each row, of at most `NOISE_BITS` bits.
        """
        found = [ranks(values) for ranks, values in zip(self.ranks, columns, strict=True)]
        positions = self.curve.positions(found).astype(np.uint64)
        return np.asarray((positions << np.uint64(NOISE_BITS)) | noise.astype(np.uint64), np.uint64)

    @property
    def bits(self) -> int:
        """The bits of a key that can be other than 0: the lowest ones."""
        return self.curve.bits * self.curve.dimensions + NOISE_BITS

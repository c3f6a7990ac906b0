"""How rows are divided into files, without Spark: by keys that a repeated task computes again."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from airflow_delta.engine.maintenance.optimize.sorting.keys import SortKeys
from airflow_delta.spark.optimizer.sorting import RowDivision

ROWS = 4_000


def division(columns: list[pa.Array], num_files: int, *, is_hilbert: bool) -> RowDivision:
    paths = [(f"c{number}",) for number in range(len(columns))]
    keys = SortKeys.of(paths, columns, is_hilbert=is_hilbert)
    found = np.sort(keys.of_columns(columns, np.random.default_rng(0)))
    return RowDivision(keys, found[np.arange(1, num_files) * len(found) // num_files])


@pytest.mark.parametrize("num_columns", [1, 2, 5])
@pytest.mark.parametrize("is_hilbert", [False, True])
def test_files_are_alike_and_in_the_order_of_the_keys(
    num_columns: int, *, is_hilbert: bool
) -> None:
    chance = np.random.default_rng(num_columns)
    columns = [pa.array(chance.integers(0, 10**9, ROWS)) for _ in range(num_columns)]
    divided = division(columns, 8, is_hilbert=is_hilbert)
    numbers = divided.numbers(columns, pa.array(range(ROWS))).to_numpy()
    assert (numbers >= 0).all()
    files = numbers >> 44
    assert set(files.tolist()) == set(range(8))
    assert np.bincount(files).max() < ROWS / 8 * 1.2
    # Within all files together, the numbers are in the order of the keys.
    keys = divided.keys.with_noise(columns, np.zeros(ROWS, np.uint64)) >> np.uint64(12)
    ordered = keys[np.argsort(numbers, kind="stable")].astype(np.int64)
    lost = max(0, divided.keys.bits - 44 - 12)
    assert (np.diff(ordered >> lost) >= 0).all()


def test_rows_of_equal_values_are_spread_the_same_each_time() -> None:
    columns = [pa.array(["a"] * ROWS).cast(pa.large_string())]
    divided = division([columns[0].cast(pa.string())], 4, is_hilbert=False)
    indexes = pa.array(range(ROWS))
    numbers = divided.numbers(columns, indexes).to_numpy()
    assert np.bincount(numbers >> 44).min() > ROWS / 8
    part = divided.numbers([columns[0].slice(7, 50)], indexes.slice(7, 50)).to_numpy()
    assert (part == numbers[7:57]).all()

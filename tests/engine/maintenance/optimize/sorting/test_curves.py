"""The curves against their definitions."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from airflow_delta.engine.maintenance.optimize.sorting import curves
from airflow_delta.engine.maintenance.optimize.sorting.curves import Curve


@pytest.mark.parametrize(("dimensions", "bits"), [(2, 6), (2, 7), (3, 4), (4, 3), (5, 2), (9, 1)])
def test_a_hilbert_curve_visits_each_point_once_in_unit_steps(
    monkeypatch: pytest.MonkeyPatch, dimensions: int, bits: int
) -> None:
    monkeypatch.setattr(curves, "_FINE", bits)
    curve = Curve(dimensions, is_hilbert=True)
    assert curve.bits == bits
    points = np.array([*itertools.product(range(1 << bits), repeat=dimensions)], np.int64)
    positions = curve.positions([points[:, column] for column in range(dimensions)])
    order = np.argsort(positions)
    assert positions[order].tolist() == [*range(len(points))]
    steps = np.abs(np.diff(points[order], axis=0)).sum(axis=1)
    assert (steps == 1).all()


@pytest.mark.parametrize("dimensions", [1, 2, 3, 4, 7, 32])
def test_a_z_order_takes_the_bits_in_turn(dimensions: int) -> None:
    curve = Curve(dimensions, is_hilbert=False)
    chance = np.random.default_rng(dimensions)
    ranks = [chance.integers(0, 1 << curve.bits, 50) for _ in range(dimensions)]
    texts = [[f"{int(rank):0{curve.bits}b}" for rank in column] for column in ranks]
    expected = [
        int(
            "".join(
                texts[column][row][bit] for bit in range(curve.bits) for column in range(dimensions)
            ),
            2,
        )
        for row in range(50)
    ]
    assert curve.positions(ranks).tolist() == expected


@pytest.mark.parametrize("dimensions", range(1, 10))
def test_the_finest_curves_are_one_to_one_on_a_sample(dimensions: int) -> None:
    curve = Curve(dimensions, is_hilbert=True)
    chance = np.random.default_rng(7)
    points = np.unique(chance.integers(0, 1 << curve.bits, (2000, dimensions)), axis=0)
    positions = curve.positions([*points.T.copy()])
    assert len(np.unique(positions)) == len(points)
    assert 0 <= positions.min() <= positions.max() < 1 << curve.bits * dimensions

"""Keys that come twice are suspected, near each other and far apart; others aren't."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_delta.engine.replay.repeated_keys import RepeatedKeys


def column(keys: list[str]) -> pa.ChunkedArray:
    return pa.chunked_array([pa.array(keys, pa.string())])


@given(st.lists(st.lists(st.sampled_from([f"part-{n}" for n in range(40)]), max_size=8)))
@settings(max_examples=100, deadline=None)
def test_a_key_that_comes_twice_is_suspected_in_the_end(batches: list[list[str]]) -> None:
    repeated = RepeatedKeys()
    for keys in batches:
        repeated.add(column(keys))
    met = [key for keys in batches for key in keys]
    assert repeated.any() == (len(set(met)) < len(met))


@pytest.mark.parametrize(
    ("keys", "suspected"), [(["a", "b", "b"], True), (["a", "b", "a"], False), ([], False)]
)
def test_one_right_after_itself_is_suspected_at_once(keys: list[str], suspected: bool) -> None:
    assert RepeatedKeys().add(column(keys)) is suspected

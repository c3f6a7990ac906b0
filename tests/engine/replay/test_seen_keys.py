"""The set of hashed keys against Python's own set."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_delta.engine.replay import seen_keys
from airflow_delta.engine.replay.key_hashes import KeyHashes
from airflow_delta.engine.replay.seen_keys import SeenKeys

Pair = tuple[int, int]

# Few high halves, so that keys share them, which no test could wait for.
PAIRS = st.tuples(st.integers(0, 3), st.integers(0, 2**64 - 1) | st.integers(0, 3))


def hashes(pairs: list[Pair]) -> KeyHashes:
    high, low = (np.array([pair[i] for pair in pairs], np.uint64) for i in (0, 1))
    return KeyHashes(high, low)


@given(
    batches=st.lists(st.lists(PAIRS, max_size=8), max_size=30),
    generation=st.integers(2, 3),
    longest=st.sampled_from([0, 5, 1000]),
)
@settings(max_examples=50, deadline=None)
def test_what_was_added_is_there_and_nothing_else(
    batches: list[list[Pair]], generation: int, longest: int
) -> None:
    seen, model = SeenKeys(), set[Pair]()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(seen_keys, "_GENERATION", generation)
        patch.setattr(seen_keys, "_LONGEST_MERGE", longest)
        for batch in batches:
            assert seen.contain(hashes(batch)).tolist() == [pair in model for pair in batch]
            seen.add(hashes(sorted({*batch} - model)))
            model.update(batch)
    assert len(seen) == len(model)
    assert seen.contain(hashes(sorted(model))).all()


@pytest.mark.parametrize("longest", [0, 1 << 21])
def test_many_keys_in_many_batches(monkeypatch: pytest.MonkeyPatch, longest: int) -> None:
    monkeypatch.setattr(seen_keys, "_LONGEST_MERGE", longest)
    random = np.random.default_rng(1)
    # The upper half of each is never added.
    keys = KeyHashes(
        random.integers(0, 2**63, 40_000, np.uint64) * np.uint64(2),
        random.integers(0, 2**64 - 1, 40_000, np.uint64),
    )
    never = KeyHashes(keys.high + np.uint64(1), keys.low)
    seen = SeenKeys()
    for part in np.array_split(np.arange(len(keys)), 100):
        batch = keys.pick(part)
        assert not seen.contain(batch).any()
        seen.add(batch.pick(batch.order()))
    assert seen.contain(keys).all()
    assert not seen.contain(never).any()

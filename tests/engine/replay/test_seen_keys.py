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

# Few high halves, so that keys share them, which no test could wait for; the highest of all is the one
# whose slots begin anew at the first.
PAIRS = st.tuples(
    st.integers(0, 3) | st.integers(2**64 - 3, 2**64 - 1),
    st.integers(0, 2**64 - 1) | st.integers(0, 3),
)


def hashes(pairs: list[Pair]) -> KeyHashes:
    high, low = (np.array([pair[i] for pair in pairs], np.uint64) for i in (0, 1))
    return KeyHashes(high, low)


@given(
    batches=st.lists(st.lists(PAIRS, max_size=8), max_size=30),
    slots=st.sampled_from([1, 2, 1024]),
    room=st.sampled_from([(4, 8), (1 << 10, 1 << 10)]),
)
@settings(max_examples=50, deadline=None)
def test_what_was_added_is_there_and_nothing_else(
    batches: list[list[Pair]], slots: int, room: tuple[int, int]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(seen_keys, "_LEAST_SLOTS", slots)
        patch.setattr(seen_keys, "_STEP", 3)
        patch.setattr(seen_keys, "_SMALL", room[0])
        patch.setattr(seen_keys, "_LARGE", room[1])
        seen, model = SeenKeys(), dict[Pair, int]()
        for batch in batches:
            assert seen.contains(hashes(batch)).tolist() == [pair in model for pair in batch]
            distinct = sorted({*batch})
            expected = [model.get(pair, -1) for pair in distinct]
            assert seen.add(hashes(distinct)).tolist() == expected
            for pair in distinct:
                model.setdefault(pair, len(model))
            assert len(seen) == len(model)
    assert seen.contains(hashes(sorted(model))).all()


def test_many_keys_in_many_batches() -> None:
    random = np.random.default_rng(1)
    # The odd neighbours are never added.
    keys = KeyHashes(
        random.integers(0, 2**63, 40_000, np.uint64) * np.uint64(2),
        random.integers(0, 2**64 - 1, 40_000, np.uint64),
    )
    never = KeyHashes(keys.high + np.uint64(1), keys.low)
    seen = SeenKeys()
    for part in np.array_split(np.arange(len(keys)), 100):
        batch = keys.pick(part)
        assert not seen.contains(batch).any()
        assert (seen.add(batch.pick(batch.order())) == -1).all()
    assert seen.contains(keys).all()
    assert not seen.contains(never).any()
    assert sorted(seen.add(keys).tolist()) == list(range(40_000))

"""Hashes of keys: equal for equal keys wherever they stand, and different for different ones."""

from __future__ import annotations

import time

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from airflow_delta.engine.replay.key_hashes import KeyHasher, KeyHashes


def column(*chunks: list[str]) -> pa.ChunkedArray:
    return pa.chunked_array([pa.array(chunk, pa.string()) for chunk in chunks], pa.string())


def pairs(hashes: KeyHashes) -> list[tuple[int, int]]:
    return list(zip(hashes.high.tolist(), hashes.low.tolist(), strict=True))


# Texts that differ little: in length, in zeros at the end, in one byte of a word.
KEYS = st.lists(st.text("a\x00é/", max_size=20) | st.sampled_from(["p" * 8, "p" * 9, "p" * 800]))


@given(KEYS)
@example(["", "\x00", "a" * 7, "a" * 8, "a" * 7 + "\x00", "a" * 16, "a" * 15])
@settings(max_examples=50, deadline=None)
def test_keys_are_equal_as_their_hashes_are(keys: list[str]) -> None:
    hashes = pairs(KeyHasher().hashes(column(keys)))
    assert [[a == b for b in hashes] for a in hashes] == [[a == b for b in keys] for a in keys]


@given(KEYS, st.integers(0, 9))
@settings(max_examples=50, deadline=None)
def test_a_hash_does_not_depend_on_where_a_key_stands(keys: list[str], cut: int) -> None:
    hasher = KeyHasher()
    alone = [pairs(hasher.hashes(column([key])))[0] for key in keys]
    assert pairs(hasher.hashes(column(keys[:cut], keys[cut:]))) == alone
    assert pairs(hasher.hashes(column(["x", *keys])[1:])) == alone


LONG = "k" * 5000


@given(
    st.lists(
        st.sampled_from(
            ["a", "b" * 64, "c" * 64, LONG, LONG[:-1], LONG + "k", LONG[:-1] + "K", "K" + LONG]
        )
    )
)
@settings(max_examples=50, deadline=None)
def test_long_keys_are_told_apart_as_well(keys: list[str]) -> None:
    hasher = KeyHasher()
    hashes = pairs(hasher.hashes(column(keys)))
    assert [[a == b for b in hashes] for a in hashes] == [[a == b for b in keys] for a in keys]
    assert [pairs(hasher.hashes(column(["x", key])[1:])) for key in keys] == [[h] for h in hashes]


def test_a_long_key_does_not_slow_down_the_others() -> None:
    keys = column([*(f"part-{number:05}.parquet" for number in range(8000)), "v" * 1_000_000])
    began = time.process_time()
    KeyHasher().hashes(keys)
    # Milliseconds; where each key takes part in each step, it is seconds.
    assert time.process_time() - began < 0.5


def test_no_keys_have_no_hashes() -> None:
    hasher = KeyHasher()
    assert len(hasher.hashes(column())) == len(hasher.hashes(column([], []))) == 0


def test_hashers_are_drawn_at_random() -> None:
    one, other = (pairs(KeyHasher().hashes(column(["a", "b", LONG]))) for _ in range(2))
    assert not set(one) & set(other)


def test_every_bit_depends_on_every_byte() -> None:
    """Half of the bits differ, in the mean over many hashers, whichever byte of a key differs."""
    plain = "a" * 19
    keys = [plain, *(plain[:index] + "b" + plain[index + 1 :] for index in range(len(plain)))]
    halves = np.zeros(len(plain))
    for _ in range(50):
        hashes = KeyHasher().hashes(column(keys))
        for half in (hashes.high, hashes.low):
            differing = half[1:] ^ half[0]
            halves += np.unpackbits(differing.view(np.uint8).reshape(-1, 8), axis=1).sum(axis=1)
    assert (np.abs(halves / 50 - 64) < 10).all()


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3))))
@settings(max_examples=50, deadline=None)
def test_the_order_is_that_of_pairs(hashes: list[tuple[int, int]]) -> None:
    high, low = (np.array([pair[i] for pair in hashes], np.uint64) for i in (0, 1))
    ordered = KeyHashes(high, low).pick(KeyHashes(high, low).order())
    assert pairs(ordered) == sorted(hashes)


@pytest.mark.parametrize("count", [0, 1, 3])
def test_parts_are_joined_in_their_order(count: int) -> None:
    part = KeyHashes(np.array([1, 2], np.uint64), np.array([3, 4], np.uint64))
    assert pairs(KeyHashes.concat([part] * count)) == [(1, 3), (2, 4)] * count


# Short hashes


@given(KEYS, st.integers(0, 9))
@example(["", "\x00", "a" * 7, "a" * 8, "a" * 7 + "\x00", "a" * 16, "a" * 15], 3)
@example(["p" * 512, "p" * 513, "p" * 512, "q" * 513], 1)
@settings(max_examples=50, deadline=None)
def test_short_hashes_tell_keys_apart_wherever_they_stand(keys: list[str], cut: int) -> None:
    hasher = KeyHasher()
    hashes = hasher.short_hashes(column(keys[:cut], keys[cut:])).tolist()
    assert [[a == b for b in hashes] for a in hashes] == [[a == b for b in keys] for a in keys]
    alone = [int(hasher.short_hashes(column(["x", key])[1:])[0]) for key in keys]
    assert alone == hashes


@pytest.mark.parametrize("index", range(17))
def test_short_hashes_of_keys_that_differ_in_one_byte_are_spread(index: int) -> None:
    """Also where that is the upper one of a word, of which a product modulo 2**64 keeps little."""
    hasher = KeyHasher()
    keys = ["a" * index + chr(33 + n) + "a" * (16 - index) for n in range(90)]
    found = np.concatenate([hasher.short_hashes(column([key])) for key in keys])
    assert len(np.unique(found)) == len(keys)
    drawn = [KeyHasher().short_hashes(column(keys[:2])) for _ in range(2000)]
    assert not any(one == other for one, other in drawn)

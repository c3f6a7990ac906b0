from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap, BitMap64

from airflow_delta.engine.deletion_vectors import roaring, z85
from airflow_delta.engine.errors import DeletionVectorError

PORTABLE = struct.pack("<I", 1681511377)
NATIVE = struct.pack("<I", 1681511376)

EXAMPLES = [
    ([], "d1d339640000000000000000"),
    ([0, 9], "d1d339640100000000000000000000003a30000001000000000001001000000000000900"),
]


@pytest.mark.parametrize(("values", "payload"), EXAMPLES)
def test_known_portable_payloads(values: list[int], payload: str) -> None:
    assert roaring.serialize(BitMap64(values)).hex() == payload
    assert list(roaring.deserialize(bytes.fromhex(payload))) == values


def test_the_rows_of_the_specification_in_the_portable_form() -> None:
    data = z85.decode("^Bg9^0rr910000000000iXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L")
    assert len(data) == 44
    assert list(roaring.deserialize(data)) == [3, 4, 7, 11, 18, 29]
    assert roaring.serialize(BitMap64([3, 4, 7, 11, 18, 29])) == data


def test_the_inline_example_of_the_specification_is_native_and_big_endian() -> None:
    data = z85.decode("wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L")
    assert data.startswith(struct.pack(">I", 1681511376))
    assert list(roaring.deserialize(data)) == [3, 4, 7, 11, 18, 29]


def native(*buckets: list[int], order: str = "<") -> bytes:
    parts = [struct.pack(f"{order}Ii", 1681511376, len(buckets))]
    for bucket in buckets:
        data = BitMap(bucket).serialize()
        parts += [struct.pack(f"{order}i", len(data)), data]
    return b"".join(parts)


@pytest.mark.parametrize("order", ["<", ">"])
def test_the_nth_native_bitmap_holds_the_values_with_key_n(order: str) -> None:
    data = native([1, 2**32 - 1], [], [7], order=order)
    assert list(roaring.deserialize(data)) == [1, 2**32 - 1, 2 * 2**32 + 7]


def test_a_native_vector_without_bitmaps_is_empty() -> None:
    assert not roaring.deserialize(native())


def portable(*buckets: tuple[int, list[int]]) -> bytes:
    parts = [PORTABLE, struct.pack("<Q", len(buckets))]
    for key, values in buckets:
        parts += [struct.pack("<I", key), BitMap(values).serialize()]
    return b"".join(parts)


def test_portable_keys_may_have_gaps_and_reach_the_last_signed_one() -> None:
    data = portable((0, [5]), (2, [0]), (2**31 - 1, [2**32 - 1]))
    assert list(roaring.deserialize(data)) == [5, 2 * 2**32, 2**63 - 1]


def test_a_key_with_its_most_significant_bit_set_is_refused() -> None:
    with pytest.raises(DeletionVectorError, match="must be 0"):
        roaring.deserialize(portable((2**31, [0])))
    with pytest.raises(DeletionVectorError, match=str(2**63)):
        roaring.serialize(BitMap64([2**63]))


def test_every_container_is_read() -> None:
    array = list(range(0, 1000, 7))
    dense = list(range(0, 65536, 2))
    run = BitMap(range(10, 60000))
    run.run_optimize()
    encoded = BitMap(dense) | BitMap([2**31, 2**31 - 1, 2**32 - 1])
    for bucket, values in [
        (BitMap(array), array),
        (encoded, [*dense, 2**31 - 1, 2**31, 2**32 - 1]),
        (run, list(range(10, 60000))),
    ]:
        data = PORTABLE + struct.pack("<QI", 1, 0) + bucket.serialize()
        assert list(roaring.deserialize(data)) == values


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "cut off: found 0 bytes"),
        (b"\xd1\xd3\x39", "cut off: found 3 bytes"),
        (b"\xd2\xd3\x39\x64" + bytes(8), "doesn't begin with a magic number"),
        (struct.pack(">I", 1681511377) + bytes(8), "expected 1681511377 or"),
        (PORTABLE + b"\x01", "aren't a portable 64-bit roaring bitmap"),
        (portable((0, [1, 2, 3]))[:-1], "aren't a portable 64-bit roaring bitmap"),
        (portable((1, [1]), (0, [2])), "aren't a portable 64-bit roaring bitmap"),
        (portable((1, [1]), (1, [2])), "aren't a portable 64-bit roaring bitmap"),
        (PORTABLE + struct.pack("<Q", 2**63), "aren't a portable 64-bit roaring bitmap"),
        (NATIVE + b"\x01", "cut off"),
        (NATIVE + struct.pack("<i", 1), "cut off"),
        (native([1, 2])[:-1], "bitmap 0 of the native deletion vector is cut off"),
        (NATIVE + struct.pack("<ii", 1, -1), "cut off"),
        (NATIVE + struct.pack("<ii", 1, 4) + b"abcd", "bitmap 0 of the native .* is damaged"),
    ],
)
def test_damage_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(DeletionVectorError, match=message):
        roaring.deserialize(data)


def test_elements_out_of_order_are_refused() -> None:
    data = bytearray(portable((0, [1, 7])))
    data[-4:] = struct.pack("<HH", 7, 1)
    with pytest.raises(DeletionVectorError, match="strictly increasing"):
        roaring.deserialize(bytes(data))


def test_positions_are_signed_numbers_in_ascending_order() -> None:
    array = roaring.to_positions(BitMap64([2**63 - 1, 0, 2**32]))
    assert array.dtype == np.int64
    assert array.tolist() == [0, 2**32, 2**63 - 1]
    assert roaring.to_positions(BitMap64()).tolist() == []


@settings(max_examples=50)
@given(st.sets(st.integers(0, 2**63 - 1) | st.integers(0, 300), max_size=40))
def test_what_is_serialised_is_read_back(values: set[int]) -> None:
    bitmap = roaring.deserialize(roaring.serialize(BitMap64(values)))
    assert roaring.to_positions(bitmap).tolist() == sorted(values)

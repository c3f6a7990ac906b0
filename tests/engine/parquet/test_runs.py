from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_delta.engine.parquet import PyarrowFallback
from airflow_delta.engine.parquet.runs import read_runs


def varint(number: int) -> bytes:
    out = []
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])


def run(times: int, number: int, width: int) -> bytes:
    return varint(times << 1) + number.to_bytes((width + 7) // 8, "little")


def packed(numbers: list[int], width: int) -> bytes:
    """Numbers bit by bit, the lowest first, as the format describes it."""
    groups = -(-len(numbers) // 8)
    padded = numbers + [0] * (groups * 8 - len(numbers))
    bits = [number >> bit & 1 for number in padded for bit in range(width)]
    content = bytes(
        sum(bit << index for index, bit in enumerate(bits[start : start + 8]))
        for start in range(0, len(bits), 8)
    )
    return varint(groups << 1 | 1) + content


def expanded(runs: list[tuple[int, int]]) -> list[int]:
    return [number for times, number in runs for _ in range(times)]


@given(st.integers(0, 32).flatmap(lambda w: st.tuples(st.just(w), st.data())), st.data())
@settings(max_examples=50)
def test_runs_and_packed_numbers_of_any_width(
    width_and: tuple[int, object], data: st.DataObject
) -> None:
    width = width_and[0]
    numbers = st.integers(0, (1 << width) - 1) | st.just(0)
    expected: list[int] = []
    content = b""
    for _ in range(data.draw(st.integers(0, 4))):
        if data.draw(st.booleans()):
            times, number = data.draw(st.integers(1, 300)), data.draw(numbers)
            content += run(times, number, width)
            expected += [number] * times
        else:
            groups = data.draw(st.integers(1, 6))
            values = data.draw(st.lists(numbers, min_size=8 * groups, max_size=8 * groups))
            content += packed(values, width)
            expected += values
    last = data.draw(st.lists(numbers, max_size=20))
    if last:
        content += packed(last, width)
        expected += last
    found = read_runs(content, bit_width=width, count=len(expected))
    assert expanded(found) == expected
    assert all(times > 0 for times, _ in found)


def test_a_billion_equal_numbers_are_one_run() -> None:
    assert read_runs(run(10**9, 1, 2), bit_width=2, count=10**9) == [(10**9, 1)]


def test_equal_packed_numbers_are_one_run() -> None:
    assert read_runs(packed([1] * 8000, 2), bit_width=2, count=7999) == [(7999, 1)]
    mostly = [0] * 4000 + [3] + [0] * 4000
    runs = [(4000, 0), (1, 3), (4000, 0)]
    assert read_runs(packed(mostly, 2), bit_width=2, count=8001) == runs


@pytest.mark.parametrize(
    ("data", "width", "count", "message"),
    [
        (run(5, 1, 1), 1, 4, "run of 5 times 1, 4 are left"),
        (run(5, 1, 1), 1, 6, "cut off, 1 are missing"),
        (run(0, 1, 1), 1, 6, "run of 0 times"),
        (run(5, 2, 2), 1, 5, "run of 5 times 2"),
        (run(5, 1, 1)[:1], 1, 5, "run of 5 times"),
        (run(5, 1, 1) + b"\0", 1, 5, "1 bytes follow"),
        (packed([1] * 16, 3), 3, 8, "2 packed groups, where 8 numbers are left"),
        (packed([1] * 16, 3)[:-1], 3, 16, "2 packed groups"),
        (b"\x01", 3, 16, "0 packed groups"),
        (b"", 33, 1, "numbers of 33 bits"),
    ],
)
def test_damage_is_refused(data: bytes, width: int, count: int, message: str) -> None:
    with pytest.raises(PyarrowFallback, match=message):
        read_runs(data, bit_width=width, count=count)

"""Decode the hybrid of run lengths and packed bits that stores levels and indexes into dictionaries.

It stores a sequence of small numbers of a known bit width, in runs. A run is one number repeated, or
groups of eight numbers, packed into as many bytes as the width has bits.

`read_runs` returns runs, so that a million equal numbers cost as much as one. Nearly all levels of a
column of non-file actions are equal: a million rows have no protocol.

Spec: Encodings.md of Apache Parquet, "Run Length Encoding / Bit-Packing Hybrid".
"""

from __future__ import annotations

from typing import TypeAlias

from airflow_delta.engine.parquet.fallback import PyarrowFallback
from airflow_delta.engine.parquet.thrift import read_varint

__all__ = ["Run", "read_runs"]

Run: TypeAlias = tuple[int, int]
"""The number of repetitions, and the repeated number."""

_WIDEST = 32

# A page of some bytes may unpack to millions of runs. With more than this, pyarrow is faster.
_MOST_RUNS = 250_000


def read_runs(data: bytes, *, bit_width: int, count: int) -> list[Run]:
    """Decode a sequence.

    Args:
        data: the sequence, without a length before it, and nothing else.
        bit_width: the bit width of its numbers.
        count: the number of its numbers. Numbers that only fill the last group are dropped.

    Returns:
        Runs of at least one number, ``count`` numbers in total.

    Raises:
        PyarrowFallback: there are fewer or more numbers, or too many runs, or the width exceeds 32.
    """
    if not 0 <= bit_width <= _WIDEST:
        raise PyarrowFallback(f"numbers of {bit_width} bits")
    runs: list[Run] = []
    position, left = 0, count
    value_bytes = (bit_width + 7) // 8
    try:
        while left:
            header, position = read_varint(data, position)
            if header & 1:
                groups = header >> 1
                end = position + groups * bit_width
                if not groups or groups * 8 >= left + 8 or end > len(data):
                    raise PyarrowFallback(f"{groups} packed groups, where {left} numbers are left")
                _unpack(data[position:end], bit_width, min(groups * 8, left), runs)
                left -= min(groups * 8, left)
            else:
                repeated = header >> 1
                end = position + value_bytes
                value = int.from_bytes(data[position:end], "little")
                if not 0 < repeated <= left or end > len(data) or value >> bit_width:
                    raise PyarrowFallback(f"a run of {repeated} times {value}, {left} are left")
                runs.append((repeated, value))
                left -= repeated
                _check_number(runs)
            position = end
    except IndexError as error:
        raise PyarrowFallback(f"a sequence of numbers is cut off, {left} are missing") from error
    if position != len(data):
        raise PyarrowFallback(f"{len(data) - position} bytes follow a sequence of numbers")
    return runs


def _unpack(packed: bytes, bit_width: int, count: int, runs: list[Run]) -> None:
    """Add ``count`` packed numbers to the runs."""
    groups = (count + 7) // 8
    first = packed[:bit_width]
    numbers = _group(first, bit_width)
    if len(set(numbers)) == 1 and packed == first * groups:
        runs.append((count, numbers[0]))
        return
    # There are few different levels, so most groups have been unpacked before.
    known = {first: numbers}
    for start in range(0, groups * bit_width, bit_width):
        group = packed[start : start + bit_width]
        if group not in known:
            known[group] = _group(group, bit_width)
        numbers = known[group]
        if count < 8:
            numbers = numbers[:count]
        if len(set(numbers)) == 1:
            _add(runs, len(numbers), numbers[0])
        else:
            for number in numbers:
                _add(runs, 1, number)
            _check_number(runs)
        count -= 8


def _check_number(runs: list[Run]) -> None:
    if len(runs) > _MOST_RUNS:
        raise PyarrowFallback(f"a sequence of numbers has more than {_MOST_RUNS} runs")


def _group(packed: bytes, bit_width: int) -> tuple[int, ...]:
    bits = int.from_bytes(packed, "little")
    mask = (1 << bit_width) - 1
    return tuple(bits >> (number * bit_width) & mask for number in range(8))


def _add(runs: list[Run], count: int, number: int) -> None:
    if runs and runs[-1][1] == number:
        count += runs.pop()[0]
    runs.append((count, number))

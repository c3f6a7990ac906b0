from __future__ import annotations

import io

import pytest

from airflow_delta.engine.parquet import PyarrowFallback
from airflow_delta.engine.parquet.ranges import ParquetBytes


class Counted(io.BytesIO):
    """A file that knows what was read of it."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self.reads: list[tuple[int, int]] = []

    def read(self, size: int | None = -1, /) -> bytes:
        data = super().read(size)
        self.reads.append((self.tell() - len(data), len(data)))
        return data


def file_of(body: int, footer: bytes) -> bytes:
    content = bytes(number * 7 % 251 for number in range(body))
    return b"PAR1" + content + footer + len(footer).to_bytes(4, "little") + b"PAR1"


def test_a_small_file_is_read_at_once() -> None:
    data = file_of(1000, b"footer")
    source = Counted(data)
    content = ParquetBytes(source, size=len(data))
    assert content.footer == b"footer"
    assert content.read([(500, 10), (4, 3)]) == [data[500:510], data[4:7]]
    assert source.reads == [(0, len(data))]


def test_neighbours_are_read_together_and_the_end_once() -> None:
    data = file_of(1_000_000, b"footer")
    source = Counted(data)
    content = ParquetBytes(source, size=len(data))
    ranges = [(300_000, 10), (4, 100), (20_000, 5), (990_000, 100), (4, 5)]
    assert content.read(ranges) == [data[start : start + length] for start, length in ranges]
    assert source.reads == [(len(data) - 65536, 65536), (4, 20_001), (300_000, 10)]


def test_a_range_may_reach_into_the_end() -> None:
    data = file_of(100_000, b"footer")
    source = Counted(data)
    start = len(data) - 65536 - 100
    content = ParquetBytes(source, size=len(data))
    assert content.read([(start, 200)]) == [data[start : start + 200]]
    assert len(source.reads) == 2


def test_a_long_footer_takes_a_second_read() -> None:
    footer = bytes(range(256)) * 400
    data = file_of(100_000, footer)
    source = Counted(data)
    content = ParquetBytes(source, size=len(data))
    assert content.footer == footer
    assert len(source.reads) == 2
    assert content.read([(50_000, 10)]) == [data[50_000:50_010]]


@pytest.mark.parametrize(
    ("data", "size", "message"),
    [
        (b"", 0, "doesn't end as Parquet does"),
        (b"PAR1PAR1", 8, "doesn't end as Parquet does"),
        (file_of(10, b"f")[:-1] + b"E", 23, "doesn't end as Parquet does"),
        (file_of(10, b"f"), 22, "doesn't end as Parquet does"),
        (file_of(10, b"f"), 24, "has 23 bytes, expected more"),
        (b"PAR1" + b"\x01\0\0\0PAR1", 12, "a footer of 1 bytes"),
        (b"PAR1" + b"\xff\xff\xff\xffPAR1", 12, "a footer of 4294967295 bytes"),
    ],
)
def test_what_is_no_parquet_file_is_refused(data: bytes, size: int, message: str) -> None:
    with pytest.raises(PyarrowFallback, match=message):
        ParquetBytes(io.BytesIO(data), size=size)


@pytest.mark.parametrize("bounds", [(0, 4), (3, 1), (10, 1000), (1004, 1), (-4, 8)])
def test_ranges_that_are_not_in_the_file_are_refused(bounds: tuple[int, int]) -> None:
    data = file_of(1000, b"footer")
    content = ParquetBytes(io.BytesIO(data), size=len(data))
    with pytest.raises(PyarrowFallback, match="outside of the data"):
        content.read([bounds])


def test_very_much_is_refused() -> None:
    data = file_of(0, b"f" * (1 << 20) + b"f")
    with pytest.raises(PyarrowFallback, match="a footer of 1048577 bytes"):
        ParquetBytes(io.BytesIO(data), size=len(data))
    data = b"PAR1" + bytes(9 << 20) + b"f\x01\0\0\0PAR1"
    content = ParquetBytes(io.BytesIO(data), size=len(data))
    with pytest.raises(PyarrowFallback, match="are to be read"):
        content.read([(4, 1 << 20), (4 << 20, 5 << 20), (3 << 20, 1 << 20), (1 << 20, 2 << 20)])

"""Reading a file through ranged reads: right bytes, few requests."""

from __future__ import annotations

import io
import os

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_delta.engine.storage.object_file import ObjectFile

MEGABYTE = 1024 * 1024


class Recorded:
    """A file over bytes, and the requested ranges."""

    def __init__(self, data: bytes) -> None:
        self.requests: list[tuple[int, int]] = []
        self.data = data
        self.file = ObjectFile(self.read_range, size=len(data))

    def read_range(self, start: int, length: int) -> bytes:
        assert length > 0
        assert start + length <= len(self.data)
        self.requests.append((start, length))
        return self.data[start : start + length]


DATA = bytes(range(251)) * 12_000  # about three megabytes


@settings(max_examples=50, deadline=None)
@given(
    st.integers(0, len(DATA)),
    st.lists(
        st.tuples(
            st.sampled_from([os.SEEK_SET, os.SEEK_CUR, os.SEEK_END]),
            st.integers(-3_500_000, 3_500_000),
            st.one_of(st.none(), st.integers(-1, 2_000_000)),
        ),
        max_size=8,
    ),
)
def test_reads_as_a_buffer_of_bytes_does(
    size: int, moves: list[tuple[int, int, int | None]]
) -> None:
    model, recorded = io.BytesIO(DATA[:size]), Recorded(DATA[:size])
    for whence, offset, count in moves:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: model.tell(), os.SEEK_END: size}[whence]
        if base + offset < 0:
            continue
        assert recorded.file.seek(offset, whence) == model.seek(offset, whence)
        assert recorded.file.read(count) == model.read(count)
        assert recorded.file.tell() == model.tell()


def test_a_small_object_costs_one_request() -> None:
    recorded = Recorded(DATA[:MEGABYTE])
    recorded.file.seek(-100, os.SEEK_END)
    recorded.file.read()
    recorded.file.seek(0)
    recorded.file.read(500)
    assert recorded.requests == [(0, MEGABYTE)]


def test_neighbouring_reads_share_a_request() -> None:
    recorded = Recorded(DATA)
    recorded.file.seek(1000)
    for _ in range(100):
        recorded.file.read(1000)
    assert recorded.requests == [(1000, MEGABYTE)]


def test_a_long_read_is_one_request_of_just_that() -> None:
    recorded = Recorded(DATA)
    recorded.file.read(2 * MEGABYTE)
    assert recorded.requests == [(0, 2 * MEGABYTE)]


def test_a_projected_read_of_parquet_skips_the_rest() -> None:
    sink = io.BytesIO()
    table = pa.table({name: list(range(200_000)) for name in "abcd"})
    pq.write_table(table, sink, compression="none", use_dictionary=False)
    recorded = Recorded(sink.getvalue())
    with pq.ParquetFile(recorded.file) as parquet:
        assert parquet.read(columns=["c"]) == table.select(["c"])
    assert sum(length for _, length in recorded.requests) < len(recorded.data) / 2


def test_fills_the_buffer_of_a_caller() -> None:
    buffer = bytearray(5)
    file = Recorded(b"0123456789").file
    file.seek(7)
    assert file.readinto(buffer) == 3
    assert bytes(buffer[:3]) == b"789"


def test_senseless_moves_are_refused() -> None:
    file = Recorded(b"0123456789").file
    with pytest.raises(ValueError, match="before the start"):
        file.seek(-1)
    with pytest.raises(ValueError, match="whence"):
        file.seek(0, 7)


def test_a_closed_file_does_not_read() -> None:
    file = Recorded(b"0123456789").file
    file.close()
    with pytest.raises(ValueError, match="closed"):
        file.read(1)

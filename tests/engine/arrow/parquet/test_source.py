from __future__ import annotations

import errno
import io
import os
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Barrier
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from obstore.store import MemoryStore

from airflow_delta.engine.arrow.parquet.source import ParquetSource
from airflow_delta.engine.errors import CorruptLogError, StorageError
from airflow_delta.engine.storage.base import Capabilities
from airflow_delta.engine.storage.local import LocalStorage
from airflow_delta.engine.storage.memory import MemoryStorage
from airflow_delta.engine.storage.object_store import ObjectStorage

ROWS = [{"n": 1, "pairs": [("k", "v")]}, None, {"n": None, "pairs": []}, None, None]
TYPE = pa.struct([("n", pa.int64()), ("pairs", pa.map_(pa.string(), pa.string()))])


class Failing(io.BytesIO):
    """A file on a disk that fails."""

    def read(self, *_: Any) -> bytes:
        raise OSError(errno.EIO, "Input/output error")


def parquet(*, statistics: bool = True) -> bytes:
    buffer = io.BytesIO()
    table = pa.table({"a": pa.array(ROWS, TYPE)})
    pq.write_table(table, buffer, row_group_size=3, write_statistics=statistics)
    return buffer.getvalue()


def source(*, statistics: bool = True, slice_rows: int = 10) -> ParquetSource:
    storage = MemoryStorage(f"memory://{uuid.uuid4()}")
    storage.create("f", parquet(statistics=statistics))
    return ParquetSource(storage, storage.head("f"), slice_rows=slice_rows)


@pytest.mark.parametrize("attribute", ["footer", "leaves", "int96_leaves"])
def test_footers_of_several_files_are_read_at_the_same_time(attribute: str) -> None:
    both = Barrier(2, timeout=5)

    class Meeting(MemoryStorage):
        def open(self, path: str, *, size: int | None = None) -> Any:
            both.wait()
            return super().open(path, size=size)

    storage = Meeting(f"memory://{uuid.uuid4()}")
    storage.create("f", parquet())
    info = storage.head("f")
    sources = [ParquetSource(storage, info, slice_rows=10) for _ in range(2)]
    with ThreadPoolExecutor(2) as threads:
        # If the first had to be done before the second begins, the two would never meet.
        assert len([*threads.map(lambda source: getattr(source, attribute), sources)]) == 2


def test_nulls_are_those_of_the_leaf_and_of_what_is_above_it() -> None:
    assert [source().nulls(group, "a.n") for group in range(2)] == [2, 2]
    assert [source().all_null(group, "a.n") for group in range(2)] == [False, True]
    assert [source().rows(group) for group in range(2)] == [3, 2]


def test_nulls_are_unknown_where_the_footer_does_not_tell() -> None:
    assert source(statistics=False).nulls(1, "a.n") is None
    assert not source(statistics=False).all_null(1, "a.n")


@pytest.mark.parametrize("column", ["a", "a.n", "a.pairs", "a.pairs.key_value.key"])
def test_a_column_is_there_at_every_depth(column: str) -> None:
    assert source().has(column)


@pytest.mark.parametrize("column", ["b", "a.nn", "a.n.x", "a.pair", ""])
def test_other_columns_are_not(column: str) -> None:
    assert not source().has(column)


@pytest.mark.parametrize(("slice_rows", "sizes"), [(10, [3]), (2, [2, 1]), (1, [1, 1, 1])])
def test_a_row_group_comes_in_slices(slice_rows: int, sizes: list[int]) -> None:
    sliced = source(slice_rows=slice_rows)
    batches = list(sliced.batches(0, ["a.n"]))
    assert [batch.num_rows for batch in batches] == sizes
    assert sliced.is_large(0) == (len(sizes) > 1)
    assert [row for batch in batches for row in batch.column("a").to_pylist()] == [
        row and {"n": row["n"]} for row in ROWS[:3]
    ]


def test_an_exact_size_is_that_of_the_store() -> None:
    """A file in an object store that is opened with a size has that size, whatever there is."""
    storage = ObjectStorage(
        "test://t", "test://t", MemoryStore(), Capabilities(True, True, remote=True)
    )
    storage.create("f", parquet())
    right = storage.head("f")
    for size in (right.size - 1, right.size + 1):
        file = ParquetSource(storage, replace(right, size=size), slice_rows=10, exact_size=True)
        with pytest.raises(CorruptLogError, match=f"has {right.size} bytes, expected {size}"):
            _ = file.footer
    file = ParquetSource(storage, right, slice_rows=10, exact_size=True)
    assert file.footer.num_rows == len(ROWS)


def test_a_disk_that_fails_is_no_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What Arrow raises over damage is an OSError; what the store raises must be none."""
    (tmp_path / "f").write_bytes(parquet())
    storage = LocalStorage(str(tmp_path))
    file = ParquetSource(storage, storage.head("f"), slice_rows=10)

    def failing(descriptor: int, *_: object) -> Failing:
        os.close(descriptor)
        return Failing(parquet())

    monkeypatch.setattr(os, "fdopen", failing)
    with pytest.raises(StorageError, match="Input/output error"):
        _ = file.footer


def test_only_what_arrow_raises_is_damage() -> None:
    file = source()
    for error in (pa.ArrowInvalid("x"), OSError("x"), IndexError("x")):
        with pytest.raises(CorruptLogError, match=r"f is damaged: .*: x"), file.damage():
            raise error
    with pytest.raises(KeyError, match="x"), file.damage():
        raise KeyError("x")

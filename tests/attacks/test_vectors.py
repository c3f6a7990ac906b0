"""Deletion vectors that name more rows than there are, in a few bytes, or that are no vectors."""

from __future__ import annotations

import random
import struct
from contextlib import suppress

import numpy as np
import pyarrow as pa
import pytest
from pyroaring import BitMap, BitMap64

from airflow_delta.engine.arrow.action_schema import DELETION_VECTOR_TYPE
from airflow_delta.engine.changes.row_selection import read_entry_rows
from airflow_delta.engine.deletion_vectors import roaring, z85
from airflow_delta.engine.deletion_vectors.columns import read_deletion_vector_column
from airflow_delta.engine.errors import DeletionVectorError
from airflow_delta.engine.storage.memory import MemoryStorage
from tests.attacks.limited import run_limited
from tests.engine.changes.logs import inline_vector

NATIVE = 1681511376
STORAGE = MemoryStorage("memory://vectors/table")


def _native(*buckets: bytes, order: str = "<") -> bytes:
    parts = [struct.pack(f"{order}Ii", NATIVE, len(buckets))]
    for bucket in buckets:
        parts += [struct.pack(f"{order}i", len(bucket)), bucket]
    return b"".join(parts)


@pytest.mark.parametrize("order", ["<", ">"])
def test_a_bitmap_of_no_bytes_is_refused(order: str) -> None:
    with pytest.raises(DeletionVectorError, match=r"bitmap 1 of the native .* is damaged"):
        roaring.deserialize(_native(BitMap([1]).serialize(), b"", order=order))


def test_a_native_vector_of_many_rows_isnt_expanded() -> None:
    # 2 ** 32 rows in 900 kB: as numbers they take 48 GB.
    code = """
from pyroaring import BitMap
from airflow_delta.engine.deletion_vectors import roaring
import struct
bucket = BitMap(range(1 << 32)); bucket.run_optimize(); bucket = bucket.serialize()
data = struct.pack("<Iii", 1681511376, 1, len(bucket)) + bucket
assert len(data) < 1_000_000
print(len(roaring.deserialize(data)))
"""
    assert run_limited(code) == f"{1 << 32}\n"


def _vectors(*descriptors: dict[str, object] | None) -> pa.ChunkedArray:
    return pa.chunked_array([pa.array(descriptors, DELETION_VECTOR_TYPE)])


def test_no_vector_names_a_row_that_its_file_doesnt_have() -> None:
    vectors = _vectors(inline_vector([3, 9]), None, inline_vector([0]), inline_vector([7]))
    rows = pa.chunked_array([pa.array([10, 0, None, 8], pa.int64())])
    found = read_deletion_vector_column(vectors, STORAGE, table="t", num_rows=rows)
    assert {number: list(bitmap) for number, bitmap in found.items()} == {0: [3, 9], 2: [0], 3: [7]}
    short = pa.chunked_array([pa.array([9, 0, None, 8], pa.int64())])
    with pytest.raises(DeletionVectorError, match="names row 9, and its data file has 9 rows"):
        read_deletion_vector_column(vectors, STORAGE, table="t", num_rows=short)


def test_selections_of_changes_are_compared_with_their_files() -> None:
    deleted, selected = _vectors(None, None), _vectors(inline_vector([1]), inline_vector([2**40]))
    rows = pa.chunked_array([pa.array([2, 5], pa.int64())])
    with pytest.raises(DeletionVectorError, match=f"names row {2**40}, .* has 5 rows"):
        read_entry_rows(deleted, selected, STORAGE, table="t", num_rows=rows)


def test_damaged_vectors_are_refused_or_sets_of_positions() -> None:
    chance = random.Random(17)
    dense, runs = BitMap64(range(0, 200_000, 3)), BitMap64(range(300_000))
    runs.run_optimize()
    seeds = [roaring.serialize(each) for each in (BitMap64([1, 70_000, 2**40]), dense, runs)]
    seeds += [_native(BitMap([1, 5]).serialize(), BitMap([7]).serialize(), order=o) for o in "<>"]
    refused = 0
    for _ in range(1500):
        data = bytearray(chance.choice(seeds))
        for _ in range(chance.randint(1, 4)):
            # Mostly in the headers, which is where numbers are.
            at = chance.randrange(4, min(len(data), chance.choice([40, 100, len(data)])))
            match chance.randrange(4):
                case 0:
                    data[at] = chance.choice([0, 1, 127, 128, 255, chance.randrange(256)])
                case 1:
                    del data[at : at + chance.randint(1, 3)]
                case 2:
                    data[at:at] = bytes(chance.choices([0, 1, 58, 255], k=chance.randint(1, 8)))
                case _ if at > 6:
                    del data[at:]
        try:
            bitmap = roaring.deserialize(bytes(data))
        except DeletionVectorError:
            refused += 1
            continue
        assert not bitmap or bitmap.max() < 2**63
        if len(bitmap) < 1 << 20:
            rows = roaring.to_positions(bitmap)
            assert len(rows) == len(bitmap)
            assert (np.diff(rows) > 0).all()
    assert 500 < refused < 1500


@pytest.mark.parametrize("seed", range(4))
def test_damaged_z85_is_refused_or_bytes(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(500):
        text = list(z85.encode(bytes(chance.choices(range(256), k=4 * chance.randint(0, 6)))))
        for _ in range(chance.randint(0, 3)):
            text.insert(chance.randint(0, len(text)), chance.choice("0#é\x00\ud800\\ z"))
        with suppress(DeletionVectorError):
            assert len(z85.decode("".join(text))) <= len(text)

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pyroaring import BitMap64

from airflow_delta.engine.deletion_vectors import file_format, roaring, z85
from airflow_delta.engine.deletion_vectors.read import get_relative_path
from airflow_delta.engine.errors import DeletionVectorError
from airflow_delta.engine.model.dv_descriptor import DeletionVectorDescriptor
from airflow_delta.engine.storage.file_access import FileAccess
from airflow_delta.engine.storage.local import LocalStorage
from tests.deletion_vectors import read_deletion_vector

NAME = "deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin"
ENCODED = "^-aqEH.-t@S}K{vb[*k^"
ROWS = [3, 4, 7, 11, 18, 29]
DATA = roaring.serialize(BitMap64(ROWS))
IN_FILE = DeletionVectorDescriptor("u", ENCODED, 1, len(DATA), len(ROWS))


@pytest.fixture
def storage(tmp_path: Path) -> LocalStorage:
    return LocalStorage(str(tmp_path))


def write(storage: LocalStorage, *vectors: bytes, path: str = NAME) -> None:
    storage.replace(path, b"\x01" + b"".join(map(file_format.frame, vectors)))


def read(
    storage: LocalStorage, descriptor: DeletionVectorDescriptor, **kwargs: object
) -> list[int]:
    return list(read_deletion_vector(descriptor, storage, table="the table", **kwargs))  # type: ignore[arg-type]


def test_the_path_of_the_specification() -> None:
    descriptor = DeletionVectorDescriptor("u", "ab" + ENCODED, 4, 40, 6)
    assert get_relative_path(descriptor) == f"ab/{NAME}"
    assert get_relative_path(IN_FILE) == NAME


def test_the_inline_vector_of_the_specification(storage: LocalStorage) -> None:
    text = "wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L"
    assert read(storage, DeletionVectorDescriptor("i", text, None, 40, 6)) == ROWS


def test_padding_of_an_inline_vector_is_cut_off(storage: LocalStorage) -> None:
    data = roaring.serialize(BitMap64([1]))
    assert len(data) % 4 == 2
    text = z85.encode(data + b"\0\0")
    assert read(storage, DeletionVectorDescriptor("i", text, None, len(data), 1)) == [1]


@pytest.mark.parametrize("size", [len(DATA) + 1, len(DATA) - 4])
def test_an_inline_vector_of_another_size_is_refused(storage: LocalStorage, size: int) -> None:
    descriptor = DeletionVectorDescriptor("i", z85.encode(DATA), None, size, 6)
    with pytest.raises(DeletionVectorError, match=f"decodes to 44 bytes, its descriptor .* {size}"):
        read(storage, descriptor)


def test_a_vector_in_a_file(storage: LocalStorage) -> None:
    write(storage, DATA)
    assert read(storage, IN_FILE) == ROWS


def test_a_missing_offset_is_that_of_the_first_vector(storage: LocalStorage) -> None:
    write(storage, DATA)
    assert read(storage, replace(IN_FILE, offset=None)) == ROWS


def test_a_vector_below_a_prefix(storage: LocalStorage) -> None:
    write(storage, DATA, path=f"a b/{NAME}")
    assert read(storage, replace(IN_FILE, path_or_inline_dv=f"a b{ENCODED}")) == ROWS


@pytest.mark.parametrize("filler", [0, 100, 200_000])
def test_a_later_vector_of_a_file(storage: LocalStorage, filler: int) -> None:
    write(storage, b"x" * filler, DATA)
    assert read(storage, replace(IN_FILE, offset=1 + 8 + filler)) == ROWS


def test_a_file_that_is_far_away_is_still_of_version_1(storage: LocalStorage) -> None:
    storage.replace(NAME, b"\x02" + b"x" * 200_000 + file_format.frame(DATA))
    with pytest.raises(DeletionVectorError, match="found a file of another format"):
        read(storage, replace(IN_FILE, offset=200_001))


def test_an_absolute_path_is_decoded_once(storage: LocalStorage, tmp_path: Path) -> None:
    write(storage, DATA, path="with%25 and space/some.bin")
    encoded = f"file:{tmp_path}/with%2525%20and%20space/some.bin"
    descriptor = replace(IN_FILE, storage_type="p", path_or_inline_dv=encoded)
    assert read(storage, descriptor, open_uri=FileAccess(storage).locate) == ROWS
    with pytest.raises(DeletionVectorError, match="no access to files outside"):
        read(storage, descriptor)


def test_a_missing_file_is_named(storage: LocalStorage) -> None:
    with pytest.raises(DeletionVectorError, match=NAME) as caught:
        read(storage, IN_FILE)
    assert caught.value.table == "the table"
    assert (caught.value.path, caught.value.offset) == (NAME, 1)


@pytest.mark.parametrize("offset", [0, -1])
def test_an_offset_before_the_first_vector_is_refused(storage: LocalStorage, offset: int) -> None:
    write(storage, DATA)
    with pytest.raises(DeletionVectorError, match=f"offset {offset} .* at least 1"):
        read(storage, replace(IN_FILE, offset=offset))


def test_damage_names_the_file(storage: LocalStorage) -> None:
    damaged = bytearray(b"\x01" + file_format.frame(DATA))
    damaged[20] ^= 0x10
    storage.replace(NAME, bytes(damaged))
    with pytest.raises(DeletionVectorError, match=rf"offset 1 of {NAME} can't be read: .*CRC-32"):
        read(storage, IN_FILE)


@pytest.mark.parametrize("length", [0, 1, 3, len(DATA), len(DATA) + 8])
def test_a_truncated_file_is_refused(storage: LocalStorage, length: int) -> None:
    storage.replace(NAME, (b"\x01" + file_format.frame(DATA))[:length])
    with pytest.raises(DeletionVectorError, match=r"empty file|cut off"):
        read(storage, IN_FILE)


@pytest.mark.parametrize("cardinality", [5, 7])
def test_another_cardinality_is_refused(storage: LocalStorage, cardinality: int) -> None:
    write(storage, DATA)
    message = f"holds 6 positions, its descriptor states {cardinality}"
    with pytest.raises(DeletionVectorError, match=message):
        read(storage, replace(IN_FILE, cardinality=cardinality))


@pytest.mark.parametrize(
    ("storage_type", "text", "message"),
    [
        ("u", "short", "holds no UUID"),
        ("u", "^-aqEH.-t@S}K{vb[*k~", "character '~'"),
        ("u", f"../{ENCODED}", r"'\.\.'"),
        ("x", ENCODED, "storage type 'x'"),
        ("p", "file:/a%zz", "not followed by two hexadecimal digits"),
        ("i", "123", "expected a multiple of 5"),
    ],
)
def test_a_malformed_descriptor_is_refused(
    storage: LocalStorage, storage_type: str, text: str, message: str
) -> None:
    descriptor = replace(IN_FILE, storage_type=storage_type, path_or_inline_dv=text)
    with pytest.raises(DeletionVectorError, match=message):
        read(storage, descriptor, open_uri=FileAccess(storage).locate)


def descriptors(table: Path) -> Iterator[DeletionVectorDescriptor]:
    for commit in sorted((table / "_delta_log").glob("*.json")):
        for line in commit.read_text(encoding="utf-8").splitlines():
            for action in json.loads(line).values():
                if isinstance(action, dict) and action.get("deletionVector"):
                    yield DeletionVectorDescriptor.from_json(action["deletionVector"], commit.name)


@pytest.mark.parametrize(
    ("case", "count"),
    [
        ("cdf-table-with-dv", 8),
        ("dat-deletion_vectors", 1),
        ("table-with-dv-small", 1),
        ("table-with-dv-special-char", 1),
        ("spark-table-with-dv-small", 1),
        ("basic-dv-with-checkpoint", 1),
    ],
)
def test_every_vector_of_real_tables(
    golden_case: Callable[[str], Path], case: str, count: int
) -> None:
    """The cardinality that another engine wrote is the oracle: `read_deletion_vector` checks it."""
    table = golden_case(case)
    storage = LocalStorage(str(table))
    found = list(descriptors(table))
    assert len(found) >= count
    for descriptor in found:
        read(storage, descriptor, open_uri=FileAccess(storage).locate)


def test_the_rows_that_another_engine_deleted(golden_case: Callable[[str], Path]) -> None:
    table = golden_case("cdf-table-with-dv")
    storage = LocalStorage(str(table))
    rows = {d.path_or_inline_dv[-5:]: read(storage, d) for d in descriptors(table)}
    # Each vector holds the bytes of its 16-bit elements at its end; the last one is shortened.
    assert rows["##093"] == [3]
    assert len(rows) == 4

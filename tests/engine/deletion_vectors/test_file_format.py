from __future__ import annotations

import pytest

from airflow_delta.engine.deletion_vectors import file_format
from airflow_delta.engine.errors import DeletionVectorError

DATA = bytes.fromhex("d1d339640100000000000000000000003a30000001000000000001001000000000000900")
FRAMED = bytes.fromhex("00000024") + DATA + bytes.fromhex("2a671846")


def test_the_frame_of_a_known_vector() -> None:
    assert file_format.frame(DATA) == FRAMED
    assert file_format.unframe(FRAMED, size=36) == DATA


def test_what_follows_the_frame_is_left_alone() -> None:
    assert file_format.unframe(FRAMED + b"the next vector", size=36) == DATA


@pytest.mark.parametrize("length", [0, 3, 4, 43])
def test_a_frame_that_is_cut_off_is_refused(length: int) -> None:
    with pytest.raises(DeletionVectorError, match=f"found {length} of 44 bytes"):
        file_format.unframe(FRAMED[:length], size=36)


def test_a_frame_of_another_size_is_refused() -> None:
    with pytest.raises(DeletionVectorError, match=r"state the descriptor.s size of 35"):
        file_format.unframe(FRAMED, size=35)


@pytest.mark.parametrize("index", [4, 20, 39, 40, 43])
def test_a_flipped_bit_is_refused(index: int) -> None:
    damaged = bytearray(FRAMED)
    damaged[index] ^= 1
    with pytest.raises(DeletionVectorError, match="CRC-32"):
        file_format.unframe(bytes(damaged), size=36)


def test_a_checksum_of_zeros_is_no_missing_checksum() -> None:
    """A crash may leave the end of a file as zeros, and the protocol has no frame without a checksum."""
    with pytest.raises(DeletionVectorError, match="CRC-32"):
        file_format.unframe(FRAMED[:-4] + bytes(4), size=36)


def test_version_1_is_accepted() -> None:
    file_format.check_version(b"\x01\x00")


@pytest.mark.parametrize(
    ("head", "found"),
    [(b"", "an empty file,"), (b"\x00", "a file of another"), (b"\x02", "a file of another")],
)
def test_other_versions_are_refused(head: bytes, found: str) -> None:
    with pytest.raises(DeletionVectorError, match=f"found {found}.* expected version 1"):
        file_format.check_version(head)

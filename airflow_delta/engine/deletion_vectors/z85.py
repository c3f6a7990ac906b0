"""Z85: bytes as text that needs no escaping in JSON.

Four bytes, read as one big-endian number, become five digits of base 85, most significant first.
The alphabet is that of ZeroMQ's RFC 32; Python's ``base64.b85encode`` has another. Descriptors of
deletion vectors use it for UUIDs (16 bytes, 20 characters) and for whole inline vectors.

Plain Z85 knows only multiples of four bytes. Writers built on the Rust crate ``z85`` shorten the
last group of other lengths: a tail of ``n`` bytes becomes ``4 - n`` times ``#`` and ``n + 1``
digits. ``#`` is the digit 84, with which no whole group can begin (84·85⁴ > 2³²), so the two never
clash, and `decode` reads both.

Spec: PROTOCOL.md, "Deletion Vector Descriptor Schema".
"""

from __future__ import annotations

from airflow_delta.engine.errors import DeletionVectorError

__all__ = ["decode", "encode"]

_ALPHABET = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_DIGITS = {character: digit for digit, character in enumerate(_ALPHABET)}
_TAIL_PADDING = "#"


def encode(data: bytes) -> str:
    """Encode bytes whose number is a multiple of four.

    Raises:
        DeletionVectorError: the number of bytes is not a multiple of four.
    """
    if len(data) % 4:
        raise DeletionVectorError(
            f"Z85 can't encode {len(data)} bytes: expected a multiple of 4; pad them with zeros"
        )
    text: list[str] = []
    for start in range(0, len(data), 4):
        value = int.from_bytes(data[start : start + 4], "big")
        group = ""
        for _ in range(5):
            value, digit = divmod(value, 85)
            group = _ALPHABET[digit] + group
        text.append(group)
    return "".join(text)


def decode(text: str) -> bytes:
    """Decode text, whole groups or with the shortened last group that Rust writers leave.

    Raises:
        DeletionVectorError: the length is not a multiple of five, a character is not of the
            alphabet, or a group stands for more than four bytes can hold.
    """
    if len(text) % 5:
        raise DeletionVectorError(
            f"not Z85: found {len(text)} characters, expected a multiple of 5"
        )
    body, tail = text, ""
    if text[-5:].startswith(_TAIL_PADDING):
        body, tail = text[:-5], text[-5:]
    groups = [
        _number(body[start : start + 5], size=4, at=start).to_bytes(4, "big")
        for start in range(0, len(body), 5)
    ]
    if tail:
        digits = tail.lstrip(_TAIL_PADDING)
        # One digit can't hold a byte: four or five paddings are damage, which `_number` reports.
        size = max(len(digits) - 1, 0)
        groups.append(_number(digits, size=size, at=len(body)).to_bytes(size, "big"))
    return b"".join(groups)


def _number(digits: str, *, size: int, at: int) -> int:
    """The number that some digits stand for, which must fit into ``size`` bytes."""
    value = 0
    for offset, character in enumerate(digits):
        if character not in _DIGITS:
            raise DeletionVectorError(
                f"not Z85: character {character!r} at index {at + offset} is not of its alphabet"
            )
        value = value * 85 + _DIGITS[character]
    if size == 0 or value >= 1 << (8 * size):
        raise DeletionVectorError(
            f"not Z85: the group {digits!r} at index {at} stands for no {max(size, 1)} bytes"
        )
    return value

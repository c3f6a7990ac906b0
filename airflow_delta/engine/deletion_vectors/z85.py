"""Z85: bytes as text that needs no escaping in JSON.

Four bytes, as one big-endian number, become five digits of base 85, most significant first. The alphabet is
that of ZeroMQ's RFC 32, not that of Python's ``base64.b85encode``. Descriptors of deletion vectors use it
for UUIDs (16 bytes, 20 characters) and for inline vectors.

Plain Z85 only allows multiples of four bytes. Writers with the Rust crate ``z85`` shorten the last group of
other lengths: ``n`` bytes become ``4 - n`` times ``#`` and ``n + 1`` digits. ``#`` is the digit 84, and no
whole group can begin with it (84·85⁴ > 2³²), so `decode` reads both forms.

Spec: PROTOCOL.md, "Deletion Vector Descriptor Schema".
"""

from __future__ import annotations

import base64

from airflow_delta.engine.errors import DeletionVectorError

__all__ = ["decode", "encode"]

_ALPHABET = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_PYTHON = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
"""The digits of ``base64.b85encode``, which groups bytes as Z85 does."""
_TO_PYTHON = str.maketrans(_ALPHABET, _PYTHON)
_FROM_PYTHON = str.maketrans(_PYTHON, _ALPHABET)
_DIGITS = frozenset(_ALPHABET)
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
    return base64.b85encode(data).decode("ascii").translate(_FROM_PYTHON)


def decode(text: str) -> bytes:
    """Decode text. Its last group may be shortened, as by writers in Rust.

    Raises:
        DeletionVectorError: the length is not a multiple of five, a character is not of the
            alphabet, or a group stands for more than four bytes can hold.
    """
    if len(text) % 5:
        raise DeletionVectorError(
            f"not Z85: found {len(text)} characters, expected a multiple of 5"
        )
    if not _DIGITS.issuperset(text):
        at, character = next((at, c) for at, c in enumerate(text) if c not in _DIGITS)
        raise DeletionVectorError(
            f"not Z85: character {character!r} at index {at} is not of its alphabet"
        )
    whole = len(text) - 5 * text[-5:].startswith(_TAIL_PADDING)
    try:
        body = base64.b85decode(text[:whole].translate(_TO_PYTHON))
    except ValueError as error:
        at = next(at for at in range(0, whole, 5) if not _fits(text[at : at + 5]))
        raise _too_large(text[at : at + 5], at=at, size=4) from error
    return body + _decode_tail(text[whole:], at=whole)


def _fits(group: str) -> bool:
    try:
        base64.b85decode(group.translate(_TO_PYTHON))
    except ValueError:
        return False
    return True


def _decode_tail(tail: str, *, at: int) -> bytes:
    """Decode a shortened group: it has one byte fewer than digits after its padding."""
    digits = tail.lstrip(_TAIL_PADDING)
    if not tail:
        return b""
    value = 0
    for character in digits:
        value = value * 85 + _ALPHABET.index(character)
    # One digit can't hold a byte: four or five paddings are damage.
    size = max(len(digits) - 1, 0)
    if size == 0 or value >= 1 << (8 * size):
        raise _too_large(digits, at=at, size=size)
    return value.to_bytes(size, "big")


def _too_large(group: str, *, at: int, size: int) -> DeletionVectorError:
    return DeletionVectorError(
        f"not Z85: the group {group!r} at index {at} stands for no {max(size, 1)} bytes"
    )

"""Read a pyarrow expression as a flat sequence of tokens.

pyarrow has no API for the parts of an expression. But it pickles expressions, as an Arrow file: literals
and the options of functions are columns of one row, and the metadata of the schema is the tree, as pairs
in prefix order::

    field("a") > 5        call greater, field_ref a, literal 0, end greater
    field("s", "x")       nested_field_ref 2, field_ref s, field_ref x
    field("a").is_null()  call is_null, field_ref a, options 0, end is_null

The keys repeat, so a dict, as which pyarrow returns metadata, would lose pairs. They are read through the
Arrow C data interface instead, whose layout never changes.
"""

# Substrait, the other serialised form, rejects a whole predicate because of one cast, and pyarrow adds
# casts wherever types differ.

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

__all__ = ["Token", "UnreadableExpressionError", "expression_tokens"]


class UnreadableExpressionError(Exception):
    """pyarrow can't serialise the expression, or serialises it in an unknown form."""


@dataclass(frozen=True, slots=True)
class Token:
    """One token of an expression.

    Attributes:
        kind: ``call``, ``end``, ``field``, ``literal`` or ``options``.
        value: the function's name for ``call`` and ``end``; the names of a field from the top down,
            as a tuple; a `pyarrow.Scalar` for ``literal`` and ``options``.
    """

    kind: str
    value: Any


def expression_tokens(expression: Any) -> list[Token]:
    """Read the tokens of an expression, in prefix order.

    Raises:
        UnreadableExpressionError: the expression refers to a column by its number, or has an unknown form.
    """
    try:
        _, (buffer,) = expression.__reduce__()
        with pa.ipc.open_file(buffer) as file:
            pairs = _metadata_pairs(file.schema)
            values = [column[0] for column in file.get_batch(0).columns]
        return _tokens(pairs, values)
    except (pa.ArrowException, ValueError, LookupError, TypeError) as error:
        raise UnreadableExpressionError(str(error)) from error


def _tokens(pairs: list[tuple[str, str]], values: list[Any]) -> list[Token]:
    tokens = []
    stream = iter(pairs)
    for kind, value in stream:
        if kind in ("call", "end"):
            tokens.append(Token(kind, value))
        elif kind == "field_ref":
            tokens.append(Token("field", (value,)))
        elif kind == "nested_field_ref":
            names = [next(stream, ("", "")) for _ in range(int(value))]
            if any(key != "field_ref" for key, _ in names):
                raise UnreadableExpressionError(f"a nested field of {names}")
            tokens.append(Token("field", tuple(name for _, name in names)))
        elif kind in ("literal", "options"):
            tokens.append(Token(kind, values[int(value)]))
        else:
            raise UnreadableExpressionError(f"unknown token {kind!r}")
    return tokens


def _metadata_pairs(schema: pa.Schema) -> list[tuple[str, str]]:
    """Read the metadata of a schema in order, with repeated keys.

    https://arrow.apache.org/docs/format/CDataInterface.html: the third member of ``ArrowSchema`` points to
    the number of pairs, followed by the length and the bytes of each key and each value.
    """
    capsule = schema.__arrow_c_schema__()
    get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
    get_pointer.restype = ctypes.c_void_p
    get_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    members = ctypes.cast(get_pointer(capsule, b"arrow_schema"), ctypes.POINTER(ctypes.c_void_p))
    address = members[2]
    if not address:
        raise UnreadableExpressionError("no metadata")

    def _read_number() -> int:
        nonlocal address
        assert address is not None
        read = ctypes.c_int32.from_address(address).value
        address += 4
        return read

    def _read_text() -> str:
        nonlocal address
        length = _read_number()
        assert address is not None
        read = ctypes.string_at(address, length)
        address += length
        return read.decode()

    return [(_read_text(), _read_text()) for _ in range(_read_number())]

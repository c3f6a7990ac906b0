"""Read a pyarrow expression, which offers Python no way into it, as a flat sequence of tokens.

An expression can be pickled, and what pickle stores is an Arrow file: literals and the options of
functions are columns of one row each, and the tree is the schema's metadata, as pairs in prefix
order::

    field("a") > 5        call greater, field_ref a, literal 0, end greater
    field("s", "x")       nested_field_ref 2, field_ref s, field_ref x
    field("a").is_null()  call is_null, field_ref a, options 0, end is_null

Keys repeat, so Python's view of a schema's metadata, a dict, loses pairs. They are read through the
Arrow C data interface instead, whose layout is fixed for good. (Substrait, the other serialised form,
refuses whole predicates for one cast, and pyarrow casts silently wherever types differ.)
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

__all__ = ["Token", "UnreadableExpressionError", "expression_tokens"]


class UnreadableExpressionError(Exception):
    """pyarrow can't serialise the expression, or does it in another way than we know."""


@dataclass(frozen=True, slots=True)
class Token:
    """One step of the tree.

    Attributes:
        kind: ``call``, ``end``, ``field``, ``literal`` or ``options``.
        value: the function's name for ``call`` and ``end``; the names of a field from the top down,
            as a tuple; a `pyarrow.Scalar` for ``literal`` and ``options``.
    """

    kind: str
    value: Any


def expression_tokens(expression: Any) -> list[Token]:
    """The tokens of an expression, in prefix order.

    Raises:
        UnreadableExpressionError: it refers to a column by its number, or pyarrow's form is unknown.
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
            raise UnreadableExpressionError(f"unknown step {kind!r}")
    return tokens


def _metadata_pairs(schema: pa.Schema) -> list[tuple[str, str]]:
    """The metadata of a schema, repeated keys included, in order.

    https://arrow.apache.org/docs/format/CDataInterface.html: the third member of ``ArrowSchema`` is a
    pointer to the number of pairs, then for each key and each value its length and its bytes.
    """
    capsule = schema.__arrow_c_schema__()
    get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
    get_pointer.restype = ctypes.c_void_p
    get_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    members = ctypes.cast(get_pointer(capsule, b"arrow_schema"), ctypes.POINTER(ctypes.c_void_p))
    address = members[2]
    if not address:
        raise UnreadableExpressionError("no metadata")

    def number() -> int:
        nonlocal address
        assert address is not None
        read = ctypes.c_int32.from_address(address).value
        address += 4
        return read

    def text() -> str:
        nonlocal address
        length = number()
        assert address is not None
        read = ctypes.string_at(address, length)
        address += length
        return read.decode()

    return [(text(), text()) for _ in range(number())]

"""Read a line of the log with Python's JSON parser, by the exact rules and with exact errors.

This reads all lines except the file actions that `fast` can read. PROTOCOL.md, "Actions", leaves some
cases open. This engine's rules are:

* A line has at most one known action; ``null`` counts as missing. Unknown actions and fields, and the
  actions of checkpoints, are ignored. Of duplicate keys the last one counts.
* An integer may be written as ``5.0`` or ``1e3``. In a map of strings, numbers and booleans become
  strings. Nothing else is converted.
* ``path`` and the fields that identify a deletion vector are required: without them an action would be
  about another file. Any other field may be missing or null. Columns that aren't wanted aren't checked.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "FILE_KINDS",
    "NON_FILE_KINDS",
    "NO_ACTION",
    "InvalidLineError",
    "NonFileAction",
    "file_columns",
    "read_line",
]

FILE_KINDS = ("add", "remove")
"""The actions that become rows."""

NON_FILE_KINDS = frozenset({"protocol", "metaData", "txn", "domainMetadata", "commitInfo", "cdc"})
"""The other actions that a commit may have."""

_OF_CHECKPOINTS = ("checkpointMetadata", "sidecar")
NO_ACTION = re.compile(
    rb'\{(?:"(?!(?:'
    + "|".join((*FILE_KINDS, *sorted(NON_FILE_KINDS), *_OF_CHECKPOINTS)).encode()
    + rb')")\w+":(?:0|-?[1-9][0-9]{0,14}|true|false|null|"[ !#-\[\]-~]*"))?\}\r?'
)
"""A line that is certainly valid and has no known action: ``{}``, or one unknown key with a scalar.

A log may have millions of such lines, and parsing them takes five times as long as this pattern.
"""

_WHITE_SPACE = b" \t\r\n"
_EXACT_FLOAT = 2.0**53
_REQUIRED = frozenset({"path", "storageType", "pathOrInlineDv"})


class InvalidLineError(ValueError):
    """A line breaks the protocol. The message has the reason; the caller adds the location."""


class NonFileAction(NamedTuple):
    """An action of a commit that is no file action.

    No data class: a commit may have 100,000 of them, and to make a tuple takes a tenth of the time.

    Attributes:
        version: the version of the commit.
        kind: the action's name in the protocol, such as ``metaData``.
        value: the action's fields as in the JSON.
        position: the position in the log, comparable with the positions of the file actions.
    """

    version: int
    kind: str
    value: Mapping[str, Any]
    position: int


def read_line(content: bytes) -> tuple[str, dict[str, Any]] | None:
    """Read the known action of a line, as (kind, fields); None if it has none or is blank.

    Raises:
        InvalidLineError: the line isn't UTF-8, is no JSON object, or has several known actions.
    """
    if NO_ACTION.fullmatch(content) or not content.strip(_WHITE_SPACE):
        return None
    entry = _decoded(content)
    if not isinstance(entry, dict):
        raise InvalidLineError(f"expected a JSON object with one action, got {_named(entry)}")
    actions = [
        (kind, value)
        for kind, value in entry.items()
        if value is not None and (kind in FILE_KINDS or kind in NON_FILE_KINDS)
    ]
    if not actions:
        return None
    if len(actions) > 1:
        kinds = " and ".join(kind for kind, _ in actions)
        raise InvalidLineError(f"expected one action in a line, got {kinds}")
    kind, value = actions[0]
    return kind, _object(value, kind)


def _decoded(content: bytes) -> Any:
    try:
        text = content.decode("utf-8")
        try:
            # Nearly all lines have no white space around them. For these, `raw_decode` takes half the
            # time of `decode`, which has the better error messages.
            entry, end = _DECODER.raw_decode(text)
        except json.JSONDecodeError:
            end = -1
        return entry if end == len(text) else _DECODER.decode(text)
    except UnicodeDecodeError as error:
        reason = f"expected UTF-8, got byte 0x{content[error.start]:02x} at byte {error.start}"
        raise InvalidLineError(reason) from error
    except json.JSONDecodeError as error:
        raise InvalidLineError(f"not valid JSON: {error.msg} at character {error.pos}") from error
    except RecursionError as error:
        raise InvalidLineError("not readable: the JSON is nested too deeply") from error
    except ValueError as error:  # An integer of thousands of digits, or NaN or an infinity.
        raise InvalidLineError(f"not valid JSON: {error}") from error


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not a JSON value")


_DECODER = json.JSONDecoder(parse_constant=_refuse)


def file_columns(
    kind: str,
    rows: Sequence[Mapping[str, Any]],
    *,
    fields: Mapping[str, pa.DataType],
    failed: Callable[[int, InvalidLineError], Exception],
) -> list[pa.Array]:
    """Convert file actions of one kind to Arrow arrays, in the order of the fields.

    Args:
        kind: ``add`` or ``remove``, for messages.
        rows: the fields of each action.
        fields: the wanted columns and their types; ``path`` is among them.
        failed: creates the error to raise, from the number of a row and the reason.
    """
    from airflow_delta.engine.arrow.python_arrays import array_of

    columns = []
    for name, type_ in fields.items():
        read, where = _reader(type_), f"{kind}.{name}"
        values = []
        for number, row in enumerate(rows):  # A loop over the few rows that `fast` can't read.
            try:
                values.append(_field(row, name, read, where))
            except InvalidLineError as error:
                raise failed(number, error) from error
        columns.append(array_of(values, type_))
    return columns


_Reader: TypeAlias = Callable[[Any, str], Any]
"""Converts a value of JSON to the value of a column. The text names the value in messages."""


def _field(row: Mapping[str, Any], name: str, read: _Reader, where: str) -> Any:
    value = row.get(name)
    if value is not None:
        return read(value, where)
    if name in _REQUIRED:
        raise InvalidLineError(f"{where}: expected a string, got nothing")
    return None


def _reader(type_: pa.DataType) -> _Reader:
    import pyarrow as pa

    if pa.types.is_string(type_):
        return _text
    if pa.types.is_boolean(type_):
        return _boolean
    if pa.types.is_integer(type_):
        return partial(_integer, bits=type_.bit_width)
    if pa.types.is_map(type_):
        return _map
    return partial(_struct, readers={field.name: _reader(field.type) for field in type_})


def _struct(value: Any, where: str, *, readers: Mapping[str, _Reader]) -> dict[str, Any]:
    fields = _object(value, where)
    return {name: _field(fields, name, read, f"{where}.{name}") for name, read in readers.items()}


def _map(value: Any, where: str) -> dict[str, str | None]:
    entries = _object(value, where)
    return {_text(key, where): _entry(item, where, key) for key, item in entries.items()}


def _object(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InvalidLineError(f"{where}: expected a JSON object, got {_named(value)}")
    return value


def _boolean(value: Any, where: str) -> bool:
    if not isinstance(value, bool):
        raise InvalidLineError(f"{where}: expected true or false, got {_named(value)}")
    return value


def _text(value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise InvalidLineError(f"{where}: expected a string, got {_named(value)}")
    if value.isascii():
        return value
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:
        reason = f"{where}: expected Unicode text, got a lone surrogate at {error.start}"
        raise InvalidLineError(reason) from error
    return value


def _integer(value: Any, where: str, *, bits: int) -> int:
    whole = (isinstance(value, int) and not isinstance(value, bool)) or (
        isinstance(value, float) and value.is_integer() and abs(value) <= _EXACT_FLOAT
    )
    if not whole or not -(1 << bits - 1) <= value < 1 << bits - 1:
        raise InvalidLineError(f"{where}: expected an integer of {bits} bits, got {_named(value)}")
    return int(value)


def _entry(value: Any, where: str, key: str) -> str | None:
    """The value of a map of strings. Some writers store numbers and booleans."""
    if isinstance(value, str):
        return _text(value, where)
    if value is None:
        return None
    if isinstance(value, bool | int | float):
        return json.dumps(value)
    raise InvalidLineError(f"{where}.{key}: expected a string, got {_named(value)}")


def _named(value: Any) -> str:
    """A value for a message, as shortened JSON."""
    text = json.dumps(value)
    return text if len(text) <= 40 else f"{text[:40]}…"

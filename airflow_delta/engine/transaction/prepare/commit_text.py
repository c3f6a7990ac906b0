"""Write the text of a commit: one action per line, ``commitInfo`` first, as in-commit timestamps need it.

A commit may add a hundred thousand files. So the lines of ``add`` and ``remove`` are written field by
field, from the field tables of `JsonRecord`. This takes half the time of making dictionaries and encoding
them.

PROTOCOL.md, "Delta Log Entries".
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from json.encoder import encode_basestring
from operator import attrgetter
from typing import Any

from airflow_delta.engine.errors import InvalidArgumentError
from airflow_delta.engine.model.file_actions import AddFile, RemoveFile
from airflow_delta.engine.model.json_record import JsonRecord
from airflow_delta.engine.transaction.staged import Actions

__all__ = ["commit_text"]

_ENCODE = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode
"""One encoder for all lines: to make an encoder costs more than to encode a non-file action."""


def commit_text(actions: Actions, commit_info: Mapping[str, Any], *, timestamp_ms: int) -> bytes:
    """Write the content of the commit file.

    Args:
        actions: the prepared actions.
        commit_info: the commit's ``commitInfo``.
        timestamp_ms: the time of the commit. It becomes the ``deletionTimestamp`` of removes without one.

    Raises:
        InvalidArgumentError: a value can't be written as JSON in UTF-8: infinity, NaN, half a surrogate
            pair, or a value of a type that JSON lacks.
    """
    try:
        return "".join(_lines(actions, commit_info, timestamp_ms)).encode("utf-8")
    except (ValueError, TypeError, RecursionError) as error:
        raise InvalidArgumentError(
            f"the commit can't be written as JSON: {error}; expected texts, finite numbers, and lists "
            "and maps of them"
        ) from error


def _lines(actions: Actions, commit_info: Mapping[str, Any], timestamp_ms: int) -> Iterator[str]:
    """The lines in their order, each with its line break."""
    yield _line("commitInfo", commit_info)
    if actions.protocol:
        yield _line("protocol", actions.protocol.to_json())
    if actions.metadata:
        yield _line("metaData", actions.metadata.to_json())
    for txn in actions.transactions:
        yield _line("txn", txn.to_json())
    for domain in actions.domains.values():
        yield _line("domainMetadata", domain.to_json())
    # Loops over the files of one commit: they came as objects, from one writer.
    for remove in (*actions.removes, *actions.tombstones):
        yield _remove_line(_with_timestamp(remove, timestamp_ms))
    for add in actions.adds:
        yield _add_line(add)
    for cdc in actions.cdc:
        yield _line("cdc", cdc.to_json())


def _line(kind: str, value: Mapping[str, Any]) -> str:
    return f"{_ENCODE({kind: value})}\n"


def _line_writer(kind: str, record: type[JsonRecord]) -> Callable[[Any], str]:
    """Make a function that writes the line of an action. The action's first field must be required."""
    values_of = attrgetter(*record.log_fields)
    fields = [(f',"{field.key}":', field.write) for field in record.log_fields.values()]
    start = f'{{"{kind}":{{'

    def _write(action: Any) -> str:
        parts = []
        for value, (key, write) in zip(values_of(action), fields, strict=True):
            if value is None:
                continue
            # The commonest types first: to call the encoder costs more than all of these tests.
            if type(value) is str:
                text = encode_basestring(value)
            elif value is True:
                text = "true"
            elif value is False:
                text = "false"
            elif type(value) is int:
                text = str(value)
            elif type(value) is dict:
                text = _map_text(value)
            else:
                text = _ENCODE(value if write is None else write(value))
            parts.append(key + text)
        parts[0] = parts[0][1:]  # no comma before the first
        return f"{start}{''.join(parts)}}}}}\n"

    return _write


def _map_text(texts: Mapping[str, str | None]) -> str:
    entries = [
        f"{encode_basestring(key)}:{'null' if text is None else encode_basestring(text)}"
        for key, text in texts.items()
    ]
    return f"{{{','.join(entries)}}}"


_add_line = _line_writer("add", AddFile)
_remove_line = _line_writer("remove", RemoveFile)


def _with_timestamp(file: RemoveFile, timestamp_ms: int) -> RemoveFile:
    if file.deletion_timestamp is not None:
        return file
    return replace(file, deletion_timestamp=timestamp_ms)

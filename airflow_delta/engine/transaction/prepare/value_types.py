"""Every value that a commit would write is one that readers of the log can read.

The fields of an action are what the caller of a transaction made them, and Python doesn't ask of what
type. One that has another type than the protocol gives it, or is no 64-bit integer, makes the whole
table unreadable. So each field is put through the reader that the log's own actions are read by
(``log_fields`` of `JsonRecord`), which also says what it expected, and must come back as it was.

A commit may add a hundred thousand files, so that not each value is judged: values of one type are
judged alike, of integers by the least and the greatest. Only if something is wrong are the actions gone
through one by one, for the one to name.

Spec: PROTOCOL.md, "Actions".
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from operator import attrgetter
from typing import Any

import pyarrow as pa

from airflow_delta.engine.arrow.python_arrays import array_of, scalar_of
from airflow_delta.engine.arrow.statistics.parse import parse_stats
from airflow_delta.engine.errors import CorruptLogError
from airflow_delta.engine.model.actions import (
    AddCdcFile,
    AddFile,
    DomainMetadata,
    Metadata,
    Protocol,
    RemoveFile,
    Txn,
)
from airflow_delta.engine.model.json_record import JsonField, JsonRecord
from airflow_delta.engine.transaction.context import CommitContext
from airflow_delta.engine.transaction.staged import Actions

__all__ = ["check_values"]

_SCALARS = frozenset({str, bool, type(None)})
_FEW = 64
"""So few texts are sooner read one by one than handed to Arrow."""

_NUM_RECORDS = pa.struct([("numRecords", pa.int64())])


def check_values(actions: Actions, context: CommitContext) -> Actions:
    """Each field of each action has a value of the type and the range that the protocol gives it.

    Raises:
        ConstraintViolationError: one hasn't, or lacks a value that it must have; a path is empty; or
            statistics are no JSON object.
    """
    kinds: tuple[tuple[str, type[JsonRecord], Sequence[JsonRecord]], ...] = (
        ("protocol", Protocol, (actions.protocol,) if actions.protocol is not None else ()),
        ("metaData", Metadata, (actions.metadata,) if actions.metadata is not None else ()),
        ("txn", Txn, actions.transactions),
        ("domainMetadata", DomainMetadata, tuple(actions.domains.values())),
        ("add", AddFile, actions.adds),
        ("remove", RemoveFile, actions.removes),
        ("cdc", AddCdcFile, actions.cdc),
    )
    for kind, record, found in kinds:
        _check_type(kind, record, found, context)
        if not _are_sound(record.log_fields, found):
            raise context.violation(_first_problem(kind, found))
    for kind, files in (("add", actions.adds), ("remove", actions.removes), ("cdc", actions.cdc)):
        if not all(file.path for file in files):
            raise context.violation(f"{kind}.path: expected the path of a file, found ''")
    # Not those of removes: a file can be taken away as it stands in the log, whatever that says.
    _check_statistics(actions.adds, context)
    return actions


def _check_type(
    kind: str, record: type[JsonRecord], found: Sequence[Any], context: CommitContext
) -> None:
    for other in set(map(type, found)):
        if not issubclass(other, record):
            raise context.violation(
                f"{kind}: expected an object of the class {record.__name__}, found {other.__name__}"
            )


def _are_sound(table: Mapping[str, JsonField], records: Sequence[Any]) -> bool:
    """Whether the log can hold all fields of all records."""
    for name, field in table.items() if records else ():
        values: list[Any] = list(map(attrgetter(name), records))
        kinds = set(map(type, values))
        for kind in kinds:
            alike = values if len(kinds) == 1 else [v for v in values if type(v) is kind]
            if any(_problem(field, value) for value in _samples(kind, alike)):
                return False
            if issubclass(kind, JsonRecord) and not _are_sound(kind.log_fields, alike):
                return False
    return True


def _samples(kind: type, values: Sequence[Any]) -> Iterator[Any]:
    """Values that stand for all of one type."""
    if kind is int:
        yield min(values)
        yield max(values)
    elif kind in _SCALARS or issubclass(kind, JsonRecord):
        # Of a record the fields are judged afterwards, each for all.
        yield values[0]
    elif issubclass(kind, Mapping):
        yield {}
        items = chain.from_iterable(value.items() for value in values)
        entries = {(type(key), type(item)): (key, item) for key, item in items}
        for key, item in entries.values():
            yield {key: item}
    else:
        yield from values


def _problem(field: JsonField, value: Any, where: str = "") -> str | None:
    """What is wrong with the value of a field; None where the log can hold it."""
    try:
        written = value if value is None or field.write is None else field.write(value)
        read = field.read({field.key: written}, field.key, where)
    except CorruptLogError as error:
        return error.message
    except (AttributeError, TypeError, ValueError):
        found = f"the {type(value).__name__} {value!r}"
        return f"{where}.{field.key}: expected a value of the field's own type, found {found}"
    # Absent values may be read as what they stand for.
    texts = not isinstance(value, Mapping) or all(type(key) is str for key in value)
    if texts and (value is None or read == value):
        return None
    return f"{where}.{field.key}: found {value!r}, which would be read as {read!r}"


def _first_problem(kind: str, records: Sequence[JsonRecord]) -> str:
    """The message about the first record that isn't sound."""
    for record in records:
        # The name of the thing is the first field of every action but protocol.
        named = getattr(record, next(iter(record.log_fields)))
        for name, field in record.log_fields.items():
            value = getattr(record, name)
            found = _problem(field, value, kind)
            if found:
                return f"{found} (in the {kind} action of {named!r})"
    raise AssertionError(kind)  # what is wrong with a sample is wrong with its record


def _check_statistics(files: Sequence[AddFile], context: CommitContext) -> None:
    # An empty text is how some writers say that there are none.
    told = [file for file in files if file.stats]
    texts = [file.stats or "" for file in told]
    found = _first_without_object(texts)
    if found is not None:
        raise context.violation(
            f"add.stats of the file {told[found].path!r}: expected a JSON object, found "
            f"{texts[found]!r}"
        )


def _first_without_object(texts: Sequence[str]) -> int | None:
    """The place of the first text that is no JSON object in Unicode."""
    if len(texts) <= _FEW:
        return next((n for n, text in enumerate(texts) if not _is_object(text)), None)
    try:
        column = pa.chunked_array([array_of(texts, pa.string())])
    except UnicodeEncodeError:
        return next(n for n, text in enumerate(texts) if not _is_object(text))
    parsed = parse_stats(column, _NUM_RECORDS)
    if not parsed.null_count:
        return None
    place: int = parsed.is_null().index(scalar_of(True, pa.bool_())).as_py()
    return place


def _is_object(text: str) -> bool:
    try:
        text.encode()
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False

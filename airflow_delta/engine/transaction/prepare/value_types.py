"""Check that readers of the log can read every value that a commit would write.

The caller of a transaction makes the actions, and Python doesn't check the types of their fields. A value
of the wrong type, or an integer of more than 64 bits, would make the whole table unreadable. So each value
goes through the reader for actions of the log (``log_fields`` of `JsonRecord`), and must come back
unchanged. `check_values` does this for all actions of a commit.

PROTOCOL.md, "Actions".
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
"""Up to so many texts are faster to parse one by one than with Arrow."""

_NUM_RECORDS = pa.struct([("numRecords", pa.int64())])


def check_values(actions: Actions, context: CommitContext) -> Actions:
    """Check the type and the range of each field of each action.

    Raises:
        ConstraintViolationError: a value has the wrong type or range; a required value is missing; a path
            is empty; or statistics are no JSON object.
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
    # Not those of removes: a file must be removable as the log has it, even with bad statistics.
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
    """Whether readers can read all fields of all records.

    A commit may add a hundred thousand files. So one value stands for all values of its type, and the
    least and the greatest integer for all integers. Only if something is wrong are all records checked
    one by one.
    """
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
        # The fields of nested records are checked afterwards, each for all records.
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
    """The fault of the value of a field; None if readers can read it."""
    try:
        written = value if value is None or field.write is None else field.write(value)
        read = field.read({field.key: written}, field.key, where)
    except CorruptLogError as error:
        return error.message
    except (AttributeError, TypeError, ValueError):
        found = f"the {type(value).__name__} {value!r}"
        return f"{where}.{field.key}: expected a value of the field's own type, found {found}"
    # A missing value may be read as its default.
    texts = not isinstance(value, Mapping) or all(type(key) is str for key in value)
    if texts and (value is None or read == value):
        return None
    return f"{where}.{field.key}: found {value!r}, which would be read as {read!r}"


def _first_problem(kind: str, records: Sequence[JsonRecord]) -> str:
    """The message about the first record with a wrong value."""
    for record in records:
        # The first field identifies the action, except that of protocol.
        named = getattr(record, next(iter(record.log_fields)))
        for name, field in record.log_fields.items():
            value = getattr(record, name)
            found = _problem(field, value, kind)
            if found:
                return f"{found} (in the {kind} action of {named!r})"
    raise AssertionError(kind)  # what is wrong with a sample is wrong with its record


def _check_statistics(files: Sequence[AddFile], context: CommitContext) -> None:
    # Some writers write an empty text if there are no statistics.
    with_statistics = [file for file in files if file.stats]
    texts = [file.stats or "" for file in with_statistics]
    index = _find_no_object(texts)
    if index is not None:
        raise context.violation(
            f"add.stats of the file {with_statistics[index].path!r}: expected a JSON object, found "
            f"{texts[index]!r}"
        )


def _find_no_object(texts: Sequence[str]) -> int | None:
    """The index of the first text that is no JSON object in Unicode; None if all are."""
    if len(texts) <= _FEW:
        return next((n for n, text in enumerate(texts) if not _is_object(text)), None)
    try:
        column = pa.chunked_array([array_of(texts, pa.string())])
    except UnicodeEncodeError:
        return next(n for n, text in enumerate(texts) if not _is_object(text))
    parsed = parse_stats(column, _NUM_RECORDS)
    if not parsed.null_count:
        return None
    index: int = parsed.is_null().index(scalar_of(True, pa.bool_())).as_py()
    return index


def _is_object(text: str) -> bool:
    try:
        text.encode()
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False

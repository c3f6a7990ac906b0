"""Parse commits: file actions as Arrow tables, and the few other actions as dicts.

1. `lines` cuts the commits into slices of some megabytes, which threads process one by one.
2. Each line is classified by its first bytes. `fast` reads the adds, and the removes, of a slice at once.
3. `exact` reads all other lines, and those that `fast` rejects, one by one.

The result is the same whichever module read a line. `replay` reconciles the actions afterwards.

Spec: PROTOCOL.md, "Delta Log Entries" and "Actions".
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from airflow_delta.engine.arrow.action_schema import (
    ADD_FIELDS,
    POSITION,
    REMOVE_FIELDS,
    VERSION,
    FileActions,
    add_schema,
    remove_schema,
)
from airflow_delta.engine.arrow.json.exact import (
    FILE_KINDS,
    NO_ACTION,
    NON_FILE_KINDS,
    InvalidLineError,
    NonFileAction,
    file_columns,
    read_line,
)
from airflow_delta.engine.arrow.json.fast import ActionShape, read_columns
from airflow_delta.engine.arrow.json.lines import NO_PATHS, Lines, Slice, cut_slices, index_lines
from airflow_delta.engine.arrow.numpy_arrays import int64_array, int64_view
from airflow_delta.engine.arrow.parallel import map_ordered
from airflow_delta.engine.errors import CorruptLogError, InvalidArgumentError

__all__ = ["NonFileAction", "ParsedCommits", "parse_commits", "stream_commits"]

_Digest = TypeVar("_Digest")

# A rejected text of so many lines is split and tried again, to isolate the cause.
_WORTH_SPLITTING = 256
_PARTS = 8
_WORTH_FILTERING = 10_000
_SOMETHING = re.compile(rb"^(?!" + NO_ACTION.pattern + rb"$)", re.MULTILINE)
"""The start of a line that doesn't match `NO_ACTION`."""
_SAMPLE_LINES = 64

# There are as many threads as cores; one more slice may wait.
_SLICES_AHEAD = (os.cpu_count() or 1) + 1

_PREFIXES = {kind: f'{{"{kind}":'.encode() for kind in FILE_KINDS}


@dataclass(frozen=True, slots=True)
class ParsedCommits:
    """The actions of consecutive commits, or of a slice of one.

    Attributes:
        files: the file actions, in log order.
        non_file_actions: the other known actions, in log order.
    """

    files: FileActions
    non_file_actions: tuple[NonFileAction, ...]


def parse_commits(
    commits: Iterable[tuple[int, bytes]],
    *,
    columns: Sequence[str] | None = None,
    kinds: Collection[str] | None = None,
    table: str,
    paths: Mapping[int, str] = NO_PATHS,
    small: bool = False,
) -> ParsedCommits:
    """Parse the content of commits.

    Args:
        commits: (version, content) in log order. For a long log this should be a generator: contents are
            taken while earlier ones are parsed, and released afterwards.
        columns: the wanted columns of adds and removes, in addition to those that identify a file; None
            for all.
        kinds: the other wanted actions, such as ``metaData``; None for all. Other lines are checked, but
            not kept: a long log has a large ``commitInfo`` for each commit.
        table: the table's location, for messages.
        paths: by version, the files that don't have the name of a commit, for messages.
        small: read line by line, which is faster for some ten lines.

    Raises:
        CorruptLogError: a commit is empty, or one of its lines breaks the protocol.
        StorageError: a commit doesn't fit into memory.
        InvalidArgumentError: neither adds nor removes have one of the columns.
    """
    parser = _parser(columns, kinds, table, by_line=small)
    slices = cut_slices(commits, table=table, paths=paths)
    parts = [parser.nothing(), *map_ordered(parser.parse, slices, ahead=_SLICES_AHEAD)]
    return ParsedCommits(
        FileActions(
            pa.concat_tables([part.files.adds for part in parts]),
            pa.concat_tables([part.files.removes for part in parts]),
        ),
        tuple(action for part in parts for action in part.non_file_actions),
    )


def stream_commits(
    commits: Iterable[tuple[int, bytes]],
    digest: Callable[[ParsedCommits], _Digest],
    *,
    kinds: Collection[str] = (),
    table: str,
    paths: Mapping[int, str] = NO_PATHS,
) -> Iterator[_Digest]:
    """Parse commits from the newest to the oldest, some megabytes at a time, without keeping them.

    Memory holds a few slices, however long the log is and however large a commit.

    Args:
        commits: (version, content), the newest first. This should be a generator: contents are taken when
            they are needed, and released afterwards.
        digest: processes a slice, whose actions are in log order. It is called in the parsing threads.
        kinds: the wanted actions other than adds and removes; see `parse_commits`.
        table: the table's location, for messages.
        paths: by version, the files that don't have the name of a commit, for messages.

    Yields:
        The result of ``digest`` for each slice, those with newer actions first.

    Raises:
        CorruptLogError: a commit is empty, or one of its lines breaks the protocol.
        StorageError: a commit doesn't fit into memory.
    """
    parser = _parser(None, kinds, table)
    slices = cut_slices(commits, table=table, paths=paths, newest_first=True)
    return map_ordered(lambda source: digest(parser.parse(source)), slices, ahead=_SLICES_AHEAD)


def _parser(
    columns: Sequence[str] | None,
    kinds: Collection[str] | None,
    table: str,
    *,
    by_line: bool = False,
) -> _Parser:
    unknown = sorted({*(columns or ())} - {*ADD_FIELDS, *REMOVE_FIELDS})
    if unknown:
        raise InvalidArgumentError(
            f"no such column of file actions: {', '.join(unknown)}", table=table
        )
    wanted = None if columns is None else tuple(columns)
    schemas = {"add": add_schema(wanted), "remove": remove_schema(wanted)}
    return _Parser(schemas, NON_FILE_KINDS if kinds is None else frozenset(kinds), by_line=by_line)


def _in_log_order(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """The batches of one slice, sorted by position if some lines were read one by one."""
    if len(batches) < 2:
        return batches
    positions = np.concatenate([int64_view(batch.column(POSITION)) for batch in batches])
    if (np.diff(positions) > 0).all():
        return batches
    order = int64_array(np.argsort(positions))
    return [pa.concat_batches(batches).take(order)]


@dataclass(slots=True)
class _SliceResult:
    non_file_actions: list[NonFileAction] = field(default_factory=list)
    batches: dict[str, list[pa.RecordBatch]] = field(
        default_factory=lambda: {kind: [] for kind in FILE_KINDS}
    )


class _Parser:
    """Parses slices, in several threads at once, which only share the `ActionShape` of each kind."""

    def __init__(
        self, schemas: Mapping[str, pa.Schema], kinds: Collection[str], *, by_line: bool
    ) -> None:
        self._kinds = kinds
        self._by_line = by_line
        self._fields = {
            kind: {column.name: column.type for column in schema}
            for kind, schema in schemas.items()
        }
        origin = [pa.field(VERSION, pa.int64()), pa.field(POSITION, pa.int64())]
        self._schemas = {kind: pa.schema([*schema, *origin]) for kind, schema in schemas.items()}
        self._shapes = {kind: ActionShape(kind) for kind in FILE_KINDS}

    def nothing(self) -> ParsedCommits:
        """The actions of no commits, with the right schemas."""
        return self._parsed(_SliceResult())

    def parse(self, source: Slice) -> ParsedCommits:
        """Parse a slice."""
        try:
            return self._parsed(self._read(source))
        except MemoryError as error:
            raise source.larger_than_memory() from error

    def _parsed(self, result: _SliceResult) -> ParsedCommits:
        adds, removes = (
            pa.Table.from_batches(_in_log_order(result.batches[kind]), self._schemas[kind])
            for kind in FILE_KINDS
        )
        non_file = sorted(result.non_file_actions, key=lambda action: action.position)
        return ParsedCommits(FileActions(adds, removes), tuple(non_file))

    def _read(self, source: Slice) -> _SliceResult:
        """Read the actions of a slice, not necessarily in order."""
        lines = index_lines(source)
        lines = lines.select(lines.stops > lines.starts)
        result = _SliceResult()
        if self._by_line or not _is_utf8(lines.text):
            self._read_exactly(lines, result)
            return result
        other = np.ones(len(lines), np.bool_)
        masks = {}
        closed = lines.end_with(ord("}"))
        for kind, prefix in _PREFIXES.items():
            masks[kind] = lines.start_with(prefix) & closed
            other &= ~masks[kind]
        self._read_exactly(_with_actions(lines.select(other)), result)
        for kind, mask in masks.items():
            if mask.any():
                self._read_fast(kind, lines.select(mask), result)
        return result

    def _read_fast(self, kind: str, lines: Lines, result: _SliceResult) -> None:
        """Read lines as columns; if that fails, split them to isolate the cause."""
        if self._read_columns(kind, lines, result):
            return
        pending = [lines]
        while pending:
            rejected = pending.pop()
            parts = list(rejected.split(_PARTS)) if len(rejected) >= _WORTH_SPLITTING else []
            still = [part for part in parts if not self._read_columns(kind, part, result)]
            if len(still) == len(parts):  # The cause is everywhere, or the lines are few.
                self._read_exactly(rejected, result)
            else:
                pending += still

    def _read_columns(self, kind: str, lines: Lines, result: _SliceResult) -> bool:
        """Read lines as columns, if necessary after learning from them; return whether it succeeded."""
        shape, fields = self._shapes[kind], self._fields[kind]
        columns = read_columns(lines.join(), shape, rows=len(lines), fields=fields)
        if columns is None and shape.learn(_sample(kind, lines)):
            columns = read_columns(lines.join(), shape, rows=len(lines), fields=fields)
        if columns is not None:
            result.batches[kind].append(self._batch(kind, lines, columns))
        return columns is not None

    def _read_exactly(self, lines: Lines, result: _SliceResult) -> None:
        """Read lines one by one, whatever they contain."""
        numbers: dict[str, list[int]] = {kind: [] for kind in FILE_KINDS}
        rows: dict[str, list[dict[str, Any]]] = {kind: [] for kind in FILE_KINDS}
        versions, positions = lines.versions().tolist(), lines.positions().tolist()
        for number, action in _actions(lines):
            kind, value = action
            if kind in rows:
                numbers[kind].append(number)
                rows[kind].append(value)
            elif kind in self._kinds:
                non_file = NonFileAction(versions[number], kind, value, positions[number])
                result.non_file_actions.append(non_file)
        for kind in FILE_KINDS:
            if rows[kind]:
                chosen = lines.pick(numbers[kind])
                columns = file_columns(
                    kind, rows[kind], fields=self._fields[kind], failed=partial(_failed, chosen)
                )
                result.batches[kind].append(self._batch(kind, chosen, columns))
                self._shapes[kind].learn(rows[kind])

    def _batch(self, kind: str, lines: Lines, columns: list[pa.Array]) -> pa.RecordBatch:
        origin = [int64_array(lines.versions()), int64_array(lines.positions())]
        return pa.RecordBatch.from_arrays([*columns, *origin], schema=self._schemas[kind])


def _with_actions(lines: Lines) -> Lines:
    """Drop the lines that match `NO_ACTION`, if there are many lines."""
    if len(lines) < _WORTH_FILTERING:
        return lines
    starts = [match.start() for match in _SOMETHING.finditer(lines.text)]
    return lines.select(np.isin(lines.starts, np.asarray(starts, np.int64)))


def _actions(lines: Lines) -> Iterator[tuple[int, tuple[str, dict[str, Any]]]]:
    """The known actions of lines, each with the index of its line."""
    for number, content in enumerate(lines.contents()):
        try:
            action = read_line(content)
        except InvalidLineError as error:
            raise _failed(lines, number, error) from error
        if action is not None:
            yield number, action


def _sample(kind: str, lines: Lines) -> list[dict[str, Any]]:
    head = lines.select(slice(_SAMPLE_LINES))
    return [value for _, (found, value) in _actions(head) if found == kind]


def _failed(lines: Lines, number: int, error: InvalidLineError) -> CorruptLogError:
    return lines.corrupt(number, str(error))


def _is_utf8(text: memoryview) -> bool:
    """Whether the text is valid UTF-8; Arrow checks it without decoding it, and without the global lock."""
    offsets = np.array([0, len(text)], np.int64)
    whole = pa.Array.from_buffers(
        pa.large_string(), 1, [None, pa.py_buffer(offsets), pa.py_buffer(text)], 0
    )
    try:
        whole.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True

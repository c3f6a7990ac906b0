"""Read commits into file actions as Arrow tables, and the few other actions as dicts.

A commit is a file of actions, a JSON object per line (PROTOCOL.md, "Delta Log Entries" and
"Actions"). Nearly all lines of a log are file actions, so they take a fast path, which is exact or
gives up; see the modules that do the steps:

1. `json_lines` cuts the commits into slices of some megabytes, which threads take one by one.
2. Each line is classed by its first bytes. Adds and removes go to `json_columns` as a whole.
3. Every other line, and lines that the fast reader refuses, go to `json_exact` one by one.

The result doesn't depend on the path a line took. Reconciling the actions is not done here.
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

# So many lines of a refused text are worth another try as a smaller text, to isolate the cause.
_WORTH_SPLITTING = 256
_PARTS = 8
_WORTH_FILTERING = 10_000
_SOMETHING = re.compile(rb"^(?!" + NO_ACTION.pattern + rb"$)", re.MULTILINE)
"""The begin of a line that isn't one of `NO_ACTION`."""
_SAMPLE_LINES = 64

# With as many threads as cores, one may wait to be taken in.
_SLICES_AHEAD = (os.cpu_count() or 1) + 1

_PREFIXES = {kind: f'{{"{kind}":'.encode() for kind in FILE_KINDS}


@dataclass(frozen=True, slots=True)
class ParsedCommits:
    """What a run of commits, or a slice of one, says.

    Attributes:
        files: the file actions, in log order.
        non_file_actions: every other known action, in log order.
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
        commits: (version, content) in log order. An iterator is drawn while earlier commits are
            parsed, and no content is held longer than that, so hand in a generator for a long log.
        columns: the columns of adds and removes wanted, beside those that identify a file; None
            for all.
        kinds: the other actions wanted, such as ``metaData``; None for all. The lines of the rest
            are checked and forgotten: a long log has a large ``commitInfo`` for each commit.
        table: the table's location, for messages.
        paths: by version, the files that don't have a commit's name, for messages.
        small: read a line at a time, which is quicker where there are only some ten.

    Raises:
        CorruptLogError: a commit is empty, or a line of it is not what the protocol allows.
        StorageError: a commit doesn't fit into memory.
        InvalidArgumentError: a column that neither adds nor removes have.
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
    """Parse commits newest first, some megabytes at a time, and keep nothing of them.

    What a slice is digested to comes before that of any slice with older actions. Memory is that of
    a few slices, however long the log is and however large a commit.

    Args:
        commits: (version, content), the newest first. Give a generator: contents are drawn as they
            are needed, and forgotten.
        digest: what to make of each slice, whose actions are in log order; called in the threads
            that parse.
        kinds: the actions other than adds and removes wanted; see `parse_commits`.
        table: the table's location, for messages.
        paths: by version, the files that don't have a commit's name, for messages.

    Raises:
        CorruptLogError: a commit is empty, or a line of it is not what the protocol allows.
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
    """The batches of one slice; sorted where lines in between took the exact path."""
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
    """Parses slices, from several threads at once, sharing only what was learnt of the shapes."""

    def __init__(
        self, schemas: Mapping[str, pa.Schema], kinds: Collection[str], *, by_line: bool
    ) -> None:
        self._kinds = kinds
        self._by_line = by_line
        self._fields = {
            kind: {column.name: column.type for column in schema}
            for kind, schema in schemas.items()
        }
        places = [pa.field(VERSION, pa.int64()), pa.field(POSITION, pa.int64())]
        self._schemas = {kind: pa.schema([*schema, *places]) for kind, schema in schemas.items()}
        self._shapes = {kind: ActionShape(kind) for kind in FILE_KINDS}

    def nothing(self) -> ParsedCommits:
        """What no commits at all say."""
        return self._parsed(_SliceResult())

    def parse(self, source: Slice) -> ParsedCommits:
        """All actions of a slice."""
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
        """All actions of a slice; what takes the exact path may come out of order."""
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
        """Read lines as columns; where that fails, split them to isolate the cause."""
        if self._read_columns(kind, lines, result):
            return
        pending = [lines]
        while pending:
            refused = pending.pop()
            parts = list(refused.parts(_PARTS)) if len(refused) >= _WORTH_SPLITTING else []
            still = [part for part in parts if not self._read_columns(kind, part, result)]
            if len(still) == len(parts):  # the cause is everywhere, or there is no point in more
                self._read_exactly(refused, result)
            else:
                pending += still

    def _read_columns(self, kind: str, lines: Lines, result: _SliceResult) -> bool:
        """Read lines as columns, if need be once more after learning from them."""
        shape, fields = self._shapes[kind], self._fields[kind]
        columns = read_columns(lines.joined(), shape, rows=len(lines), fields=fields)
        if columns is None and shape.learn(_sample(kind, lines)):
            columns = read_columns(lines.joined(), shape, rows=len(lines), fields=fields)
        if columns is not None:
            result.batches[kind].append(self._batch(kind, lines, columns))
        return columns is not None

    def _read_exactly(self, lines: Lines, result: _SliceResult) -> None:
        """Read lines one by one, whatever is in them."""
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
        places = [int64_array(lines.versions()), int64_array(lines.positions())]
        return pa.RecordBatch.from_arrays([*columns, *places], schema=self._schemas[kind])


def _with_actions(lines: Lines) -> Lines:
    """The lines without those that hold no action, where there are many lines."""
    if len(lines) < _WORTH_FILTERING:
        return lines
    starts = [match.start() for match in _SOMETHING.finditer(lines.text)]
    return lines.select(np.isin(lines.starts, np.asarray(starts, np.int64)))


def _actions(lines: Lines) -> Iterator[tuple[int, tuple[str, dict[str, Any]]]]:
    """The lines that hold a known action, by number."""
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
    """Whether the text is valid UTF-8, found without decoding it and without the interpreter lock."""
    offsets = np.array([0, len(text)], np.int64)
    whole = pa.Array.from_buffers(
        pa.large_string(), 1, [None, pa.py_buffer(offsets), pa.py_buffer(text)], 0
    )
    try:
        whole.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True

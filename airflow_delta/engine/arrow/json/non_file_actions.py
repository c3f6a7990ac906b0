"""Find the few actions of commits that aren't about files, without reading the rest.

Protocol and metadata stand in a handful of lines of a log that may have millions. A JSON object has a
key only if the key's name stands in its text, or is spelt with escapes; so commits without either are
passed over after a search for bytes, which costs a hundredth of parsing them.

What is passed over isn't checked: `json_actions` does that when the files are asked for. Nor is Arrow
needed for it: whoever asks a log for its history, or a table for its schema, loads neither pyarrow nor
numpy.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from heapq import merge
from itertools import groupby
from typing import Any

from airflow_delta.engine.arrow.json.exact import (
    FILE_KINDS,
    NO_ACTION,
    InvalidLineError,
    NonFileAction,
    read_line,
)
from airflow_delta.engine.arrow.json.line_locations import (
    NO_PATHS,
    corrupt_line,
    empty_commit,
    larger_than_memory,
    path_of,
)

__all__ = ["find_non_file_actions"]

_BOM = b"\xef\xbb\xbf"

# How JSON escapes a letter, in a name or anywhere else.
_ESCAPED_LETTER = b"\\u00"

# It ends with a brace because a null stands for no action, and another one may follow.
_FILE_ACTION = rf'\{{"(?:{"|".join(FILE_KINDS)})":\{{'.encode()
# The end of a line whose successor doesn't begin like a file action, and isn't one without an action.
_OTHER_LINE_NEXT = re.compile(
    rb"\n(?!\n|" + _FILE_ACTION + rb"|" + NO_ACTION.pattern + rb"(?:\n|\Z))"
)
_FILE_ACTION_HERE = re.compile(_FILE_ACTION)


def find_non_file_actions(
    commits: Iterable[tuple[int, bytes]],
    *,
    kinds: Collection[str],
    table: str,
    paths: Mapping[int, str] = NO_PATHS,
) -> tuple[NonFileAction, ...]:
    """The actions of some kinds, in log order.

    Args:
        commits: (version, content) in log order.
        kinds: the kinds wanted, such as ``metaData``; none that is about files.
        table: the table's location, for messages.
        paths: by version, the files that don't have a commit's name, for messages.

    Raises:
        CorruptLogError: a commit is empty, or a line that may hold such an action is not what the
            protocol allows.
        StorageError: a commit doesn't fit into memory.
    """
    names = tuple(f'"{kind}"'.encode() for kind in kinds)
    found: list[NonFileAction] = []
    position = 0
    for version, content in commits:
        if not content:
            raise empty_commit(version=version, path=path_of(version, paths), table=table)
        if any(name in content for name in (*names, _ESCAPED_LETTER)):
            path = path_of(version, paths)
            try:
                for start, action in _actions(
                    content, names, version=version, path=path, table=table
                ):
                    if action[0] in kinds:
                        found.append(NonFileAction(version, *action, position + start))
            except MemoryError as error:
                raise larger_than_memory(
                    len(content), version=version, path=path, table=table
                ) from error
        position += len(content) + 1
    return tuple(found)


def _actions(
    content: bytes, names: Collection[bytes], *, version: int, path: str, table: str
) -> Iterator[tuple[int, tuple[str, dict[str, Any]]]]:
    """The known actions of the promising lines of a commit, each with the offset of its line."""
    for start, line in _promising_lines(content, names):
        try:
            action = read_line(line)
        except InvalidLineError as error:
            number = content.count(b"\n", 0, start) + 1
            raise corrupt_line(
                line, str(error), version=version, path=path, line=number, table=table
            ) from error
        if action is not None:
            yield start, action


def _promising_lines(content: bytes, names: Collection[bytes]) -> Iterator[tuple[int, bytes]]:
    """The lines that don't begin like a file action, and those with one of the names.

    Each with the offset of its start, in the order of the file.
    """
    first = len(_BOM) if content.startswith(_BOM) else 0
    # Each of them ascends, and is made as it is asked for: a file may have millions of lines.
    starts: list[Iterator[int]]
    starts = [(match.end() for match in _OTHER_LINE_NEXT.finditer(content, first))]
    if not _FILE_ACTION_HERE.match(content, first):
        starts.append(iter((first,)))
    starts += [_lines_with(name, content, first) for name in names]
    for start, _ in groupby(merge(*starts)):
        line = content[start : _end(content, start)].removesuffix(b"\r")
        if line:
            yield start, line


def _lines_with(name: bytes, content: bytes, first: int) -> Iterator[int]:
    """Where the lines begin that have a text in them."""
    place = content.find(name, first)
    while place >= 0:
        yield max(content.rfind(b"\n", first, place) + 1, first)
        place = content.find(name, _end(content, place))


def _end(content: bytes, start: int) -> int:
    """Where the line ends in which a place is."""
    end = content.find(b"\n", start)
    return len(content) if end < 0 else end

"""Find the few non-file actions of commits, such as protocol and metadata, without parsing the rest.

`find_non_file_actions` has two ways. By default it searches each commit for the names of the wanted kinds,
which takes a hundredth of the time of parsing it, and needs neither pyarrow nor numpy. For a long log it
scans the lines of commits in threads with numpy, and skips lines by their first bytes: over gigabytes,
that takes an eighth of the time of the search.

Lines that are skipped aren't checked; `reader` checks them when it reads the files.

Spec: PROTOCOL.md, "Actions".
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import partial
from heapq import merge
from itertools import groupby
from typing import TYPE_CHECKING, Any

from airflow_delta.engine.arrow.json.exact import (
    FILE_KINDS,
    NO_ACTION,
    NON_FILE_KINDS,
    InvalidLineError,
    NonFileAction,
    read_line,
)
from airflow_delta.engine.model.line_locations import (
    NO_PATHS,
    corrupt_line,
    empty_commit,
    larger_than_memory,
    path_of,
)

if TYPE_CHECKING:
    from airflow_delta.engine.arrow.json.lines import Lines, Slice

__all__ = ["find_non_file_actions"]

_BOM = b"\xef\xbb\xbf"

# How JSON escapes a letter, in a name or anywhere else.
_ESCAPED_LETTER = b"\\u00"

# It ends with a brace because a null counts as no action, and another action may follow.
_FILE_ACTION = rf'\{{"(?:{"|".join(FILE_KINDS)})":\{{'.encode()
# The end of a line, if the next line neither starts like a file action nor has no action.
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
    is_long: bool = False,
) -> tuple[NonFileAction, ...]:
    """Find the actions of some kinds, in log order.

    Args:
        commits: (version, content) in log order. They may come from a generator; of a long log no
            content is kept.
        kinds: the wanted kinds, such as ``metaData``; no file actions.
        table: the table's location, for messages.
        paths: by version, the files that don't have the name of a commit, for messages.
        is_long: whether the log is long, so that loading numpy and using threads pays.

    Raises:
        CorruptLogError: a commit is empty, or a line that may have such an action breaks the protocol.
        StorageError: a commit doesn't fit into memory.
    """
    if is_long:
        return _scan_commits(commits, kinds=kinds, table=table, paths=paths)
    names = tuple(f'"{kind}"'.encode() for kind in kinds)
    found: list[NonFileAction] = []
    position = 0
    for version, content in commits:
        if not content:
            raise empty_commit(version=version, path=path_of(version, paths), table=table)
        # An object can only have a key whose name is in its text, or is written with escapes.
        if any(name in content for name in (*names, _ESCAPED_LETTER)):
            path = path_of(version, paths)
            try:
                for start, action in _search_commit(
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


def _search_commit(
    content: bytes, names: Collection[bytes], *, version: int, path: str, table: str
) -> Iterator[tuple[int, tuple[str, dict[str, Any]]]]:
    """The actions of the candidate lines of a commit, each with the offset of its line."""
    for start, line in _candidate_lines(content, names):
        try:
            action = read_line(line)
        except InvalidLineError as error:
            number = content.count(b"\n", 0, start) + 1
            raise corrupt_line(
                line, str(error), version=version, path=path, line=number, table=table
            ) from error
        if action is not None:
            yield start, action


def _candidate_lines(content: bytes, names: Collection[bytes]) -> Iterator[tuple[int, bytes]]:
    """The lines that don't start like a file action, and those that contain one of the names.

    Each with the offset of its start, in the order of the file.
    """
    first = len(_BOM) if content.startswith(_BOM) else 0
    # Each iterator ascends and is lazy, because a file may have millions of lines.
    starts: list[Iterator[int]]
    starts = [(match.end() for match in _OTHER_LINE_NEXT.finditer(content, first))]
    if not _FILE_ACTION_HERE.match(content, first):
        starts.append(iter((first,)))
    starts += [_file_actions_with(name, content, first) for name in names]
    for start, _ in groupby(merge(*starts)):
        line = content[start : _line_end(content, start)].removesuffix(b"\r")
        if line:
            yield start, line


def _file_actions_with(name: bytes, content: bytes, first: int) -> Iterator[int]:
    """The offsets of the lines that start like a file action, and contain a text."""
    position = content.find(name, first)
    while position >= 0:
        start = max(content.rfind(b"\n", first, position) + 1, first)
        if _FILE_ACTION_HERE.match(content, start):
            yield start
        position = content.find(name, _line_end(content, position))


def _line_end(content: bytes, position: int) -> int:
    """The end of the line that contains a position."""
    end = content.find(b"\n", position)
    return len(content) if end < 0 else end


def _scan_commits(
    commits: Iterable[tuple[int, bytes]],
    *,
    kinds: Collection[str],
    table: str,
    paths: Mapping[int, str],
) -> tuple[NonFileAction, ...]:
    from airflow_delta.engine.arrow.json.lines import cut_slices
    from airflow_delta.engine.arrow.parallel import map_ordered

    # The prefixes end with a brace because a null counts as no action.
    others = [
        f'{{"{kind}":{{'.encode() for kind in (*FILE_KINDS, *sorted(NON_FILE_KINDS - {*kinds}))
    ]
    scan = partial(_scan_slice, kinds=frozenset(kinds), others=others)
    slices = cut_slices(commits, table=table, paths=paths)
    return tuple(action for found in map_ordered(scan, slices) for action in found)


def _scan_slice(
    source: Slice, *, kinds: Collection[str], others: Iterable[bytes]
) -> list[NonFileAction]:
    from airflow_delta.engine.arrow.json.lines import index_lines

    try:
        return _scan_lines(index_lines(source), kinds=kinds, others=others)
    except MemoryError as error:
        raise source.larger_than_memory() from error


def _scan_lines(
    lines: Lines, *, kinds: Collection[str], others: Iterable[bytes]
) -> list[NonFileAction]:
    lines = lines.select(lines.stops > lines.starts)
    for prefix in others:
        lines = lines.select(~lines.start_with(prefix))
    versions, positions = lines.versions().tolist(), lines.positions().tolist()
    found = []
    # A loop over the remaining lines, which are few.
    for number, content in enumerate(lines.contents()):
        try:
            action = read_line(content)
        except InvalidLineError as error:
            raise lines.corrupt(number, str(error)) from error
        if action is not None and action[0] in kinds:
            found.append(NonFileAction(versions[number], *action, positions[number]))
    return found

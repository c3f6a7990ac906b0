"""Find the few actions of a long log that aren't about files, at the speed of finding its lines.

A line holds one action, so a line that begins like a file action, or like another one that nobody
asked for, is passed over by its first bytes; the others, which are few, are parsed. `json_small` looks
closer and needs no Arrow, for logs that are short; over gigabytes this takes an eighth of its time.

What is passed over isn't checked: `json_actions` does that when the files are asked for.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from functools import partial

from airflow_delta.engine.arrow.json.exact import (
    FILE_KINDS,
    NON_FILE_KINDS,
    InvalidLineError,
    NonFileAction,
    read_line,
)
from airflow_delta.engine.arrow.json.line_locations import NO_PATHS
from airflow_delta.engine.arrow.json.lines import Lines, Slice, cut_slices, index_lines
from airflow_delta.engine.arrow.parallel import map_ordered

__all__ = ["scan_non_file_actions"]


def scan_non_file_actions(
    commits: Iterable[tuple[int, bytes]],
    *,
    kinds: Collection[str],
    table: str,
    paths: Mapping[int, str] = NO_PATHS,
) -> tuple[NonFileAction, ...]:
    """The actions of some kinds, in log order.

    Args:
        commits: (version, content) in log order. Give a generator: contents are drawn as they are
            needed, and forgotten.
        kinds: the kinds wanted, such as ``metaData``; none that is about files.
        table: the table's location, for messages.
        paths: by version, the files that don't have a commit's name, for messages.

    Raises:
        CorruptLogError: a commit is empty, or a line that may hold such an action is not what the
            protocol allows.
        StorageError: a commit doesn't fit into memory.
    """
    # The prefixes end with a brace because a null stands for no action.
    others = [
        f'{{"{kind}":{{'.encode() for kind in (*FILE_KINDS, *sorted(NON_FILE_KINDS - {*kinds}))
    ]
    scan = partial(_scan, kinds=frozenset(kinds), others=others)
    slices = cut_slices(commits, table=table, paths=paths)
    return tuple(action for found in map_ordered(scan, slices) for action in found)


def _scan(source: Slice, *, kinds: Collection[str], others: Iterable[bytes]) -> list[NonFileAction]:
    try:
        return _actions(index_lines(source), kinds=kinds, others=others)
    except MemoryError as error:
        raise source.larger_than_memory() from error


def _actions(
    lines: Lines, *, kinds: Collection[str], others: Iterable[bytes]
) -> list[NonFileAction]:
    lines = lines.select(lines.stops > lines.starts)
    for prefix in others:
        lines = lines.select(~lines.start_with(prefix))
    versions, positions = lines.versions().tolist(), lines.positions().tolist()
    found = []
    # A loop over the lines that are left, which are few.
    for number, content in enumerate(lines.contents()):
        try:
            action = read_line(content)
        except InvalidLineError as error:
            raise lines.corrupt(number, str(error)) from error
        if action is not None and action[0] in kinds:
            found.append(NonFileAction(versions[number], *action, positions[number]))
    return found

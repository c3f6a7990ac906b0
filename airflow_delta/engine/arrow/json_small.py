"""Find the few actions of commits that aren't about files, without reading the rest.

Protocol and metadata stand in a handful of lines of a log that may have millions. A JSON object has a
key only if the key's name stands in its text, or is spelt with escapes; so commits without either are
passed over after a search for bytes, which costs a hundredth of parsing them.

What is passed over isn't checked: `json_actions` does that when the files are asked for.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

import numpy as np

from airflow_delta.engine.arrow.json_exact import (
    FILE_KINDS,
    InvalidLineError,
    SmallAction,
    read_line,
)
from airflow_delta.engine.arrow.json_lines import NO_PATHS, Lines, cut_slices, index_lines

__all__ = ["find_small_actions"]

# How JSON escapes a letter, in a name or anywhere else.
_ESCAPED_LETTER = b"\\u00"


def find_small_actions(
    commits: Iterable[tuple[int, bytes]],
    *,
    kinds: Collection[str],
    table: str,
    paths: Mapping[int, str] = NO_PATHS,
) -> tuple[SmallAction, ...]:
    """The actions of some kinds, in log order.

    Args:
        commits: (version, content) in log order.
        kinds: the kinds wanted, such as ``metaData``; none that is about files.
        table: the table's location, for messages.
        paths: by version, the files that don't have a commit's name, for messages.

    Raises:
        CorruptLogError: a commit is empty, or a line that may hold such an action is not what the
            protocol allows.
    """
    names = tuple(f'"{kind}"'.encode() for kind in kinds)
    promising = (
        (version, content)
        for version, content in commits
        # An empty commit is for cut_slices to refuse.
        if not content or any(name in content for name in (*names, _ESCAPED_LETTER))
    )
    return tuple(
        action
        for source in cut_slices(promising, table=table, paths=paths)
        for action in _actions(_promising_lines(index_lines(source), names))
        if action.kind in kinds
    )


def _promising_lines(lines: Lines, names: Collection[bytes]) -> Lines:
    """The lines that don't begin like a file action, and those with one of the names."""
    promising = lines.stops > lines.starts
    for kind in FILE_KINDS:
        promising &= ~lines.start_with(f'{{"{kind}":'.encode())
    text = bytes(lines.text)
    for name in names:
        place = text.find(name)
        while place >= 0:
            line = int(np.searchsorted(lines.starts, place, side="right")) - 1
            promising[line] = True
            place = text.find(name, int(lines.stops[line]))
    return lines.select(promising)


def _actions(lines: Lines) -> Iterator[SmallAction]:
    versions, positions = lines.versions().tolist(), lines.positions().tolist()
    # A loop over the lines that are left, which are few.
    for number, content in enumerate(lines.contents()):
        try:
            action = read_line(content)
        except InvalidLineError as error:
            raise lines.corrupt(number, str(error)) from error
        if action is not None:
            yield SmallAction(versions[number], *action, positions[number])

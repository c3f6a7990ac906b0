"""Where the paths of a sidecar lie, directory by directory, in a short text.

The least and the greatest path of a sidecar tell little where it holds many directories, as partitions
make them: each new file of each of them lies in between. Told for each directory, they often leave a
gap for it: where names ascend, a new one comes after all that are there, and a new directory
lies between two others.

A range is told by the first characters of its ends only, just enough to tell them apart. That makes
it wider, never narrower: who lies outside is certainly not in the sidecar.

Texts are compared by code points, which sort like their bytes in UTF-8.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["PathRanges", "any_within", "parsed_ranges", "ranges_of", "ranges_text"]

PathRanges: TypeAlias = tuple[tuple[str, str], ...]
"""Ascending pairs: a path is within one if it isn't less than the first text, and its beginning, as
long as the second text, isn't greater than that."""

_FURTHER = 8
"""Characters told of the ends of a range beyond those they have in common."""

_LONGEST = 2_000
"""Characters that all of them may take. They are part of the checkpoint's top level."""

_LAST_CHARACTER = "\U0010ffff"
_SEPARATOR = " "  # in a path it is encoded


def ranges_of(paths: pa.ChunkedArray) -> PathRanges | None:
    """A range for each directory; None where there is but one, or too many, or paths aren't sorted.

    Args:
        paths: of the rows of a sidecar.
    """
    array = paths.chunk(0) if paths.num_chunks == 1 else pa.concat_arrays(paths.chunks)
    rows = len(array)
    if rows < 2 or not pc.all(pc.less_equal(array[:-1], array[1:])).as_py():
        return None
    found: list[tuple[str, str]] = []
    start = length = 0
    while start < rows:
        least = array[start].as_py()
        directory = least[: least.rfind("/") + 1]
        # A search and not a pass: there are far fewer directories than paths.
        end = bisect_left(
            range(rows),
            directory + _LAST_CHARACTER,
            start + 1,
            key=lambda row: array[row].as_py(),
        )
        greatest = array[end - 1].as_py()
        told = _in_common(least, greatest) + _FURTHER
        found.append((least[:told], greatest[:told]))
        length += 2 * told
        start = end
        if length > _LONGEST or any(_SEPARATOR in text for text in found[-1]):
            return None
    return tuple(found) if len(found) > 1 else None


def ranges_text(ranges: PathRanges) -> str:
    """Ranges as one text."""
    return _SEPARATOR.join(text for pair in ranges for text in pair)


def parsed_ranges(text: str) -> PathRanges | None:
    """Ranges from their text; None for what isn't one."""
    texts = text.split(_SEPARATOR)
    if len(texts) % 2:
        return None
    return tuple(zip(texts[::2], texts[1::2], strict=True))


def any_within(ranges: PathRanges, paths: Sequence[str]) -> bool:
    """Whether one of some paths lies in one of the ranges.

    Args:
        ranges: the ranges.
        paths: ascending.
    """
    for least, greatest in ranges:
        place = bisect_left(paths, least)
        if place < len(paths) and paths[place][: len(greatest)] <= greatest:
            return True
    return False


def _in_common(first: str, second: str) -> int:
    """How many characters two texts have in common at their beginnings."""
    pairs = enumerate(zip(first, second, strict=False))
    return next((n for n, (a, b) in pairs if a != b), min(len(first), len(second)))

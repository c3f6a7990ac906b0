"""The path ranges of a sidecar, directory by directory, as a short text.

If a sidecar covers many directories, such as partitions, its least and greatest path say little:
each new file in these directories lies between them. A range for each directory often excludes new
files: where names ascend, a new file comes after all existing ones, and a new directory lies
between two others.

A range stores only the first characters of its two ends, just enough to distinguish them. That
makes the range wider, never narrower: a path outside is certainly not in the sidecar.

Texts are compared by code points, which sort like their bytes in UTF-8.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["PathRanges", "any_within", "find_ranges", "parse_ranges", "ranges_text"]

PathRanges: TypeAlias = tuple[tuple[str, str], ...]
"""Ascending pairs. A path is within a pair if it isn't less than the first text, and if its
beginning, cut to the length of the second text, isn't greater than that."""

_FURTHER = 8
"""Characters that the ends of a range keep after their common prefix."""

_LONGEST = 2_000
"""The longest text. It is part of the checkpoint's top level."""

_LAST_CHARACTER = "\U0010ffff"
_SEPARATOR = " "  # Encoded in paths.


def find_ranges(paths: pa.ChunkedArray) -> PathRanges | None:
    """A range for each directory; None if there is only one, or too many, or if paths aren't sorted.

    Args:
        paths: the paths of the rows of a sidecar.
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
        # A binary search, because there are far fewer directories than paths.
        end = bisect_left(
            range(rows),
            directory + _LAST_CHARACTER,
            start + 1,
            key=lambda row: array[row].as_py(),
        )
        greatest = array[end - 1].as_py()
        stored = _in_common(least, greatest) + _FURTHER
        found.append((least[:stored], greatest[:stored]))
        length += 2 * stored
        start = end
        if length > _LONGEST or any(_SEPARATOR in text for text in found[-1]):
            return None
    return tuple(found) if len(found) > 1 else None


def ranges_text(ranges: PathRanges) -> str:
    """Write ranges as one text."""
    return _SEPARATOR.join(text for pair in ranges for text in pair)


def parse_ranges(text: str) -> PathRanges | None:
    """Parse ranges from their text; None if it isn't valid."""
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
        index = bisect_left(paths, least)
        if index < len(paths) and paths[index][: len(greatest)] <= greatest:
            return True
    return False


def _in_common(first: str, second: str) -> int:
    """The length of the common prefix of two texts."""
    pairs = enumerate(zip(first, second, strict=False))
    return next((n for n, (a, b) in pairs if a != b), min(len(first), len(second)))

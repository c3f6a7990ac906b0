"""Which parts of a deletion vector file to read for some of its vectors.

Vectors that are near one another are read together: the bytes between them cost less than a second
round trip to an object store. What is far from the others is read by itself, so that a few vectors of
a large file don't cost all of it.

The first byte of the file, its version, is read with the first vectors, or by itself where these are
far from it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

__all__ = ["Extent", "Span", "spans"]

_NEAR = 64 * 1024
_LONGEST = 8 * 1024 * 1024


class Extent(NamedTuple):
    """Where one vector is in its file, in bytes: its frame is from ``start`` up to ``end``.

    ``number`` is what the caller knows it by. A tuple, as there may be a hundred thousand of them.
    """

    start: int
    end: int
    number: int


@dataclass(frozen=True, slots=True)
class Span:
    """A part of a file, and the vectors that lie in it.

    Attributes:
        start: its first byte.
        end: the first byte behind it.
        extents: the vectors, by their places; none, where only the version is read.
        number: that of a vector for which it is read.
    """

    start: int
    end: int
    extents: tuple[Extent, ...]
    number: int


def spans(extents: Iterable[Extent]) -> list[Span]:
    """The parts of one file to read for vectors in it, of which there is at least one.

    A part is longer than 8 MiB for a vector that is, and the first one by up to 64 KiB.
    """
    ordered = sorted(extents)
    groups, start, end = [[ordered[0]]], ordered[0].start, ordered[0].end
    # A loop over vectors: where a part ends depends on where it began.
    for extent in ordered[1:]:
        # What lies in the part already costs nothing, however long that is.
        if extent.end > end:
            if extent.start - end > _NEAR or extent.end - start > _LONGEST:
                groups.append([])
                start = extent.start
            end = extent.end
        groups[-1].append(extent)
    found = [_span(group) for group in groups]
    first = found[0]
    if first.start > _NEAR:
        return [Span(0, 1, (), first.number), *found]
    return [Span(0, first.end, first.extents, first.number), *found[1:]]


def _span(extents: list[Extent]) -> Span:
    end = max(extent.end for extent in extents)
    return Span(extents[0].start, end, tuple(extents), extents[0].number)

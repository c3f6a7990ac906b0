"""Plan which ranges of a deletion vector file to read for some of its vectors.

Vectors that are close together are read at once: the bytes between them cost less than another round trip
to an object store. A vector that is far from the others is read alone, so a few vectors of a large file
don't cost the whole file. The first byte of the file, its version, is read with the first vectors, or alone
if they are far from it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

__all__ = ["Extent", "Span", "plan_reads"]

_NEAR = 64 * 1024
_LONGEST = 8 * 1024 * 1024


class Extent(NamedTuple):
    """The range of a vector's frame in its file, in bytes, and the caller's number for the vector.

    It is a tuple, because there may be a hundred thousand of them.
    """

    start: int
    end: int
    number: int


@dataclass(frozen=True, slots=True)
class Span:
    """A range of a file that is read at once, and the vectors in it.

    Attributes:
        start: its first byte.
        end: the byte after its last one.
        extents: the vectors in it; empty if only the version is read.
        number: the number of a vector for which it is read.
    """

    start: int
    end: int
    extents: tuple[Extent, ...]
    number: int


def plan_reads(extents: Iterable[Extent]) -> list[Span]:
    """Plan which ranges of a file to read for one or more vectors.

    A range is at most 8 MiB long, unless it is a single larger vector. The first one may be up to 64 KiB
    longer.
    """
    ordered = sorted(extents)
    groups, start, end = [[ordered[0]]], ordered[0].start, ordered[0].end
    # A loop over vectors, because the end of a range depends on its start.
    for extent in ordered[1:]:
        # A vector inside the current range costs nothing, however long the range is.
        if extent.end > end:
            if extent.start - end > _NEAR or extent.end - start > _LONGEST:
                groups.append([])
                start = extent.start
            end = extent.end
        groups[-1].append(extent)
    found = [_make_span(group) for group in groups]
    first = found[0]
    if first.start > _NEAR:
        return [Span(0, 1, (), first.number), *found]
    return [Span(0, first.end, first.extents, first.number), *found[1:]]


def _make_span(extents: list[Extent]) -> Span:
    end = max(extent.end for extent in extents)
    return Span(extents[0].start, end, tuple(extents), extents[0].number)

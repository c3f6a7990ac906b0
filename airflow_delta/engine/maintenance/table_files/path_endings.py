"""Match paths by their endings: a log may name a file by an absolute path, a store by one below the root.

A hostile log can name a path of any length, with a slash at every other character, and thousands of files
may share a name. So paths aren't compared pair by pair, and no ending is made that is longer than the path
of a file can be.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

__all__ = ["LONGEST_PATH", "iter_known_endings", "longest_length"]

LONGEST_PATH = 4096
"""The most bytes, and so the most characters, of a file's path: 1,024 in object stores, this many in file
systems."""


def longest_length(endings: Collection[str]) -> int:
    """Return the length of the longest of some paths, of those that a file can have."""
    return max((len(each) for each in endings if len(each) <= LONGEST_PATH), default=0)


def iter_known_endings(path: str, endings: Collection[str], *, longest: int) -> Iterator[str]:
    """Yield the known paths with which a path ends, behind a slash, the shortest first.

    Args:
        path: the path.
        endings: the known paths, in a set or a dict.
        longest: the `longest_length` of the known paths.
    """
    slash = path.rfind("/")
    while slash >= 0 and len(path) - slash - 1 <= longest:
        end = path[slash + 1 :]
        if end in endings:
            yield end
        slash = path.rfind("/", 0, slash)

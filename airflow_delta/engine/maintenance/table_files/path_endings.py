"""What paths end with: the same file may be known by an absolute path and by one below a root.

A log can name a path of any length, with a segment for every other character, and thousands of files may
have one name. So nobody compares each path with each other one, and no ending is made that is longer than a
file can have.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

__all__ = ["LONGEST_PATH", "all_endings", "longest_of"]

LONGEST_PATH = 4096
"""No path of a file has more bytes, and so none has more characters. Stores take 1,024 bytes, file systems
up to so many."""


def longest_of(endings: Collection[str]) -> int:
    """How long the longest of some paths is, of those that a file can have."""
    return max((len(each) for each in endings if len(each) <= LONGEST_PATH), default=0)


def all_endings(path: str, endings: Collection[str], *, longest: int) -> Iterator[str]:
    """Those of some paths that stand behind a slash of another one, the shortest first.

    Args:
        path: the other one.
        endings: the paths, in a set or a dict.
        longest: by `longest_of`, of all of them.
    """
    slash = path.rfind("/")
    while slash >= 0 and len(path) - slash - 1 <= longest:
        end = path[slash + 1 :]
        if end in endings:
            yield end
        slash = path.rfind("/", 0, slash)

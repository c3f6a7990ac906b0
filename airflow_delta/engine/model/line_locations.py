"""The location of a line in the log, and the errors about commits and lines that name it.

All readers of JSON use these errors: those of commits in `log`, and those of actions in `arrow.json`.

Spec: PROTOCOL.md, "Delta Log Entries".
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from airflow_delta.engine.errors import CorruptLogError, StorageError
from airflow_delta.engine.remedies import PUT_COMMIT_BACK_OR_DELETE, PUT_FILE_BACK

__all__ = ["NO_PATHS", "corrupt_line", "empty_commit", "larger_than_memory", "path_of"]

_EXCERPT_CHARACTERS = 80

NO_PATHS: Mapping[int, str] = MappingProxyType({})
"""The paths of a log in which all commits have the name of a commit."""


def path_of(version: int, paths: Mapping[int, str]) -> str:
    """The file with the commit of a version; ``paths`` has those without the name of a commit."""
    return paths.get(version) or f"_delta_log/{version:020d}.json"


def empty_commit(*, version: int, path: str, table: str) -> CorruptLogError:
    """Create the error about a commit without content."""
    return CorruptLogError(
        f"incomplete commit: {path} is empty; expected at least one action. Its writer failed "
        f"or has not finished; {PUT_COMMIT_BACK_OR_DELETE}",
        table=table,
        version=version,
        path=path,
    )


def larger_than_memory(
    size: int, *, version: int, path: str, table: str, what: str = "commit"
) -> StorageError:
    """Create the error about a commit that takes more memory to parse than there is.

    Args:
        size: the bytes that were parsed at once.
        version: the version of the commit.
        path: the commit's file.
        table: the table's location.
        what: what the file is, if it is no commit.
    """
    return StorageError(
        f"read {path!r} failed: the {what} doesn't fit into memory once it is parsed ({size:,} bytes at "
        "once); give the process more memory, or see whether the file is what it should be",
        table=table,
        version=version,
        path=path,
        operation="read",
    )


def corrupt_line(
    content: bytes | memoryview, reason: str, *, version: int, path: str, line: int, table: str
) -> CorruptLogError:
    """Create the error about an invalid line, with its location.

    Args:
        content: the line.
        reason: what was expected, and what was found.
        version: the version of the commit.
        path: the commit's file.
        line: the number of the line in the file, from 1.
        table: the table's location.
    """
    # A character has at most four bytes. A line of 100 MB isn't decoded for its excerpt.
    raw = bytes(content[: 4 * _EXCERPT_CHARACTERS])
    excerpt = raw.decode("utf-8", "replace")[:_EXCERPT_CHARACTERS]
    return CorruptLogError(
        f"{path}, line {line}: {reason}; found: {excerpt!r}; {PUT_FILE_BACK}",
        table=table,
        version=version,
        path=path,
        line=line,
    )

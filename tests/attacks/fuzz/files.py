"""A directory as data: files, links, pipes and folders by their paths, laid out as often as needed."""

from __future__ import annotations

import os
import shutil
import socket
import stat
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeAlias

__all__ = [
    "File",
    "Folder",
    "Link",
    "Node",
    "Pipe",
    "Socket",
    "Tree",
    "fingerprint",
    "lay_out",
    "remove_all",
]

OLD_MS = 1_700_000_000_000
"""November 2023: older than any retention."""


@dataclass(frozen=True)
class File:
    """A regular file.

    Attributes:
        content: its bytes.
        modified_ms: when it was written.
        sparse_size: its size where it has a hole after the content.
        mode: its permissions.
    """

    content: bytes = b""
    modified_ms: int = OLD_MS
    sparse_size: int | None = None
    mode: int = 0o644


@dataclass(frozen=True)
class Link:
    """A symbolic link; its own time doesn't matter."""

    target: str


@dataclass(frozen=True)
class Folder:
    """A directory where a file may be expected."""


@dataclass(frozen=True)
class Pipe:
    """A named pipe, which nobody writes to."""


@dataclass(frozen=True)
class Socket:
    """A socket of the file system, which nobody listens to."""


Node: TypeAlias = File | Link | Folder | Pipe | Socket
Tree: TypeAlias = dict[str, Node]


def lay_out(tree: Mapping[str, Node], root: str) -> None:
    """Make the directory, which must not be there.

    What can't be there beside the others (below a file, below a link) is left out.
    """
    made = {root}
    os.makedirs(root)
    # Files before links, so that a link to a directory takes no file with it.
    for path in sorted(tree, key=lambda path: (isinstance(tree[path], Link), path)):
        full = f"{root}/{path}"
        parent = os.path.dirname(full)
        if any(isinstance(tree.get(above), Link) for above in _above(path)):
            continue
        try:
            if parent not in made:
                os.makedirs(parent, exist_ok=True)
                made.add(parent)
            if isinstance(tree[path], Link) and not os.path.lexists(full):
                os.symlink(tree[path].target, full)  # type: ignore[union-attr]
            else:
                _make(tree[path], full)
        except (FileExistsError, NotADirectoryError, IsADirectoryError):
            continue


def _above(path: str) -> Iterator[str]:
    """The directories that a path leads through."""
    while path := path.rpartition("/")[0]:
        yield path


def _make(node: Node, full: str) -> None:
    match node:
        case File():
            descriptor = os.open(full, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
            try:
                view = memoryview(node.content)
                while view:
                    view = view[os.write(descriptor, view) :]
                if node.sparse_size is not None:
                    os.truncate(descriptor, node.sparse_size)
                if node.mode != 0o644:
                    os.fchmod(descriptor, node.mode)
                os.utime(descriptor, ns=(node.modified_ms * 1_000_000,) * 2)
            finally:
                os.close(descriptor)
        case Link():
            os.symlink(node.target, full)
        case Folder():
            os.makedirs(full, exist_ok=True)
        case Pipe():
            os.mkfifo(full)
        case Socket():
            with socket.socket(socket.AF_UNIX) as listener, suppress(OSError):
                listener.bind(full)


Fingerprint: TypeAlias = dict[str, tuple[int, ...]]


def fingerprint(root: str, *, times: bool = True) -> Fingerprint:
    """What a directory looks like from outside: kind, inode, size and times of all that is in it.

    Args:
        root: the directory.
        times: with the times of access, which a read changes.
    """
    found: Fingerprint = {}
    pending = [root]
    while pending:
        current = pending.pop()
        status = os.lstat(current)
        entry: tuple[int, ...] = (status.st_mode, status.st_ino, status.st_mtime_ns)
        if not stat.S_ISDIR(status.st_mode):
            entry += (status.st_size, status.st_ctime_ns)
            entry += (status.st_atime_ns,) if times else ()
        found[current] = entry
        if stat.S_ISDIR(status.st_mode):
            with os.scandir(current) as entries:
                pending += [child.path for child in entries]
    return found


def remove_all(root: str) -> None:
    """Remove a directory and what is in it; links are removed, not followed."""
    shutil.rmtree(root, ignore_errors=False) if os.path.lexists(root) else None

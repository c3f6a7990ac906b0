"""Where a case is laid out: a directory, or a prefix of a bucket."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from itertools import count
from typing import Protocol

from airflow_delta.engine.errors import DeltaError
from airflow_delta.engine.storage.location import open_storage
from tests.attacks.fuzz.files import File, Fingerprint, Tree, fingerprint, lay_out, remove_all

__all__ = ["Bucket", "Directory", "Ground"]


class Ground(Protocol):
    """Where a case is laid out."""

    @property
    def root(self) -> str:
        """Of the table."""

    @property
    def options(self) -> Mapping[str, str]:
        """Of its storage."""

    def lay_out(self, tree: Tree) -> None:
        """Make the table, in the place of one that is there."""

    def fingerprint(self) -> Fingerprint:
        """What a change would change."""


class Directory:
    """A directory of the local file system."""

    options: Mapping[str, str] = {}

    def __init__(self, root: str) -> None:
        self.root = root

    def lay_out(self, tree: Tree) -> None:
        """See `Ground.lay_out`."""
        remove_all(self.root)
        lay_out(tree, self.root)

    def fingerprint(self) -> Fingerprint:
        """See `Ground.fingerprint`."""
        return fingerprint(self.root, times=False)


class Bucket:
    """A prefix of a bucket, another one for each layout; it has regular files only.

    Args:
        uri: of the bucket.
        options: of the storage.
        name: of the case.
    """

    def __init__(self, uri: str, options: Mapping[str, str], name: str) -> None:
        self.options = options
        self._numbers = count()
        self._uri, self._name = uri, name
        self.root = f"{uri}/{name}/none"

    def lay_out(self, tree: Tree) -> None:
        """See `Ground.lay_out`."""
        self.root = f"{self._uri}/{self._name}/{next(self._numbers)}"
        self._storage = open_storage(self.root, self.options)
        for path, node in tree.items():
            if isinstance(node, File) and node.sparse_size is None:
                with suppress(DeltaError, ValueError):  # of names that no object can have
                    self._storage.replace(path, node.content)

    def fingerprint(self) -> Fingerprint:
        """See `Ground.fingerprint`."""
        return {f"{self.root}/{f.path}": (f.size, f.modified_ms) for f in self._storage.walk("")}

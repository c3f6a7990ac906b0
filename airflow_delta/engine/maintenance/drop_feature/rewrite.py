"""`Rewrite`: data files that must be written anew before a feature can be dropped.

The engine sees files, not rows. Where a feature is in the files themselves, it says which ones have to be
written anew and how, and somebody who reads and writes rows does it:

* ``deletionVectors``: the files with a deletion vector, or whose path a removed file with one has
  (``snapshot/file_traces.py``). The commits take them out, and add files without
  the deleted rows.
* ``columnMapping``: all files. One commit takes them out, adds files whose columns are called by their
  logical names, and has the metadata that go with these (`metadata_without_mapping`).
* ``typeWidening``: the files with a column whose type is narrower than the table's. The commits take them
  out, and add files whose columns have the types of the table.

No row changes, so all of these actions have ``dataChange=false``. When the commits are made the engine
looks at the table again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeAlias

__all__ = ["Rewritable", "Rewrite", "Rewriter"]

Rewritable = Literal["deletionVectors", "columnMapping", "typeWidening"]
"""The features that are in data files; ``typeWidening`` stands for its preview as well."""


@dataclass(frozen=True, slots=True)
class Rewrite:
    """Files to be written anew.

    Attributes:
        feature: what they must be free of.
        version: the version in which they were found.
        num_files: how many they are.
        size_in_bytes: their sizes added up.
    """

    feature: Rewritable
    version: int
    num_files: int
    size_in_bytes: int

    def to_dict(self) -> dict[str, Any]:
        """The fields as plain JSON values."""
        return asdict(self)


Rewriter: TypeAlias = Callable[[str, Rewrite], object]
"""Writes the files anew and commits them, given the table's location; what it returns is passed over."""

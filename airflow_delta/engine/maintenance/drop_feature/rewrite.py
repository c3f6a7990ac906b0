"""`Rewrite`: the data files that must be rewritten before a feature can be dropped.

The engine sees files, not rows. If a feature is in the data files themselves, it says which ones must be
rewritten and how, and a `Rewriter` (Spark) does it:

* ``deletionVectors``: files with a deletion vector, or whose path a removed file with one has
  (``snapshot/feature_usage.py``). The commits remove them, and add files without the deleted rows.
* ``columnMapping``: all files. One commit removes them, adds files whose columns have their logical names,
  and sets the metadata for these (`metadata_without_mapping`).
* ``typeWidening``: files with a column whose type is narrower than the table's. The commits remove them,
  and add files whose columns have the table's types.

No row changes, so all of these actions have ``dataChange=false``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeAlias

__all__ = ["Rewritable", "Rewrite", "Rewriter"]

Rewritable = Literal["deletionVectors", "columnMapping", "typeWidening"]
"""The features that are in data files; ``typeWidening`` includes its preview."""


@dataclass(frozen=True, slots=True)
class Rewrite:
    """Files to rewrite.

    Attributes:
        feature: the feature that they must be free of.
        version: the version in which they were found.
        num_files: how many there are.
        size_in_bytes: the sum of their sizes.
    """

    feature: Rewritable
    version: int
    num_files: int
    size_in_bytes: int

    def to_dict(self) -> dict[str, Any]:
        """The fields as plain JSON values."""
        return asdict(self)


Rewriter: TypeAlias = Callable[[str, Rewrite], object]
"""Rewrites the files and commits them. It gets the table's location; its result is ignored."""

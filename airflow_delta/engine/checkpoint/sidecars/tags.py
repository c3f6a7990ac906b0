"""The tags of a sidecar action, which describe its rows so that the sidecar needn't be opened.

The tags of a ``sidecar`` action are the writer's own choice (PROTOCOL.md, "Sidecar File
Information"). Ours are texts of numbers and paths:

====================  ============================================================================
``numAdds``           the number of its adds
``numRemoves``        the number of its removes
``addsSizeSum``       the sum of the sizes of the files added, in bytes
``minPath``           the least path of its actions, in the order of their UTF-8 bytes
``maxPath``           the greatest
``pathRanges``        the ranges of paths between them, directory by directory; see `path_ranges`
``oldestDeletion``    the least ``deletionTimestamp`` of its removes, epoch ms
``newestDeletion``    the greatest
``statsForm``         the form in which its adds store statistics; see `SidecarLayout.stats_form`
====================  ============================================================================

The tags about paths exist only if all paths are relative. Absolute paths have several spellings, so
a range of texts wouldn't bound the files. If another writer's sidecar lacks the tags, it is read
once; the next checkpoint has them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from airflow_delta.engine.checkpoint.path_ranges import find_ranges, ranges_text
from airflow_delta.engine.replay.file_key import are_keys
from airflow_delta.engine.replay.tombstones import deletion_times

__all__ = ["SidecarFacts", "count_of", "facts_of_rows", "facts_of_tags"]

_NAMES = {
    "num_adds": "numAdds",
    "num_removes": "numRemoves",
    "adds_size_sum": "addsSizeSum",
    "min_path": "minPath",
    "max_path": "maxPath",
    "path_ranges": "pathRanges",
    "oldest_deletion": "oldestDeletion",
    "newest_deletion": "newestDeletion",
    "stats_form": "statsForm",
}
_TEXTS = ("min_path", "max_path", "path_ranges", "stats_form")


@dataclass(frozen=True, slots=True)
class SidecarFacts:
    """The facts about the rows of a sidecar. The module explains the tags.

    Attributes:
        num_adds: the number of adds.
        num_removes: the number of removes.
        adds_size_sum: in bytes.
        min_path: None if the paths aren't known.
        max_path: likewise.
        path_ranges: None if unknown; adds only.
        oldest_deletion: epoch ms, 0 for a remove without a timestamp; None if there are no removes.
        newest_deletion: likewise.
        stats_form: None if there are no adds, or if it is unknown.
    """

    num_adds: int
    num_removes: int
    adds_size_sum: int
    min_path: str | None = None
    max_path: str | None = None
    path_ranges: str | None = None
    oldest_deletion: int | None = None
    newest_deletion: int | None = None
    stats_form: str | None = None

    @property
    def rows(self) -> int:
        """The number of adds and removes."""
        return self.num_adds + self.num_removes

    def to_tags(self) -> dict[str, str]:
        """The tags of a ``sidecar`` action."""
        values = ((name, getattr(self, name)) for name in (f.name for f in fields(self)))
        return {_NAMES[name]: str(value) for name, value in values if value is not None}


def facts_of_tags(tags: Mapping[str, str | None] | None) -> SidecarFacts | None:
    """The facts in tags; None if a required one is missing.

    The range of paths isn't required: without it, any key may be inside.
    """
    values: dict[str, Any] = {}
    for name, tag in _NAMES.items():
        text = (tags or {}).get(tag)
        values[name] = text if name in _TEXTS else _number(text)
    if None in (values["num_adds"], values["num_removes"], values["adds_size_sum"]):
        return None
    if values["num_removes"] and None in (values["oldest_deletion"], values["newest_deletion"]):
        return None
    if values["num_adds"] and values["stats_form"] is None:
        return None
    if None in (values["min_path"], values["max_path"]):
        values["min_path"] = values["max_path"] = values["path_ranges"] = None
    return SidecarFacts(**values)


def count_of(tags: Mapping[str, str | None] | None, tag: str) -> int | None:
    """The number in a tag, such as ``numAdds``; None if there is none."""
    return _number((tags or {}).get(tag))


def facts_of_rows(
    adds: pa.Table | None, removes: pa.Table | None, *, stats_form: str | None
) -> SidecarFacts:
    """The facts about rows.

    Args:
        adds: with at least ``path`` and ``size``; None for none.
        removes: with at least ``path`` and ``deletionTimestamp``; None for none.
        stats_form: see `SidecarFacts`; dropped if there are no adds.
    """
    num_adds = adds.num_rows if adds is not None else 0
    num_removes = removes.num_rows if removes is not None else 0
    least, greatest = _range_of_paths([t["path"] for t in (adds, removes) if t is not None])
    ranges = None
    if least is not None and not num_removes and adds is not None:
        ranges = find_ranges(adds["path"])
    oldest = newest = None
    if removes is not None and num_removes:
        deleted = deletion_times(removes)
        oldest, newest = pc.min(deleted).as_py(), pc.max(deleted).as_py()
    return SidecarFacts(
        num_adds=num_adds,
        num_removes=num_removes,
        adds_size_sum=(pc.sum(adds["size"]).as_py() or 0) if adds is not None else 0,
        min_path=least,
        max_path=greatest,
        path_ranges=None if ranges is None else ranges_text(ranges),
        oldest_deletion=oldest,
        newest_deletion=newest,
        stats_form=stats_form if num_adds else None,
    )


def _range_of_paths(columns: list[pa.ChunkedArray]) -> tuple[str | None, str | None]:
    columns = [paths for paths in columns if len(paths)]
    if not columns:
        return None, None
    if not all(map(are_keys, columns)):
        return None, None
    return (
        min(pc.min(paths).as_py() for paths in columns),
        max(pc.max(paths).as_py() for paths in columns),
    )


def _number(text: str | None) -> int | None:
    try:
        return None if text is None else int(text)
    except ValueError:
        return None

"""Decide which sidecars of the previous checkpoint still hold, and which rows of the others are gone.

A row of a sidecar is gone if a commit after the checkpoint mentions its file; a remove is also gone once it
has expired. A sidecar holds if none of its rows is gone, and if it stores statistics in the columns that
the table requires now. To find out, as little as possible is read:

1. **nothing**, if the tags (`sidecars.tags`) are enough: their path ranges exclude all keys of the commits,
   and no remove has expired; or everything has expired;
2. **the paths** of a sidecar, if keys lie in its ranges;
3. **the keys** (and deletion timestamps), if a path was found, or if the tags are incomplete, as in
   sidecars of other writers. The new checkpoint adds the tags.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from airflow_delta.engine.arrow.parquet.action_file import ActionFile
from airflow_delta.engine.arrow.parquet.source import ParquetSource
from airflow_delta.engine.checkpoint.distinct_files import DistinctFiles
from airflow_delta.engine.checkpoint.path_ranges import any_within, parse_ranges
from airflow_delta.engine.checkpoint.row_encoder import FILE_KINDS
from airflow_delta.engine.checkpoint.sidecars.layout import stats_form
from airflow_delta.engine.checkpoint.sidecars.tags import (
    SidecarFacts,
    facts_of_rows,
    facts_of_tags,
)
from airflow_delta.engine.checkpoint.v2 import sidecar_file
from airflow_delta.engine.model.actions import Sidecar
from airflow_delta.engine.model.paths import encode_path
from airflow_delta.engine.parquet import PyarrowFallback, check_pages, read_stored_file
from airflow_delta.engine.replay.file_key import file_keys
from airflow_delta.engine.replay.reconcile import ReconciledCommits
from airflow_delta.engine.replay.tombstones import expired, unexpired
from airflow_delta.engine.storage.base import FileInfo, Storage

__all__ = ["Inspector", "JudgedSidecar", "SortedKeys"]

_COUNTED = {"add": "size", "remove": "deletionTimestamp"}
_TYPED = ("stats_parsed", "partitionValues_parsed")


@dataclass(frozen=True, slots=True)
class JudgedSidecar:
    """The decision about a sidecar.

    Attributes:
        action: refers to it by its bare file name, with tags that contain all of `facts`.
        facts: the facts about its rows.
        lost_adds: the number of adds that are gone.
        lost_removes: the number of removes that are gone.
        lost_size: the sum of the sizes of the files whose adds are gone, in bytes.
        fits: whether its adds store statistics as the table requires now.
    """

    action: Sidecar
    facts: SidecarFacts
    lost_adds: int
    lost_removes: int
    lost_size: int
    fits: bool

    @property
    def holds(self) -> bool:
        """Whether the sidecar can be kept as it is."""
        return self.fits and not self.lost_adds and not self.lost_removes

    @property
    def remaining(self) -> int:
        """The number of rows that aren't gone."""
        return self.facts.rows - self.lost_adds - self.lost_removes


class SortedKeys:
    """The keys that commits mention, sorted, so that those in a range of paths are found fast.

    Args:
        keys: distinct keys of `file_keys`: a path, then after a NUL the id of a deletion vector.
    """

    def __init__(self, keys: pa.Array) -> None:
        self._keys = keys.take(pc.sort_indices(keys))
        # A Python list: a binary search in an Arrow array makes a scalar at each step. The keys are
        # sorted, and so are their paths, because no character sorts before NUL.
        self._paths: list[str] = _paths_of(self._keys).to_pylist()

    def between(self, least: str | None, greatest: str | None) -> pa.Array:
        """The keys whose paths lie in a range, ends included; all keys if there is no range."""
        if least is None or greatest is None:
            return self._keys
        start = bisect_left(self._paths, least)
        end = bisect_right(self._paths, greatest)
        return self._keys.slice(start, end - start)

    def any_within(self, path_ranges: str | None) -> bool:
        """Whether a path may be in a sidecar with this tag; True if there is no tag."""
        ranges = None if path_ranges is None else parse_ranges(path_ranges)
        return ranges is None or any_within(ranges, self._paths)


class Inspector:
    """Decides about sidecars by the commits after their checkpoint. For use by several threads.

    Args:
        storage: the table's storage.
        commits: the commits.
        oldest_tombstone_ms: see ``tombstones.expired``.
        stats_form: the form in which adds must store statistics.
        checkpoint: the path of the checkpoint that refers to the sidecars, for errors.
    """

    def __init__(
        self,
        storage: Storage,
        commits: ReconciledCommits,
        *,
        oldest_tombstone_ms: int,
        stats_form: str,
        checkpoint: str,
    ) -> None:
        self._storage = storage
        self._commits = commits
        self._keys = SortedKeys(commits.keys)
        self._oldest_ms = oldest_tombstone_ms
        self._stats_form = stats_form
        self._checkpoint = checkpoint

    def file_of(self, sidecar: Sidecar) -> FileInfo:
        """The file of a sidecar.

        Raises:
            CorruptLogError: it isn't in the directory of sidecars.
        """
        return sidecar_file(sidecar, table=self._commits.table, checkpoint=self._checkpoint)

    def judge(self, sidecar: Sidecar) -> JudgedSidecar:
        """Decide about a sidecar.

        Raises:
            CorruptLogError: the sidecar is damaged.
            ObjectNotFoundError: it is gone.
        """
        # Another writer may have used a longer spelling, which not all readers support.
        sidecar = replace(sidecar, path=encode_path(self.file_of(sidecar).name))
        facts = facts_of_tags(sidecar.tags)
        if facts is None:
            return self._judge_unknown(sidecar)
        lost_adds = lost_removes = lost_size = 0
        keys = self._keys.between(facts.min_path, facts.max_path)
        if facts.num_adds and self._paths_meet(sidecar, facts, "add", keys):
            lost_adds, lost_size = self._gone(sidecar, "add", keys)
        if facts.num_removes:
            oldest, newest = facts.oldest_deletion or 0, facts.newest_deletion or 0
            if newest <= self._oldest_ms:
                lost_removes = facts.num_removes
            elif oldest <= self._oldest_ms or self._paths_meet(sidecar, facts, "remove", keys):
                lost_removes, _ = self._gone(sidecar, "remove", keys)
        fits = not facts.num_adds or facts.stats_form == self._stats_form
        return JudgedSidecar(sidecar, facts, lost_adds, lost_removes, lost_size, fits)

    def rows(self, sidecar: Sidecar, kind: str) -> Iterator[pa.Table]:
        """The adds or the removes that aren't gone, with all columns."""
        for table in self._read(sidecar, kind, None):
            rows = self._commits.survivors(table)
            yield rows if kind == "add" else unexpired(rows, self._oldest_ms)

    def add_files_to(self, sidecar: Sidecar, distinct: DistinctFiles) -> None:
        """Add all the files of a sidecar to a check for duplicates.

        Raises:
            CorruptLogError: the sidecar is damaged, or has a file that was added before.
            ObjectNotFoundError: it is gone.
        """
        for kind in FILE_KINDS:
            for table in self._read(sidecar, kind, ("path", "deletionVector")):
                distinct.meet(table)

    def check_whole(self, sidecar: Sidecar) -> None:
        """Check all of a sidecar for damage.

        Raises:
            CorruptLogError: the sidecar is damaged.
            ObjectNotFoundError: it is gone.
        """
        file = self.file_of(sidecar)
        try:
            with self._storage.open(file.path, size=file.size) as content:
                for group in read_stored_file(content, size=file.size).groups:
                    content.seek(group.start)
                    check_pages(group, content.read(group.length))
        except PyarrowFallback:
            # Decoding gives a better message about damage, and is the only check if there are no
            # checksums.
            for kind in FILE_KINDS:
                for _ in self._read(sidecar, kind, None):
                    pass

    def _judge_unknown(self, sidecar: Sidecar) -> JudgedSidecar:
        """Read the facts that the tags lack."""
        adds = _joined(self._read(sidecar, "add", ("path", "deletionVector", "size")))
        removes = _joined(
            self._read(sidecar, "remove", ("path", "deletionVector", "deletionTimestamp"))
        )
        form = self._stored_form(sidecar)
        facts = facts_of_rows(adds, removes, stats_form=form)
        keys = self._keys.between(None, None)
        lost_adds = lost_size = lost_removes = 0
        if adds is not None:
            gone = self._mentioned(adds, keys)
            lost_adds, lost_size = _count(gone), _count(adds["size"].filter(gone))
        if removes is not None:
            gone = pc.or_(self._mentioned(removes, keys), expired(removes, self._oldest_ms))
            lost_removes = _count(gone)
        tagged = replace(sidecar, tags={**(sidecar.tags or {}), **facts.to_tags()})
        fits = not facts.num_adds or form == self._stats_form
        return JudgedSidecar(tagged, facts, lost_adds, lost_removes, lost_size, fits)

    def _stored_form(self, sidecar: Sidecar) -> str:
        file = self.file_of(sidecar)
        source = ParquetSource(self._storage, file, slice_rows=1, exact_size=True)
        parsed = [
            pa.field(name, source.type_of("add", name))
            for name in _TYPED
            if source.has(f"add.{name}")
        ]
        return stats_form(texts=source.has("add.stats"), parsed=parsed)

    def _paths_meet(self, sidecar: Sidecar, facts: SidecarFacts, kind: str, keys: pa.Array) -> bool:
        """Whether the commits mention a path of the sidecar, with any deletion vector."""
        if not len(keys) or not self._keys.any_within(facts.path_ranges):
            return False
        paths = _paths_of(keys)
        # Usually a commit adds new files, so none of their paths is found.
        for table in self._read(sidecar, kind, ("path",)):
            # If the tags have a range of paths, all paths are their own keys.
            found = table["path"] if facts.min_path is not None else self._path_keys(table)
            if pc.any(pc.is_in(found.cast(paths.type), value_set=paths)).as_py():
                return True
        return False

    def _path_keys(self, actions: pa.Table) -> pa.ChunkedArray:
        return file_keys(_without_vectors(actions), table=self._commits.table)

    def _gone(self, sidecar: Sidecar, kind: str, keys: pa.Array) -> tuple[int, int]:
        """The number of actions that are gone, and the size of the files that were added, in bytes."""
        count = size = 0
        for table in self._read(sidecar, kind, ("path", "deletionVector", _COUNTED[kind])):
            gone = self._mentioned(table, keys)
            if kind == "remove":
                gone = pc.or_(gone, expired(table, self._oldest_ms))
            else:
                size += _count(table["size"].filter(gone))
            count += _count(gone)
        return count, size

    def _mentioned(self, actions: pa.Table, keys: pa.Array) -> pa.ChunkedArray:
        found = file_keys(actions, table=self._commits.table).cast(keys.type)
        return pc.is_in(found, value_set=keys)

    def _read(
        self, sidecar: Sidecar, kind: str, columns: tuple[str, ...] | None
    ) -> Iterator[pa.Table]:
        file = ActionFile(self._storage, self.file_of(sidecar), exact_size=True)
        # On the calling thread: the parallel work is over sidecars.
        for piece in file.pieces(kind, columns):
            yield from piece()


def _paths_of(keys: pa.Array) -> pa.Array:
    """The paths of keys, without the ids of deletion vectors."""
    return pc.replace_substring_regex(keys, pattern=r"(?s)\x00.*", replacement="")


def _without_vectors(actions: pa.Table) -> pa.Table:
    index = actions.schema.get_field_index("deletionVector")
    field = actions.schema.field(index)
    return actions.set_column(index, field, pa.nulls(actions.num_rows, field.type))


def _count(values: pa.ChunkedArray) -> int:
    """The sum of numbers, or the number of true values."""
    return int(pc.sum(values).as_py() or 0)


def _joined(tables: Iterator[pa.Table]) -> pa.Table | None:
    found = list(tables)
    return pa.concat_tables(found) if found else None

"""Which sidecars of the previous checkpoint still hold, and which rows of the others are gone.

A row of a sidecar is gone where a commit after the checkpoint mentions its file, and a remove is gone
when it has expired. A sidecar without such rows can be named again as it is. To tell, as little is read
as the case allows:

1. **nothing**: the tags (`sidecar_tags`) show that no key of the commits can be inside, by the ranges of
   paths, and that no remove has expired; or that all there is has expired;
2. **the paths**, of a sidecar in whose ranges keys lie: as a rule a commit adds files that are new, so
   that no path is found;
3. **the keys** (and deletion timestamps), where a path was found, or where the tags don't tell enough.

A sidecar of another writer, without such tags, is read once. The action that names it in the new
checkpoint has them, so that the next checkpoint begins at 1.

Sidecars that store statistics in other columns than the table's properties and schema ask for now
(edge case C6) don't hold: their adds are written anew.
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
from airflow_delta.engine.checkpoint.path_ranges import any_within, parsed_ranges
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
from airflow_delta.engine.parquet.refusals import NotReadHere
from airflow_delta.engine.parquet.stitch import check_pages, read_stored_file
from airflow_delta.engine.replay.file_key import file_keys
from airflow_delta.engine.replay.reconcile import ReconciledCommits
from airflow_delta.engine.replay.tombstones import expired, unexpired
from airflow_delta.engine.storage.base import FileInfo, Storage

__all__ = ["Inspector", "JudgedSidecar", "SortedKeys"]

_COUNTED = {"add": "size", "remove": "deletionTimestamp"}
_TYPED = ("stats_parsed", "partitionValues_parsed")


@dataclass(frozen=True, slots=True)
class JudgedSidecar:
    """What is to become of a sidecar.

    Attributes:
        action: names it by its bare file name, with tags that tell all of `facts`.
        facts: what is in it.
        lost_adds: how many of its adds are gone.
        lost_removes: how many of its removes are gone.
        lost_size: the sizes of the files whose adds are gone, summed up, in bytes.
        fits: whether its adds store statistics as the table wants it now.
    """

    action: Sidecar
    facts: SidecarFacts
    lost_adds: int
    lost_removes: int
    lost_size: int
    fits: bool

    @property
    def holds(self) -> bool:
        """Whether it can be named again as it is."""
        return self.fits and not self.lost_adds and not self.lost_removes

    @property
    def remaining(self) -> int:
        """The rows that aren't gone."""
        return self.facts.rows - self.lost_adds - self.lost_removes


class SortedKeys:
    """The keys that commits mention, in order, so that those in a range of paths are found fast.

    Args:
        keys: distinct keys of `file_keys`: a path, and after a NUL what tells of a deletion vector.
    """

    def __init__(self, keys: pa.Array) -> None:
        self._keys = keys.take(pc.sort_indices(keys))
        # A Python list: a binary search in an Arrow array makes a scalar at each step. As the keys are
        # in order, so are their paths, for no character comes before NUL.
        self._paths: list[str] = _paths_of(self._keys).to_pylist()

    def between(self, least: str | None, greatest: str | None) -> pa.Array:
        """The keys whose paths lie in a range, ends included; all of them where there is no range."""
        if least is None or greatest is None:
            return self._keys
        start = bisect_left(self._paths, least)
        end = bisect_right(self._paths, greatest)
        return self._keys.slice(start, end - start)

    def any_within(self, path_ranges: str | None) -> bool:
        """Whether a path may be in a sidecar with such a tag; True where there is none."""
        ranges = None if path_ranges is None else parsed_ranges(path_ranges)
        return ranges is None or any_within(ranges, self._paths)


class Inspector:
    """Judges sidecars by what the commits after their checkpoint come to. For use by several threads.

    Args:
        storage: the table's storage.
        commits: the commits.
        oldest_tombstone_ms: see ``tombstones.expired``.
        stats_form: how adds are to store statistics.
        checkpoint: the path of the checkpoint that names the sidecars, for errors.
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
        """Where a sidecar lies.

        Raises:
            CorruptLogError: not among the sidecars.
        """
        return sidecar_file(sidecar, table=self._commits.table, checkpoint=self._checkpoint)

    def judge(self, sidecar: Sidecar) -> JudgedSidecar:
        """Find out what is to become of a sidecar.

        Raises:
            CorruptLogError: the sidecar is damaged.
            ObjectNotFoundError: it is gone.
        """
        # Readers needn't understand the longer spellings that another writer may have used.
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

    def tell(self, sidecar: Sidecar, distinct: DistinctFiles) -> None:
        """Tell of all the files in a sidecar.

        Raises:
            CorruptLogError: the sidecar is damaged, or has a file that has been told of before.
            ObjectNotFoundError: it is gone.
        """
        for kind in FILE_KINDS:
            for table in self._read(sidecar, kind, ("path", "deletionVector")):
                distinct.meet(table)

    def check_whole(self, sidecar: Sidecar) -> None:
        """Look for damage in all of a sidecar.

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
        except NotReadHere:
            # Decoding tells damage better; and all there is to tell where there are no checksums.
            for kind in FILE_KINDS:
                for _ in self._read(sidecar, kind, None):
                    pass

    def _judge_unknown(self, sidecar: Sidecar) -> JudgedSidecar:
        """Read what the tags ought to tell."""
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
        """Whether a path of the sidecar is one that commits mention, whatever its deletion vector."""
        if not len(keys) or not self._keys.any_within(facts.path_ranges):
            return False
        paths = _paths_of(keys)
        for table in self._read(sidecar, kind, ("path",)):
            # Where the tags tell a range of paths, all of them are their own keys.
            found = table["path"] if facts.min_path is not None else self._path_keys(table)
            if pc.any(pc.is_in(found.cast(paths.type), value_set=paths)).as_py():
                return True
        return False

    def _path_keys(self, actions: pa.Table) -> pa.ChunkedArray:
        return file_keys(_without_vectors(actions), table=self._commits.table)

    def _gone(self, sidecar: Sidecar, kind: str, keys: pa.Array) -> tuple[int, int]:
        """How many actions are gone, and how large the files are that were added, in bytes."""
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
        # On the calling thread: sidecars are what is worked on in parallel.
        for piece in file.pieces(kind, columns):
            yield from piece()


def _paths_of(keys: pa.Array) -> pa.Array:
    """The paths of keys, without what tells of a deletion vector."""
    return pc.replace_substring_regex(keys, pattern=r"(?s)\x00.*", replacement="")


def _without_vectors(actions: pa.Table) -> pa.Table:
    index = actions.schema.get_field_index("deletionVector")
    field = actions.schema.field(index)
    return actions.set_column(index, field, pa.nulls(actions.num_rows, field.type))


def _count(values: pa.ChunkedArray) -> int:
    """The sum of numbers, or how many of some truth values are true."""
    return int(pc.sum(values).as_py() or 0)


def _joined(tables: Iterator[pa.Table]) -> pa.Table | None:
    found = list(tables)
    return pa.concat_tables(found) if found else None

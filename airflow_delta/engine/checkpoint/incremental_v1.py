"""Write a classic checkpoint from the previous one: what didn't change is copied, not encoded again.

A classic checkpoint is one file, so each new one is as large as the table. But nearly all of it is what
the previous one holds, and most row groups of that don't change from one checkpoint to the next. Of each
only the keys of its files are decoded, and their sizes, in order to count (`classic_reuse`):

* a row group without a row that the commits since then mention, or that has expired, is copied byte for
  byte (`stitch`), and the checksums of its pages are checked on the way;
* one with such rows is decoded, filtered and encoded again, its columns as they are stored;
* one that is less than half full, or becomes so, is merged with the new rows, so that there are never
  more than a few of them, however many small checkpoints follow each other.

This takes a previous checkpoint that was written as we write: with the same schema (which follows the
table's schema and properties), by the same library, with adds and removes apart. The files of any other
one are decoded and written anew, which happens once: the next checkpoint finds one of ours.

Memory holds a few row groups, which are read and encoded on threads, and the actions of the commits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from airflow_delta.engine.arrow.action_schema import POSITION, VERSION
from airflow_delta.engine.arrow.parallel import map_ordered
from airflow_delta.engine.arrow.parquet.action_file import ActionFile, read_pieces, reader_threads
from airflow_delta.engine.checkpoint.action_rows import (
    ActionRows,
    FileActionTable,
    new_action_file,
)
from airflow_delta.engine.checkpoint.base_check import check_told
from airflow_delta.engine.checkpoint.classic_reuse import (
    Judge,
    JudgedGroup,
    OurGroup,
    our_groups,
    small_groups,
)
from airflow_delta.engine.checkpoint.distinct_files import DistinctFiles
from airflow_delta.engine.checkpoint.idempotent_put import own_file
from airflow_delta.engine.checkpoint.layout import checkpoint_schema
from airflow_delta.engine.checkpoint.read import CheckpointReader
from airflow_delta.engine.checkpoint.row_encoder import FILE_KINDS
from airflow_delta.engine.checkpoint.typed_columns import typed_columns
from airflow_delta.engine.checkpoint.write import (
    CheckpointWritten,
    ExpectedFiles,
    NonFileContent,
    non_file_actions,
)
from airflow_delta.engine.errors import InvalidTableError
from airflow_delta.engine.log.files import Checkpoint, V2Checkpoint, checkpoint_path
from airflow_delta.engine.model.properties import TableProperties
from airflow_delta.engine.replay.reconcile import ReconciledCommits
from airflow_delta.engine.replay.tombstones import unexpired
from airflow_delta.engine.storage.base import FileInfo, Storage

__all__ = ["has_files_inline", "write_incremental_classic"]


def write_incremental_classic(
    storage: Storage,
    content: NonFileContent,
    base: Checkpoint,
    commits: ReconciledCommits,
    *,
    oldest_tombstone_ms: int,
    version: int,
    table: str,
    expected: ExpectedFiles | None = None,
    base_told: ExpectedFiles | None = None,
    replaces: bool = False,
) -> CheckpointWritten:
    """Write a checkpoint from the previous one and the commits since, and publish it.

    Args:
        storage: the table's storage.
        content: the state of the version but for its files.
        base: the previous checkpoint, for which `has_files_inline` holds.
        commits: the file actions of the commits after it, with all columns.
        oldest_tombstone_ms: see ``tombstones.expired``.
        version: the version of the table.
        table: the table's location, for errors.
        expected: what the live files must come to; None if nobody knows.
        base_told: what those of the previous checkpoint must come to; None if nobody knows. Then all its
            files are compared with each other.
        replaces: whether one of that name is to be replaced: one that is damaged.

    Raises:
        ObjectExistsError: there is another one. Nothing is published.
        CorruptLogError: the previous checkpoint is damaged, holds a file twice, or other files than it
            must, or an action lacks what the protocol requires of it. Nothing is published.
        ObjectNotFoundError: the previous checkpoint is gone. Nothing is published.
        InvalidTableError: the numbers don't add up, or the metadata is broken. Nothing is published.
        StorageError: the store failed.
    """
    path = checkpoint_path(version)
    typed = typed_columns(content.protocol, content.metadata, table=table)
    texts = TableProperties(content.metadata.configuration, table).write_stats_as_json
    schema = checkpoint_schema(stats=texts, parsed=typed.fields if typed else ())
    with own_file(storage, path, replaces=replaces) as stream:
        with new_action_file(stream, schema, table=table, version=version) as rows:
            # First, because they show how row groups are written here.
            rows.write_non_file_actions(non_file_actions(content))
            files = _Files(
                storage, base, commits, oldest_tombstone_ms, rows, base_told or ExpectedFiles()
            )
            rows.write_files(files.stream(), typed)
        files.check(version=version)
        if expected is not None:
            expected.check(
                num_adds=rows.num_adds, adds_size=rows.adds_size_sum, version=version, table=table
            )
        size = stream.tell()
    return CheckpointWritten(
        version, path, size, rows.num_actions, rows.num_adds, rows.adds_size_sum
    )


def has_files_inline(checkpoint: Checkpoint, reader: CheckpointReader) -> bool:
    """Whether a checkpoint can be the base of an incremental classic one.

    It can if its file actions are in its own Parquet files, and not in sidecars or in lines of JSON.

    Args:
        checkpoint: the checkpoint.
        reader: of the checkpoint; its actions that aren't about files are read.

    Raises:
        CorruptLogError: the checkpoint is damaged.
        ObjectNotFoundError: it is gone.
    """
    lines = isinstance(checkpoint, V2Checkpoint) and checkpoint.format == "json"
    return not lines and not reader.sidecars


@dataclass(slots=True)
class _Count:
    """What the files of the version come to, counted before a row is written."""

    rows: dict[str, int] = field(default_factory=lambda: dict.fromkeys(FILE_KINDS, 0))
    adds_size: int = 0

    def add(self, kind: str, rows: pa.Table) -> None:
        """Count rows in."""
        self.rows[kind] += rows.num_rows
        if kind == "add":
            self.adds_size += pc.sum(rows["size"]).as_py() or 0


class _Files:
    """The file actions of the new checkpoint.

    Args:
        storage: see `write_incremental_classic`.
        base: likewise.
        commits: likewise.
        oldest_ms: likewise.
        written: the new checkpoint, to which row groups are appended that needn't be gathered.
        base_told: see `write_incremental_classic`.
    """

    def __init__(
        self,
        storage: Storage,
        base: Checkpoint,
        commits: ReconciledCommits,
        oldest_ms: int,
        written: ActionRows,
        base_told: ExpectedFiles,
    ) -> None:
        self._storage = storage
        self._base = base
        self._commits = commits
        self._oldest_ms = oldest_ms
        self._written = written
        self._count = _Count()
        self._base_told = base_told
        self._held = _Count()
        self._distinct: DistinctFiles | None = None

    def stream(self) -> Iterator[FileActionTable]:
        """The rows to be gathered; in between, the other row groups are appended."""
        new = {
            "add": self._commits.adds.drop_columns([VERSION, POSITION]),
            "remove": unexpired(
                self._commits.removes.drop_columns([VERSION, POSITION]), self._oldest_ms
            ),
        }
        for kind, rows in new.items():
            self._count.add(kind, rows)
            yield kind, rows
        ours: list[OurGroup] = []
        others: list[FileInfo] = []
        for file in self._base.files:
            groups = our_groups(self._storage, file, self._written)
            if groups is None:
                others.append(file)
            else:
                ours += groups
        if others or self._base_told.num_adds is None:
            base = self._base
            self._distinct = DistinctFiles(
                path=base.path, version=base.version, table=self._commits.table
            )
        yield from self._decoded(others)
        yield from self._judged(ours, {kind: rows.num_rows for kind, rows in new.items()})

    def check(self, *, version: int) -> None:
        """Compare what was written with what was counted, and the base with what is told of it.

        Raises:
            InvalidTableError: the former differ.
            CorruptLogError: the latter do.
        """
        check_told(
            self._base_told,
            num_adds=self._held.rows["add"],
            adds_size=self._held.adds_size,
            path=self._base.path,
            version=self._base.version,
            table=self._commits.table,
        )
        written, rows = self._written, self._count.rows
        found = (written.num_adds, written.num_removes, written.adds_size_sum)
        counted = (rows["add"], rows["remove"], self._count.adds_size)
        if found != counted:
            raise InvalidTableError(
                f"the checkpoint of version {version} was not written: by the previous checkpoint and "
                f"the commits since it must hold {counted[0]} adds of {counted[2]} bytes and {counted[1]} "
                f"removes, but it would hold {found[0]} adds of {found[2]} bytes and {found[1]} removes. "
                "Load the version anew and try again",
                table=self._commits.table,
                version=version,
                found=found,
                expected=counted,
            )

    def _judged(
        self, ours: Sequence[OurGroup], new_rows: dict[str, int]
    ) -> Iterator[FileActionTable]:
        merged = small_groups(ours, new_rows, self._written)
        judge = Judge(self._storage, self._commits, self._oldest_ms, self._written, self._distinct)
        work = (
            partial(judge.judge, group, merge=place in merged) for place, group in enumerate(ours)
        )
        for judged in map_ordered(_done, work, workers=reader_threads(self._storage)):
            self._count.rows[judged.kind] += judged.num_rows
            self._count.adds_size += judged.adds_size
            self._held.rows[judged.kind] += judged.held_rows
            self._held.adds_size += judged.held_size
            if judged.encoded is not None:
                self._written.append(judged.encoded)
            if judged.rows is not None:
                yield judged.kind, judged.rows

    def _decoded(self, files: Iterable[FileInfo]) -> Iterator[FileActionTable]:
        """The rows of files that were written otherwise."""
        opened = [ActionFile(self._storage, file) for file in files]
        threads = reader_threads(self._storage)
        for kind in FILE_KINDS:
            footers = map_ordered(ActionFile.load_footer, opened, workers=threads)
            pieces = (piece for file in footers for piece in file.pieces(kind))
            for table in read_pieces(pieces, workers=threads):
                self._held.add(kind, table)
                if self._distinct is not None:
                    self._distinct.meet(table)
                rows = self._commits.survivors(table)
                if kind == "remove":
                    rows = unexpired(rows, self._oldest_ms)
                self._count.add(kind, rows)
                yield kind, rows


def _done(work: partial[JudgedGroup]) -> JudgedGroup:
    return work()

"""Write a classic checkpoint from the previous one: copy what hasn't changed, instead of encoding it.

For each row group of the previous checkpoint, only the keys of its files are decoded, and their sizes for
the totals (`classic_reuse`):

* a row group whose rows all hold is copied byte for byte (`stitch`), and its checksums are verified;
* a row group with rows that later commits mention, or that have expired, is decoded, filtered and encoded
  again, in its stored columns;
* a row group that is less than half full, or becomes so, is merged with the new rows.

Row groups of other writers, or of another schema, are decoded and encoded once.

docs/explanation/checkpoints-in-proportion-to-the-change.md has the reasons. Spec: PROTOCOL.md, "V1 Spec".
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
from airflow_delta.engine.checkpoint.base_check import check_expected_files
from airflow_delta.engine.checkpoint.classic_reuse import (
    Judge,
    JudgedGroup,
    OurGroup,
    our_groups,
    small_groups,
)
from airflow_delta.engine.checkpoint.distinct_files import DistinctFiles
from airflow_delta.engine.checkpoint.idempotent_put import open_idempotent_writer
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
from airflow_delta.engine.progress import report_progress
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
    expected_base: ExpectedFiles | None = None,
    replaces: bool = False,
) -> CheckpointWritten:
    """Write a checkpoint from the previous one and the commits since, and publish it.

    Args:
        storage: the table's storage.
        content: the non-file state of the version.
        base: the previous checkpoint, for which `has_files_inline` holds.
        commits: the file actions of the commits after it, with all columns.
        oldest_tombstone_ms: see ``tombstones.expired``.
        version: the version of the table.
        table: the table's location, for errors.
        expected: the expected totals of the live files; None if unknown.
        expected_base: the expected totals of the previous checkpoint; None if unknown. Then all its
            files are compared with each other.
        replaces: whether an existing file of that name, a damaged one, is replaced.

    Raises:
        ObjectExistsError: there is another one. Nothing is published.
        CorruptLogError: the previous checkpoint is damaged, has a file twice, or doesn't have the
            expected files, or an action lacks a field that the protocol requires. Nothing is
            published.
        ObjectNotFoundError: the previous checkpoint is gone. Nothing is published.
        InvalidTableError: the totals are wrong, or the metadata is broken. Nothing is published.
        StorageError: the store failed.
    """
    path = checkpoint_path(version)
    typed = typed_columns(content.protocol, content.metadata, table=table)
    texts = TableProperties(content.metadata.configuration, table).write_stats_as_json
    schema = checkpoint_schema(stats=texts, parsed=typed.fields if typed else ())
    with (
        report_progress(
            "checkpoint", "files", None if expected is None else expected.num_adds
        ) as reporter,
        open_idempotent_writer(storage, path, replaces=replaces) as stream,
    ):
        with new_action_file(
            stream, schema, table=table, version=version, reporter=reporter
        ) as rows:
            # First, because they show how row groups are written here.
            rows.write_non_file_actions(non_file_actions(content))
            files = _Files(
                storage, base, commits, oldest_tombstone_ms, rows, expected_base or ExpectedFiles()
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

    It can if its file actions are in its own Parquet files, and not in sidecars or in lines of
    JSON.

    Args:
        checkpoint: the checkpoint.
        reader: its reader; the non-file actions are read.

    Raises:
        CorruptLogError: the checkpoint is damaged.
        ObjectNotFoundError: it is gone.
    """
    lines = isinstance(checkpoint, V2Checkpoint) and checkpoint.format == "json"
    return not lines and not reader.sidecars


@dataclass(slots=True)
class _Count:
    """Totals of the files of the version, counted before a row is written."""

    rows: dict[str, int] = field(default_factory=lambda: dict.fromkeys(FILE_KINDS, 0))
    adds_size: int = 0

    def add(self, kind: str, rows: pa.Table) -> None:
        """Add rows to the totals."""
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
        expected_base: see `write_incremental_classic`.
    """

    def __init__(
        self,
        storage: Storage,
        base: Checkpoint,
        commits: ReconciledCommits,
        oldest_ms: int,
        written: ActionRows,
        expected_base: ExpectedFiles,
    ) -> None:
        self._storage = storage
        self._base = base
        self._commits = commits
        self._oldest_ms = oldest_ms
        self._written = written
        self._count = _Count()
        self._expected_base = expected_base
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
        if others or self._expected_base.num_adds is None:
            base = self._base
            self._distinct = DistinctFiles(
                path=base.path, version=base.version, table=self._commits.table
            )
        yield from self._decoded(others)
        yield from self._judged(ours, {kind: rows.num_rows for kind, rows in new.items()})

    def check(self, *, version: int) -> None:
        """Compare what was written with what was counted, and the base with its expected totals.

        Raises:
            InvalidTableError: the former differ.
            CorruptLogError: the latter differ.
        """
        check_expected_files(
            self._expected_base,
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
            partial(judge.judge, group, merge=index in merged) for index, group in enumerate(ours)
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
        """The rows of files that were written differently."""
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

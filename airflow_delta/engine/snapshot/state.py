"""What a segment of the log comes to, read when asked for and only the columns asked for.

A checkpoint is an optimisation: whatever it says can be told from older files of the log too. So a
checkpoint that turns out to be damaged is left out, with a `DeltaWarning` that names it, and the
state starts from the one before, in the end from the first commit (edge cases A5). Files that
vanish between listing and reading (a cleanup runs) cause one fresh listing.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TypeVar

import pyarrow as pa

from airflow_delta.engine.arrow.action_schema import (
    ADD_FIELDS,
    POSITION,
    REMOVE_FIELDS,
    VERSION,
    FileActions,
)
from airflow_delta.engine.arrow.json_actions import ParsedCommits
from airflow_delta.engine.checkpoint.read import CheckpointReader, open_checkpoint
from airflow_delta.engine.errors import CorruptLogError, DeltaWarning, ObjectNotFoundError
from airflow_delta.engine.log.segment import LogSegment, load_segment
from airflow_delta.engine.replay.reconcile import ReconciledTail, reconcile_tail
from airflow_delta.engine.replay.small_actions import SmallState, reconcile_small_actions
from airflow_delta.engine.snapshot.tail import read_tail
from airflow_delta.engine.storage.base import Storage

__all__ = ["LogState"]

_T = TypeVar("_T")

_LIGHT = ("path", "partitionValues", "size", "modificationTime", "dataChange", "deletionVector")
"""What nearly every question needs: parsed at the first reading of the tail, so that opening a table
and listing its files read each commit once. Statistics and tags are most of a commit's text."""


class LogState:
    """The reconciled actions of one segment; not for use by several threads at once."""

    def __init__(self, storage: Storage, segment: LogSegment) -> None:
        self.storage = storage
        self.segment = segment
        self._excluded: frozenset[str] = frozenset()
        self._relisted = False
        self._reader: CheckpointReader | None = None
        self._tail: ParsedCommits | None = None
        self._tail_columns: frozenset[str] | None = frozenset()
        self._reconciled: ReconciledTail | None = None
        self._small: SmallState | None = None

    @property
    def small(self) -> SmallState:
        """Protocol, metadata, transactions and domains."""
        if self._small is None:
            self._small = self._attempt(self._read_small)
        return self._small

    def live_adds(self, columns: tuple[str, ...] | None = None) -> pa.Table:
        """One row per live file, with some columns of its ``add`` (None: all)."""
        tables = self._attempt(lambda: list(self._stream(columns, adds=True)))
        return _joined(tables, columns, ADD_FIELDS)

    def removes(self, columns: tuple[str, ...] | None = None) -> pa.Table:
        """One row per file that is removed and not live again; expired ones are still there."""
        tables = self._attempt(lambda: list(self._stream(columns, adds=False)))
        return _joined(tables, columns, REMOVE_FIELDS)

    def stream(self, *, adds: bool) -> Iterator[pa.Table]:
        """All columns of the live adds, or of the removes, batch by batch in bounded memory.

        Raises:
            CorruptLogError: the checkpoint is damaged. `retreat` leaves it out; what has streamed
                until then must be thrown away.
        """
        yield from self._stream(None, adds=adds)

    def retreat(self, error: CorruptLogError | ObjectNotFoundError) -> None:
        """Start from an older checkpoint, because this one can't be read.

        Raises:
            CorruptLogError, ObjectNotFoundError: the error itself, where there's no checkpoint to
                leave out: the fault lies in a commit.
        """
        checkpoint = self.segment.checkpoint
        path = getattr(error, "path", None)
        if checkpoint is None or not _is_of_checkpoint(path):
            raise error
        warnings.warn(
            f"{self.segment.table}: the checkpoint {checkpoint.path} of version {checkpoint.version} can't "
            f"be used ({error.message}); reading the log from an older one. Write a new checkpoint",
            DeltaWarning,
            stacklevel=3,
        )
        told = self._small
        self._excluded |= {checkpoint.path}
        self._reload()
        # What was told of the table before must hold still, or the damage went further than seen.
        if told is not None and (told.protocol, told.metadata) != (
            self.small.protocol,
            self.small.metadata,
        ):
            raise error

    def _attempt(self, read: Callable[[], _T]) -> _T:
        while True:
            try:
                return read()
            except ObjectNotFoundError as error:
                if self._relisted:
                    self.retreat(error)
                else:
                    self._relisted = True
                    self._reload()
            except CorruptLogError as error:
                self.retreat(error)

    def _reload(self) -> None:
        version = self.segment.version
        self.segment = load_segment(
            self.storage, version=version, excluded_checkpoints=self._excluded
        )
        self._reader = self._tail = self._reconciled = self._small = None
        self._tail_columns = frozenset()

    def _checkpoint(self) -> CheckpointReader | None:
        if self._reader is None and self.segment.checkpoint is not None:
            self._reader = open_checkpoint(
                self.storage, self.segment.checkpoint, table=self.segment.table
            )
        return self._reader

    def _read_small(self) -> SmallState:
        reader = self._checkpoint()
        base = None
        if reader is not None:
            where = f"checkpoint of version {reader.version}"
            base = reconcile_small_actions(
                (kind, value, f"{where}: {kind}") for kind, value in reader.small_actions()
            )
        tail, _ = self._read_tail(_LIGHT)
        return reconcile_small_actions(
            ((a.kind, a.value, f"commit {a.version}: {a.kind}") for a in tail.small), base
        )

    def _read_tail(self, columns: tuple[str, ...] | None) -> tuple[ParsedCommits, ReconciledTail]:
        wanted = None if columns is None else frozenset(columns)
        known = self._tail_columns
        enough = known is None or (wanted is not None and wanted <= known)
        if self._tail is None or self._reconciled is None or not enough:
            if wanted is not None:
                columns = tuple({*_LIGHT, *wanted})
            self._tail = read_tail(
                self.storage, self.segment.plan(), columns=columns, table=self.segment.table
            )
            self._tail_columns = None if columns is None else frozenset(columns)
            self._reconciled = reconcile_tail(self._tail.files, table=self.segment.table)
            # The actions before reconciliation aren't needed again; the small ones are.
            self._tail = replace(self._tail, files=_no_files(self._tail))
        return self._tail, self._reconciled

    def _stream(self, columns: tuple[str, ...] | None, *, adds: bool) -> Iterator[pa.Table]:
        _, tail = self._read_tail(columns)
        reader = self._checkpoint()
        if reader is not None:
            wanted = columns if columns is None else (*columns, "path", "deletionVector")
            for table in reader.adds(wanted) if adds else reader.removes(wanted):
                yield tail.survivors(table)
        # Where an action stood in the log no longer matters, and checkpoints don't tell it.
        yield (tail.adds if adds else tail.removes).drop_columns([VERSION, POSITION])


def _no_files(tail: ParsedCommits) -> FileActions:
    # Not a slice: that would keep the memory of the whole.
    return FileActions(
        tail.files.adds.schema.empty_table(), tail.files.removes.schema.empty_table()
    )


def _is_of_checkpoint(path: str | None) -> bool:
    return path is not None and (".checkpoint." in path or "/_sidecars/" in path)


def _joined(
    tables: list[pa.Table], columns: tuple[str, ...] | None, fields: dict[str, pa.DataType]
) -> pa.Table:
    """One table of just the wanted columns, whatever else the sources brought."""
    names = [name for name in fields if columns is None or name in columns]
    return pa.concat_tables([table.select(names) for table in tables])

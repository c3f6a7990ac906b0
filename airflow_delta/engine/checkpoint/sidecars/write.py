"""Write sidecars: several at once, each published as a whole under a unique name.

A sidecar has no effect until a checkpoint refers to it (PROTOCOL.md, "Sidecar Files"). So a failure
leaves only files that nobody reads, and metadata cleanup deletes them when they are a day old.
`new_sidecars` deletes them itself if it can, unless a checkpoint that refers to them may exist.
"""

from __future__ import annotations

import itertools
import os
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import pyarrow as pa

from airflow_delta.engine.arrow.parallel import map_ordered
from airflow_delta.engine.arrow.parquet.source import ParquetSource
from airflow_delta.engine.checkpoint.action_rows import new_action_file
from airflow_delta.engine.checkpoint.sidecars.layout import SidecarLayout, SidecarRows
from airflow_delta.engine.checkpoint.sidecars.tags import SidecarFacts, facts_of_rows
from airflow_delta.engine.clock import now_ms
from airflow_delta.engine.errors import (
    CorruptLogError,
    NothingWrittenError,
    ObjectExistsError,
    ObjectNotFoundError,
    StorageError,
)
from airflow_delta.engine.log.files import SIDECAR_DIRECTORY, sidecar_path, version_prefix
from airflow_delta.engine.model.actions import Sidecar
from airflow_delta.engine.progress import Reporter
from airflow_delta.engine.storage.base import FileInfo, Storage

__all__ = ["SidecarFiles", "WrittenSidecar", "new_sidecars", "present_sidecars"]


@dataclass(frozen=True, slots=True)
class WrittenSidecar:
    """A sidecar that has been published.

    Attributes:
        action: the action with which a checkpoint refers to it.
        facts: the facts about its rows.
    """

    action: Sidecar
    facts: SidecarFacts


class SidecarFiles:
    """Writes the sidecars of a checkpoint.

    Args:
        storage: the table's storage.
        layout: the layout of the sidecars.
        version: the version of the checkpoint; it is part of their names.
        table: the table's location, for errors.
    """

    def __init__(
        self, storage: Storage, layout: SidecarLayout, *, version: int, table: str
    ) -> None:
        self._storage = storage
        self._layout = layout
        self._version = version
        self._table = table
        self._numbers = itertools.count(1)
        self._begun: list[str] = []
        self._may_be_named = False

    def write(
        self, pieces: Iterable[SidecarRows], reporter: Reporter | None = None
    ) -> list[WrittenSidecar]:
        """Write a sidecar of each piece, and open each again to check that it is complete.

        Args:
            pieces: the rows.
            reporter: counts the adds.

        Raises:
            CorruptLogError: an action lacks a field that the protocol requires.
            StorageError: the store failed, or lost a part of what was written.
        """
        workers = os.cpu_count() or 1  # Encoding takes longer than the store does.
        written = []
        for sidecar in map_ordered(self._write_one, pieces, workers=workers):
            if sidecar is not None:
                written.append(sidecar)
                if reporter is not None:
                    reporter.advance(sidecar.facts.num_adds)
        return written

    @contextmanager
    def naming(self) -> Iterator[None]:
        """A block that publishes the checkpoint that refers to the sidecars.

        If the block fails, the checkpoint may still exist, so the sidecars stay, unless the store
        is sure that nothing was written.
        """
        self._may_be_named = True
        try:
            yield
        except (NothingWrittenError, ObjectExistsError):
            self._may_be_named = False
            raise

    def delete_unnamed(self) -> None:
        """Delete the sidecars that no checkpoint refers to, as far as the store allows."""
        if self._may_be_named:
            return
        with suppress(StorageError):
            self._storage.delete(self._begun)

    def _write_one(self, piece: SidecarRows) -> WrittenSidecar | None:
        rows = piece.load()
        if not rows.num_rows:
            return None
        number = next(self._numbers)
        name = f"{version_prefix(self._version)}.checkpoint.{number:010}.{uuid.uuid4()}.parquet"
        path = sidecar_path(name)
        self._begun.append(path)
        layout, table, version = self._layout, self._table, self._version
        # No exclusive put: the name is unique, and a put that is sent again would fail on its own
        # file.
        with self._storage.writer(path, overwrite=True) as stream:
            with new_action_file(stream, layout.schema, table=table, version=version) as file:
                file.write_files([(piece.kind, rows)], layout.typed)
            size = stream.tell()
        self._check(path, size, rows.num_rows)
        facts = self._facts(piece.kind, rows)
        action = Sidecar(name, size, now_ms(), facts.to_tags())
        return WrittenSidecar(action, facts)

    def _facts(self, kind: str, rows: pa.Table) -> SidecarFacts:
        adds, removes = (rows, None) if kind == "add" else (None, rows)
        return facts_of_rows(adds, removes, stats_form=self._layout.stats_form)

    def _check(self, path: str, size: int, rows: int) -> None:
        """Check a new file. Damage is the store's fault; a CorruptLogError would blame the log."""
        source = ParquetSource(
            self._storage, FileInfo(path, size, 0), slice_rows=rows, exact_size=True
        )
        try:
            found = source.footer.num_rows
        except (CorruptLogError, ObjectNotFoundError) as error:
            raise self._lost(path, error.message) from error
        if found != rows:
            raise self._lost(path, f"it has {found} rows where {rows} were written")

    def _lost(self, path: str, finding: str) -> StorageError:
        return StorageError(
            f"the checkpoint of version {self._version} was not written: the store lost some of its "
            f"new sidecar {path}: {finding}. Try again",
            table=self._table,
            version=self._version,
            path=path,
            operation="writer",
        )


@contextmanager
def new_sidecars(
    storage: Storage, layout: SidecarLayout, *, version: int, table: str
) -> Iterator[SidecarFiles]:
    """Write sidecars in a block, and delete them if it fails before a checkpoint may refer to them.

    Args:
        storage: see `SidecarFiles`.
        layout: likewise.
        version: likewise.
        table: likewise.
    """
    files = SidecarFiles(storage, layout, version=version, table=table)
    try:
        yield files
    except BaseException:
        files.delete_unnamed()
        raise


def present_sidecars(storage: Storage) -> dict[str, int]:
    """The sizes of the files in the directory of sidecars, by path, from one listing."""
    return {info.path: info.size for info in storage.list(SIDECAR_DIRECTORY)}

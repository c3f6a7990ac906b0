"""The new data files of an optimization: how they are created, described, and deleted if it fails."""

from __future__ import annotations

import uuid
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from threading import Lock
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc

from airflow_delta.engine.errors import (
    DeltaWarning,
    MissingFilesError,
    ObjectNotFoundError,
    StorageError,
)
from airflow_delta.engine.maintenance.optimize.plan import TARGET_SIZE_TAG
from airflow_delta.engine.maintenance.optimize.sorting.order import FileMarks
from airflow_delta.engine.maintenance.optimize.target import FileTarget
from airflow_delta.engine.model.actions import AddFile
from airflow_delta.engine.model.paths import decode_path, encode_path
from airflow_delta.engine.storage.base import FileInfo, Storage, exists

__all__ = ["NewFiles", "Rewritten"]

_HEADS = 8
"""The number of new files that are looked up at once."""


class NewFiles:
    """Creates the new data files of a run, and deletes those that nobody needs. Several threads may use it.

    Args:
        storage: the table's storage.
        target: what new files look like.

    Attributes:
        storage: the storage.
    """

    def __init__(self, storage: Storage, target: FileTarget) -> None:
        self.storage = storage
        self._target = target
        self._uncommitted: set[str] = set()
        self._lock = Lock()

    def create(self, directory: str) -> tuple[str, AbstractContextManager[BinaryIO]]:
        """Begin a new file.

        Args:
            directory: the directory below the table's root, with a slash at its end; empty for the root.

        Returns:
            Its path, and the context in which it is written; it is published at the end.
        """
        path = f"{directory}part-00000-{uuid.uuid4()}.c000.{self._target.compression}.parquet"
        with self._lock:
            self._uncommitted.add(path)
        # The name is new. Replacing needs no answer of the store to a request that was repeated.
        return path, self.storage.writer(path, overwrite=True)

    def describe(
        self,
        path: str,
        *,
        like: Mapping[str, Any],
        stats: str,
        marks: FileMarks | None = None,
    ) -> AddFile:
        """Make the ``add`` of a new file.

        Args:
            path: the path from `create`.
            like: the ``add`` of a file of the same partition.
            stats: the statistics.
            marks: what it says about the order of its rows; None for nothing.

        Raises:
            MissingFilesError: it doesn't exist any more. Facts: path, paths, num_missing.
            StorageError: the store failed.
        """
        try:
            info = self.storage.head(path)
        except ObjectNotFoundError as error:
            raise self._deleted([encode_path(path)]) from error
        return self.describe_stored(info, like=like, stats=stats, marks=marks)

    def describe_stored(
        self,
        info: FileInfo,
        *,
        like: Mapping[str, Any],
        stats: str,
        marks: FileMarks | None = None,
    ) -> AddFile:
        """Make the ``add`` of a new file whose size is known; see `describe`.

        Args:
            info: the file in the store.
            like: see `describe`.
            stats: see there.
            marks: see there.
        """
        texts = dict(like["partitionValues"] or ())  # A writer may leave out nulls, or all of them.
        return AddFile(
            path=encode_path(info.path),
            partition_values={
                name: texts.get(name) for name in self._target.layout.partition_columns
            },
            size=info.size,
            modification_time=info.modified_ms,
            data_change=False,
            stats=stats,
            tags={
                TARGET_SIZE_TAG: str(self._target.max_file_size),
                **({} if marks is None else marks.tags),
            },
            clustering_provider=None if marks is None else marks.provider,
        )

    def check_stored(self, files: Sequence[AddFile]) -> None:
        """Check that new files still exist: a vacuum deletes uncommitted files that are old enough.

        A vacuum may still delete one between this check and the commit. Only a retention that is longer
        than the run prevents that.

        Raises:
            MissingFilesError: some don't exist. Facts: path, paths, num_missing.
            StorageError: the store failed.
        """
        paths = [decode_path(file.path) for file in files]
        with ThreadPoolExecutor(_HEADS, thread_name_prefix="delta-optimize") as pool:
            found = list(pool.map(partial(exists, self.storage), paths))
        missing = [file.path for file, is_there in zip(files, found, strict=True) if not is_there]
        if missing:
            raise self._deleted(missing)

    def _deleted(self, paths: Sequence[str]) -> MissingFilesError:
        return MissingFilesError(
            f"{len(paths)} new files of this run don't exist any more, among them {paths[0]!r}, "
            "perhaps because a vacuum has deleted them; they aren't committed: optimize again, and "
            "vacuum with a retention that is longer than a run",
            table=self.storage.root,
            path=paths[0],
            paths=tuple(paths[:100]),
            num_missing=len(paths),
        )

    def keep(self, files: Iterable[AddFile]) -> None:
        """Record that files are, or may be, part of the table."""
        with self._lock:
            self._uncommitted.difference_update(decode_path(file.path) for file in files)

    def delete(self, files: Iterable[AddFile]) -> None:
        """Delete files that won't be committed; warn if the store fails, because a vacuum will do it."""
        self.delete_paths([decode_path(file.path) for file in files])

    def delete_uncommitted(self) -> None:
        """Delete all files that aren't kept; see `delete`."""
        with self._lock:
            paths = sorted(self._uncommitted)
        self.delete_paths(paths)

    def delete_paths(self, paths: Sequence[str]) -> None:
        """Delete files by their paths below the table's root; see `delete`."""
        with self.only_warning():
            self.storage.delete(paths)
        with self._lock:
            self._uncommitted.difference_update(paths)

    @contextmanager
    def only_warning(self) -> Iterator[None]:
        """Turn a failure of the store inside the block into a warning: some new files are left."""
        try:
            yield
        except StorageError as error:
            left = f"new files that nobody needs couldn't be deleted: {error.message}"
            warnings.warn(DeltaWarning(f"{self.storage.root}: {left}"), stacklevel=3)


@dataclass(frozen=True, slots=True)
class Rewritten:
    """Bins, and the new files with their rows.

    Attributes:
        sources: the files of the bins: the columns of ``add``.
        adds: the new files; none if all rows are deleted.
        num_copied: how many of them were made by copying row groups.
    """

    sources: pa.Table
    adds: tuple[AddFile, ...]
    num_copied: int = 0

    @property
    def source_bytes(self) -> int:
        """The size of the files of the bins."""
        return int(pc.sum(self.sources["size"]).as_py() or 0)

"""A store that fsspec supports, with writing, for a table with one writer.

The user has said (`single_writer`) that no two writers can meet; `generic` says why that is needed. New
content is written to a hidden file in the same directory, and then moved to its name. So readers never see
half an object, if the file system moves in one step. An existing object is deleted just before, because not
every file system can move over one; for that moment it doesn't exist.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import BinaryIO, cast

from airflow_delta.engine.errors import ObjectExistsError, StorageError
from airflow_delta.engine.public_text import hide_user_of
from airflow_delta.engine.storage.checked_file import CheckedWriter
from airflow_delta.engine.storage.generic import GenericStorage
from airflow_delta.engine.storage.hidden import make_hidden_name

__all__ = ["GenericWriter"]


@dataclass(frozen=True, repr=False)
class GenericWriter(GenericStorage):
    """A storage below one location of an fsspec file system, which nobody else writes to."""

    def create(self, path: str, data: bytes) -> None:
        """See `Storage.create`; exclusive only as long as nobody else writes."""
        with self.writer(path, overwrite=False) as file:
            file.write(data)

    def replace(self, path: str, data: bytes) -> None:
        """See `Storage.replace`; for a moment there may be no object."""
        with self.writer(path, overwrite=True) as file:
            file.write(data)

    @contextmanager
    def writer(self, path: str, *, overwrite: bool) -> Iterator[BinaryIO]:
        """See `Storage.writer`; missing directories are made."""
        operation = "replace" if overwrite else "create"
        final = self._full(path)
        directory, slash, name = final.rpartition("/")
        temporary = f"{directory}{slash}{make_hidden_name(name)}"
        with self._translate_write_errors(operation, path):
            self.file_system.makedirs(directory, exist_ok=True)
            file = self.file_system.open(temporary, "wb")
        try:
            # Not inside `_translate_write_errors`: errors that the caller raises in the block stay as they
            # are.
            yield cast(
                "BinaryIO",
                CheckedWriter(file, lambda: self._translate_write_errors(operation, path)),
            )
            with self._translate_write_errors(operation, path):
                file.close()
                self._publish(temporary, final, path, overwrite=overwrite)
        except BaseException:
            self._abandon(file, temporary)
            raise

    def delete(self, paths: Iterable[str]) -> None:
        """See `Storage.delete`; one after the other. Directories stay."""
        for path in paths:
            full = self._full(path)
            with (
                self._translate_write_errors("delete", path),
                suppress(FileNotFoundError, NotADirectoryError),
            ):
                if not self.file_system.isdir(full):
                    self.file_system.rm_file(full)

    def _abandon(self, file: BinaryIO, temporary: str) -> None:
        """Close a file and delete it. If that fails, it stays, as a hidden file."""
        with suppress(OSError, ValueError):
            file.close()
        with suppress(OSError, NotImplementedError):
            self.file_system.rm_file(temporary)

    def _publish(self, temporary: str, final: str, path: str, *, overwrite: bool) -> None:
        # A cached listing may lack a new commit, which would be overwritten.
        self.file_system.invalidate_cache()
        if self.file_system.exists(final):
            if not overwrite:
                raise ObjectExistsError(
                    f"create {path!r}: there is such an object already",
                    table=self.root,
                    path=path,
                    operation="create",
                )
            self.file_system.rm_file(final)
        self.file_system.mv(temporary, final)

    @contextmanager
    def _translate_write_errors(self, operation: str, path: str) -> Iterator[None]:
        """Turn errors of the file system into those of the contract."""
        try:
            yield
        except (NotImplementedError, OSError) as error:
            reason = hide_user_of(self.root, str(error)) or "the file system is for reading"
            raise StorageError(
                f"{operation} {path!r} failed: {reason}",
                table=self.root,
                path=path,
                operation=operation,
            ) from self._shown(error)

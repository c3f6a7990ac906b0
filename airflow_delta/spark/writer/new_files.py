"""The new files of an operation, which are deleted unless its commit is, or may be, made."""

from __future__ import annotations

import uuid
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING

from airflow_delta.engine import AddFile
from airflow_delta.engine.errors import DeltaWarning, StorageError
from airflow_delta.engine.transaction.result import may_be_made

if TYPE_CHECKING:
    from typing_extensions import Self

    from airflow_delta.engine import DeltaTable, OptimisticTransaction
    from airflow_delta.engine.storage.base import Storage

__all__ = ["NewFiles", "commit_files"]


@dataclass(slots=True)
class NewFiles:
    """The files of a write, below a directory of their own; deleted at the end unless they are kept.

    Attributes:
        table: the table.
        directory: the directory, below the table's root.
        adds: an ``add`` action for each file.
        num_rows: the number of rows in the files.
        identity_values: the furthest value of each identity column in the files, by logical name.
    """

    table: DeltaTable
    directory: str = field(default_factory=lambda: f"write-{uuid.uuid4()}")
    adds: list[AddFile] = field(default_factory=list)
    num_rows: int = 0
    identity_values: dict[str, int] = field(default_factory=dict)
    _others: list[str] = field(default_factory=list)
    _paths: list[str] = field(default_factory=list)
    _is_kept: bool = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._is_kept:
            return
        try:
            self._delete()
        except StorageError as failure:
            if error is None:
                raise
            # The error that has ended the write is the one to be raised.
            left = f"the files in {self.directory!r} couldn't be deleted: {failure.message}"
            warnings.warn(DeltaWarning(f"{self.storage.root}: {left}"), stacklevel=2)

    @property
    def storage(self) -> Storage:
        """The table's storage."""
        return self.table.storage

    def _delete(self) -> None:
        for directory in (self.directory, *self._others):
            self.storage.delete([info.path for info in self.storage.walk(directory)])
        self.storage.delete(self._paths)

    @property
    def size_in_bytes(self) -> int:
        """The total size of the files."""
        return sum(add.size for add in self.adds)

    @property
    def metrics(self) -> dict[str, int]:
        """The ``operationMetrics`` of a write, by Delta Spark's names."""
        return {
            "numFiles": len(self.adds),
            "numOutputRows": self.num_rows,
            "numOutputBytes": self.size_in_bytes,
        }

    def new_directory(self, prefix: str = "") -> str:
        """The name of another new directory, whose files share the fate of the others.

        Args:
            prefix: the directory around it, with a slash at its end.
        """
        directory = f"{prefix}write-{uuid.uuid4()}"
        self._others.append(directory)
        return directory

    def register(self, paths: Sequence[str]) -> None:
        """Have other new files share the fate of these.

        Args:
            paths: their paths below the table's root.
        """
        self._paths.extend(paths)

    def keep(self) -> None:
        """Keep the files: they are, or may be, part of the table."""
        self._is_kept = True


def commit_files(
    transaction: OptimisticTransaction, files: NewFiles, metrics: Mapping[str, int]
) -> int:
    """Commit what is staged, and keep the new files if they are, or may be, part of the table.

    Args:
        transaction: the transaction.
        files: the new files.
        metrics: the ``operationMetrics``.

    Returns:
        The version.

    Raises:
        DeltaError: see `OptimisticTransaction.commit`.
    """
    try:
        commit = transaction.commit(operation_metrics=metrics)
    except BaseException as error:
        if may_be_made(error):
            files.keep()
        raise
    files.keep()
    return commit.version

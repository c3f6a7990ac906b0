"""Commit by the file system: whoever creates the next commit file has made the next version.

PROTOCOL.md, "Delta Log Entries": writers create ``<version>.json`` and must never overwrite one. The
store's put-if-absent decides between writers.

A store may fail after the file was made (the answer got lost), and a client that retries by itself
may then be told that the file exists. So before a failure or a lost race is reported the file is
read back: if it carries our ``txnId``, the commit was made.
"""

from __future__ import annotations

from airflow_delta.engine.errors import (
    CommitOutcomeUnknownError,
    DeltaError,
    ObjectExistsError,
    StorageError,
    UnsafeStorageError,
)
from airflow_delta.engine.log.commit_file import read_commit_info
from airflow_delta.engine.log.files import commit_path
from airflow_delta.engine.storage.base import Storage

__all__ = ["FileSystemCommitter"]


class FileSystemCommitter:
    """Makes versions of a table whose commits the file system orders.

    Args:
        storage: where the table is.
        table: its location, for errors.
    """

    def __init__(self, storage: Storage, *, table: str) -> None:
        self._storage = storage
        self._table = table

    def commit(self, version: int, data: bytes, *, txn_id: str) -> bool:
        """Try to make a version.

        Args:
            version: the version to make; the one before it must exist.
            data: the whole commit file.
            txn_id: the ``txnId`` in its ``commitInfo``, unique to this attempt's transaction.

        Returns:
            Whether the version is ours; False where another writer made it.

        Raises:
            StorageError: the store failed, and the commit was not made.
            UnsafeStorageError: the store can't create exclusively; nothing was written.
            CommitOutcomeUnknownError: the store failed, and whether the commit was made can't be
                told.
        """
        try:
            self._storage.create(commit_path(version), data)
        except UnsafeStorageError:
            raise
        except ObjectExistsError as error:
            return self._is_ours(version, txn_id, error)
        except StorageError as error:
            if self._is_ours(version, txn_id, error):
                return True
            raise
        return True

    def _is_ours(self, version: int, txn_id: str, cause: StorageError) -> bool:
        try:
            if isinstance(cause, ObjectExistsError) or self._exists(version):
                info = read_commit_info(self._storage, version)
                return info is not None and info.get("txnId") == txn_id
        except DeltaError as error:
            if isinstance(cause, ObjectExistsError) and not isinstance(error, StorageError):
                # Somebody's commit that can't be parsed: the version is taken, and not by us.
                return False
            raise CommitOutcomeUnknownError(
                f"the store failed while version {version} was committed ({cause.message}) and again "
                f"when the commit was read back ({error.message}): look for txnId {txn_id} in "
                f"{commit_path(version)} before trying again",
                table=self._table,
                version=version,
                txn_id=txn_id,
            ) from error
        return False

    def _exists(self, version: int) -> bool:
        path = commit_path(version)
        return self._storage.read_many([path])[0] is not None

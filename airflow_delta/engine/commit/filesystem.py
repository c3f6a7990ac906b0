"""Commit by the file system: the client that creates the next commit file has made the next version.

The store's put-if-absent decides between writers. A store without it refuses the commit, unless the user
says that there is only one writer (the storage option ``single_writer``).

If a put fails, the file may have been created nevertheless, or may still be: the answer was lost, or the
request is on its way. So `FileSystemCommitter` repeats the put. An answer to any repetition settles it:

* created: the version is ours;
* the file exists: it is read back, and is ours if it has our ``txnId``. If it isn't what was sent, the
  store has kept a part of it, as one may that moves files by copying them.

Spec: PROTOCOL.md, "Delta Log Entries".
"""

from __future__ import annotations

from airflow_delta.engine.errors import (
    CommitCutOffError,
    CommitOutcomeUnknownError,
    DeltaError,
    NothingWrittenError,
    ObjectExistsError,
    ObjectNotFoundError,
    StorageError,
    UnsafeStorageError,
)
from airflow_delta.engine.log.commit_file import read_commit_info
from airflow_delta.engine.log.files import commit_path
from airflow_delta.engine.storage.base import Storage

__all__ = ["FileSystemCommitter"]

_MAX_PUTS = _MAX_READS = 3
"""The number of attempts to put the file, and to read it back. Within each, the store's client has retried
with pauses."""


class FileSystemCommitter:
    """Makes versions of a table whose commits the file system orders.

    Args:
        storage: the table's storage.
        table: the table's location, for errors.
    """

    def __init__(self, storage: Storage, *, table: str) -> None:
        self._storage = storage
        self._table = table

    def commit(self, version: int, data: bytes, *, txn_id: str) -> str | None:
        """Try to make a version.

        Args:
            version: the version to make; the one before it must exist.
            data: the whole commit file.
            txn_id: the ``txnId`` in its ``commitInfo``, which no other transaction has.

        Returns:
            The path of our commit file; None if another writer made the version.

        Raises:
            UnsafeStorageError: the store can't create exclusively; nothing was written.
            NothingWrittenError: the store refused the commit.
            StorageError: a local store failed, and the commit wasn't made.
            CommitOutcomeUnknownError: the store failed, and it is unknown whether the commit was made, or
                still will be.
            CommitCutOffError: the store has kept only a part of the commit.
        """
        failures: list[StorageError] = []
        path = commit_path(version)
        while len(failures) < _MAX_PUTS:
            try:
                self._storage.create(path, data)
            except UnsafeStorageError:
                raise
            except ObjectExistsError as error:
                return path if self._is_ours(version, data, txn_id, error) else None
            except NothingWrittenError as error:
                # The store refused the put, because of missing permissions for example.
                if not failures:
                    raise
                # This put wrote nothing, but an earlier one may have.
                return path if self._is_ours(version, data, txn_id, error) else None
            except StorageError as error:
                failures.append(error)
            else:
                return path
        return path if self._is_ours(version, data, txn_id, failures[-1]) else None

    def _is_ours(self, version: int, data: bytes, txn_id: str, cause: StorageError) -> bool:
        reads = 0
        while True:
            reads += 1
            try:
                info = read_commit_info(self._storage, version)
                ours = info is not None and info.get("txnId") == txn_id
                content = self._storage.read(commit_path(version)) if ours else data
            except StorageError as error:
                absent = isinstance(error, ObjectNotFoundError)
                # A local file system has no requests on their way: a file that doesn't exist won't appear.
                if absent and not self._storage.capabilities.remote:
                    raise cause from None
                if absent or reads == _MAX_READS:
                    raise self._make_unknown_error(version, txn_id, cause, error) from error
            except DeltaError:
                # A commit that can't be parsed: another writer has the version.
                return False
            else:
                if content != data:
                    raise self._make_cut_off_error(version, txn_id, data, content)
                return ours

    def _make_cut_off_error(
        self, version: int, txn_id: str, expected: bytes, found: bytes
    ) -> CommitCutOffError:
        path = commit_path(version)
        return CommitCutOffError(
            f"the store has kept only a part of version {version}: {path} has our txnId {txn_id}, but not "
            f"what was sent ({len(found):,} bytes, expected {len(expected):,}); delete this file before "
            "anybody commits after it, and run the operation again",
            table=self._table,
            version=version,
            txn_id=txn_id,
        )

    def _make_unknown_error(
        self, version: int, txn_id: str, cause: StorageError, again: StorageError
    ) -> CommitOutcomeUnknownError:
        return CommitOutcomeUnknownError(
            f"the store failed while version {version} was committed ({cause.message}), and reading "
            f"the commit back didn't show whether it was made ({again.message}): look for txnId "
            f"{txn_id} in {commit_path(version)} before trying again",
            table=self._table,
            version=version,
            txn_id=txn_id,
        )

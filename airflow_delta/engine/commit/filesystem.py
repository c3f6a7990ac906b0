"""Commit by the file system: whoever creates the next commit file has made the next version.

PROTOCOL.md, "Delta Log Entries": writers create ``<version>.json`` and must never overwrite one. The
store's put-if-absent decides between writers; a store that has none refuses, unless the user says that
there is only one (the storage option ``single_writer``).

A store may fail after the file was made, because the answer got lost, and it may even make the file
later, because the request is still on its way: that nothing is there yet proves nothing. So a put
that failed is repeated. As long as one of the repetitions gets an answer, the question is settled,
and no late request can change it any more:

=====================  =========================================================================
the answer             what it says
=====================  =========================================================================
created                the version is ours
there is such a file   it is read back: ours if it carries our ``txnId``, else another writer's
=====================  =========================================================================

A store that refuses the first put outright (no permission, say) has settled it too: nothing was
written. If all puts fail, the file is looked for. A local file system does what it does before it
answers, so that a file that isn't there won't come; of a remote store nobody can tell.
"""

from __future__ import annotations

from airflow_delta.engine.errors import (
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

_PUTS = _LOOKS = 3
"""How often a put is sent, and its file read back; a store's client has tried longer and with pauses each
time."""


class FileSystemCommitter:
    """Makes versions of a table whose commits the file system orders.

    Args:
        storage: where the table is.
        table: its location, for errors.
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
            The commit file, which is ours; None where another writer made the version.

        Raises:
            UnsafeStorageError: the store can't create exclusively; nothing was written.
            NothingWrittenError: the store refused the commit.
            StorageError: a local store failed, and the commit was not made.
            CommitOutcomeUnknownError: the store failed, and whether the commit was made, or is
                still going to be, can't be told.
        """
        failures: list[StorageError] = []
        path = commit_path(version)
        while len(failures) < _PUTS:
            try:
                self._storage.create(path, data)
            except UnsafeStorageError:
                raise
            except ObjectExistsError as error:
                return path if self._is_ours(version, txn_id, error) else None
            except NothingWrittenError as error:
                if not failures:
                    raise
                # This put wrote nothing, but what became of the one before it is still open.
                return path if self._is_ours(version, txn_id, error) else None
            except StorageError as error:
                failures.append(error)
            else:
                return path
        return path if self._is_ours(version, txn_id, failures[-1]) else None

    def _is_ours(self, version: int, txn_id: str, cause: StorageError) -> bool:
        looks = 0
        while True:
            looks += 1
            try:
                info = read_commit_info(self._storage, version)
            except StorageError as error:
                absent = isinstance(error, ObjectNotFoundError)
                if absent and not self._storage.capabilities.remote:
                    raise cause from None
                if absent or looks == _LOOKS:
                    raise self._unknown(version, txn_id, cause, error) from error
            except DeltaError:
                # A commit that can't be parsed: the version is taken, and not by us.
                return False
            else:
                return info is not None and info.get("txnId") == txn_id

    def _unknown(
        self, version: int, txn_id: str, cause: StorageError, again: StorageError
    ) -> CommitOutcomeUnknownError:
        return CommitOutcomeUnknownError(
            f"the store failed while version {version} was committed ({cause.message}), and reading "
            f"the commit back didn't tell whether it was made ({again.message}): look for txnId "
            f"{txn_id} in {commit_path(version)} before trying again",
            table=self._table,
            version=version,
            txn_id=txn_id,
        )

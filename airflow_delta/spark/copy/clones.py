"""Copies in Delta format: clones, tables of their own that hold what a version of another one holds.

A clone has the schema with all that its columns say of themselves, the partition columns, properties,
constraints and features of the version, and copies of its files, byte for byte, with their deletion vectors
(``maintenance/clone_definition.py``, `clone_files`). It needs nothing of the source from then on.

1. The transaction begins: what the target holds is judged by the version that the commit is based on. It
   must not be an expired copy that is being deleted (`copy_watch`); that is looked at again before and
   behind the commit. A commit that has come too late is taken back.
2. Executors copy the files that the target lacks into a directory of their own (`file_copying`).
3. One commit, ``CLONE``, makes the target what the version is.
4. A file says what the copy is, and when it may be deleted (`copy_marker`).

Whatever fails before the commit leaves the target as it was, and the files are deleted. A run that is
killed leaves files that no commit names, in a directory ``clone-<uuid>``, for a vacuum. A commit whose
outcome is unknown leaves them, too: they may be part of the table.

A retry with the transaction identifier of an earlier try finds that try's commit, and makes none if that
one copied the same version. A copy that another run commits meanwhile is a conflict.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from airflow_delta.copies.clone_names import is_clone_leftover, strange_file
from airflow_delta.copies.lease import CopyBeingDeletedError, CopyWatch
from airflow_delta.copies.request import (
    CopyResult,
    check_delta_target,
    check_place,
    copied_by,
    mark_delta_copy,
    now_ms,
    refusal,
)
from airflow_delta.copies.source import CopySource
from airflow_delta.engine import DeltaTable, OptimisticTransaction, Snapshot
from airflow_delta.engine.errors import (
    CommitConflictError,
    ConstraintViolationError,
    TableAlreadyExistsError,
    TableNotFoundError,
)
from airflow_delta.engine.log.files import LOG_DIRECTORY, commit_version, version_prefix
from airflow_delta.engine.maintenance.restore.clone_definition import stage_clone_definition
from airflow_delta.engine.public_text import without_password
from airflow_delta.engine.transaction.intent import CloneVersion
from airflow_delta.spark.checkpoint.key_shuffle import StorageAddress
from airflow_delta.spark.copy.clone_files import CloneFiles, clone_files
from airflow_delta.spark.copy.file_copying import copy_files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from airflow_delta.copies.request import CopyRequest

__all__ = ["Clone"]

# The table isn't found where somebody has emptied the place meanwhile.
_NOT_COMMITTED = (
    CommitConflictError,
    ConstraintViolationError,
    TableAlreadyExistsError,
    TableNotFoundError,
)


class Clone:
    """One clone in the making.

    Args:
        spark: the session.
        request: the copy; its format is ``delta``.
        source: what is to be copied.
        storage_options: credentials and settings with which the engine reaches both tables, in the driver
            and in executors.
    """

    def __init__(
        self,
        spark: SparkSession,
        request: CopyRequest,
        source: CopySource,
        storage_options: Mapping[str, str] | None,
    ) -> None:
        self._spark = spark
        self._request = request
        self._copied = source
        self._source = source.snapshot
        self._options = dict(storage_options or {})
        self._target = DeltaTable(request.target_uri, storage_options)

    def make(self) -> CopyResult:
        """Make the target a clone, or find that an earlier try has done it.

        Raises:
            InvalidArgumentError: something is at the target that must stay.
            UnsupportedFeatureError: the table has something that the engine can't write.
            ObjectNotFoundError: a file of the version is gone.
            CommitConflictError: another writer has changed the target meanwhile.
            TableAlreadyExistsError: another writer has created it.
            CopyBeingDeletedError: an expired copy is being deleted there, or has been meanwhile.
            CommitOutcomeUnknownError: the store failed; the commit may have been made.
            DeltaError: one of the tables can't be read, or the target can't be written.
            PySparkException, Py4JError: Spark's own errors.
        """
        watch = CopyWatch(self._request, self._target.storage)
        transaction = self._begin()
        base, txn = transaction.snapshot, self._request.txn
        if base is not None:
            # Looked for after the transaction has begun: a commit made later is a conflict.
            done, is_taken = self._earlier(watch)
            if done is not None:
                return done
            # An earlier run of the task has copied another version, and has its identifier. The mark
            # still keeps this copy apart from older and newer ones.
            txn = None if is_taken else txn
            self._check_held(base)
        for app_id in self._copied.app_ids(base):
            transaction.set_transaction(app_id, self._source.version)
        if txn is not None:
            transaction.set_transaction(*txn)
        stage_clone_definition(transaction, self._source)
        files = clone_files(self._source, base, table=self._target.storage.root)
        try:
            self._copy(files, watch)
            return self._commit(transaction, files, watch)
        except (CommitConflictError, TableAlreadyExistsError):
            # Another try may have made the very copy meanwhile.
            done, _ = self._earlier(watch)
            if done is None:
                raise
            return done

    def _begin(self) -> OptimisticTransaction:
        source, target = self._source, self._target
        parameters = {
            "source": f"delta.`{without_password(source.table)}`",
            "sourceVersion": source.version,
            "isShallow": False,
        }
        if target.exists():
            return target.transaction("CLONE", operation_parameters=parameters)
        check_place(self._request, self._copied, target.storage, is_leftover=is_clone_leftover)
        return OptimisticTransaction(target.storage, None, "CLONE", operation_parameters=parameters)

    def _earlier(self, watch: CopyWatch) -> tuple[CopyResult | None, bool]:
        """What an earlier try has done; and whether another copy has its identifier."""
        request, source, target = self._request, self._copied, self._target
        if request.txn is None:
            return None, False
        commit = target.version_of_transaction(*request.txn)
        done = None if commit is None else copied_by(request, source, target, commit)
        if done is None:
            return None, commit is not None
        marker = mark_delta_copy(request, source, done, watch.check())
        if marker.has_expired(now_ms()):
            # It may be deleted at any time; the next commit copies nothing, and is kept anew.
            return None, True
        return CopyResult(done.num_rows, done.num_files, done.version, marker.expires_at_ms), True

    def _check_held(self, base: Snapshot) -> None:
        check_delta_target(self._request, self._copied, base)
        strange = strange_file(base)
        if strange is not None:
            raise refusal(
                self._request,
                f"others have written to the copy: no copy has committed its file {strange}, or the "
                "deletion vector of that",
            )

    def _copy(self, files: CloneFiles, watch: CopyWatch) -> None:
        try:
            copy_files(
                self._spark.sparkContext,
                files.copies,
                source=StorageAddress(
                    self._source.table, self._options, self._copied.table.allowed_outside
                ),
                target=StorageAddress(self._target.storage.root, self._options),
            )
            watch.check()
        except BaseException:
            self._discard(files)
            raise

    def _commit(
        self, transaction: OptimisticTransaction, files: CloneFiles, watch: CopyWatch
    ) -> CopyResult:
        transaction.declare(CloneVersion(self._source, files.keys))
        transaction.add_files(list(files.adds))
        for remove in files.removes:
            transaction.remove_file(remove)
        base = transaction.snapshot
        try:
            commit = transaction.commit(operation_metrics=files.metrics)
        except _NOT_COMMITTED:
            # Only what is known not to have committed: anything else may have, and needs its files.
            self._discard(files)
            raise
        try:
            held = watch.check()
        except CopyBeingDeletedError:
            if watch.is_lost(None if base is None else base.metadata.id):
                self._take_back(files, commit.version)
            raise
        copy = self._target.snapshot(commit.version)
        marker = mark_delta_copy(self._request, self._copied, copy, held)
        return CopyResult(copy.num_rows, copy.num_files, commit.version, marker.expires_at_ms)

    def _take_back(self, files: CloneFiles, version: int) -> None:
        """Undo a commit to a table that is lost: it would be half a table, or change the one there now."""
        storage = self._target.storage
        behind = list(storage.list(LOG_DIRECTORY, start_after=version_prefix(version)))
        own = [info.path for info in behind if info.name.startswith(version_prefix(version))]
        if not own or any((commit_version(info.path) or 0) > version for info in behind):
            # It is gone with the table, or somebody has read it, and stands on it.
            return
        # Its checksum and checkpoint sort before it: nothing may be left of a version that is gone.
        storage.delete(own)
        self._discard(files)

    def _discard(self, files: CloneFiles) -> None:
        storage = self._target.storage
        storage.delete([info.path for info in storage.walk(files.directory)])

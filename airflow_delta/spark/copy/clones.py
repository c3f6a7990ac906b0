"""Clone a version of a table: a Delta table of its own, with copies of all files.

A clone has the definition of the version (``maintenance/restore/clone_definition.py``), and a byte-for-byte
copy of each data file and deletion vector (`clone_files`). It doesn't depend on the source afterwards.

1. Begin the transaction, and check the target. No expired copy may be being deleted there; this is checked
   again before and after the commit (`airflow_delta.copies.lease`).
2. Executors copy the missing files into a new directory ``clone-<uuid>`` (`file_copying`).
3. One commit ``CLONE`` gives the target the state of the version.
4. Write the marker file: what the copy is, and when it expires (`airflow_delta.copies.marker`).

A failure before the commit leaves the target as it was. A killed run, or a commit with unknown outcome,
leaves its ``clone-<uuid>`` directory to a vacuum.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from airflow_delta.copies.clone_names import find_foreign_file, is_clone_leftover
from airflow_delta.copies.lease import CopyBeingDeletedError, CopyWatch
from airflow_delta.copies.request import (
    CopyResult,
    check_delta_target,
    check_location,
    load_earlier_copy,
    mark_delta_copy,
    refusal,
)
from airflow_delta.copies.source import CopySource
from airflow_delta.engine import DeltaTable, OptimisticTransaction, Snapshot
from airflow_delta.engine.clock import now_ms
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
from airflow_delta.spark.copy.clone_files import CloneFiles, plan_clone_files
from airflow_delta.spark.copy.file_copying import copy_files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from airflow_delta.copies.request import CopyRequest

__all__ = ["Clone"]

# TableNotFoundError: somebody emptied the location in the meantime.
_NOT_COMMITTED = (
    CommitConflictError,
    ConstraintViolationError,
    TableAlreadyExistsError,
    TableNotFoundError,
)


class Clone:
    """Makes one clone.

    Args:
        spark: the session.
        request: the copy; its format is ``delta``.
        source: the version to be copied.
        storage_options: credentials and settings of the engine for both tables, in the driver and
            in executors.
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
        """Make the target a clone, or return the result of an earlier try.

        Raises:
            InvalidArgumentError: the target holds something that a copy may not replace.
            UnsupportedFeatureError: the engine can't write a feature of the table.
            ObjectNotFoundError: a file of the version is gone.
            CommitConflictError: another writer changed the target in the meantime.
            TableAlreadyExistsError: another writer created the target in the meantime.
            CopyBeingDeletedError: an expired copy is being deleted there, or was deleted in the
                meantime.
            CommitOutcomeUnknownError: the store failed; the commit may have been made.
            DeltaError: one of the tables can't be read, or the target can't be written.
            PySparkException, Py4JError: Spark's own errors.
        """
        watch = CopyWatch(self._request, self._target.storage)
        transaction = self._begin()
        base, txn = transaction.snapshot, self._request.txn
        if base is not None:
            # After the transaction has begun, so that any later commit is a conflict.
            done, is_taken = self._find_earlier_try(watch)
            if done is not None:
                return done
            # An earlier run of this task copied another version with the same identifier. The
            # identifier of the copy (`CopySource.app_ids`) still distinguishes this copy from older
            # and newer ones.
            txn = None if is_taken else txn
            self._check_held(base)
        for app_id in self._copied.app_ids(base):
            transaction.set_transaction(app_id, self._source.version)
        if txn is not None:
            transaction.set_transaction(*txn)
        stage_clone_definition(transaction, self._source)
        files = plan_clone_files(self._source, base, table=self._target.storage.root)
        try:
            self._copy(files, watch)
            return self._commit(transaction, files, watch)
        except (CommitConflictError, TableAlreadyExistsError):
            # Another try of this task may have committed the same copy.
            done, _ = self._find_earlier_try(watch)
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
        check_location(self._request, self._copied, target.storage, is_leftover=is_clone_leftover)
        return OptimisticTransaction(target.storage, None, "CLONE", operation_parameters=parameters)

    def _find_earlier_try(self, watch: CopyWatch) -> tuple[CopyResult | None, bool]:
        """Find the result of an earlier try, and whether another copy has used its identifier."""
        request, source, target = self._request, self._copied, self._target
        if request.txn is None:
            return None, False
        commit = target.version_of_transaction(*request.txn)
        done = None if commit is None else load_earlier_copy(request, source, target, commit)
        if done is None:
            return None, commit is not None
        marker = mark_delta_copy(request, source, done, watch.check())
        if marker.has_expired(now_ms()):
            # It may be deleted at any time. A new commit, without copied files, gets a new expiry.
            return None, True
        return CopyResult(done.num_rows, done.num_files, done.version, marker.expires_at_ms), True

    def _check_held(self, base: Snapshot) -> None:
        check_delta_target(self._request, self._copied, base)
        foreign = find_foreign_file(base)
        if foreign is not None:
            raise refusal(
                self._request,
                f"others have written to the copy: no copy has committed its file {foreign}, or the "
                "deletion vector of that file",
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
            # Only after errors that rule out a commit: otherwise the table may need the files.
            self._discard(files)
            raise
        try:
            held = watch.check()
        except CopyBeingDeletedError:
            if watch.is_lost(None if base is None else base.metadata.id):
                self._roll_back(files, commit.version)
            raise
        copy = self._target.snapshot(commit.version)
        marker = mark_delta_copy(self._request, self._copied, copy, held)
        return CopyResult(copy.num_rows, copy.num_files, commit.version, marker.expires_at_ms)

    def _roll_back(self, files: CloneFiles, version: int) -> None:
        """Delete a commit to a table that was deleted: it would damage what is there now."""
        storage = self._target.storage
        behind = list(storage.list(LOG_DIRECTORY, start_after=version_prefix(version)))
        own = [info.path for info in behind if info.name.startswith(version_prefix(version))]
        if not own or any((commit_version(info.path) or 0) > version for info in behind):
            # The commit was deleted with the table, or another writer has based a commit on it.
            return
        # This includes its checksum and checkpoint: nothing may remain of the version.
        storage.delete(own)
        self._discard(files)

    def _discard(self, files: CloneFiles) -> None:
        storage = self._target.storage
        storage.delete([info.path for info in storage.walk(files.directory)])

"""`rewrite_data`: rewrite data files so that they no longer use a table feature.

This is the part of dropping a feature that reads and writes rows. The engine does the rest, and
chooses the files (``engine/maintenance/drop_feature``).

===================  ==========================================  ======================================
feature              files of a commit                           operation (as in Delta Spark)
===================  ==========================================  ======================================
``deletionVectors``  some gigabytes of the files with a          ``REORG``
                     deletion vector, or with the path of a
                     removed file that had one
``typeWidening``     likewise, of files with narrower types      ``REORG``
``columnMapping``    all files, and the metadata                 ``REMOVE COLUMN MAPPING``
===================  ==========================================  ======================================

No row changes: all actions have ``dataChange=false``.

If others remove one of the files concurrently, or add one in the case of column mapping, the commit
fails. The next round reuses the rewritten files whose originals are still there, unless the
metadata has changed.

A killed job leaves unreferenced files in ``rewrite-<uuid>`` directories, for a vacuum. Another run
continues with the remaining files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, get_args

import pyarrow as pa
import pyarrow.compute as pc

from airflow_delta.engine import DeltaTable, OptimisticTransaction, Snapshot
from airflow_delta.engine.arrow.python_arrays import array_of
from airflow_delta.engine.errors import (
    CommitConflictError,
    ConstraintViolationError,
    InvalidArgumentError,
)
from airflow_delta.engine.features.column_mapping import mapping_mode
from airflow_delta.engine.features.protocol import Operation, check_writable
from airflow_delta.engine.features.row_tracking import FEATURE as ROW_TRACKING
from airflow_delta.engine.maintenance.drop_feature.narrow_types import find_files_with_narrow_types
from airflow_delta.engine.maintenance.drop_feature.rewrite import Rewritable
from airflow_delta.engine.maintenance.drop_feature.unmapping import OPERATION as UNMAPPING
from airflow_delta.engine.maintenance.drop_feature.unmapping import unmap_columns
from airflow_delta.engine.maintenance.optimize.rules import ENFORCED
from airflow_delta.engine.model.paths import decode_path
from airflow_delta.engine.replay.file_key import file_keys
from airflow_delta.engine.snapshot.feature_usage import files_with
from airflow_delta.spark.rewrite.files import FileRewriter, Rewritten
from airflow_delta.spark.rewrite.stored_rows import FileForm
from airflow_delta.spark.writer.log_actions import removal

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["RewriteResult", "rewrite_data", "rewrite_report"]

_MAPPING = "columnMapping"
_MOST_CONFLICTS = 10
"""The number of failed commits in a row after which the job gives up."""

_BATCH_BYTES = 256 << 30
"""The bytes of files per commit, unless it must contain all files.

A conflict or a killed job can waste as much work.
"""


@dataclass(frozen=True, slots=True)
class RewriteResult:
    """The result of a rewrite.

    Attributes:
        version: the version of the last commit; None if there was nothing to do.
        num_commits: the number of commits.
        num_removed: the number of rewritten files.
        bytes_removed: their total size.
        num_added: the number of new files.
        bytes_added: their total size.
    """

    version: int | None = None
    num_commits: int = 0
    num_removed: int = 0
    bytes_removed: int = 0
    num_added: int = 0
    bytes_added: int = 0


def rewrite_data(
    spark: SparkSession,
    uri: str,
    feature: Rewritable,
    *,
    storage_options: Mapping[str, str] | None = None,
    allowed_outside: Sequence[str] = (),
) -> RewriteResult:
    """Rewrite the data files of a table that use a feature, and commit them.

    Unset the property that enables the feature first; otherwise writers may soon use it again.

    Args:
        spark: the session; Spark reads and writes data files with the credentials of its own configuration.
        uri: the table's path or URI.
        feature: the feature.
        storage_options: credentials and settings with which the engine commits.
        allowed_outside: locations outside of the table below which it may read files; see `DeltaTable`.

    Raises:
        InvalidArgumentError: dropping this feature needs no rewritten files.
        InvalidTableError: columns have names that only column mapping allows; or a file has another number
            of rows than in its statistics.
        UnsupportedFeatureError: a feature of the table isn't supported here, such as Iceberg compatibility;
            or Spark can't read a file because of its name.
        CommitConflictError: other writers have changed the files, ten times in a row.
        CommitOutcomeUnknownError: the store failed; the last commit may have been made.
        DeltaError: the table can't be read or committed to.
        PySparkException: Spark's own errors.
    """
    if feature not in get_args(Rewritable):
        raise InvalidArgumentError(
            f"feature={feature!r}: expected one of {', '.join(get_args(Rewritable))}, for which files are "
            "rewritten",
            table=uri,
        )
    table = DeltaTable(uri, storage_options, allowed_outside=allowed_outside)
    return _Rewriting(spark, table, feature).run()


def rewrite_report(result: RewriteResult) -> dict[str, Any]:
    """Convert a result to plain JSON.

    Returns:
        ``version`` (of the last commit, None for none), ``commits``, ``files_removed``, ``bytes_removed``,
        ``files_added`` and ``bytes_added``.
    """
    return {
        "version": result.version,
        "commits": result.num_commits,
        "files_removed": result.num_removed,
        "bytes_removed": result.bytes_removed,
        "files_added": result.num_added,
        "bytes_added": result.bytes_added,
    }


class _Rewriting:
    """One run of `rewrite_data`."""

    def __init__(
        self,
        spark: SparkSession,
        table: DeltaTable,
        feature: Rewritable,
    ) -> None:
        self._spark = spark
        self._table = table
        self._feature = feature
        # Rewritten but uncommitted files by file key, and the snapshot for which they were written.
        self._written: dict[str, Rewritten] = {}
        self._written_for: Snapshot | None = None
        # The files to be rewritten. Files that others add later are left to another run.
        self._paths: pa.Array | None = None

    def run(self) -> RewriteResult:
        """Rewrite and commit until nothing is left to be rewritten."""
        result, conflicts = RewriteResult(), 0
        while (round_ := self._next_round()) is not None:
            transaction, keys = round_
            metrics = self._stage(transaction, keys)
            try:
                commit = transaction.commit(operation_metrics=metrics)
            except CommitConflictError:
                conflicts += 1
                if conflicts == _MOST_CONFLICTS:
                    self._discard()
                    raise
            except ConstraintViolationError:
                # Only after errors that rule out a commit: otherwise the table may need the files.
                self._discard()
                raise
            else:
                conflicts = 0
                for key in keys:
                    del self._written[key]
                result = RewriteResult(
                    commit.version,
                    result.num_commits + 1,
                    result.num_removed + metrics["numRemovedFiles"],
                    result.bytes_removed + metrics["numRemovedBytes"],
                    result.num_added + metrics["numAddedFiles"],
                    result.bytes_added + metrics["numAddedBytes"],
                )
        self._discard()
        return result

    def _next_round(self) -> tuple[OptimisticTransaction, list[str]] | None:
        """Begin a transaction, and rewrite its files.

        Returns:
            The transaction and the keys of its files; None if nothing is left to do.
        """
        transaction = self._begin()
        base = transaction.base
        mode = mapping_mode(base.protocol, base.metadata, table=base.table)
        files = self._files(base)
        if not files.num_rows and (self._feature != _MAPPING or mode == "none"):
            return None
        if self._feature == _MAPPING:
            unmap_columns(transaction)
        keys = file_keys(files, table=base.table)
        try:
            self._write(base, files, keys)
        except BaseException:
            self._discard()
            raise
        return transaction, keys.to_pylist()

    def _begin(self) -> OptimisticTransaction:
        is_mapping = self._feature == _MAPPING
        while True:
            tracked = _tracks_rows(self._table.snapshot())
            enforced = ENFORCED | (frozenset({ROW_TRACKING}) if tracked else frozenset())
            transaction = self._table.transaction(
                UNMAPPING if is_mapping else "REORG",
                operation_parameters=None if is_mapping else {"predicate": [], "applyPurge": True},
                enforces=sorted(enforced),
            )
            base = transaction.base
            # The commit would also refuse this, but hours later.
            check_writable(
                base.protocol,
                base.metadata,
                table=base.table,
                operation=Operation.APPEND,
                enforced=enforced,
            )
            if _tracks_rows(base) == tracked:
                return transaction

    def _files(self, base: Snapshot) -> pa.Table:
        """The files of the next commit."""
        if self._paths is None or self._feature == _MAPPING:
            self._paths = self._paths_with_feature(base).combine_chunks()
        files = base.files()
        files = files.filter(pc.is_in(files["path"], value_set=self._paths))
        if self._feature == _MAPPING:
            return files
        if self._feature == "deletionVectors":
            # A file that has lost its deletion vector in the meantime needn't be rewritten.
            files = files.filter(
                pc.is_in(files["path"], value_set=self._paths_with_feature(base).combine_chunks())
            )
        # Sorted by path, so that the files of a partition are mostly in one commit.
        files = files.sort_by("path")
        within = pc.less_equal(pc.cumulative_sum(files["size"]), _BATCH_BYTES)
        return files.slice(0, max(1, pc.sum(within).as_py() or 0))

    def _paths_with_feature(self, base: Snapshot) -> pa.ChunkedArray:
        """The paths of the files that use the feature."""
        if self._feature == "typeWidening":
            return find_files_with_narrow_types(base, self._table.file_access)["path"]
        return files_with(self._feature, base)["path"]

    def _write(self, base: Snapshot, files: pa.Table, keys: pa.ChunkedArray) -> None:
        """Rewrite the files that aren't rewritten yet."""
        former = self._written_for
        if former and (former.metadata, former.protocol) != (base.metadata, base.protocol):
            self._discard()
        self._written_for = base
        done = array_of(list(self._written), pa.string())
        missing = pc.invert(pc.is_in(keys, value_set=done))
        if not pc.any(missing).as_py():
            return
        rewriter = FileRewriter(
            self._spark,
            self._table,
            base,
            after=_without_mapping(base) if self._feature == _MAPPING else None,
        )
        written = rewriter.rewrite(files.filter(missing))
        self._written.update(zip(keys.filter(missing).to_pylist(), written, strict=True))

    def _stage(self, transaction: OptimisticTransaction, keys: Sequence[str]) -> Mapping[str, int]:
        """Stage the removed and added files, and return the metrics."""
        pairs = [self._written[key] for key in keys]
        added = [file for pair in pairs for file in pair.successors]
        transaction.add_files(added)
        for pair in pairs:
            transaction.remove_file(removal(pair.file, data_change=False))
        return {
            "numRemovedFiles": len(pairs),
            "numRemovedBytes": sum(pair.file.size for pair in pairs),
            "numAddedFiles": len(added),
            "numAddedBytes": sum(file.size for file in added),
            "numDeletionVectorsRemoved": sum(bool(pair.file.deletion_vector) for pair in pairs),
        }

    def _discard(self) -> None:
        """Delete rewritten files that aren't committed."""
        storage = self._table.storage
        files = (file for pair in self._written.values() for file in pair.successors)
        paths = [decode_path(file.path) for file in files]
        if not storage.capabilities.remote:
            # Hadoop's file systems write a checksum file for each file.
            parts = [path.rpartition("/") for path in paths]
            paths += [f"{folder}/.{name}.crc" for folder, _, name in parts]
        storage.delete(paths)
        self._written.clear()


def _without_mapping(base: Snapshot) -> FileForm:
    now = FileForm.of(base.protocol, base.metadata, table=base.table)
    return replace(now, mode="none")


def _tracks_rows(snapshot: Snapshot) -> bool:
    return snapshot.row_tracking is not None and snapshot.row_tracking.enabled

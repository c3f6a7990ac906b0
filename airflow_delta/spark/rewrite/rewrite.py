"""`rewrite_data`: write data files anew, so that no trace of a feature is left in them.

It is the part of dropping a feature that takes somebody who reads and writes rows; what else it
takes is the engine's (``maintenance/drop_feature``, whose `rewrite` says which files it is about).

===================  ==========================================  ======================================
feature              a commit is about                           its operation
===================  ==========================================  ======================================
``deletionVectors``  some gigabytes of the files with a          ``REORG``
                     deletion vector, or whose path a removed
                     one has
``typeWidening``     likewise of those with narrower types       ``REORG``
``columnMapping``    all files, and the metadata                 ``REMOVE COLUMN MAPPING``
===================  ==========================================  ======================================

The names are those of Delta Spark. No row changes: all actions have ``dataChange=false``.

What others commit meanwhile is seen by the commit, as always. If they have removed one of the
files, or with column mapping if they have added one, the commit is refused; then the table is
looked at again, and what was written of files that are still there is taken as it is. So a round
takes less work than the one before, unless the metadata has changed.

A job that is killed leaves files that no commit names, in a directory ``rewrite-<uuid>``, for a
vacuum. It may be run again: it goes on with the files that are left.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
from airflow_delta.engine.features.feature import Support
from airflow_delta.engine.features.protocol import Operation, check_writable
from airflow_delta.engine.features.registry import FEATURES
from airflow_delta.engine.features.row_tracking import FEATURE as ROW_TRACKING
from airflow_delta.engine.maintenance.drop_feature.narrow_types import files_with_narrow_types
from airflow_delta.engine.maintenance.drop_feature.rewrite import Rewritable
from airflow_delta.engine.maintenance.drop_feature.unmapping import OPERATION as UNMAPPING
from airflow_delta.engine.maintenance.drop_feature.unmapping import unmap_columns
from airflow_delta.engine.model.paths import decode_path
from airflow_delta.engine.replay.file_key import file_keys
from airflow_delta.engine.snapshot.feature_usage import files_with
from airflow_delta.spark.rewrite.files import FileRewriter, Rewritten
from airflow_delta.spark.writer.log_actions import removal

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["RewriteResult", "rewrite_data", "rewrite_report"]

_MAPPING = "columnMapping"
_MOST_CONFLICTS = 10
"""So many refused commits in a row are enough: the table is too busy."""

_BATCH_BYTES = 256 << 30
"""A commit is about so many bytes of files, where it needn't be about all.

That is what a conflict, or a job that is killed, can cost.
"""

# Rules about the values of rows, which rows that are copied keep. Not so the rules about files.
_OF_FILES = frozenset({"icebergCompatV1", "icebergCompatV2"})
_OF_ROWS = frozenset(
    name for name, feature in FEATURES.items() if feature.append is Support.IF_ENFORCED
)


@dataclass(frozen=True, slots=True)
class RewriteResult:
    """What was done.

    Attributes:
        version: that of the last commit; None where there was nothing to do.
        num_commits: how many commits there were.
        num_removed: how many files were written anew.
        bytes_removed: their sizes added up.
        num_added: how many files there are in their place.
        bytes_added: their sizes added up.
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
    """Write the data files of a table anew in which a feature has left traces, and commit them.

    The property that turns the feature on should be off by then, or there may be new traces soon.

    Args:
        spark: the session; Spark reads and writes data files with the credentials of its own configuration.
        uri: the table's path or URI.
        feature: the feature.
        storage_options: credentials and settings with which the engine commits.
        allowed_outside: locations outside of the table below which it may read files; see `DeltaTable`.

    Raises:
        InvalidArgumentError: files needn't be written anew for such a feature.
        InvalidTableError: columns have names that only column mapping allows; or a file has another number
            of rows than its statistics say.
        UnsupportedFeatureError: the table needs something of writers that isn't done here, such as Iceberg
            compatibility, or Spark can't read a file by its name.
        CommitConflictError: other writers have changed what was to be written anew, ten times in a row.
        CommitOutcomeUnknownError: the store failed; the last commit may have been made.
        DeltaError: the table can't be read or committed to.
        PySparkException: Spark's own errors.
    """
    if feature not in get_args(Rewritable):
        raise InvalidArgumentError(
            f"feature={feature!r}: expected one of {', '.join(get_args(Rewritable))}, for which files are "
            "written anew",
            table=uri,
        )
    table = DeltaTable(uri, storage_options, allowed_outside=allowed_outside)
    return _Rewriting(spark, table, feature).run()


def rewrite_report(result: RewriteResult) -> dict[str, Any]:
    """A result as plain JSON.

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
        # What is written and not committed, by the keys of the files, and for which table it was written.
        self._written: dict[str, Rewritten] = {}
        self._written_for: Snapshot | None = None
        # The files that are to go: new ones that others add meanwhile are for another run.
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
                # Only what is known not to have committed: anything else may have, and needs its files.
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
        """A transaction that has begun, and the keys of the files that it is about, all written by now.

        Returns:
            None where nothing is left to be done.
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
            enforced = _OF_ROWS - _OF_FILES | (
                frozenset({ROW_TRACKING}) if tracked else frozenset()
            )
            transaction = self._table.transaction(
                UNMAPPING if is_mapping else "REORG",
                operation_parameters=None if is_mapping else {"predicate": [], "applyPurge": True},
                enforces=sorted(enforced),
            )
            base = transaction.base
            # Refused by the commit as well, but hours later.
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
        """The files that the next commit is about."""
        if self._paths is None or self._feature == _MAPPING:
            self._paths = self._with_traces(base).combine_chunks()
        files = base.files()
        files = files.filter(pc.is_in(files["path"], value_set=self._paths))
        if self._feature == _MAPPING:
            return files
        if self._feature == "deletionVectors":
            # Those of which only the deletion vector went meanwhile, and has left nothing, needn't go.
            files = files.filter(
                pc.is_in(files["path"], value_set=self._with_traces(base).combine_chunks())
            )
        # By paths, so that files of one partition mostly come together.
        files = files.sort_by("path")
        within = pc.less_equal(pc.cumulative_sum(files["size"]), _BATCH_BYTES)
        return files.slice(0, max(1, pc.sum(within).as_py() or 0))

    def _with_traces(self, base: Snapshot) -> pa.ChunkedArray:
        """The paths of the files in which the feature has left traces."""
        if self._feature == "typeWidening":
            return files_with_narrow_types(base, self._table.file_access)["path"]
        return files_with(self._feature, base)["path"]

    def _write(self, base: Snapshot, files: pa.Table, keys: pa.ChunkedArray) -> None:
        """Write anew those of the files of which that isn't done yet."""
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
            unmapped=self._feature == _MAPPING,
        )
        written = rewriter.rewrite(files.filter(missing))
        self._written.update(zip(keys.filter(missing).to_pylist(), written, strict=True))

    def _stage(self, transaction: OptimisticTransaction, keys: Sequence[str]) -> Mapping[str, int]:
        """Stage that files go and others come; the metrics of that."""
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
        """Delete what is written and not committed."""
        storage = self._table.storage
        files = (file for pair in self._written.values() for file in pair.successors)
        paths = [decode_path(file.path) for file in files]
        if not storage.capabilities.remote:
            # Hadoop's own file systems leave a checksum beside each file.
            parts = [path.rpartition("/") for path in paths]
            paths += [f"{folder}/.{name}.crc" for folder, _, name in parts]
        storage.delete(paths)
        self._written.clear()


def _tracks_rows(snapshot: Snapshot) -> bool:
    return snapshot.row_tracking is not None and snapshot.row_tracking.enabled

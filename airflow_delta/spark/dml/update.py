"""`update`: change columns of the rows for which a condition is true, as one commit.

1. Choose the files by partition values and statistics (`conditions`), and find the rows in one pass over
   those that may have such rows (`matching`).
2. Remove the rows from their files (`removed_rows`), and write them with their new values to new files
   (`assignments`, `new_versions`). They keep their row ids.
3. Write change data files with the rows before and after, if the table keeps a feed.

Where files are rewritten and nothing else needs their rows, 2 is one pass over them (`rewritten_updates`).
Otherwise Spark stores the rows between the steps, because all three need all columns. Without a feed, and
if the files are large, the rows are read again instead, at the locations that were found.

Spec: PROTOCOL.md, "Add File and Remove File", "Deletion Vectors", "Change Data Files", "Row Tracking".
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from airflow_delta.engine import DeltaTable
from airflow_delta.spark.dml.assignments import Assignments, parse_assignments
from airflow_delta.spark.dml.change_files import changed, keeps_change_data, stage_changes, written
from airflow_delta.spark.dml.commit import begin_change, begin_once, commit_change, redone
from airflow_delta.spark.dml.conditions import ChosenFiles, choose_files, predicate_text
from airflow_delta.spark.dml.deletion import live_rows
from airflow_delta.spark.dml.expressions import check_condition_type
from airflow_delta.spark.dml.live_conditions import matching_rows
from airflow_delta.spark.dml.matching import collect_rows
from airflow_delta.spark.dml.new_values import (
    assign,
    old_values,
    with_old_values,
)
from airflow_delta.spark.dml.new_versions import write_new_versions
from airflow_delta.spark.dml.removed_rows import RemovedRows, remove_rows
from airflow_delta.spark.dml.rewritten_updates import RewrittenUpdate, updates_while_rewriting
from airflow_delta.spark.dml.row_store import RowStore
from airflow_delta.spark.reader.columns import frame_schema
from airflow_delta.spark.reader.row_tracking import TrackedRows, tracked_rows
from airflow_delta.spark.reader.snapshot_reader import (
    LOCATION_ID,
    LOCATION_LIVE,
    OWN_PREFIX,
    SnapshotReader,
)
from airflow_delta.spark.writer.alignment import AlignedRows
from airflow_delta.spark.writer.new_files import NewFiles

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, SparkSession

    from airflow_delta.engine import Snapshot
    from airflow_delta.engine.commit.owner import CommitOwner
    from airflow_delta.spark.writer.target import WriteTarget

__all__ = ["UpdateResult", "row_ids_of", "update"]

_CLAUSE = f"{OWN_PREFIX}clause"

_MOST_STORED_BYTES = 2 << 30
"""The bytes of files up to which the rows to update are stored. All rows may have to be updated, and on the
executors they take several times as much space."""


@dataclass(frozen=True, slots=True)
class UpdateResult:
    """The result of an update.

    Attributes:
        version: the version of the table with the new values.
        num_updated_rows: the number of rows that were updated.
        num_copied_rows: the number of other rows that were written anew.
        num_removed_files: the number of files that are no longer in the table.
        num_added_files: the number of new files.
        num_deletion_vectors: the number of files that have got a deletion vector, or a larger one.
        written: False if this call committed nothing: an earlier call had committed this transaction
            identifier, or no row met the condition.
        repeated: True if an earlier call had committed this transaction identifier.
    """

    version: int
    num_updated_rows: int = 0
    num_copied_rows: int = 0
    num_removed_files: int = 0
    num_added_files: int = 0
    num_deletion_vectors: int = 0
    written: bool = True
    repeated: bool = False


def update(
    spark: SparkSession,
    uri: str,
    set: Mapping[Any, Any],  # noqa: A002 - the name that SQL and users of Delta have for it
    condition: Column | str | None = None,
    *,
    txn: tuple[str, int] | None = None,
    user_metadata: str | None = None,
    storage_options: Mapping[str, str] | None = None,
    commit_owners: Mapping[str, CommitOwner] | None = None,
    allowed_outside: Sequence[str] = (),
) -> UpdateResult:
    """Update the rows of a Delta table for which a condition is true, as one commit.

    The new values are cast as Spark does for an ``INSERT``, and all rules of the table are checked.
    Generated columns that aren't assigned are computed anew. If another writer changes the same rows at the
    same time, the update is repeated on the newest version. If the table keeps a change feed, or its files
    are small, the executors may store the rows meanwhile; if one is lost, the update fails without a
    commit.

    Example:
        ``update(spark, uri, {"price": "price * 2", "address.city": "'Rome'"}, "id < 10")``

    Args:
        spark: the session; Spark reads and writes data files with the credentials of its own configuration.
        uri: the table's path or URI.
        set: the new values by column: SQL over the old values as a text, a Column, or a number; ``DEFAULT``
            is the column's default. A column is a name in any case; a member of a struct is a text with
            dots, as in SQL, or a list of names.
        condition: a condition on the table's columns, the same for a row each time it is evaluated, and
            without subqueries. None updates all rows.
        txn: application id and version: if they are committed already, the call does nothing and returns
            that commit's version. So a retry can't update twice.
        user_metadata: a text for ``commitInfo.userMetadata``.
        storage_options: credentials and settings with which the engine commits.
        commit_owners: commit owners of managed tables by name, beside those that are installed.
        allowed_outside: locations outside of the table below which it may read files; see `DeltaTable`.

    Raises:
        InvalidArgumentError: the condition or an assignment can't be resolved or isn't allowed.
        ConstraintViolationError: the table is append-only, a new value doesn't fit its column or breaks a
            rule of the table, or an identity column is assigned.
        UnsupportedFeatureError: the table needs a writer feature that isn't supported here.
        CommitConflictError: other writers made conflicting changes, several times.
        CommitOutcomeUnknownError: the store failed; the commit may have been made.
        DeltaError: the table or its files can't be read or written.
        PySparkException: Spark's other errors.
    """
    table = DeltaTable(uri, storage_options, commit_owners, allowed_outside=allowed_outside)
    check_condition_type("condition", condition, table=table.uri)
    return redone(lambda: _Update(spark, table, set, condition, txn, user_metadata).run())


def row_ids_of(base: Snapshot) -> TrackedRows | None:
    """The sources of row ids, if changed rows must keep theirs."""
    found = base.row_tracking
    return tracked_rows(base) if found is not None and found.enabled else None


@dataclass(frozen=True, slots=True)
class _Update:
    """One attempt."""

    spark: SparkSession
    table: DeltaTable
    given: Mapping[Any, Any]
    condition: Column | str | None
    txn: tuple[str, int] | None
    user_metadata: str | None

    def run(self) -> UpdateResult:
        """Find the rows, write them with their new values, and commit."""
        started = time.monotonic()
        target = begin_once(self._begin, self.table, self.txn)
        if isinstance(target, int):
            return UpdateResult(target, written=False, repeated=True)
        assignments = self._assignments(target)
        chosen = choose_files(self.spark, target, self.condition)
        with NewFiles(self.table) as new_files, RowStore(target.table) as store:
            if self.condition is not None and updates_while_rewriting(
                self.spark, target, self.condition, assignments
            ):
                rewriting = RewrittenUpdate(
                    self.spark, self.table, target, self.condition, assignments
                )
                removed, changes = rewriting.stage(chosen, new_files), 0
                num_updated = new_files.num_rows - removed.num_copied_rows
            else:
                removed, changes = self._stage(target, chosen, assignments, new_files, store)
                num_updated = new_files.num_rows
            if not new_files.num_rows and self.txn is None:
                return UpdateResult(target.version, written=False)
            whole = chosen.whole
            removed_files = removed.num_removed_files + whole.num_rows
            metrics = {
                "numAddedFiles": len(new_files.adds) + removed.num_added_files,
                # As Delta Spark counts them: an update removes each file that has such a row, also if it
                # comes back with a deletion vector.
                "numRemovedFiles": removed_files + removed.num_vectors_added,
                "numAddedBytes": new_files.size_in_bytes + removed.num_added_bytes,
                "numRemovedBytes": removed.num_removed_bytes + (pc.sum(whole["size"]).as_py() or 0),
                "numDeletionVectorsAdded": removed.num_vectors_added,
                "numDeletionVectorsRemoved": removed.num_vectors_removed,
                "numDeletionVectorsUpdated": removed.num_vectors_updated,
                "numAddedChangeFiles": changes,
                "numUpdatedRows": num_updated,
                "numCopiedRows": removed.num_copied_rows,
                "executionTimeMs": round((time.monotonic() - started) * 1000),
            }
            version = commit_change(target, new_files, self.txn, metrics)
        return UpdateResult(
            version,
            num_updated,
            removed.num_copied_rows,
            removed_files,
            metrics["numAddedFiles"],
            removed.num_vectors_added,
        )

    def _begin(self) -> WriteTarget:
        predicate = (
            []
            if self.condition is None
            else [predicate_text(self.spark, self.table, self.condition)]
        )
        return begin_change(
            self.table,
            "UPDATE",
            {"predicate": predicate},
            user_metadata=self.user_metadata,
            removes=True,
        )

    def _assignments(self, target: WriteTarget) -> Assignments:
        found = parse_assignments(self.spark, self.given, target, argument="set")
        nothing = self.spark.createDataFrame([], frame_schema(target.schema))
        found.check(nothing, "the table", table=target.table)
        return found

    def _stage(
        self,
        target: WriteTarget,
        chosen: ChosenFiles,
        assignments: Assignments,
        new_files: NewFiles,
        store: RowStore,
    ) -> tuple[RemovedRows, int]:
        """Stage the removal of the rows, their new versions and the change data files."""
        assert target.base is not None
        reader, tracked = (
            SnapshotReader(self.spark, self.table, target.base),
            row_ids_of(target.base),
        )
        keeps_feed = keeps_change_data(target)
        removed, old, num_rows = RemovedRows(), [], live_rows(chosen.whole)
        if chosen.whole.num_rows:
            target.transaction.remove_files(chosen.whole)
            old.append(reader.located_rows(chosen.whole, tracked=tracked, with_live=True))
        if chosen.partial.num_rows:
            # Without a condition there are no partial files.
            assert self.condition is not None
            matches = matching_rows(
                reader,
                chosen.partial,
                self.condition,
                partition_by=target.partition_by,
                tracked=tracked,
            )
            is_stored = keeps_feed or _may_be_stored(chosen.partial)
            if is_stored:
                matches = store.store(matches)
            found = collect_rows(matches, table=target.table)
            if found.rows:
                removed = remove_rows(
                    self.spark, self.table, target, chosen.partial, found.rows, new_files
                )
                if not is_stored:
                    matches = reader.located_rows(
                        chosen.partial, only=found.rows, tracked=tracked, with_live=True
                    )
                old.append(matches)
                num_rows = None if num_rows is None else num_rows + found.count
        if not old:
            return removed, 0
        before = with_old_values(_union(old), target.base.schema)
        aligned = self._new_versions(before, target, assignments, is_tracked=tracked is not None)
        write_new_versions(aligned, target, new_files, num_rows=num_rows)
        target.transaction.add_files(new_files.adds)
        if not keeps_feed:
            return removed, 0
        frames = [
            changed(old_values(before, target.base.schema, target), "update_preimage", target),
            written(self.spark, new_files.directory, "update_postimage", target, new_files),
        ]
        return removed, stage_changes(frames, target, new_files)

    @staticmethod
    def _new_versions(
        before: DataFrame, target: WriteTarget, assignments: Assignments, *, is_tracked: bool
    ) -> AlignedRows:
        """Give rows their new values."""
        assert target.base is not None
        keep = [LOCATION_LIVE, *([LOCATION_ID] if is_tracked else [])]
        new = assign(
            before.withColumn(_CLAUSE, F.lit(0)),
            {0: assignments},
            target,
            clause=_CLAUSE,
            keep=[_CLAUSE, *keep],
            old=target.base.schema,
        )
        given = frozenset(name for name in target.schema.names if assignments.assigns(name))
        # Spark may check rules before it leaves out the deleted rows of a file.
        checked = F.col(LOCATION_LIVE)
        row_ids = LOCATION_ID if is_tracked else None
        return AlignedRows(new, given, (), row_ids=row_ids, checked=checked)


def _may_be_stored(files: pa.Table) -> bool:
    return int(pc.sum(files["size"]).as_py()) <= _MOST_STORED_BYTES


def _union(frames: Sequence[DataFrame]) -> DataFrame:
    first, *others = frames
    for other in others:
        first = first.unionByName(other)
    return first

"""One attempt of a merge: find the pairs, stage the changes of the clauses, commit.

1. Begin the transaction; with ``merge_schema`` the table gets the columns that only the source has.
2. Find the files that may have matches (`pruning`). With clauses for rows that the source doesn't match,
   these are all files.
3. Join their rows with the source, without most of those that have no match (`key_filter`), and store the
   pairs (`matches`).
4. Remove updated and deleted rows from their files (`removed_rows`). Write the new versions of updated
   rows, with their row ids, and the inserted rows (`new_versions`).
5. Write change data files, if the feed needs them: if rows are updated, or files are rewritten.

A merge that only inserts stores no pairs, and removes nothing.

Spec: PROTOCOL.md, "Add File and Remove File", "Deletion Vectors", "Change Data Files", "Row Tracking".
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from airflow_delta.row_changes.clauses import (
    MATCHED,
    NOT_MATCHED,
    NOT_MATCHED_BY_SOURCE,
    MergeClause,
)
from airflow_delta.spark.dml.assignments import Assignments
from airflow_delta.spark.dml.change_files import changed, keeps_change_data, stage_changes, written
from airflow_delta.spark.dml.commit import begin_change, begin_once, commit_change
from airflow_delta.spark.dml.expressions import condition_sql
from airflow_delta.spark.dml.merge.clauses import (
    check_expressions,
    clause_rows,
    resolved_assignments,
)
from airflow_delta.spark.dml.merge.condition import live_condition, resolve_condition
from airflow_delta.spark.dml.merge.evolution import evolved_metadata
from airflow_delta.spark.dml.merge.inserted_values import MadeInInserts, made_in_inserts
from airflow_delta.spark.dml.merge.key_filter import is_filter_useful, rows_with_keys
from airflow_delta.spark.dml.merge.matches import CLAUSE, Matches, find_matches, joined, numbered
from airflow_delta.spark.dml.merge.pruning import matching_files_expression
from airflow_delta.spark.dml.merge.result import MergeResult, merge_metrics
from airflow_delta.spark.dml.merge.source import SOURCE_ROW, MergeSource
from airflow_delta.spark.dml.merge.staged import Staged
from airflow_delta.spark.dml.new_values import assign, old_values
from airflow_delta.spark.dml.new_versions import write_new_versions
from airflow_delta.spark.dml.removed_rows import RemovedRows, remove_rows
from airflow_delta.spark.dml.row_store import RowStore
from airflow_delta.spark.dml.update import row_ids_of
from airflow_delta.spark.reader.char_columns import char_columns
from airflow_delta.spark.reader.columns import frame_schema, quoted
from airflow_delta.spark.reader.snapshot_reader import LOCATION_ID, SnapshotReader
from airflow_delta.spark.writer.alignment import AlignedRows
from airflow_delta.spark.writer.new_files import NewFiles
from airflow_delta.spark.writer.target import check_identity_feature, redefined_target

if TYPE_CHECKING:
    from airflow_delta.engine import DeltaTable, Snapshot
    from airflow_delta.spark.dml.merge.keys import SourceKeys
    from airflow_delta.spark.writer.target import WriteTarget

__all__ = ["MergeAttempt"]


@dataclass(frozen=True)
class MergeAttempt:
    """A merge; the attributes are what `airflow_delta.spark.dml.merge.merge.MergeBuilder` was given."""

    table: DeltaTable
    source: MergeSource
    on: Column | str
    aliases: tuple[str, str]
    clauses: Sequence[MergeClause]
    merge_schema: bool
    txn: tuple[str, int] | None
    user_metadata: str | None

    def run(self) -> MergeResult:
        """Make the merge.

        Raises:
            DeltaError: see `MergeBuilder.execute`.
            PySparkException: see `MergeBuilder.execute`.
        """
        started = time.monotonic()
        begun = begin_once(self._begin, self.table, self.txn)
        if isinstance(begun, int):
            return MergeResult(begun, written=False, repeated=True)
        self.source.check_newest(begun.transaction)
        target = self._evolved(begun)
        if self.of(NOT_MATCHED):
            check_identity_feature(target)
        with NewFiles(self.table) as new_files, RowStore(target.table) as store:
            staged = _Staging(self, target, new_files, store).stage()
            changes = target.metadata != begun.metadata or staged.changes_table
            if not changes and self.txn is None:
                return MergeResult(target.version, written=False)
            metrics = merge_metrics(staged, new_files, started)
            return staged.result(commit_change(target, new_files, self.txn, metrics), new_files)

    def _begin(self) -> WriteTarget:
        return begin_change(
            self.table,
            "MERGE",
            self._parameters(),
            user_metadata=self.user_metadata,
            removes=any(clause.then != "insert" for clause in self.clauses),
        )

    def of(self, *when: str) -> dict[int, MergeClause]:
        """The clauses for some kinds of rows, each with its number."""
        return {n: clause for n, clause in enumerate(self.clauses) if clause.when in when}

    def _parameters(self) -> dict[str, object]:
        names = {
            "matchedPredicates": MATCHED,
            "notMatchedPredicates": NOT_MATCHED,
            "notMatchedBySourcePredicates": NOT_MATCHED_BY_SOURCE,
        }
        conditions = [self.on, *(clause.condition for clause in self.clauses)]
        rows = None
        if any(isinstance(condition, Column) for condition in conditions):
            rows = clause_rows(*self.empty_rows(self.table.snapshot()))
        lists = {
            name: [_clause_parameters(clause, rows) for clause in self.of(when).values()]
            for name, when in names.items()
        }
        return {"predicate": [_recorded(self.on, MATCHED, rows)], **lists}

    def empty_rows(self, base: Snapshot) -> tuple[DataFrame, DataFrame]:
        """No rows of the table and those of the source, under their names in expressions.

        Args:
            base: the version of the table.
        """
        nothing = self.source.spark.createDataFrame([], frame_schema(base.schema))
        own, other = self.aliases
        return nothing.alias(own), self.source.rows.drop(SOURCE_ROW).alias(other)

    def _evolved(self, begun: WriteTarget) -> WriteTarget:
        """The table with the columns of the source that it lacks, if it is to get them."""
        if not self.merge_schema:
            return begun
        base = begun.transaction.base
        metadata = evolved_metadata(base, self.source, self.clauses, self.aliases[0])
        target = redefined_target(begun.transaction, metadata)
        if metadata != base.metadata:
            begun.transaction.check_definition()
        return target


def _clause_parameters(clause: MergeClause, rows: Mapping[str, DataFrame] | None) -> dict[str, str]:
    """A clause in ``operationParameters``, as Delta Spark writes it."""
    action = {"actionType": clause.then}
    if clause.condition is None:
        return action
    return {"predicate": _recorded(clause.condition, clause.when, rows), **action}


def _recorded(condition: Column | str, when: str, rows: Mapping[str, DataFrame] | None) -> str:
    """A condition in ``operationParameters``; the rows of its kind of clause are needed for a `Column`."""
    if isinstance(condition, str):
        return condition
    assert rows is not None
    return condition_sql(rows[when], condition)


@dataclass(frozen=True)
class _Staging:
    merge: MergeAttempt
    target: WriteTarget
    new_files: NewFiles
    store: RowStore

    def stage(self) -> Staged:
        """Stage everything but the transaction identifier."""
        merge, target = self.merge, self.target
        assignments = self._assignments
        self._check_expressions()
        expression, keys = matching_files_expression(merge.source, target, merge.on, merge.aliases)
        inserts, own = merge.of(NOT_MATCHED), merge.of(MATCHED, NOT_MATCHED_BY_SOURCE)
        by_source = bool(merge.of(NOT_MATCHED_BY_SOURCE))
        transaction = target.transaction
        files = (
            transaction.read_table().files() if by_source else transaction.read_files(expression)
        )
        if not own:
            return self._stage_inserts_alone(files, keys)
        rows = self._reader.located_rows(files, tracked=row_ids_of(self._base), with_live=True)
        matches = find_matches(
            rows if by_source else self._with_keys(rows, files, keys),
            merge.source,
            self._live_condition(rows, files),
            merge.aliases,
            own,
            {n: values for n, values in assignments.items() if n in own},
            target,
            self.store,
            keeps_old=keeps_change_data(target),
        )
        matches.check_single(merge.source, table=target.table)
        removed = RemovedRows()
        if matches.changed:
            removed = remove_rows(
                merge.source.spark, merge.table, target, files, matches.changed, self.new_files
            )
        inserted = self._inserted(matches.rows) if inserts else None
        return self._stage_rows(Staged(keys.num_rows, matches, removed), inserted)

    @cached_property
    def _base(self) -> Snapshot:
        return self.target.transaction.base

    @cached_property
    def _reader(self) -> SnapshotReader:
        return SnapshotReader(self.merge.source.spark, self.merge.table, self._base)

    @cached_property
    def _assignments(self) -> dict[int, Assignments]:
        """The values of the clauses that have some, by number."""
        merge = self.merge
        return {
            number: resolved_assignments(
                merge.source.spark,
                clause,
                self.target,
                merge.source.given.columns,
                aliases=merge.aliases,
                evolves=merge.merge_schema,
            )
            for number, clause in enumerate(merge.clauses)
            if clause.then != "delete"
        }

    def _check_expressions(self) -> None:
        check_expressions(
            self.merge.of(MATCHED, NOT_MATCHED, NOT_MATCHED_BY_SOURCE),
            self._assignments,
            *self.merge.empty_rows(self._base),
            table=self.target.table,
        )

    def _stage_inserts_alone(self, files: pa.Table, keys: SourceKeys) -> Staged:
        """Stage a merge that leaves the rows of the table as they are."""
        merge = self.merge
        rows = self._reader.located_rows(files, with_live=True)
        on = self._live_condition(rows, files)
        with_keys = self._with_keys(rows, files, keys)
        matched = joined(with_keys, merge.source, on, merge.aliases, "inner")
        return self._stage_rows(Staged(keys.num_rows), self._inserted(matched))

    def _with_keys(self, rows: DataFrame, files: pa.Table, keys: SourceKeys) -> DataFrame:
        """The rows without most of those that have no match, if many have none."""
        merge, num_keys = self.merge, keys.num_matchable
        if not is_filter_useful(pc.sum(files["size"]).as_py() or 0, num_keys):
            return rows
        condition = resolve_condition(
            rows, merge.source, merge.on, merge.aliases, table=self.target.table
        )
        return rows_with_keys(rows, merge.source, condition, num_keys)

    def _live_condition(self, rows: DataFrame, files: pa.Table) -> Column:
        merge, target = self.merge, self.target
        assert target.base is not None
        return live_condition(
            rows,
            merge.source,
            merge.on,
            merge.aliases,
            files,
            table=target.table,
            partition_by=target.base.metadata.partition_columns,
        )

    def _inserted(self, matched: DataFrame) -> DataFrame:
        """The rows of the source without a match to which a clause applies, with their values."""
        merge, clauses = self.merge, self.merge.of(NOT_MATCHED)
        ids = matched.where(F.col(SOURCE_ROW).isNotNull()).select(SOURCE_ROW).distinct()
        alone = merge.source.rows.join(ids, SOURCE_ROW, "left_anti").alias(merge.aliases[1])
        # Not deterministic for Spark, which would otherwise evaluate conditions for rows with a match, too.
        number = F.when(F.monotonically_increasing_id() >= 0, numbered(clauses))
        found = alone.withColumn(CLAUSE, number)
        return assign(
            found.where(F.col(CLAUSE).isin(list(clauses))),
            {n: self._assignments[n] for n in clauses},
            self.target,
            clause=CLAUSE,
            keep=[CLAUSE],
            old=None,
            computed_later=self._made_in_inserts.computed_later,
        )

    def _stage_rows(self, staged: Staged, inserted: DataFrame | None) -> Staged:
        """Write the updated and the inserted rows, and the change data files."""
        matches, target, new_files = staged.matches, self.target, self.new_files
        num_updated = staged.count("update")
        updated = matches.of(matches.numbers("update")) if matches and num_updated else None
        needs_feed = keeps_change_data(target) and bool(
            num_updated or staged.removed.num_added_files
        )
        apart = needs_feed or self._differ_in_chars(updated, inserted)
        inserted_directory = new_files.new_directory() if apart else None
        if apart:
            # In separate directories: the change type of a row depends on the directory of its file, and
            # Spark would take a column of all rows for a CHAR, or of none.
            self._write(updated, None, num_updated)
            self._write(None, inserted, staged.num_source_rows, inserted_directory)
        else:
            self._write(updated, inserted, num_updated + staged.num_source_rows)
        staged = replace(staged, num_inserted=new_files.num_rows - num_updated)
        target.transaction.add_files(new_files.adds)
        if staged.num_inserted:
            for name, furthest in new_files.identity_values.items():
                target.transaction.use_identity_values(name, furthest)
        if not needs_feed or matches is None:
            return staged
        return replace(
            staged, num_change_files=self._stage_feed(matches, staged, inserted_directory)
        )

    def _stage_feed(self, matches: Matches, staged: Staged, inserted_directory: str | None) -> int:
        target, new_files, spark = self.target, self.new_files, self.merge.source.spark
        frames = []
        for then, change_type in (("update", "update_preimage"), ("delete", "delete")):
            if staged.count(then):
                rows = old_values(matches.of(matches.numbers(then)), self._base.schema, target)
                frames.append(changed(rows, change_type, target))
        if staged.count("update"):
            frames.append(
                written(spark, new_files.directory, "update_postimage", target, new_files)
            )
        if staged.num_inserted and inserted_directory:
            frames.append(written(spark, inserted_directory, "insert", target, new_files))
        return stage_changes(frames, target, new_files)

    def _differ_in_chars(self, updated: DataFrame | None, inserted: DataFrame | None) -> bool:
        """Whether Spark takes a column for a ``CHAR`` in only one kind of rows."""
        if updated is None or inserted is None:
            return False
        names = self.target.schema.names
        return bool((char_columns(updated) ^ char_columns(inserted)).intersection(names))

    def _write(
        self,
        updated: DataFrame | None,
        inserted: DataFrame | None,
        num_rows: int,
        directory: str | None = None,
    ) -> None:
        """Write updated and inserted rows into new files, in one job."""
        columns = [F.col(quoted(name)) for name in self.target.schema.names]
        no_id = F.lit(None).cast("long").alias(LOCATION_ID)
        frames = []
        if updated is not None:
            row_id = F.col(LOCATION_ID) if LOCATION_ID in updated.columns else no_id
            frames.append(updated.select(*columns, row_id, CLAUSE))
        if inserted is not None:
            frames.append(inserted.select(*columns, no_id, CLAUSE))
        if not frames:
            return
        first, *others = frames
        rows = first.unionByName(others[0]) if others else first
        write_new_versions(
            self._aligned(rows), self.target, self.new_files, num_rows=num_rows, directory=directory
        )

    def _aligned(self, rows: DataFrame) -> AlignedRows:
        """Updated and inserted rows, with the numbers of their clauses in the column `CLAUSE`."""
        assignments = self._assignments
        given = {
            name
            for name in self.target.schema.names
            if any(values.assigns(name) for values in assignments.values())
        }
        tracked = row_ids_of(self._base) is not None
        made = self._made_in_inserts
        return AlignedRows(
            rows,
            frozenset(given),
            made.identities,
            made.computed_later,
            {name: F.col(CLAUSE).isin(numbers) for name, numbers in made.clauses.items()},
            row_ids=LOCATION_ID if tracked else None,
        )

    @cached_property
    def _made_in_inserts(self) -> MadeInInserts:
        inserts = {n: self._assignments[n] for n in self.merge.of(NOT_MATCHED)}
        return made_in_inserts(inserts, self.target.schema, table=self.target.table)

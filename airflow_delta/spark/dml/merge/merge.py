"""`merge`: update, delete and insert rows by those of a source, as one commit; see `execution`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.errors import InvalidArgumentError
from airflow_delta.engine.model.arguments import check_type
from airflow_delta.engine.transaction.staged import check_txn
from airflow_delta.row_changes.clauses import (
    MATCHED,
    NOT_MATCHED,
    NOT_MATCHED_BY_SOURCE,
    MergeClause,
    check_clauses,
)
from airflow_delta.spark.dml.commit import redone
from airflow_delta.spark.dml.expressions import check_condition_type
from airflow_delta.spark.dml.merge.execution import MergeAttempt
from airflow_delta.spark.dml.merge.result import MergeResult
from airflow_delta.spark.dml.merge.source import store_source
from airflow_delta.spark.dml.row_store import RowStore

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from typing_extensions import Self

    from airflow_delta.engine.commit.owner import CommitOwner

__all__ = ["MergeBuilder", "merge"]


def merge(
    spark: SparkSession,
    uri: str,
    source: DataFrame,
    on: Column | str,
    *,
    source_alias: str = "source",
    target_alias: str = "target",
    merge_schema: bool = False,
    txn: tuple[str, int] | None = None,
    user_metadata: str | None = None,
    storage_options: Mapping[str, str] | None = None,
    commit_owners: Mapping[str, CommitOwner] | None = None,
    allowed_outside: Sequence[str] = (),
) -> MergeBuilder:
    """Begin to describe a merge; `MergeBuilder.execute` makes it.

    Example:
        Insert new rows, and update those that the table has::

            result = (
                merge(spark, uri, new_rows, "target.id = source.id")
                .when_matched_update_all()
                .when_not_matched_insert_all()
                .execute()
            )

    Args:
        spark: the session; Spark reads and writes data files with the credentials of its own configuration.
        uri: the table's path or URI.
        source: the rows to be merged into the table. They are evaluated once.
        on: the condition by which a row of the table and a row of the source match. It has the same result
            each time it is evaluated for the same two rows, and no subqueries.
        source_alias: the name of the source in conditions and values.
        target_alias: the name of the table there.
        merge_schema: whether the table gets columns that only the source has, if a clause uses them, and,
            with ``delta.enableTypeWidening``, the wider types of the source. The source may then also lack
            columns, which keep their value, or get their default.
        txn: application id and version: if they are committed already, `execute` does nothing and returns
            that commit's version. So a retry can't merge twice.
        user_metadata: a text for ``commitInfo.userMetadata``.
        storage_options: credentials and settings with which the engine commits.
        commit_owners: commit owners of managed tables by name, beside those that are installed.
        allowed_outside: locations outside of the table below which it may read files; see `DeltaTable`.

    Raises:
        InvalidArgumentError: the two names are the same, ``on`` is no condition, ``merge_schema`` is
            neither true nor false, or ``txn`` can't be a transaction identifier.
    """
    table = DeltaTable(uri, storage_options, commit_owners, allowed_outside=allowed_outside)
    check_type("on", on, str | Column, "a condition as a text or Column", table=table.uri)
    check_type("merge_schema", merge_schema, bool, "true or false", table=table.uri)
    if txn is not None:
        check_txn(txn, table=table.uri)
    if source_alias.lower() == target_alias.lower():
        raise InvalidArgumentError(
            f"source_alias and target_alias are both {source_alias!r}: give them two names",
            table=table.uri,
        )
    return MergeBuilder(
        spark, table, source, on, (target_alias, source_alias), merge_schema, txn, user_metadata
    )


@dataclass(frozen=True, slots=True)
class MergeBuilder:
    """A merge, clause by clause: each method returns one with a further clause.

    There are three kinds of clauses: for rows that match, for rows of the source that match none, and for
    rows of the table that match none. Of the clauses of a kind, the first one whose condition is true
    applies, so only the last one may have no condition. If none applies, a row of the table stays as it is,
    and a row of the source isn't inserted.

    A row of the table that matches several rows of the source is an error, unless the only clause for rows
    that match deletes them without a condition.
    """

    _spark: SparkSession
    _table: DeltaTable
    _source: DataFrame
    _on: Column | str
    _aliases: tuple[str, str]
    _merge_schema: bool
    _txn: tuple[str, int] | None
    _user_metadata: str | None
    _clauses: tuple[MergeClause, ...] = ()

    def when_matched_update(
        self,
        set: Mapping[Any, Any],  # noqa: A002 - the name that SQL and users of Delta have for it
        condition: Column | str | None = None,
    ) -> Self:
        """Update rows that match.

        Args:
            set: the new values by column; see `airflow_delta.spark.update`.
            condition: a condition on both rows.
        """
        return self.with_clause(MergeClause(MATCHED, "update", condition, set))

    def when_matched_update_all(self, condition: Column | str | None = None) -> Self:
        """Update all columns of rows that match to those of the source with the same names.

        Args:
            condition: a condition on both rows.
        """
        return self.with_clause(MergeClause(MATCHED, "update", condition))

    def when_matched_delete(self, condition: Column | str | None = None) -> Self:
        """Delete rows that match.

        Args:
            condition: a condition on both rows.
        """
        return self.with_clause(MergeClause(MATCHED, "delete", condition))

    def when_not_matched_insert(
        self, values: Mapping[Any, Any], condition: Column | str | None = None
    ) -> Self:
        """Insert rows of the source that match none.

        Args:
            values: the values by column; other columns get their default, generated or identity value, or
                null.
            condition: a condition on the row of the source.
        """
        return self.with_clause(MergeClause(NOT_MATCHED, "insert", condition, values))

    def when_not_matched_insert_all(self, condition: Column | str | None = None) -> Self:
        """Insert rows of the source that match none, with all columns of the same names.

        Args:
            condition: a condition on the row of the source.
        """
        return self.with_clause(MergeClause(NOT_MATCHED, "insert", condition))

    def when_not_matched_by_source_update(
        self,
        set: Mapping[Any, Any],  # noqa: A002 - see `when_matched_update`
        condition: Column | str | None = None,
    ) -> Self:
        """Update rows of the table that no row of the source matches.

        Args:
            set: the new values by column, over the row of the table.
            condition: a condition on the row of the table.
        """
        return self.with_clause(MergeClause(NOT_MATCHED_BY_SOURCE, "update", condition, set))

    def when_not_matched_by_source_delete(self, condition: Column | str | None = None) -> Self:
        """Delete rows of the table that no row of the source matches.

        Args:
            condition: a condition on the row of the table.
        """
        return self.with_clause(MergeClause(NOT_MATCHED_BY_SOURCE, "delete", condition))

    def with_clause(self, clause: MergeClause) -> Self:
        """Add a clause.

        Args:
            clause: the clause.

        Raises:
            InvalidArgumentError: its condition is neither a text nor a Column.
        """
        check_condition_type("condition", clause.condition, table=self._table.uri)
        return replace(self, _clauses=(*self._clauses, clause))

    def execute(self) -> MergeResult:
        """Make the merge, as one commit.

        If another writer changes the same rows at the same time, the merge is repeated on the newest
        version, with the same rows of the source. A source that reads the newest version of the table
        itself would then be out of date. So such a merge fails instead, also if the table has got a
        commit since the source was read.

        Raises:
            InvalidArgumentError: a clause, a condition or a value isn't allowed or can't be resolved.
            MultipleMatchesError: a row of the table matches several rows of the source.
            ConstraintViolationError: the table is append-only; a value doesn't fit its column or breaks a
                rule of the table; or an identity column is assigned.
            InvalidTableError: a clause inserts rows, and the table has identity columns without the feature
                for them.
            UnsupportedFeatureError: the table needs a writer feature that isn't supported here.
            CommitConflictError: other writers made conflicting changes, several times; or once, if the
                source reads the table itself.
            CommitOutcomeUnknownError: the store failed; the commit may have been made.
            DeltaError: the table or its files can't be read or written.
            PySparkException: Spark's other errors.
        """
        check_clauses(self._clauses, table=self._table.uri)
        with RowStore(self._table.uri) as store:
            source = store_source(self._spark, self._source, store, self._table)
            attempt = MergeAttempt(
                self._table,
                source,
                self._on,
                self._aliases,
                self._clauses,
                self._merge_schema,
                self._txn,
                self._user_metadata,
            )
            # Rows of the table itself are those of the version that the first attempt has read.
            return attempt.run() if source.versions else redone(attempt.run)

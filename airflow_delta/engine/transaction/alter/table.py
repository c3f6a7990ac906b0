"""`TableAlteration`: ALTER TABLE, with one method for each kind of change.

Each method computes an `Alteration` of the newest version (`columns`, `table_settings`) and commits it,
under the operation's name in Delta Spark. Data files are neither read nor written.

PROTOCOL.md, "Change Metadata", "Protocol Evolution" and the sections of the features.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from airflow_delta.engine.commit.registry import CommitOwners
from airflow_delta.engine.errors import (
    CommitConflictError,
    ConcurrentTransactionError,
    InvalidArgumentError,
    InvalidTableError,
)
from airflow_delta.engine.features.column_changes.column_paths import ColumnName
from airflow_delta.engine.features.column_changes.position import position_of
from airflow_delta.engine.model.schema import DataType, StructField
from airflow_delta.engine.snapshot.snapshot import Snapshot
from airflow_delta.engine.snapshot.transactions import TransactionSearch
from airflow_delta.engine.storage.base import Storage
from airflow_delta.engine.transaction.alter import columns as column_alterations
from airflow_delta.engine.transaction.alter import table_settings
from airflow_delta.engine.transaction.alter.plan import Alteration, RowCheck, commit_alteration
from airflow_delta.engine.transaction.once import earlier_commit
from airflow_delta.engine.transaction.result import CommitResult
from airflow_delta.engine.transaction.staged import check_txn

__all__ = ["TableAlteration"]

_ROUNDS = 10
"""The maximum number of concurrent commits of the same application that are tolerated."""


class TableAlteration:
    """Changes of a table apart from its rows; `DeltaTable.alter` returns one.

    Each method makes one commit, and returns its `CommitResult`. The engine doesn't look at rows. So a rule
    about rows, such as NOT NULL or a constraint, can only be added to a table without data, or with a check
    of its rows (`RowCheck`). Under column mapping a renamed or dropped column stays in the data files under
    its physical name.

    A column is given by its name. A column inside another is given by the list of names from the top down,
    where an array has an ``element``, and a map has a ``key`` and a ``value``.

    The methods raise these errors, beside their own:

    * `InvalidArgumentError`: the change makes no sense for this table, or an argument has the wrong type.
    * `UnsupportedFeatureError`: the engine can't write the table, or can't write a feature that it would
      need.
    * `InvalidTableError`: the changed table would contradict itself, for example with Iceberg compatibility
      and deletion vectors.
    * `CommitConflictError`: a concurrent commit changed what this one relies on, such as the metadata; call
      the method again.
    * `CommitOwnerError`: the table's commit owner isn't known here, can't be reached, or refuses the
      commit.
    * `CommitOutcomeUnknownError`: the store failed; the commit may have been made.
    * `StorageError`: the store failed, and nothing was committed.

    Args:
        storage: the table's storage.
        newest: opens the newest version.
        owners: the known commit owners; by default those that are installed.
    """

    def __init__(
        self,
        storage: Storage,
        newest: Callable[[], Snapshot],
        owners: CommitOwners | None = None,
    ) -> None:
        self._storage = storage
        self._newest = newest
        self._owners = owners

    def set_properties(self, properties: Mapping[str, str]) -> CommitResult:
        """Set table properties.

        The protocol gets the features that the properties need. Column mapping by name gives each column an
        id, and its current name as the physical name.

        Args:
            properties: values by name. ``delta.feature.<name>`` = ``supported`` adds a feature.

        Raises:
            InvalidArgumentError: a property is unknown, has an invalid value, or can only be set by commits
                or by another operation.
            ConstraintViolationError: existing data files don't satisfy a property.
        """
        return self._commit(lambda base: table_settings.set_properties(base, properties))

    def unset_properties(self, names: Iterable[str], *, if_exists: bool = False) -> CommitResult:
        """Remove table properties. The protocol keeps the features that they needed.

        Args:
            names: the properties.
            if_exists: whether to ignore properties that the table doesn't have.

        Raises:
            InvalidArgumentError: the table doesn't have a property, or another operation removes it.
        """
        return self._commit(
            lambda base: table_settings.unset_properties(base, names, if_exists=if_exists)
        )

    def add_feature(self, name: str) -> CommitResult:
        """Add a feature, and the features that it requires, to the table's protocol.

        Args:
            name: the feature's name in the protocol, such as ``"deletionVectors"``.

        Raises:
            UnsupportedFeatureError: the engine doesn't know the feature, or can't write it.
        """
        return self._commit(lambda base: table_settings.add_feature(base, name))

    def add_columns(
        self,
        fields: Sequence[StructField],
        *,
        inside: ColumnName = (),
        first: bool = False,
        after: str | None = None,
    ) -> CommitResult:
        """Add columns. They are null in all existing rows.

        Args:
            fields: the columns, in order. Ids and physical names in their metadata are ignored.
            inside: the struct that gets the columns; by default the table itself.
            first: whether to insert the columns before all others.
            after: the column after which to insert them; by default the last one.

        Raises:
            InvalidArgumentError: a column isn't nullable, exists already, or has a default, a generation
                expression, an identity or an invariant.
            InvalidTableError: a name has characters that need column mapping.
        """
        return self._commit(
            lambda base: column_alterations.add_columns(
                base, fields, inside, position_of(first=first, after=after)
            )
        )

    def rename_column(self, column: ColumnName, new_name: str) -> CommitResult:
        """Rename a column. This needs column mapping.

        Partitioning, clustering and ``delta.dataSkippingStatsColumns`` follow the new name.

        Args:
            column: the column.
            new_name: its new name, without the names of the columns around it.

        Raises:
            InvalidArgumentError: the table has no column mapping; the name is taken; or a constraint,
                generated column or invariant may refer to the column.
        """
        return self._commit(lambda base: column_alterations.rename_column(base, column, new_name))

    def drop_columns(self, columns: Sequence[ColumnName]) -> CommitResult:
        """Drop columns. This needs column mapping.

        The data files keep the values, which readers then ignore.

        Args:
            columns: the columns.

        Raises:
            InvalidArgumentError: the table has no column mapping; it is partitioned or clustered by one of
                the columns; a constraint, generated column or invariant may refer to one of them; or no
                column would be left.
        """
        return self._commit(lambda base: column_alterations.drop_columns(base, columns))

    def change_type(self, column: ColumnName, new_type: DataType) -> CommitResult:
        """Widen the type of a column. This needs ``delta.enableTypeWidening``.

        Args:
            column: the column; or the content of an array or a map, such as ``["prices", "element"]``.
            new_type: a type into which readers can convert all values of the old one.

        Raises:
            InvalidArgumentError: type widening isn't enabled; the type isn't wider; or an expression
                computes the column or may refer to it.
        """
        return self._commit(lambda base: column_alterations.change_type(base, column, new_type))

    def set_nullable(self, column: ColumnName) -> CommitResult:
        """Allow nulls in a column."""
        return self._commit(
            lambda base: column_alterations.set_nullable(base, column, allowed=True)
        )

    def set_not_null(
        self,
        column: ColumnName,
        *,
        check: RowCheck | None = None,
        txn: tuple[str, int] | None = None,
    ) -> CommitResult:
        """Forbid nulls in a column.

        Args:
            column: the column.
            check: checks the rows of the table; without it the table must have no data.
            txn: the application and the number of a transaction identifier. If the table has a commit with
                it already, nothing is done, and that commit is the result.

        Raises:
            InvalidArgumentError: the column lies inside an array or a map.
            ConstraintViolationError: the table has data, and there is no ``check``; or what ``check``
                raises.
        """
        return self._commit(
            lambda base: column_alterations.set_nullable(base, column, allowed=False),
            check=check,
            txn=txn,
        )

    def set_comment(self, column: ColumnName, comment: str | None) -> CommitResult:
        """Set a column's comment, or remove it with None."""
        return self._commit(lambda base: column_alterations.set_comment(base, column, comment))

    def set_default(self, column: ColumnName, expression: str) -> CommitResult:
        """Set the default of a column, for rows that are later written without a value.

        Args:
            column: the column.
            expression: a SQL expression, such as ``"0"`` or ``"'none'"``.

        Raises:
            InvalidArgumentError: the expression refers to columns; or the column has a generation
                expression or an identity.
        """
        return self._commit(lambda base: column_alterations.set_default(base, column, expression))

    def drop_default(self, column: ColumnName) -> CommitResult:
        """Remove a column's default. Rows that were written with it keep their values."""
        return self._commit(lambda base: column_alterations.drop_default(base, column))

    def move_column(
        self, column: ColumnName, *, first: bool = False, after: str | None = None
    ) -> CommitResult:
        """Move a column within its struct.

        Args:
            column: the column.
            first: whether to move it before all others.
            after: the column after which to insert it.

        Raises:
            InvalidArgumentError: neither ``first`` nor ``after`` is given, or both are.
        """
        return self._commit(
            lambda base: column_alterations.move_column(
                base, column, position_of(first=first, after=after)
            )
        )

    def add_constraint(
        self,
        name: str,
        expression: str,
        *,
        check: RowCheck | None = None,
        txn: tuple[str, int] | None = None,
    ) -> CommitResult:
        """Add a CHECK constraint.

        Args:
            name: its name. It is stored in lower case; the case doesn't matter.
            expression: a SQL expression, which the engine doesn't parse.
            check: checks the rows of the table; without it the table must have no data.
            txn: see `set_not_null`.

        Raises:
            InvalidArgumentError: the name is taken.
            ConstraintViolationError: the table has data, and there is no ``check``; or what ``check``
                raises.
        """
        return self._commit(
            lambda base: table_settings.add_constraint(base, name, expression),
            check=check,
            txn=txn,
        )

    def drop_constraint(self, name: str, *, if_exists: bool = False) -> CommitResult:
        """Drop a CHECK constraint.

        Args:
            name: its name; the case doesn't matter.
            if_exists: whether to ignore a constraint that the table doesn't have.

        Raises:
            InvalidArgumentError: there is no constraint of that name.
        """
        return self._commit(
            lambda base: table_settings.drop_constraint(base, name, if_exists=if_exists)
        )

    def cluster_by(self, columns: Sequence[ColumnName]) -> CommitResult:
        """Cluster the table by other columns from now on. Existing files stay as they are.

        Args:
            columns: the columns, in order; an empty list to stop clustering.

        Raises:
            InvalidArgumentError: the table is partitioned; there are too many columns; or one of them gets
                no statistics.
            ConstraintViolationError: a file lacks statistics of a column.
        """
        return self._commit(lambda base: table_settings.cluster_by(base, columns))

    def set_name(self, name: str | None) -> CommitResult:
        """Set the name in the table's metadata, or remove it with None."""
        return self._commit(lambda base: table_settings.set_name(base, name))

    def set_description(self, description: str | None) -> CommitResult:
        """Set the table's description, or remove it with None."""
        return self._commit(lambda base: table_settings.set_description(base, description))

    def _commit(
        self,
        plan: Callable[[Snapshot], Alteration],
        *,
        check: RowCheck | None = None,
        txn: tuple[str, int] | None = None,
    ) -> CommitResult:
        if txn is None:
            return self._attempt(self._newest(), plan, check=check)
        check_txn(txn, table=self._storage.root)
        search, rounds = TransactionSearch(), 0
        while True:
            rounds += 1
            base = self._newest()
            if (earlier := earlier_commit(base, *txn, search=search)) is not None:
                return earlier
            try:
                return self._attempt(base, plan, check=check, txn=txn)
            except CommitConflictError as conflict:
                if isinstance(conflict, ConcurrentTransactionError) and rounds < _ROUNDS:
                    continue
                # The conflicting commit may be that of a concurrent try.
                earlier = earlier_commit(self._newest(), *txn, search=search)
                if earlier is not None:
                    return earlier
                raise

    def _attempt(
        self,
        base: Snapshot,
        plan: Callable[[Snapshot], Alteration],
        *,
        check: RowCheck | None,
        txn: tuple[str, int] | None = None,
    ) -> CommitResult:
        try:
            alteration = plan(base)
        # The rules about schemas don't know the table.
        except (InvalidArgumentError, InvalidTableError) as error:
            if error.table is not None:
                raise
            # The location of an error about a schema may be the table, which precedes the message anyway.
            message = error.message.removeprefix(f"{base.table}: ")
            raise type(error)(message, table=base.table, **error.facts) from error
        return commit_alteration(
            self._storage, base, alteration, owners=self._owners, check=check, txn=txn
        )

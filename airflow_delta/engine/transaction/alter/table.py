"""`TableAlteration`: everything about a table that can be changed but its rows.

Each method makes one commit on the newest version, named as Delta Spark names it, and says so by a
`CommitResult`. Data files are neither read nor written: what is changed must be true of them already.
So a rule for rows, such as NOT NULL or a constraint, is taken only by a table without data, or together
with a check of its rows (`RowCheck`); and where column mapping is on, a column that is renamed or dropped
stays in the files under its physical name.

The methods share these errors beside their own:

========================  ===========================================================================
InvalidArgumentError      what is asked for makes no sense for this table, or an argument isn't of the
                          type that it should have
UnsupportedFeatureError   the engine can't write the table, or a feature that it would need
InvalidTableError         the outcome would contradict itself, such as Iceberg compatibility with
                          deletion vectors
CommitConflictError       a commit made meanwhile changed what this one rests on, such as the
                          metadata; call the method again
CommitOwnerError          the table's commit owner isn't known here, can't be reached, or refuses
CommitOutcomeUnknownError the store failed; the commit may have been made
StorageError              the store failed, and nothing was committed
========================  ===========================================================================

Spec: PROTOCOL.md, "Change Metadata", "Protocol Evolution" and the sections of the features.
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
from airflow_delta.engine.transaction.transaction import check_identifier

__all__ = ["TableAlteration"]

_ROUNDS = 10
"""The maximum number of concurrent commits of the same application that are tolerated."""


class TableAlteration:
    """Changes of a table; see the module. Got by `DeltaTable.alter`.

    A column is named by its name; one inside another by the list of names from the top down, where
    what is in an array is its ``element``, and in a map its ``key`` and ``value``.

    Args:
        storage: where the table is.
        newest: opens the newest version.
        owners: the commit owners that there are; those that are installed unless given.
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
        """Set table properties, with what follows from them.

        Features that they need come with the protocol that supports them; column mapping by name gives
        each column an id and its own name as the physical one.

        Args:
            properties: by name. ``delta.feature.<name>`` = ``supported`` adds a feature.

        Raises:
            InvalidArgumentError: a property is unknown, has a value that it can't have, or is set by
                commits or operations of their own.
            ConstraintViolationError: the data files aren't as a property wants them.
        """
        return self._commit(lambda base: table_settings.set_properties(base, properties))

    def unset_properties(self, names: Iterable[str], *, if_exists: bool = False) -> CommitResult:
        """Remove table properties. The protocol keeps the features that they had brought.

        Args:
            names: the properties.
            if_exists: pass over those that the table doesn't have.

        Raises:
            InvalidArgumentError: a property isn't there, or is removed by operations of its own.
        """
        return self._commit(
            lambda base: table_settings.unset_properties(base, names, if_exists=if_exists)
        )

    def add_feature(self, name: str) -> CommitResult:
        """Let the table support a feature, and what it requires, whether or not it is used yet.

        Args:
            name: as in the protocol, such as ``"deletionVectors"``.

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
        """Add columns, which are null in all rows that are there.

        Args:
            fields: the columns, in order. Ids and physical names that they bring are left out.
            inside: the struct that gets them; the table itself unless given.
            first: put them before the columns that are there.
            after: put them behind this one; behind all unless given.

        Raises:
            InvalidArgumentError: one isn't nullable, is there already, or brings a default, a generation
                expression, an identity or an invariant.
            InvalidTableError: a name has characters that need column mapping.
        """
        return self._commit(
            lambda base: column_alterations.add_columns(
                base, fields, inside, position_of(first=first, after=after)
            )
        )

    def rename_column(self, column: ColumnName, new_name: str) -> CommitResult:
        """Give a column another name; needs column mapping.

        Partitioning, clustering and ``delta.dataSkippingStatsColumns`` follow.

        Args:
            column: the column.
            new_name: its new name, without those of the columns around it.

        Raises:
            InvalidArgumentError: the table has no column mapping; the name is taken; or a constraint,
                generated column or invariant may refer to the column.
        """
        return self._commit(lambda base: column_alterations.rename_column(base, column, new_name))

    def drop_columns(self, columns: Sequence[ColumnName]) -> CommitResult:
        """Drop columns; needs column mapping. The data files keep their values, unseen.

        Args:
            columns: the columns.

        Raises:
            InvalidArgumentError: the table has no column mapping; it is partitioned or clustered by one;
                a constraint, generated column or invariant may refer to one; or nothing would be left.
        """
        return self._commit(lambda base: column_alterations.drop_columns(base, columns))

    def change_type(self, column: ColumnName, new_type: DataType) -> CommitResult:
        """Give a column a wider type; needs ``delta.enableTypeWidening``.

        Args:
            column: the column, or what is in an array or a map, such as ``["prices", "element"]``.
            new_type: a type that readers can make of all values of the old one.

        Raises:
            InvalidArgumentError: type widening isn't enabled, the type isn't wider, or an expression
                makes the column's values or may refer to it.
        """
        return self._commit(lambda base: column_alterations.change_type(base, column, new_type))

    def set_nullable(self, column: ColumnName) -> CommitResult:
        """Let a column hold null."""
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
        """Let a column hold no null.

        Args:
            column: the column.
            check: checks the rows of the table; None: the table must have no data.
            txn: application id and version: if a commit of the table has them already, nothing is done,
                and that commit is the result.

        Raises:
            InvalidArgumentError: the column lies inside an array or a map.
            ConstraintViolationError: the table has data, which nobody has checked; or what ``check``
                raises.
        """
        return self._commit(
            lambda base: column_alterations.set_nullable(base, column, allowed=False),
            check=check,
            txn=txn,
        )

    def set_comment(self, column: ColumnName, comment: str | None) -> CommitResult:
        """Set a column's comment; None takes it away."""
        return self._commit(lambda base: column_alterations.set_comment(base, column, comment))

    def set_default(self, column: ColumnName, expression: str) -> CommitResult:
        """Set the value of a column for rows that are written without one from now on.

        Args:
            column: the column.
            expression: in SQL, such as ``"0"`` or ``"'none'"``.

        Raises:
            InvalidArgumentError: the expression refers to columns, or another one makes the column's
                values.
        """
        return self._commit(lambda base: column_alterations.set_default(base, column, expression))

    def drop_default(self, column: ColumnName) -> CommitResult:
        """Take a column's default away; rows that have got it keep it."""
        return self._commit(lambda base: column_alterations.drop_default(base, column))

    def move_column(
        self, column: ColumnName, *, first: bool = False, after: str | None = None
    ) -> CommitResult:
        """Put a column to another place among its neighbours.

        Args:
            column: the column.
            first: before all others.
            after: behind this one.

        Raises:
            InvalidArgumentError: neither place is given, or both are.
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
            name: its name; the same in any case, and stored in lower case.
            expression: in SQL; it isn't parsed here.
            check: checks the rows of the table; None: the table must have no data.
            txn: see `set_not_null`.

        Raises:
            InvalidArgumentError: there is a constraint of that name.
            ConstraintViolationError: the table has data, which nobody has checked; or what ``check``
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
            name: its name, in any case.
            if_exists: pass over one that the table doesn't have.

        Raises:
            InvalidArgumentError: there is none of that name.
        """
        return self._commit(
            lambda base: table_settings.drop_constraint(base, name, if_exists=if_exists)
        )

    def cluster_by(self, columns: Sequence[ColumnName]) -> CommitResult:
        """Cluster the table by other columns from now on; files that are there stay as they are.

        Args:
            columns: the columns, in order; none to cluster by nothing.

        Raises:
            InvalidArgumentError: the table is partitioned, the columns are too many, or one has no
                statistics to skip files by.
            ConstraintViolationError: a file lacks statistics of one.
        """
        return self._commit(lambda base: table_settings.cluster_by(base, columns))

    def set_name(self, name: str | None) -> CommitResult:
        """Set the name in the table's metadata, or take it away."""
        return self._commit(lambda base: table_settings.set_name(base, name))

    def set_description(self, description: str | None) -> CommitResult:
        """Set the table's description, or take it away."""
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
        check_identifier(*txn, table=self._storage.root)
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
        # The rules know schemas, and not whose.
        except (InvalidArgumentError, InvalidTableError) as error:
            if error.table is not None:
                raise
            raise type(error)(error.message, table=base.table, **error.facts) from error
        return commit_alteration(
            self._storage, base, alteration, owners=self._owners, check=check, txn=txn
        )

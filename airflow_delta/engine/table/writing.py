"""The methods of `DeltaTable` that commit: transactions, alterations, and changes that are made once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from airflow_delta.engine.model.arguments import wrong_argument
from airflow_delta.engine.model.lazy import lazy_property
from airflow_delta.engine.snapshot.opening import open_newest
from airflow_delta.engine.table.base import TableBase

if TYPE_CHECKING:
    from airflow_delta.engine.snapshot.transactions import TransactionSearch
    from airflow_delta.engine.transaction.alter.table import TableAlteration
    from airflow_delta.engine.transaction.result import CommitResult
    from airflow_delta.engine.transaction.transaction import OptimisticTransaction

__all__ = ["WriteMethods"]


class WriteMethods(TableBase):
    """Change a table by commits."""

    def transaction(
        self,
        operation: str,
        *,
        operation_parameters: Mapping[str, Any] | None = None,
        user_metadata: str | None = None,
        enforces: Iterable[str] = (),
    ) -> OptimisticTransaction:
        """Begin a change of the table, based on its newest version.

        The table is opened once. Later transactions of the same `DeltaTable` read only the commits made
        since then.

        Args:
            operation: what the commit calls itself, such as ``"WRITE"``.
            operation_parameters: its parameters, for ``commitInfo``.
            user_metadata: a text for ``commitInfo.userMetadata``.
            enforces: the features whose rules about rows the writer of the added files has enforced, such
                as ``"checkConstraints"``. The engine doesn't see the rows.

        Raises:
            UnsupportedFeatureError: writing the table needs a feature that the engine doesn't support.
            CommitOwnerUnavailableError: the table's commit owner isn't known here, or can't be reached.
            InvalidArgumentError: ``enforces`` names something that is no feature; or an argument isn't
                of the type above.
        """
        return self._begin(
            operation,
            operation_parameters=operation_parameters,
            user_metadata=user_metadata,
            enforces=enforces,
        )

    @property
    def alter(self) -> TableAlteration:
        """Changes of the table apart from its rows. Each method makes one commit.

        Example:
            ``table.alter.set_properties({"delta.enableChangeDataFeed": "true"})``
        """
        from airflow_delta.engine.transaction.alter.table import TableAlteration

        return TableAlteration(self.storage, self._newest.get, self._owners)

    def commit_once(
        self,
        app_id: str,
        version: int,
        operation: str,
        stage: Callable[[OptimisticTransaction], Mapping[str, int] | None],
        *,
        operation_parameters: Mapping[str, Any] | None = None,
        user_metadata: str | None = None,
        enforces: Iterable[str] = (),
        ascending: bool = False,
    ) -> CommitResult:
        """Change the table exactly once, however often this is called.

        The commit records a transaction identifier (PROTOCOL.md, "Transaction Identifiers"). If the log
        already has a commit with that identifier, made by an earlier or a concurrent call, nothing is
        committed and that commit is the result. See ``transaction/once.py``.

        Args:
            app_id: the application, for example ``"airflow:<dag>.<task>"``.
            version: the application's number for this change, the same for each try.
            operation: see `transaction`.
            stage: stages the actions, and returns metrics for ``commitInfo``, or None. It must do nothing
                else, since it may be called more than once, each time with a new transaction.
            operation_parameters: see `transaction`.
            user_metadata: see `transaction`.
            enforces: see `transaction`.
            ascending: whether the application's numbers only grow, as those of a stream do. A number above
                the newest one is then taken as new without a search of the log. If the numbers don't only
                grow, a change may be committed twice.

        Returns:
            The commit; ``repeated`` is true if it was made by another call.

        Raises:
            DeltaError: see `transaction` and `OptimisticTransaction.commit`. After a
                `CommitOutcomeUnknownError` just call it again.
        """
        from airflow_delta.engine.transaction.once import commit_once

        if not callable(stage):
            raise wrong_argument("stage", "a function of the transaction", stage, table=self._uri)

        def _begin() -> OptimisticTransaction:
            return self.transaction(
                operation,
                operation_parameters=operation_parameters,
                user_metadata=user_metadata,
                enforces=enforces,
            )

        return commit_once(
            _begin, app_id, version, stage, search=self._transactions, ascending=ascending
        )

    def version_of_transaction(self, app_id: str, version: int) -> int | None:
        """The table version whose commit set a transaction identifier, None where there is none.

        Args:
            app_id: the application.
            version: the application's version, as it was set.

        Raises:
            CommitOwnerError: the newest commits can't be searched, because the table's commit owner isn't
                known here, can't be reached or doesn't have the table.
        """
        # The caller is about to commit, so an owner that can't be reached must be an error.
        newest = open_newest(self.storage, owners=self._owners, for_writing=True)
        return self._transactions.version_of(newest, app_id, version)

    @lazy_property
    def _transactions(self) -> TransactionSearch:
        from airflow_delta.engine.snapshot.transactions import TransactionSearch

        return TransactionSearch()

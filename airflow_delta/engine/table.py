"""`DeltaTable`: a table by its location, and everything that can be done with it.

A facade: each method hands over to the module that knows. Making one does no I/O.

Those modules are imported by the methods that need them, except for the ones that open a table. Asking
for a version or the history so loads neither pyarrow nor numpy, which would take most of the time and
memory of the answer. A snapshot loads them for the commits that no checkpoint covers, which it parses at
once, and for file actions.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow_delta.engine.commit.registry import CommitOwners
from airflow_delta.engine.errors import (
    InvalidArgumentError,
    TableNotFoundError,
)
from airflow_delta.engine.log.newest import find_latest_version
from airflow_delta.engine.log.newest_segment import load_newest_segment
from airflow_delta.engine.log.proposed import is_any_proposed
from airflow_delta.engine.maintenance.table_maintenance import TableMaintenance
from airflow_delta.engine.model.actions import CommitInfo
from airflow_delta.engine.model.arguments import check_mapping, check_type, wrong_argument
from airflow_delta.engine.model.lazy import lazy_property
from airflow_delta.engine.model.schema import StructType
from airflow_delta.engine.public_text import without_password
from airflow_delta.engine.snapshot.commit_check import check_logged_commit
from airflow_delta.engine.snapshot.newest import NewestSnapshot
from airflow_delta.engine.snapshot.opening import open_earlier, open_newest, open_snapshot
from airflow_delta.engine.snapshot.snapshot import Snapshot
from airflow_delta.engine.snapshot.timestamps import Timestamp, epoch_ms
from airflow_delta.engine.storage.base import Storage
from airflow_delta.engine.storage.file_access import FileAccess, checked_prefixes
from airflow_delta.engine.storage.location import open_storage

if TYPE_CHECKING:
    from airflow_delta.engine.changes.bounds import Bound
    from airflow_delta.engine.changes.plan import ChangePlan
    from airflow_delta.engine.commit.owner import CommitOwner
    from airflow_delta.engine.snapshot.transactions import TransactionSearch
    from airflow_delta.engine.transaction.alter.table import TableAlteration
    from airflow_delta.engine.transaction.conversion import ConversionResult
    from airflow_delta.engine.transaction.result import CommitResult
    from airflow_delta.engine.transaction.transaction import OptimisticTransaction

__all__ = ["DeltaTable"]


class DeltaTable(TableMaintenance):
    """A Delta table.

    Args:
        uri: a path, as a text or a `pathlib.Path`, or a URI: ``file://``, ``memory://``, ``s3://``,
            ``gs://``, ``abfss://``.
        storage_options: credentials and settings of the store, by the names that its clients use.
        commit_owners: commit owners of managed tables by name, beside those that are installed; see
            ``commit/registry.py``.
        allowed_outside: locations outside of the table below which it may read files that its log names, as
            a shallow clone has them, such as ``["s3://shared-lake/"]``. All other paths that lead out of
            the table are refused; see ``storage/file_access.py``.

    Raises:
        InvalidArgumentError: the location, an option or an allowed location makes no sense.
    """

    def __init__(
        self,
        uri: str | os.PathLike[str],
        storage_options: Mapping[str, str] | None = None,
        commit_owners: Mapping[str, CommitOwner] | None = None,
        *,
        allowed_outside: Iterable[str] = (),
    ) -> None:
        location = os.fspath(uri) if isinstance(uri, os.PathLike) else uri
        check_type("uri", location, str, "a path or a URI")
        self._uri = location
        if storage_options is not None:
            check_mapping("storage_options", storage_options, "a mapping, or None", table=location)
        self._options = dict(storage_options or {})
        if commit_owners is not None:
            expected = "a mapping of names to commit owners, or None"
            check_type("commit_owners", commit_owners, Mapping, expected, table=location)
        self._owners = CommitOwners(commit_owners)
        self._allowed_outside = checked_prefixes(allowed_outside, table=location)

    def __getstate__(self) -> dict[str, Any]:
        # What is open or known here is of no use to another process.
        kept = ("_uri", "_options", "_owners", "_allowed_outside")
        return {name: self.__dict__[name] for name in kept}

    def __repr__(self) -> str:
        return f"DeltaTable({without_password(self._uri)!r})"

    @property
    def uri(self) -> str:
        """The location, as it was given; of a path its text."""
        return self._uri

    @lazy_property
    def storage(self) -> Storage:
        """The store that the table is in, bound to the table's root."""
        return open_storage(self._uri, self._options)

    @property
    def allowed_outside(self) -> tuple[str, ...]:
        """The locations outside of the table below which it may read."""
        return self._allowed_outside

    @property
    def file_access(self) -> FileAccess:
        """Opens the files that the log names, as far as the table may read them.

        Made anew each time, so that what links lead to is found out for each operation.
        """
        return FileAccess(self.storage, self._options, self._allowed_outside)

    def exists(self) -> bool:
        """Whether there is a Delta table at the location."""
        try:
            self.latest_version()
        except TableNotFoundError:
            return False
        return True

    def latest_version(self, known: int | None = None, *, confirm: bool = False) -> int:
        """The newest version; of a managed table the newest that its commit owner has ratified.

        Args:
            known: a version that is known to exist or to have existed: only newer commits are looked
                for, with one request where there are none.
            confirm: where there are none, make sure with one more request that ``known`` is still
                there. Where a cleanup has taken the commits after it, nothing else tells that there
                are newer ones: whoever asks again and again does so now and then, and after a pause
                as long as logs are kept.

        Raises:
            TableNotFoundError: there is no table.
        """
        logged = find_latest_version(self.storage, known, confirm=confirm)
        if not is_any_proposed(self.storage, after=logged):
            return logged
        return max(logged, open_newest(self.storage, owners=self._owners).version)

    def check_commit(self, version: int) -> None:
        """Check, with one request as a rule, that the commit of the newest version can be read.

        That is for those who wait for a version with `latest_version`, which goes by names alone. See
        ``snapshot/commit_check.py`` for what is checked; `snapshot` reads the rest of the log as well.

        Args:
            version: the newest version.

        Raises:
            VersionNotFoundError: the log has no such version.
            CorruptLogError: its commit breaks the protocol.
            UnsupportedFeatureError: its protocol demands a feature that the engine lacks.
        """
        if not check_logged_commit(self.storage, version, table=self.storage.root):
            # It was cleaned up, and a checkpoint has it; or the owner of the table's commits has it.
            self._open(version)

    def snapshot(
        self,
        version: int | None = None,
        timestamp: Timestamp | None = None,
        *,
        can_return_latest: bool = False,
    ) -> Snapshot:
        """The table at a version, at a time, or now.

        Args:
            version: the version.
            timestamp: an aware datetime, an ISO-8601 text with an offset, or epoch milliseconds: the
                newest version that was there then.
            can_return_latest: a ``timestamp`` after the newest commit means the newest version, and is no
                error. Which version that is may change until the time has come.

        Raises:
            InvalidArgumentError: both are given, or one makes no sense.
            TableNotFoundError: there is no table.
            VersionNotFoundError: the log can't rebuild the version.
            TimestampOutOfRangeError: no version belongs to the time: it is before the earliest one that
                can be read, or after the newest commit.
            CorruptLogError: a file of the log breaks the protocol.
            UnsupportedFeatureError: reading the table needs a feature that the engine lacks.
        """
        if version is not None and timestamp is not None:
            raise InvalidArgumentError("give a version or a timestamp, not both", table=self._uri)
        # Opening asks for protocol and metadata only. Whoever holds a snapshot shall not learn later
        # that a commit of it was broken all the time.
        if version is None and timestamp is None:
            return open_newest(self.storage, owners=self._owners, parsed=True)
        snapshot = (
            self._open(version)
            if timestamp is None
            else self._at(timestamp, can_return_latest=can_return_latest)
        )
        snapshot.state.parse_commits()
        return snapshot

    def _open(self, version: int | None = None) -> Snapshot:
        """A snapshot for questions about the log, whose file actions aren't parsed."""
        return open_snapshot(self.storage, version, owners=self._owners)

    def _at(self, timestamp: Timestamp, *, can_return_latest: bool) -> Snapshot:
        milliseconds = epoch_ms(timestamp, table=self._uri)
        newest = self._open()
        version = newest.timeline.version_at(milliseconds, can_return_latest=can_return_latest)
        return open_earlier(newest, version)

    def version_at(self, timestamp: Timestamp, *, can_return_latest: bool = False) -> int:
        """The newest version that was there at a time; see `snapshot`."""
        milliseconds = epoch_ms(timestamp, table=self._uri)
        timeline = self._open().timeline
        return timeline.version_at(milliseconds, can_return_latest=can_return_latest)

    def history(self, limit: int | None = None) -> list[CommitInfo]:
        """What the commits say of themselves, newest first.

        A commit's time is its in-commit timestamp or else the modification time of its file, made to
        ascend from commit to commit. With a limit only the newest commits are looked at: so many, and
        where files' times count another 100 before them, from which the times ascend. They are those
        of the whole log, as `version_at` and `Snapshot.timestamp` have them, unless a file from before
        these has a time later than theirs.

        Args:
            limit: at most so many; None for all whose files are there.

        Raises:
            InvalidArgumentError: the limit is no number of commits.
            TableNotFoundError: there is no table.
            CorruptLogError: a commit is empty or can't be parsed, or one is missing.
        """
        if limit is None:
            return self._open().timeline.history()
        _check_limit(limit, table=self._uri)
        newest = open_newest(self.storage, owners=self._owners, find=load_newest_segment)
        return newest.timeline.history(limit)

    def changes(self, start: Timestamp, end: Timestamp | None = None) -> ChangePlan:
        """The plan of what changed from one version to another, both included.

        Args:
            start: the first version; or an aware datetime or an ISO-8601 text with an offset: the
                first version that isn't older. An int is a version.
            end: the last version, or the time that it isn't younger than; None for the newest.

        Raises:
            InvalidArgumentError: the range ends before it starts, or an end makes no sense.
            VersionNotFoundError: a version is beyond the newest.
            TimestampOutOfRangeError: no version belongs to a time.
            ChangesNotAvailableError: the changes weren't recorded, are gone, or the schema changed
                in between.
        """
        from airflow_delta.engine.changes.plan import plan_changes

        first, last = self._bound(start), None if end is None else self._bound(end)
        return plan_changes(self.snapshot(), first, last)

    def _bound(self, end: Timestamp) -> Bound:
        from airflow_delta.engine.changes.bounds import Moment

        return end if isinstance(end, int) else Moment(epoch_ms(end, table=self._uri))

    def transaction(
        self,
        operation: str,
        *,
        operation_parameters: Mapping[str, Any] | None = None,
        user_metadata: str | None = None,
        enforces: Iterable[str] = (),
    ) -> OptimisticTransaction:
        """Begin a change of the table, based on its newest version.

        The table is opened once; later transactions of the same `DeltaTable` read just what was
        committed since the one before.

        Args:
            operation: what the commit calls itself, such as ``"WRITE"``.
            operation_parameters: its parameters, for ``commitInfo``.
            user_metadata: a text for ``commitInfo.userMetadata``.
            enforces: the features whose rules about rows the writer of the files to be added enforces,
                such as ``"checkConstraints"``: the engine doesn't see the rows.

        Raises:
            UnsupportedFeatureError: the table needs something of writers that the engine lacks.
            CommitOwnerUnavailableError: the table's commit owner isn't known here, or can't be reached.
            InvalidArgumentError: ``enforces`` names something that is no feature; or an argument isn't
                of the type above.
        """
        from airflow_delta.engine.transaction.commit_loop import monotonic_s
        from airflow_delta.engine.transaction.transaction import OptimisticTransaction

        seen_s = monotonic_s()
        return OptimisticTransaction(
            self.storage,
            self._newest.get(),
            operation,
            operation_parameters=operation_parameters,
            user_metadata=user_metadata,
            enforces=enforces,
            seen_s=seen_s,
            owners=self._owners,
        )

    @lazy_property
    def _newest(self) -> NewestSnapshot:
        return NewestSnapshot(self.storage, self._owners)

    @lazy_property
    def _transactions(self) -> TransactionSearch:
        from airflow_delta.engine.snapshot.transactions import TransactionSearch

        return TransactionSearch()

    @property
    def alter(self) -> TableAlteration:
        """What changes the table, but for its rows: each method makes one commit.

        Example:
            ``table.alter.set_properties({"delta.enableChangeDataFeed": "true"})``
        """
        from airflow_delta.engine.transaction.alter.table import TableAlteration

        return TableAlteration(self.storage, self._newest.get, self._owners)

    def convert_to_managed(
        self, owner: str, conf: Mapping[str, str] | None = None
    ) -> ConversionResult:
        """Give the commits of the table to a commit owner, unless it has them.

        One commit adds the features ``managedCommit`` and ``inCommitTimestamp``, and the properties that
        say who the owner is. See ``transaction/conversion.py``.

        Args:
            owner: its name, as in ``commit_owners`` or among those that are installed.
            conf: what it is to know of the table, for all readers to see, so no secrets; the engine adds
                the table's id.

        Raises:
            InvalidArgumentError: an argument makes no sense; or the table has another owner, or this one
                with another configuration.
            CommitOwnerError: the owner isn't known here, can't be reached or doesn't agree; nothing was
                done.
            DeltaError: see `transaction` and `OptimisticTransaction.commit`. After a
                `CommitOutcomeUnknownError` just call it again.
        """
        from airflow_delta.engine.transaction.conversion import convert_to_managed

        return convert_to_managed(self.storage, self._newest.get, self._owners, owner, conf)

    def convert_to_file_system(self, *, keep_in_commit_timestamps: bool = True) -> ConversionResult:
        """Take the commits of the table back from its commit owner, unless the file system has them.

        The owner backfills them; then one commit removes the feature ``managedCommit`` and the properties.

        Args:
            keep_in_commit_timestamps: leave the feature ``inCommitTimestamp`` in the protocol, which
                managed tables need. Some engines don't write tables that have it. Without it the times of
                all versions are those of their files again: of managed commits, when they were backfilled.

        Raises:
            CommitOwnerError: the owner isn't known here, can't be reached or doesn't let go of the table.
            DeltaError: as `convert_to_managed`.
        """
        from airflow_delta.engine.transaction.conversion import convert_to_file_system

        return convert_to_file_system(
            self.storage,
            self._newest.get,
            self._owners,
            keep_in_commit_timestamps=keep_in_commit_timestamps,
        )

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
        """Change the table once, however often that is tried.

        The commit carries the transaction identifier (PROTOCOL.md, "Transaction Identifiers"). Where
        the log has one with the same identifier already, made by an earlier try or by another one at
        the same time, nothing is committed, and that one is the result. See ``transaction/once.py``.

        Args:
            app_id: the application, for example ``"airflow:<dag>.<task>"``.
            version: its number of this change, the same for each try.
            operation: see `transaction`.
            stage: stages the actions, and returns metrics for ``commitInfo``, or None. It may be called
                more than once, each time with a new transaction, so let it do nothing else.
            operation_parameters: see `transaction`.
            user_metadata: see `transaction`.
            enforces: see `transaction`.
            ascending: whether the application's numbers only grow, as those of a stream do. Then one above
                its newest is new without a search of the log; and if that isn't so, and the number
                was used before the newest, it is committed twice.

        Returns:
            The commit, ``repeated`` if it is an earlier one.

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
            CommitOwnerError: the table's commit owner isn't known here, can't be reached or doesn't have
                the table, so that the newest commits can't be searched.
        """
        # Who asks is about to commit what isn't there yet.
        newest = open_newest(self.storage, owners=self._owners, for_writing=True)
        return self._transactions.version_of(newest, app_id, version)

    @classmethod
    def create(
        cls,
        uri: str | os.PathLike[str],
        schema: StructType,
        *,
        partition_by: Sequence[str] = (),
        cluster_by: Sequence[str | Sequence[str]] = (),
        properties: Mapping[str, str] | None = None,
        owner: str | None = None,
        conf: Mapping[str, str] | None = None,
        name: str | None = None,
        description: str | None = None,
        storage_options: Mapping[str, str] | None = None,
        commit_owners: Mapping[str, CommitOwner] | None = None,
    ) -> DeltaTable:
        """Create an empty table: version 0.

        Args:
            uri: where; see the class.
            schema: the columns.
            partition_by: partition columns, in order.
            cluster_by: clustering columns, in order; a column inside a struct as a list of names.
            properties: table properties; ``delta.feature.<name>=supported`` adds a feature.
            owner: the name of the commit owner that gets the table; None: the file system manages it. See
                `convert_to_managed`. (The property ``delta.managedCommit.commitOwner`` does the same.)
            conf: what the owner is to know of the table; see `convert_to_managed`.
            name: a name for the metadata.
            description: a description for the metadata.
            storage_options: see the class.
            commit_owners: see the class.

        Raises:
            TableAlreadyExistsError: there is a table.
            InvalidArgumentError: an argument isn't of the type above; the partition columns aren't
                different columns, or are all there are; the table can't be clustered by the clustering
                columns; or a property is unknown, has a value that it can't have, or is for commits to
                write.
            InvalidTableError: schema, partitioning and properties don't fit together, or there are
                remains of a former table's log.
            UnsupportedFeatureError: the properties ask for a feature that the engine can't write.
            CommitOwnerError: the commit owner isn't known here, can't be reached or doesn't agree.
            CommitOutcomeUnknownError: the store failed; the table may have been created.
            StorageError: the store failed, and no table was created.
        """
        from airflow_delta.engine.transaction.creation import create_table

        table = cls(uri, storage_options, commit_owners)
        create_table(
            table.storage,
            schema,
            partition_by=partition_by,
            cluster_by=cluster_by,
            properties=properties,
            owner=owner,
            conf=conf,
            name=name,
            description=description,
            owners=table._owners,
        )
        return table


def _check_limit(limit: object, *, table: str) -> None:
    if isinstance(limit, bool) or not isinstance(limit, int) or limit < 0:
        raise InvalidArgumentError(
            "the limit of a history is a number of commits: expected an int from 0 on, or None for "
            f"all, found {type(limit).__name__} {limit!r}",
            table=table,
        )

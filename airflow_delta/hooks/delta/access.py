"""`DeltaHook`: the only access from Airflow to the log engine.

Operators, sensors and triggers call `DeltaHook`, and get plain dictionaries of text and numbers for
XCom. The hook converts a connection to storage options. It imports the engine inside its methods,
so that parsing a DAG file is fast.

The credentials of a table come from

* the connection ``delta_conn_id``, or the connection in front of the bucket in the URI
  (``s3://<connection>@<bucket>/…``), which must exist; both must not name different ones;
* otherwise the default connection of Airflow's provider for the URI's scheme (``aws_default`` for
  ``s3://``, …), if it exists;
* otherwise the store's own chain of credentials (environment, instance role).

For the commit owner of a managed table see `airflow_delta.hooks.commit_owner`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from airflow_delta.hooks.argument_rules import check_location
from airflow_delta.hooks.commit_owner import CommitOwnerHook, commit_owners
from airflow_delta.hooks.storage_options import (
    allowed_locations,
    default_connection_id,
    secrets,
    storage_options,
    store_of,
)
from airflow_delta.hooks.table_locations import as_locations, one_connection, split_connection
from airflow_delta.version_compat import (
    AirflowException,
    AirflowNotFoundException,
    BaseHook,
    Connection,
    amask_secret,
    get_async_connection,
    get_async_extra_dejson,
    mask_secret,
)

if TYPE_CHECKING:
    from airflow_delta.engine import DeltaTable, Snapshot
    from airflow_delta.engine.errors import DeltaError

__all__ = ["DeltaHook"]

_CLOCKS_DIFFER_MS = 60_000
"""The clock of the scheduler, from which ``{{ ts }}`` comes, may be so far ahead of the worker's."""


class DeltaHook(BaseHook):
    """Open, inspect and maintain Delta tables.

    :param delta_conn_id: the connection with the credentials, of type ``delta`` or one of the
        clouds' own types. None: the default connection of each table URI's scheme.
    :param commit_owner_conn_id: the connection with the database of the SQL commit owner, for managed
        tables. None: ``delta_commit_owner_default`` if it exists, else the environment variable.
    :param allowed_outside: locations outside of the tables below which they may read files that their logs
        name, in addition to those in the connection's extra of the same name; see `DeltaTable`.
    """

    conn_name_attr = "delta_conn_id"
    default_conn_name = "delta_default"
    conn_type = "delta"
    hook_name = "Delta Lake"

    def __init__(
        self,
        delta_conn_id: str | None = None,
        commit_owner_conn_id: str | None = None,
        allowed_outside: Iterable[str] | str | None = None,
    ) -> None:
        super().__init__()
        self.delta_conn_id = delta_conn_id or None
        self._allowed_outside = as_locations(allowed_outside)
        self.commit_owner = CommitOwnerHook(commit_owner_conn_id)

    def storage_options(self, table_uri: str) -> dict[str, str]:
        """The storage options of a table; their secrets are masked in all logs.

        :raises InvalidArgumentError: the location isn't text (for example an empty XCom), is relative,
            or has a password.
        :raises AirflowNotFoundException: ``delta_conn_id`` doesn't exist.
        :raises AirflowException: the connection can't be converted.
        """
        return self._access(table_uri).options

    def allowed_outside(self, table_uri: str) -> list[str]:
        """The locations outside of a table below which it may read files.

        :raises AirflowException: see `storage_options`.
        """
        return list(self._access(table_uri).allowed_outside)

    def allowed_parameter(self, table_uri: str) -> dict[str, list[str]]:
        """The parameter ``allowed_outside`` for a job that opens a table's files; empty if there are none.

        :raises AirflowException: see `storage_options`.
        """
        allowed = self.allowed_outside(table_uri)
        return {"allowed_outside": allowed} if allowed else {}

    def _access(self, table_uri: str) -> _Access:
        connection_id, uri = self._connection_id(table_uri)
        if connection_id is None:
            return _Access(uri, {}, self._allowed_outside)
        try:
            connection = self.get_connection(connection_id)
        except AirflowNotFoundException:
            return self._without_connection(connection_id, uri)
        access = self._access_by(connection, connection.extra_dejson, uri)
        for secret in secrets(access.options):
            mask_secret(secret)
        return access

    def _access_by(self, connection: Connection, extra: Mapping[str, Any], uri: str) -> _Access:
        allowed = allowed_locations(connection, extra)
        options = storage_options(connection, extra)
        return _Access(uri, options, (*allowed, *self._allowed_outside))

    def common_storage_options(self, *uris: str) -> dict[str, str]:
        """The storage options for a job with several tables in one store.

        :raises AirflowException: the tables need different options, or are in different kinds of
            object stores, which have different options.
        """
        found: dict[str, str] = {}
        for uri in uris:
            options = self.storage_options(uri)
            if found and options and options != found:
                raise AirflowException(
                    f"{' and '.join(uris)} need different credentials, and a job has one set; use "
                    "a connection of type 'delta' that serves both"
                )
            found = found or options
        stores = sorted({store for store in map(store_of, uris) if store is not None})
        if found and len(stores) > 1:
            raise AirflowException(
                f"{' and '.join(uris)} are in different stores ({', '.join(stores)}), and a job has "
                "one set of credentials; copy within one store, or leave the connections out if "
                "the identity of the worker may use both"
            )
        return found

    async def storage_options_async(self, table_uri: str) -> dict[str, str]:
        """Like `storage_options`, for triggers: it doesn't block the event loop."""
        return (await self._access_async(table_uri)).options

    async def _access_async(self, table_uri: str) -> _Access:
        connection_id, uri = self._connection_id(table_uri)
        if connection_id is None:
            return _Access(uri, {}, self._allowed_outside)
        try:
            connection = await get_async_connection(connection_id)
        except AirflowNotFoundException:
            return self._without_connection(connection_id, uri)
        access = self._access_by(connection, await get_async_extra_dejson(connection), uri)
        for secret in secrets(access.options):
            await amask_secret(secret)
        return access

    def table(self, table_uri: str) -> DeltaTable:
        """Create the engine's table object, for operations that this hook has no method for.

        This looks up connections, but makes no request to the store or the commit owner.

        :raises InvalidArgumentError: the location is invalid.
        :raises AirflowNotFoundException: a named connection doesn't exist.
        :raises AirflowException: a connection can't be converted.
        """
        return _table(self._access(table_uri), self.commit_owner.url())

    async def table_async(self, table_uri: str) -> DeltaTable:
        """Like `table`, for triggers: it imports the engine in a thread."""
        access = await self._access_async(table_uri)
        owner_url = await self.commit_owner.url_async()
        return await asyncio.to_thread(_table, access, owner_url)

    @staticmethod
    def latest_version(
        table: DeltaTable, known: int | None = None, *, confirm: bool = False
    ) -> int | None:
        """Find the newest version of a table; None if there is no table (yet).

        :param known: an earlier result: one request finds out whether it is still the newest.
        :param confirm: also check that ``known`` still exists. If a cleanup has deleted it and the commit
            after it, it would seem to be the newest for ever.
        """
        from airflow_delta.engine.errors import TableNotFoundError

        try:
            return table.latest_version(known, confirm=confirm)
        except TableNotFoundError:
            return None

    def pin(
        self,
        table_uri: str,
        *,
        version: int | None = None,
        timestamp: str | int | None = None,
        check_files: bool = False,
    ) -> dict[str, Any]:
        """Resolve a version of a table, so that any number of tasks can read the same state.

        :param version: this version; or
        :param timestamp: the newest version at this time: ISO-8601 with offset, or epoch
            milliseconds. A time after the newest commit means the newest version, but it must not be in the
            future, because later commits could still belong to it. Neither: the newest version.
        :param check_files: check that the files of an earlier version exist, and log a warning if a vacuum
            may delete some at any time. See `DeltaTable.check_version` for the costs.
        :returns: ``table_uri``, ``version``, ``timestamp_ms`` (None if a cleanup has deleted the commit),
            ``num_files``, ``size_in_bytes`` and ``num_rows`` (None if statistics are missing).
        :raises MissingFilesError: ``check_files`` is set, and some are gone.
        :raises OutsidePathError: ``check_files`` is set, and some are at locations that the table isn't
            allowed to read.
        :raises TimestampOutOfRangeError: the time is before the log or in the future.
        :raises DeltaError: the table or the version can't be read.
        """
        from airflow_delta.engine.errors import VersionNotFoundError

        table = self.table(table_uri)
        snapshot = table.snapshot(
            version=version,
            timestamp=timestamp,
            can_return_latest=timestamp is not None and _has_come(timestamp, table_uri),
        )
        # The newest version needs no check: its files aren't removed.
        if check_files and (version is not None or timestamp is not None):
            self._check_files(table, snapshot)
        try:
            timestamp_ms = snapshot.timestamp_ms
        except VersionNotFoundError:
            timestamp_ms = None
        return {
            "table_uri": table_uri,
            "version": snapshot.version,
            "timestamp_ms": timestamp_ms,
            "num_files": snapshot.num_files,
            "size_in_bytes": snapshot.size_in_bytes,
            "num_rows": snapshot.num_rows,
        }

    def checkpoint(
        self,
        table_uri: str,
        *,
        version: int | None = None,
        policy: str | None = None,
        if_needed: bool = False,
        backfill_first: bool = False,
    ) -> dict[str, Any]:
        """Write a checkpoint of a version, the newest one by default.

        :param policy: ``classic`` or ``v2``; None: the property ``delta.checkpointPolicy``.
        :param if_needed: write none if there are fewer than ``delta.checkpointInterval`` commits since the
            last one.
        :param backfill_first: have the commit owner of a managed table backfill missing versions first.
        :returns: ``table_uri``, the entries of `CheckpointResult.to_dict`, and ``duration_ms``.
        :raises DeltaError: the table can't be read or the checkpoint can't be written.
        """
        began = time.monotonic()
        # The engine itself checks the policy.
        result = self.table(table_uri).checkpoint(
            version,
            policy=cast("Any", policy),
            if_needed=if_needed,
            backfill_first=backfill_first,
        )
        duration = round((time.monotonic() - began) * 1000)
        return {"table_uri": table_uri, **result.to_dict(), "duration_ms": duration}

    def compact_log(
        self,
        table_uri: str,
        *,
        start: int | None = None,
        end: int | None = None,
        dry_run: bool = False,
        backfill_first: bool = False,
    ) -> dict[str, Any]:
        """Write a compaction of a range of commits.

        :param start: the first version of the range; None: the first one that no checkpoint and no
            compaction covers.
        :param end: the last version of the range; None: the newest.
        :param dry_run: only report what would be done.
        :param backfill_first: have the commit owner of a managed table backfill missing versions first.
        :returns: ``table_uri``, the entries of `LogCompactionResult.to_dict`, and ``duration_ms``.
        :raises DeltaError: the table can't be read, the range is invalid, or the compaction can't be
            written.
        """
        began = time.monotonic()
        result = self.table(table_uri).compact_log(
            start, end, dry_run=dry_run, backfill_first=backfill_first
        )
        duration = round((time.monotonic() - began) * 1000)
        return {"table_uri": table_uri, **result.to_dict(), "duration_ms": duration}

    def committed_version(self, table_uri: str, *, app_id: str, app_version: int) -> int | None:
        """Find the version that an earlier try committed, by its transaction identifier.

        Returns None if there is no such commit, or no table yet.
        """
        from airflow_delta.engine.errors import TableNotFoundError

        try:
            return self.table(table_uri).version_of_transaction(app_id, app_version)
        except TableNotFoundError:
            return None

    @staticmethod
    def error(kind: str, message: str) -> DeltaError:
        """Create the error that a trigger has reported, for the task to raise.

        :param kind: the name of the error's class. A class that isn't the engine's becomes a `DeltaError`
            with this name in its text.
        :param message: its text.
        """
        from airflow_delta.engine import errors

        known = getattr(errors, kind, None)
        if isinstance(known, type) and issubclass(known, errors.DeltaError):
            return known(message)
        return errors.DeltaError(f"{kind}: {message}")

    def _check_files(self, table: DeltaTable, snapshot: Snapshot) -> None:
        found = table.check_version(snapshot)
        if found.num_unprotected:
            self.log.warning(
                "version %s of %s may become unreadable at any time: %s of its files were removed from "
                "the table longer ago than delta.deletedFileRetentionDuration, so the next vacuum "
                "deletes them",
                snapshot.version,
                table.uri,
                found.num_unprotected,
            )

    def _connection_id(self, table_uri: object) -> tuple[str | None, str]:
        """The id of a table's connection, or None, and the URI without it."""
        connection_id, uri = split_connection(check_location(table_uri))
        named = one_connection(self.delta_conn_id, connection_id)
        return named or default_connection_id(uri), uri

    def _without_connection(self, connection_id: str, uri: str) -> _Access:
        """Go on without options if a default connection is missing; a named one must exist."""
        if connection_id == self.delta_conn_id or connection_id != default_connection_id(uri):
            raise AirflowNotFoundException(
                f"the connection {connection_id!r} (delta_conn_id) isn't defined; define it, "
                "or leave delta_conn_id out to use the default credentials of the table's scheme"
            )
        return _Access(uri, {}, self._allowed_outside)


class _Access(NamedTuple):
    """A table's URI without its connection, and the settings from the connection."""

    uri: str
    options: dict[str, str]
    allowed_outside: tuple[str, ...]


def _has_come(timestamp: str | int, table_uri: str) -> bool:
    """Whether a time isn't in the future, with a tolerance for different clocks."""
    from airflow_delta.engine.snapshot.timestamps import epoch_ms

    return epoch_ms(timestamp, table=table_uri) <= time.time_ns() // 1_000_000 + _CLOCKS_DIFFER_MS


def _table(access: _Access, owner_url: str | None) -> DeltaTable:
    from airflow_delta.engine import DeltaTable

    return DeltaTable(
        access.uri,
        storage_options=access.options,
        commit_owners=commit_owners(owner_url),
        allowed_outside=access.allowed_outside,
    )

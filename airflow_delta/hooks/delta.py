"""The doorway from Airflow to the log engine, and the only one.

Operators, sensors and triggers call `DeltaHook` and get back what XCom can carry: plain
dictionaries of text and numbers. The hook turns a connection into storage options and imports the
engine inside its methods, so that parsing a DAG file stays cheap.

Which credentials a table is opened with:

* ``delta_conn_id`` names a connection: that one, and it is an error if it doesn't exist;
* otherwise the connection that Airflow's provider for the URI's scheme uses by default
  (``aws_default`` for ``s3://``, …), where it exists;
* otherwise none: the store's own chain (environment, instance role) decides.

And which commit owner ratifies the commits of a managed table: see `airflow_delta.hooks.commit_owner`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from airflow_delta.hooks.commit_owner import CommitOwnerHook, commit_owners
from airflow_delta.hooks.storage_options import (
    default_connection_id,
    secrets,
    storage_options,
    store_of,
)
from airflow_delta.version_compat import (
    AirflowException,
    AirflowFailException,
    AirflowNotFoundException,
    BaseHook,
    amask_secret,
    get_async_connection,
    get_async_extra_dejson,
    mask_secret,
)

if TYPE_CHECKING:
    from airflow_delta.engine import DeltaTable, Snapshot
    from airflow_delta.engine.errors import DeltaError

__all__ = ["DeltaHook"]


class DeltaHook(BaseHook):
    """Open, inspect and maintain Delta tables.

    :param delta_conn_id: the connection with the credentials: of type ``delta``, or one of the
        clouds' own types. None: the default connection of each table URI's scheme.
    :param commit_owner_conn_id: the connection with the database of the SQL commit owner, for managed
        tables. None: ``delta_commit_owner_default`` where that exists, else what the environment says.
    """

    conn_name_attr = "delta_conn_id"
    default_conn_name = "delta_default"
    conn_type = "delta"
    hook_name = "Delta Lake"

    def __init__(
        self, delta_conn_id: str | None = None, commit_owner_conn_id: str | None = None
    ) -> None:
        super().__init__()
        self.delta_conn_id = delta_conn_id or None
        self.commit_owner = CommitOwnerHook(commit_owner_conn_id)

    def storage_options(self, table_uri: str) -> dict[str, str]:
        """The options to open a table's store with; their secrets are masked in all logs.

        :raises InvalidArgumentError: the location isn't a text, as where an XCom has nothing.
        :raises AirflowNotFoundException: ``delta_conn_id`` doesn't exist.
        :raises AirflowException: the connection can't be translated.
        """
        connection_id = self._connection_id(table_uri)
        if connection_id is None:
            return {}
        try:
            connection = self.get_connection(connection_id)
        except AirflowNotFoundException:
            return self._without_connection()
        options = storage_options(connection, connection.extra_dejson)
        for secret in secrets(options):
            mask_secret(secret)
        return options

    def common_storage_options(self, *uris: str) -> dict[str, str]:
        """The options for a job that works on several tables of one store.

        :raises AirflowException: the tables need different options, or are in different kinds of
            object stores, none of which knows the options of the other.
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
                "one set of credentials; copy within one store, or leave the connections out where "
                "the identity of the worker may use both"
            )
        return found

    async def storage_options_async(self, table_uri: str) -> dict[str, str]:
        """As `storage_options`, for triggers: never blocks the event loop."""
        connection_id = self._connection_id(table_uri)
        if connection_id is None:
            return {}
        try:
            connection = await get_async_connection(connection_id)
        except AirflowNotFoundException:
            return self._without_connection()
        options = storage_options(connection, await get_async_extra_dejson(connection))
        for secret in secrets(options):
            await amask_secret(secret)
        return options

    def table(self, table_uri: str) -> DeltaTable:
        """A table of the engine, for what this hook has no method for.

        Connections are looked up; neither the store nor the commit owner is asked for anything.

        :raises InvalidArgumentError: the location isn't one.
        :raises AirflowNotFoundException: a connection that is named doesn't exist.
        :raises AirflowException: a connection can't be translated.
        """
        return _table(table_uri, self.storage_options(table_uri), self.commit_owner.url())

    async def table_async(self, table_uri: str) -> DeltaTable:
        """As `table`, for triggers: importing the engine takes its time, in a thread here."""
        options = await self.storage_options_async(table_uri)
        owner_url = await self.commit_owner.url_async()
        return await asyncio.to_thread(_table, table_uri, options, owner_url)

    @staticmethod
    def latest_version(
        table: DeltaTable, known: int | None = None, *, confirm: bool = False
    ) -> int | None:
        """The newest version of a table, or None where there is no table (yet).

        :param known: a version that was there before: one request tells whether it is the newest.
        :param confirm: make sure as well that ``known`` is still there. Where the log has been
            cleaned up beyond the commit after it, it would seem to be the newest for ever.
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
        """Resolve one version of a table, so that any number of tasks can read the same state.

        :param version: this version; or
        :param timestamp: the newest version at this time: ISO-8601 with offset, or epoch
            milliseconds. Neither: the newest version.
        :param check_files: make sure that the files of an earlier version are there, and log a warning
            where a vacuum may take some at any time. See `DeltaTable.check_version` for what it costs.
        :returns: ``table_uri``, ``version``, ``timestamp_ms`` (None where the commit's file is gone
            and a checkpoint stands for it), ``num_files``, ``size_in_bytes`` and ``num_rows`` (None
            where the statistics don't tell).
        :raises AirflowFailException: ``check_files``, and some are gone, whatever another try may do.
        :raises DeltaError: the table or the version can't be read.
        """
        from airflow_delta.engine.errors import VersionNotFoundError

        table = self.table(table_uri)
        snapshot = table.snapshot(version=version, timestamp=timestamp)
        # What was just opened as the newest version is the newest one.
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

        :param policy: ``classic`` or ``v2``; None: as ``delta.checkpointPolicy`` says.
        :param if_needed: write none where fewer than ``delta.checkpointInterval`` commits have come
            since the last one.
        :param backfill_first: have the commit owner of a managed table backfill what is missing before.
        :returns: ``table_uri``, ``version``, ``kind`` (``classic`` or ``v2``), ``path`` of the
            checkpoint below the table, ``written`` and the ``reason`` why or why not; of one that was
            written its live ``files``, the ``bytes`` that were written for it, its ``rows``,
            ``sidecars_written`` and ``sidecars_reused`` (None otherwise); and ``duration_ms``.
        :raises DeltaError: the table can't be read or the checkpoint can't be written.
        """
        from airflow_delta.spark.checkpoint_rules import checkpoint_report

        began = time.monotonic()
        # The engine itself tells what the policies are.
        result = self.table(table_uri).checkpoint(
            version,
            policy=cast("Any", policy),
            if_needed=if_needed,
            backfill_first=backfill_first,
        )
        duration = round((time.monotonic() - began) * 1000)
        return {"table_uri": table_uri, **checkpoint_report(result), "duration_ms": duration}

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
        :param dry_run: only tell what would be done.
        :param backfill_first: have the commit owner of a managed table backfill what is missing before.
        :returns: ``table_uri``, ``version`` (the end that was asked for, or the newest version),
            ``kind`` (``compaction``), ``start``, ``end`` and ``path`` of the compaction below the
            table (None where the range is empty), ``files`` (commits in the range), ``bytes`` and
            ``rows`` (size and actions of the compaction; None where none was written), ``written``,
            ``reason`` (why nothing is to be written, else None) and ``duration_ms``.
        :raises DeltaError: the table can't be read, the range isn't one, or the compaction can't be
            written.
        """
        began = time.monotonic()
        result = self.table(table_uri).compact_log(
            start, end, dry_run=dry_run, backfill_first=backfill_first
        )
        plan = result.plan
        return {
            "table_uri": table_uri,
            "version": plan.version,
            "kind": "compaction",
            "start": plan.start,
            "end": plan.end,
            "path": plan.path,
            "files": len(plan.commits),
            "bytes": result.size_in_bytes,
            "rows": result.num_actions,
            "written": result.written,
            "reason": plan.reason,
            "duration_ms": round((time.monotonic() - began) * 1000),
        }

    def committed_version(self, table_uri: str, *, app_id: str, app_version: int) -> int | None:
        """The version that carries an application transaction: a commit of an earlier try.

        None where there is no such commit, or no table yet.
        """
        from airflow_delta.engine.errors import TableNotFoundError

        try:
            return self.table(table_uri).version_of_transaction(app_id, app_version)
        except TableNotFoundError:
            return None

    @staticmethod
    def error(kind: str, message: str) -> DeltaError:
        """An error that a trigger has met, as the task raises it.

        :param kind: the name of the error's class. What isn't an error of the engine becomes a
            `DeltaError` that says so.
        :param message: its text.
        """
        from airflow_delta.engine import errors

        known = getattr(errors, kind, None)
        if isinstance(known, type) and issubclass(known, errors.DeltaError):
            return known(message)
        return errors.DeltaError(f"{kind}: {message}")

    def _check_files(self, table: DeltaTable, snapshot: Snapshot) -> None:
        from airflow_delta.engine.errors import MissingFilesError

        try:
            found = table.check_version(snapshot)
        except MissingFilesError as error:
            raise AirflowFailException(str(error)) from error
        if found.num_unprotected:
            self.log.warning(
                "version %s of %s may become unreadable at any time: %s of its files were removed from "
                "the table longer ago than delta.deletedFileRetentionDuration, so that the next vacuum "
                "takes them",
                snapshot.version,
                table.uri,
                found.num_unprotected,
            )

    def _connection_id(self, table_uri: object) -> str | None:
        """The connection to open a table with; None for none."""
        if not isinstance(table_uri, str):
            # Else not imported here, which takes its time, and a trigger asks from the event loop.
            from airflow_delta.engine.model.arguments import wrong_argument

            raise wrong_argument("table_uri", "a path or a URI", table_uri)
        return self.delta_conn_id or default_connection_id(table_uri)

    def _without_connection(self) -> dict[str, str]:
        """No options where a default connection is missing; a named one must exist."""
        if self.delta_conn_id is not None:
            raise AirflowNotFoundException(
                f"the connection {self.delta_conn_id!r} (delta_conn_id) isn't defined; define it, "
                "or leave delta_conn_id out to use the default credentials of the table's scheme"
            )
        return {}


def _table(table_uri: str, options: Mapping[str, str], owner_url: str | None) -> DeltaTable:
    from airflow_delta.engine import DeltaTable

    return DeltaTable(table_uri, storage_options=options, commit_owners=commit_owners(owner_url))

"""`TableAccess`: open a table by its URI and the connections; the base class of `DeltaHook`.

The credentials of a table come from

* the connection ``delta_conn_id``, or the connection in front of the bucket in the URI
  (``s3://<connection>@<bucket>/…``). It must exist, and the two must not name different ones;
* otherwise the default connection of Airflow's provider for the URI's scheme (``aws_default`` for
  ``s3://``, …), if it exists. Whether it does must be known: see `airflow_delta.hooks.connection_lookup`;
* otherwise the store's own chain of credentials (environment, instance role).

Credentials that expire, such as those of an assumed role, are renewed as long as the table is used; see
`airflow_delta.hooks.cloud_credentials`.

For the commit owner of a managed table see `airflow_delta.hooks.commit_owner`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from airflow_delta.hooks.argument_rules import check_location
from airflow_delta.hooks.cloud_credentials import ConnectionCredentials, credentials_of
from airflow_delta.hooks.commit_owner import CommitOwnerHook, commit_owners
from airflow_delta.hooks.connection_lookup import find_connection, find_connection_async
from airflow_delta.hooks.failures import TableFailure
from airflow_delta.hooks.lineage.collector import collect_table
from airflow_delta.hooks.storage_options import (
    allowed_locations,
    default_connection_id,
    plain_extra,
    secrets,
    storage_options,
    store_of,
)
from airflow_delta.hooks.table_locations import as_locations, one_connection, split_connection
from airflow_delta.version_compat import (
    AirflowNotFoundException,
    BaseHook,
    Connection,
    amask_secret,
    get_async_extra_dejson,
    mask_secret,
)

if TYPE_CHECKING:
    from airflow_delta.engine import DeltaTable

__all__ = ["TableAccess"]


class TableAccess(BaseHook):
    """Tables with the credentials and the commit owner of their connections.

    The arguments are those of `DeltaHook`.
    """

    collects_lineage = True
    """Whether it reports its tables for the lineage of a task; see `hooks/lineage/collector.py`."""

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
        self.reported_tables: set[str] = set()

    def storage_options(self, table_uri: str) -> dict[str, str]:
        """The storage options of a table as text, for another process; their secrets are masked in logs.

        Credentials that expire are those of this moment, and a warning says how long they are valid.
        Another process can't renew them; `table` does.

        :raises InvalidArgumentError: the location isn't text (for example an empty XCom), is relative,
            or has a password.
        :raises AirflowNotFoundException: ``delta_conn_id`` doesn't exist.
        :raises TableFailure: the connection can't be converted.
        :raises AccessDeniedError: the cloud refuses the credentials of the connection.
        :raises StorageError: a secrets backend of Airflow fails, or the login service doesn't answer.
        """
        return self._as_text(self._access(table_uri))

    def all_storage_options(self, table_uri: str) -> dict[str, Any]:
        """The storage options of a table for this process, which renews credentials that expire.

        They can be pickled. Instead of a login, the pickle has the id of its connection, and the process
        that unpickles it looks the connection up.

        :raises TableFailure: see `storage_options`.
        """
        return self._access(table_uri).all_options

    def _as_text(self, access: _Access) -> dict[str, str]:
        if access.credentials is None:
            return access.options
        options, expires_at = access.credentials.as_options()
        self.log.warning(
            "the credentials of connection %r are passed on to another process, which can't renew them; "
            "they are valid until %s at least. For longer work give that process an identity of its own",
            access.credentials.connection_id,
            expires_at.isoformat(timespec="seconds"),
        )
        return {**access.options, **options}

    def allowed_outside(self, table_uri: str) -> list[str]:
        """The locations outside of a table below which it may read files.

        :raises TableFailure: see `storage_options`.
        """
        return list(self._access(table_uri).allowed_outside)

    def allowed_parameter(self, table_uri: str) -> dict[str, list[str]]:
        """The parameter ``allowed_outside`` for a job that opens a table's files; empty if there are none.

        :raises TableFailure: see `storage_options`.
        """
        allowed = self.allowed_outside(table_uri)
        return {"allowed_outside": allowed} if allowed else {}

    def _access(self, table_uri: str) -> _Access:
        connection_id, uri = self._connection_id(table_uri)
        if connection_id is None:
            return self._without_options(uri)
        connection = find_connection(connection_id)
        if connection is None:
            return self._without_connection(connection_id, uri)
        access = self._access_by(connection, connection.extra_dejson, uri)
        for secret in secrets(access.options):
            mask_secret(secret)
        return access

    def _access_by(self, connection: Connection, extra: Mapping[str, Any], uri: str) -> _Access:
        extra = plain_extra(connection, extra)
        allowed = (*allowed_locations(connection, extra), *self._allowed_outside)
        options = storage_options(connection, extra)
        return _Access(uri, options, allowed, credentials_of(connection, extra))

    def common_storage_options(self, *uris: str) -> dict[str, str]:
        """The storage options for a job with several tables in one store, as text.

        :raises TableFailure: the tables need different options, or are in different kinds of
            object stores, which have different options; or see `storage_options`.
        """
        found: _Access | None = None
        for uri in uris:
            access = self._access(uri)
            if not access.all_options:
                continue
            # Of a login the connection counts, because each request for credentials returns others.
            if found is not None and access.identity != found.identity:
                raise TableFailure(
                    f"{' and '.join(uris)} need different credentials, and a job has one set; use "
                    "a connection of type 'delta' that serves both"
                )
            found = found or access
        if found is None:
            return {}
        stores = sorted({store for store in map(store_of, uris) if store is not None})
        if len(stores) > 1:
            raise TableFailure(
                f"{' and '.join(uris)} are in different stores ({', '.join(stores)}), and a job has "
                "one set of credentials; copy within one store, or leave the connections out if "
                "the identity of the worker may use both"
            )
        return self._as_text(found)

    async def storage_options_async(self, table_uri: str) -> dict[str, str]:
        """Like `storage_options`, for triggers: it doesn't block the event loop."""
        access = await self._access_async(table_uri)
        return await asyncio.to_thread(self._as_text, access)

    async def _access_async(self, table_uri: str) -> _Access:
        connection_id, uri = self._connection_id(table_uri)
        if connection_id is None:
            return self._without_options(uri)
        connection = await find_connection_async(connection_id)
        if connection is None:
            return self._without_connection(connection_id, uri)
        access = self._access_by(connection, await get_async_extra_dejson(connection), uri)
        for secret in secrets(access.options):
            await amask_secret(secret)
        return access

    def table(self, table_uri: str) -> DeltaTable:
        """Create the engine's table object, for operations that this hook has no method for.

        This looks up connections, but makes no request to the store or the commit owner. In the lineage of
        a task the table is an input, without a version, unless this hook has reported it before.

        :raises InvalidArgumentError: the location is invalid.
        :raises AirflowNotFoundException: a named connection doesn't exist.
        :raises TableFailure: a connection can't be converted.
        :raises StorageError: a secrets backend of Airflow fails.
        """
        table = self._open(table_uri)
        if self.collects_lineage and table_uri not in self.reported_tables:
            collect_table(self, table_uri, None, "input")
        return table

    def report_output(self, table_uri: str, version: int | None = None) -> None:
        """Report for the lineage of a task that it has written a table, for a task with its own commits.

        The methods of this hook that commit report their tables themselves.

        :param version: the version that the task has committed; None if it isn't known.
        """
        collect_table(self, table_uri, version, "output")

    def _open(self, table_uri: str) -> DeltaTable:
        """Like `table`, without a report for the lineage."""
        return _table(self._access(table_uri), self.commit_owner.url())

    async def table_async(self, table_uri: str) -> DeltaTable:
        """Like `table`, for triggers: it imports the engine in a thread."""
        access = await self._access_async(table_uri)
        owner_url = await self.commit_owner.url_async()
        return await asyncio.to_thread(_table, access, owner_url)

    def _connection_id(self, table_uri: object) -> tuple[str | None, str]:
        """The id of a table's connection, or None, and the URI without it."""
        connection_id, uri = split_connection(check_location(table_uri))
        named = one_connection(self.delta_conn_id, connection_id)
        return named or default_connection_id(uri), uri

    def _without_connection(self, connection_id: str, uri: str) -> _Access:
        """Continue without options if a default connection is missing; a named one must exist."""
        if connection_id == self.delta_conn_id or connection_id != default_connection_id(uri):
            raise AirflowNotFoundException(
                f"the connection {connection_id!r} (delta_conn_id) isn't defined; define it, "
                "or leave delta_conn_id out to use the default credentials of the table's scheme"
            )
        return self._without_options(uri)

    def _without_options(self, uri: str) -> _Access:
        return _Access(uri, {}, self._allowed_outside, None)


class _Access(NamedTuple):
    """A table's URI without its connection, and the settings from the connection."""

    uri: str
    options: dict[str, str]
    allowed_outside: tuple[str, ...]
    credentials: ConnectionCredentials | None

    @property
    def identity(self) -> tuple[dict[str, str], str | None]:
        """The common part of tables that need the same options: these, and the connection of a login."""
        credentials = self.credentials
        return self.options, None if credentials is None else credentials.connection_id

    @property
    def all_options(self) -> dict[str, Any]:
        """The storage options for this process, which renews credentials that expire."""
        if self.credentials is None:
            return {**self.options}
        return {**self.options, "credential_provider": self.credentials}


def _table(access: _Access, owner_url: str | None) -> DeltaTable:
    from airflow_delta.engine import DeltaTable

    return DeltaTable(
        access.uri,
        storage_options=access.all_options,
        commit_owners=commit_owners(owner_url),
        allowed_outside=access.allowed_outside,
    )

"""Credentials of connections that the hooks of Airflow's official providers get, such as those of a role.

`storage_options` converts what stays the same, such as keys. What has to be requested, and expires, comes
from the hook of the cloud's own provider package, which knows all ways to log in:

=========================  ===============================================================================
``aws``                    ``AwsGenericHook``: assumed roles (also with SAML and web identities), profiles
``google_cloud_platform``  ``GoogleBaseHook``: impersonation, keys in Secret Manager, external identities
``adls``, ``wasb``         ``AzureDataLakeStorageV2Hook``, ``WasbHook``: managed and workload identities
=========================  ===============================================================================

`ConnectionCredentials` is the function of the storage option ``credential_provider``: the store's client
calls it again before the credentials expire, so a task or a trigger may last longer than they do. Nothing
is requested before the first call, which is in a thread, never in an event loop.
"""

from __future__ import annotations

import importlib.util
import threading
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, NamedTuple

from airflow_delta.hooks.bounded_call import BoundedCall
from airflow_delta.hooks.cloud_hooks import Renew, open_amazon, open_azure, open_google
from airflow_delta.hooks.connection_lookup import find_connection
from airflow_delta.hooks.failures import TableFailure
from airflow_delta.hooks.login_errors import describe_login_error, is_permanent_refusal
from airflow_delta.version_compat import (
    AirflowException,
    AirflowNotFoundException,
    Connection,
    mask_secret,
)

__all__ = ["ConnectionCredentials", "credential_fields", "credentials_of"]

# Hooks that open tables in this time share a session, so a triggerer with many watchers of a connection
# logs in once when it starts. A table that is opened again later, after an error, gets a new session.
_SHARED_SECONDS = 600.0
_SECRETS = ("secret_access_key", "token")
# The clouds' clients repeat requests for up to ten minutes. Until then a thread of the store's client
# waits, which tables of other connections share.
_LOGIN_SECONDS = 60.0


class _Source(NamedTuple):
    """The source of the credentials of connections of a type.

    Attributes:
        fields: the extras that need the hook.
        package: the provider package.
        module: the module of the hook.
        open: creates the hook of a connection, and returns a function that renews the credentials.
        store_kind: the kind of store, as the engine names it.
    """

    fields: tuple[str, ...]
    package: str
    module: str
    open: Callable[[Connection], Renew]
    store_kind: str


class ConnectionCredentials:
    """The credentials of a connection, as the function for the storage option ``credential_provider``.

    A pickle of it has the id of the connection, and no secret. Where it is unpickled, such as in a Python
    process of Spark, the first call looks the connection up there.

    :param connection_id: the id of the connection.
    :param connection_type: its type, one with `credential_fields`.
    :param connection: the connection; None: the first call looks it up.
    """

    def __init__(
        self, connection_id: str, connection_type: str, connection: Connection | None = None
    ) -> None:
        self.connection_id = connection_id
        self._connection_type = connection_type
        self._connection = connection
        self._obtain_bounded = BoundedCall(self._obtain)
        self._renew: Renew | None = None
        self._masked: set[str] = set()

    def __repr__(self) -> str:
        return f"ConnectionCredentials({self.connection_id!r})"

    def __reduce__(self) -> tuple[type[ConnectionCredentials], tuple[str, str]]:
        return ConnectionCredentials, (self.connection_id, self._connection_type)

    @property
    def store_kind(self) -> str:
        """The kind of store that gets the credentials; the engine sends them to no other kind."""
        return _SOURCES[self._connection_type].store_kind

    def __call__(self) -> dict[str, Any]:
        """Return credentials that are valid for a while; their secrets are masked in all logs.

        :raises AccessDeniedError: the cloud refuses them, or the connection is incomplete or can't be
            looked up here.
        :raises StorageError: the service that gives them out doesn't answer, or not within a minute.
        """
        try:
            found = self._obtain_bounded(_LOGIN_SECONDS)
        except Exception as error:  # noqa: BLE001 - of three libraries, and of the network
            # Not chained: the messages of the clouds' clients may quote their requests.
            raise self._failure(error) from None
        secrets = {str(found[name]) for name in _SECRETS if found.get(name)}
        for secret in secrets - self._masked:
            mask_secret(secret)
        self._masked |= secrets
        return found

    def _obtain(self) -> dict[str, Any]:
        if self._connection is None:
            self._connection = _look_up(self.connection_id, self._connection_type)
        if self._renew is None:
            self._renew = _SOURCES[self._connection_type].open(self._connection)
        return self._renew()

    def _failure(self, error: Exception) -> Exception:
        """The error of the engine for one of a hook."""
        from airflow_delta.engine.errors import AccessDeniedError, StorageError

        kind = AccessDeniedError if is_permanent_refusal(error) else StorageError
        return kind(
            f"the credentials of connection {self.connection_id!r} can't be obtained: "
            f"{describe_login_error(error, self._connection)}"
        )

    def as_options(self) -> tuple[dict[str, str], datetime]:
        """The credentials of this moment as storage options, for processes that can't renew them.

        :returns: the options, and until when they are valid at least.
        :raises DeltaError: see `__call__`.
        """
        names = _OPTIONS[self._connection_type]
        found = self()
        options = {option: str(found[name]) for name, option in names.items() if found.get(name)}
        return options, found["expires_at"]


def credential_fields(connection: Connection, extra: Mapping[str, Any]) -> list[str]:
    """The extras of a connection that only the hook of the official provider understands.

    :param connection: an Airflow connection.
    :param extra: its extras, already parsed.
    """
    source = _SOURCES.get(connection.conn_type or "")
    return [] if source is None else [name for name in source.fields if extra.get(name)]


def credentials_of(
    connection: Connection, extra: Mapping[str, Any]
) -> ConnectionCredentials | None:
    """The credentials of a connection that has `credential_fields`; None for all others.

    No request is made.

    :param connection: an Airflow connection.
    :param extra: its extras, already parsed.
    :raises TableFailure: the provider package isn't installed.
    """
    fields = credential_fields(connection, extra)
    if not fields:
        return None
    source = _SOURCES[str(connection.conn_type)]
    if not _is_installed(source.module):
        raise TableFailure(
            f"connection {connection.conn_id!r} has {', '.join(fields)}, for which {source.package} is "
            f"needed: pip install {source.package}; or use a connection of type 'delta' whose extras are "
            "storage options, or leave the connection out to use the identity of the worker"
        )
    return _shared.get(connection)


class _Shared:
    """The credentials of connections, shared by the hooks of a process for ten minutes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[str, tuple[float, object, ConnectionCredentials]] = {}

    def get(self, connection: Connection) -> ConnectionCredentials:
        """Return the credentials of a connection: new ones after ten minutes, or if it has changed."""
        content = tuple(
            getattr(connection, name)
            for name in ("conn_type", "host", "login", "password", "extra")
        )
        now = time.monotonic()
        with self._lock:
            known = self._known.get(connection.conn_id)
            if known is None or known[1] != content or now - known[0] > _SHARED_SECONDS:
                credentials = ConnectionCredentials(
                    connection.conn_id, str(connection.conn_type), connection
                )
                known = (now, content, credentials)
                self._known[connection.conn_id] = known
        return known[2]


_shared = _Shared()


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def _look_up(connection_id: str, connection_type: str) -> Connection:
    """Look up the connection of unpickled credentials.

    :raises AirflowException: it isn't there, or has another type.
    :raises StorageError: a secrets backend of Airflow fails.
    """
    connection = find_connection(connection_id)
    if connection is None:
        raise AirflowNotFoundException(
            "the credentials were passed on to a process that can't look up the connection; define it "
            "there, for example as a variable of the environment, or pass on "
            "DeltaHook.storage_options(), which are valid for a while"
        )
    if connection.conn_type != connection_type:
        raise AirflowException(
            f"the connection was of type {connection_type!r} when it was passed on to this process, and is "
            f"of type {connection.conn_type!r} here"
        )
    return connection


_AZURE_FIELDS = ("managed_identity_client_id", "workload_identity_tenant_id")
_AZURE_PACKAGE = "apache-airflow-providers-microsoft-azure"
_SOURCES = {
    "aws": _Source(
        (
            "role_arn",
            "assume_role_method",
            "assume_role_with_web_identity_token_file",
            "profile_name",
            "session_kwargs",
        ),
        "apache-airflow-providers-amazon",
        "airflow.providers.amazon.aws.hooks.base_aws",
        open_amazon,
        "S3",
    ),
    "google_cloud_platform": _Source(
        ("impersonation_chain", "key_secret_name", "credential_config_file", "idp_issuer_url"),
        "apache-airflow-providers-google",
        "airflow.providers.google.common.hooks.base_google",
        open_google,
        "GCS",
    ),
    "adls": _Source(
        _AZURE_FIELDS,
        _AZURE_PACKAGE,
        "airflow.providers.microsoft.azure.hooks.data_lake",
        open_azure,
        "Azure",
    ),
    "wasb": _Source(
        _AZURE_FIELDS,
        _AZURE_PACKAGE,
        "airflow.providers.microsoft.azure.hooks.wasb",
        open_azure,
        "Azure",
    ),
}
_OPTIONS = {
    "aws": {
        "access_key_id": "aws_access_key_id",
        "secret_access_key": "aws_secret_access_key",
        "token": "aws_session_token",
    },
    "google_cloud_platform": {"token": "google_bearer_token"},
    "adls": {"token": "azure_storage_token"},
    "wasb": {"token": "azure_storage_token"},
}

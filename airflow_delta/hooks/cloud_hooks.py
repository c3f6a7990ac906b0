"""Log in to a cloud with the hook of its official provider, and get credentials from it.

Each function imports and creates the hook of a connection, and returns a function that returns credentials
as a mapping of obstore. The provider packages are optional. What is used of them: ``get_session`` of
``AwsGenericHook``, ``get_credentials`` of ``GoogleBaseHook``, and the ``credential`` of the client that
``get_conn`` of ``WasbHook`` and ``AzureDataLakeStorageV2Hook`` returns.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import Any

from airflow_delta.version_compat import Connection

__all__ = ["Renew", "open_amazon", "open_azure", "open_google"]

Renew = Callable[[], dict[str, Any]]

# The client requests new credentials when five minutes are left. botocore renews credentials that have ten
# minutes left, so those that it returns are valid for so long, or never expire.
_VALID_AT_LEAST = timedelta(minutes=10)
_AZURE_SCOPE = "https://storage.azure.com/.default"


def open_amazon(connection: Connection) -> Renew:
    """Log in with the hook of the provider for Amazon.

    :param connection: a connection of type ``aws``.
    :returns: a function that returns credentials that are valid for ten minutes at least.
    """
    from airflow.providers.amazon.aws.hooks.base_aws import AwsGenericHook

    hook = _with_connection(AwsGenericHook, connection)(
        aws_conn_id=connection.conn_id, client_type="s3"
    )
    credentials = hook.get_session().get_credentials()
    if credentials is None:
        raise ValueError("boto3 finds no credentials")

    def renew() -> dict[str, Any]:
        """Get the current credentials; botocore renews them if necessary."""
        frozen = credentials.get_frozen_credentials()
        return {
            "access_key_id": frozen.access_key,
            "secret_access_key": frozen.secret_key,
            "token": frozen.token,
            "expires_at": datetime.now(timezone.utc) + _VALID_AT_LEAST,
        }

    return renew


def open_google(connection: Connection) -> Renew:
    """Log in with the hook of the provider for Google.

    :param connection: a connection of type ``google_cloud_platform``.
    :returns: a function that returns a token that is valid for ten minutes at least.
    """
    from airflow.providers.google.common.hooks.base_google import GoogleBaseHook
    from google.auth.transport.requests import Request

    hook = _with_connection(GoogleBaseHook, connection)(gcp_conn_id=connection.conn_id)
    credentials = hook.get_credentials()

    def renew() -> dict[str, Any]:
        """Get the token, and renew it first if it is about to expire."""
        left = _expiry(credentials) - datetime.now(timezone.utc)
        if not credentials.valid or left < _VALID_AT_LEAST:
            credentials.refresh(Request())
        return {"token": credentials.token, "expires_at": _expiry(credentials)}

    return renew


def _expiry(credentials: Any) -> datetime:
    """The time at which Google's credentials expire. They have a naive time of UTC, or None for never."""
    expiry: datetime | None = credentials.expiry
    if expiry is None:
        return datetime.now(timezone.utc) + timedelta(hours=1)
    return expiry.replace(tzinfo=timezone.utc)


def open_azure(connection: Connection) -> Renew:
    """Log in with a hook of the provider for Azure.

    :param connection: a connection of type ``adls`` or ``wasb``.
    :returns: a function that returns a token, from azure-identity's cache while it is valid.
    """
    if connection.conn_type == "wasb":
        from airflow.providers.microsoft.azure.hooks.wasb import WasbHook as Hook
    else:
        from airflow.providers.microsoft.azure.hooks.data_lake import (
            AzureDataLakeStorageV2Hook as Hook,
        )
    credentials = _with_connection(Hook, connection)(connection.conn_id).get_conn().credential

    def renew() -> dict[str, Any]:
        """Get a token from azure-identity, which has a cache of them."""
        token = credentials.get_token(_AZURE_SCOPE)
        expires_at = datetime.fromtimestamp(token.expires_on, timezone.utc)
        return {"token": token.token, "expires_at": expires_at}

    return renew


def _with_connection(hook_class: Any, connection: Connection) -> Any:
    """The hook's class with a connection that is known, so that it is not looked up again.

    The hooks look it up when credentials are renewed for the first time, in a thread of the store's client.
    """

    class KnownConnection(hook_class):  # type: ignore[misc]  # a class of a package that may be missing
        """The hook, with the connection that is known."""

        @classmethod
        def get_connection(cls, *_: Any, **__: Any) -> Connection:
            """Return the known connection, whatever its id."""
            return connection

    # Its log has the name of the hook.
    KnownConnection.__qualname__ = hook_class.__qualname__
    KnownConnection.__module__ = hook_class.__module__
    return KnownConnection

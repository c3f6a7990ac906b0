"""Convert an Airflow connection to the engine's storage options.

The options for object stores have the names of the ``object_store`` library, which ``deltalake``
also uses. A connection of type ``delta`` has them as its extras; the fields of the clouds' standard
connections are converted.

A field for authentication that can't be converted is an error: without it, another identity would be used.

Two extras are the same in connections of every type: ``single_writer`` asserts that nobody else
writes to the tables (docs/how-to/object-stores.md, "One writer"), and ``allowed_outside`` has
locations outside of the tables below which they may read (docs/how-to/shared-files.md).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from airflow_delta.hooks.failures import TableFailure
from airflow_delta.hooks.table_locations import as_locations
from airflow_delta.version_compat import Connection

__all__ = [
    "SECRET_OPTIONS",
    "allowed_locations",
    "default_connection_id",
    "secrets",
    "storage_options",
    "store_of",
]

_DEFAULT_CONNECTIONS = {
    "s3": "aws_default",
    "s3a": "aws_default",
    "gs": "google_cloud_default",
    "gcs": "google_cloud_default",
    "abfs": "adls_default",
    "abfss": "adls_default",
    "az": "wasb_default",
}

# The kinds of stores by scheme; every other scheme is a kind itself.
_STORES = {
    "s3": "S3",
    "s3a": "S3",
    "gs": "Google Cloud Storage",
    "gcs": "Google Cloud Storage",
    "abfs": "Azure",
    "abfss": "Azure",
    "az": "Azure",
}
_SINGLE_WRITER = "single_writer"
_ALLOWED_OUTSIDE = "allowed_outside"
_WITHOUT_OPTIONS = frozenset({"file", "memory"})

SECRET_OPTIONS = frozenset(
    {
        # S3
        "aws_secret_access_key",
        "secret_access_key",
        "secret",
        "aws_session_token",
        "session_token",
        "token",
        "aws_sse_customer_key_base64",
        "sse_customer_key_base64",
        # Google Cloud Storage
        "google_service_account_key",
        "service_account_key",
        "google_bearer_token",
        "bearer_token",
        # Azure
        "azure_storage_account_key",
        "azure_storage_access_key",
        "azure_storage_master_key",
        "account_key",
        "access_key",
        "azure_storage_sas_key",
        "azure_storage_sas_token",
        "sas_key",
        "sas_token",
        "azure_storage_token",
        "azure_client_secret",
        "azure_storage_client_secret",
        "client_secret",
        # The HTTP client of all three: a proxy's URL may hold a password.
        "proxy_url",
        # File systems of fsspec
        "password",
        "passphrase",
    }
)
"""The options, in lower case, whose values are secret."""

# Masking these would mask every occurrence of these texts in the logs.
_NO_SECRETS = frozenset({"", "true", "false"})


def default_connection_id(table_uri: str) -> str | None:
    """The connection that Airflow's own provider for the URI's scheme uses by default.

    None for schemes that need no credentials, such as plain paths.
    """
    scheme, separator, _ = table_uri.partition("://")
    return _DEFAULT_CONNECTIONS.get(scheme.lower()) if separator else None


def store_of(table_uri: str) -> str | None:
    """The kind of store of a URI; None for locations without storage options, such as paths."""
    scheme, separator, _ = table_uri.partition("://")
    scheme = scheme.lower()
    if not separator or scheme in _WITHOUT_OPTIONS:
        return None
    return _STORES.get(scheme, scheme)


def secrets(options: Mapping[str, str]) -> list[str]:
    """The values of secret storage options."""
    return [
        value
        for name, value in options.items()
        if name.lower() in SECRET_OPTIONS and value.strip().lower() not in _NO_SECRETS
    ]


def storage_options(connection: Connection, extra: Mapping[str, Any]) -> dict[str, str]:
    """Convert a connection to storage options.

    :param connection: an Airflow connection.
    :param extra: its extras, already parsed.
    :raises TableFailure: connections of this type can't be converted, or a field can't.
    """
    translate = _TRANSLATIONS.get(connection.conn_type or "")
    if translate is None:
        raise TableFailure(
            f"connection {connection.conn_id!r} is of type {connection.conn_type!r}: expected one "
            f"of {', '.join(sorted(_TRANSLATIONS))}; for any other store put its storage options "
            "into the extras of a connection of type 'delta'"
        )
    extra = {name: value for name, value in extra.items() if name != _ALLOWED_OUTSIDE}
    options = {_SINGLE_WRITER: extra.get(_SINGLE_WRITER), **translate(connection, extra)}
    return {name: str(value) for name, value in options.items() if value}


def allowed_locations(connection: Connection, extra: Mapping[str, Any]) -> tuple[str, ...]:
    """The locations outside of its tables below which a connection allows them to read.

    :param connection: an Airflow connection.
    :param extra: its extras, already parsed.
    :raises TableFailure: the extra is neither a list of texts nor a text.
    """
    value = extra.get(_ALLOWED_OUTSIDE)
    is_list = isinstance(value, list) and all(isinstance(item, str) for item in value)
    if not (value is None or is_list or isinstance(value, str)):
        raise TableFailure(
            f"connection {connection.conn_id!r}: the extra {_ALLOWED_OUTSIDE!r} is a "
            f'{type(value).__name__}; expected locations, for example ["s3://shared-lake/"]'
        )
    return as_locations(value)


def _delta(connection: Connection, extra: Mapping[str, Any]) -> dict[str, Any]:
    """The extras are the options; they must be text, because stores interpret other types differently."""
    wrong = sorted(name for name, value in extra.items() if not isinstance(value, str))
    if wrong:
        raise TableFailure(
            f"connection {connection.conn_id!r}: the extras {wrong} aren't text; storage options "
            'are text, for example {"aws_allow_http": "true"}'
        )
    return dict(extra)


def _aws(connection: Connection, extra: Mapping[str, Any]) -> dict[str, Any]:
    _refuse(
        connection,
        extra,
        "role_arn",
        "assume_role_method",
        "assume_role_with_web_identity_token_file",
        "profile_name",
        "session_kwargs",
    )
    service: Mapping[str, Any] = (extra.get("service_config") or {}).get("s3") or {}
    return {
        "aws_access_key_id": connection.login or extra.get("aws_access_key_id"),
        "aws_secret_access_key": connection.password or extra.get("aws_secret_access_key"),
        "aws_session_token": extra.get("aws_session_token"),
        "aws_region": extra.get("region_name"),
        "aws_endpoint_url": service.get("endpoint_url") or extra.get("endpoint_url"),
    }


def _google(connection: Connection, extra: Mapping[str, Any]) -> dict[str, Any]:
    _refuse(connection, extra, "impersonation_chain", "key_secret_name", "credential_config_file")
    key = extra.get("keyfile_dict")
    return {
        "google_service_account": extra.get("key_path") or "",
        # Airflow accepts the key both as an object and as the text of one.
        "google_service_account_key": json.dumps(key) if isinstance(key, dict) else key or "",
    }


def _azure_data_lake(connection: Connection, extra: Mapping[str, Any]) -> dict[str, Any]:
    _refuse(connection, extra, "connection_string", "managed_identity_client_id")
    return {
        "azure_storage_account_name": _account(connection.host),
        "azure_client_id": connection.login,
        "azure_client_secret": connection.password,
        "azure_tenant_id": extra.get("tenant_id") or "",
    }


def _azure_blob(connection: Connection, extra: Mapping[str, Any]) -> dict[str, Any]:
    _refuse(
        connection,
        extra,
        "connection_string",
        "shared_access_key",
        "managed_identity_client_id",
    )
    if tenant := extra.get("tenant_id"):
        return {
            "azure_storage_account_name": _account(connection.host),
            "azure_client_id": connection.login,
            "azure_client_secret": connection.password,
            "azure_tenant_id": tenant,
        }
    return {
        "azure_storage_account_name": connection.login or _account(connection.host),
        "azure_storage_account_key": connection.password,
        "azure_storage_sas_key": extra.get("sas_token") or "",
    }


def _account(host: str | None) -> str:
    """The account of ``https://<account>.dfs.core.windows.net`` or of a plain account name."""
    return (host or "").removeprefix("https://").partition(".")[0].rstrip("/")


def _refuse(connection: Connection, extra: Mapping[str, Any], *names: str) -> None:
    present = [name for name in names if extra.get(name)]
    if present:
        raise TableFailure(
            f"connection {connection.conn_id!r} has {', '.join(present)}, which can't be "
            "converted to storage options; use a connection of type 'delta' whose extras are "
            "storage options, or leave the connection out to use the identity of the worker"
        )


_TRANSLATIONS: Mapping[str, Callable[[Connection, Mapping[str, Any]], dict[str, Any]]] = {
    "adls": _azure_data_lake,
    "aws": _aws,
    "delta": _delta,
    "google_cloud_platform": _google,
    "wasb": _azure_blob,
}

"""Convert an Airflow connection to the engine's storage options.

The options have the names of the ``object_store`` library, which ``deltalake`` also uses. A connection of
type ``delta`` has them as its extras; the fields of the clouds' standard connections are converted.
Credentials that must be requested, and that expire, aren't options: see `cloud_credentials`.

Two extras are for connections of every type: ``single_writer`` (docs/how-to/object-stores.md, "One writer")
and ``allowed_outside`` (docs/how-to/shared-files.md).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from airflow_delta.hooks.cloud_credentials import credential_fields
from airflow_delta.hooks.failures import TableFailure
from airflow_delta.hooks.table_locations import as_locations
from airflow_delta.version_compat import Connection

__all__ = [
    "SECRET_OPTIONS",
    "TEST_LOCATION",
    "allowed_locations",
    "default_connection_id",
    "plain_extra",
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
TEST_LOCATION = "test_location"
"""The extra with the location that the test of a connection reads."""
_NO_OPTIONS = frozenset({_ALLOWED_OUTSIDE, TEST_LOCATION})
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


def plain_extra(connection: Connection, extra: Mapping[str, Any]) -> dict[str, Any]:
    """The extras under their names of today.

    Forms of older releases of Airflow wrote ``extra__<type>__<name>``, which the providers still read. An
    extra with a name of today has precedence, and a form writes None for an empty field.

    :param connection: an Airflow connection.
    :param extra: its extras, already parsed.
    """
    prefix = f"extra__{connection.conn_type}__"
    given = {name: value for name, value in extra.items() if value is not None}
    old = {name: value for name, value in given.items() if name.startswith(prefix)}
    plain = {name: value for name, value in given.items() if name not in old}
    return {**{name.removeprefix(prefix): value for name, value in old.items()}, **plain}


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
    extra = {name: value for name, value in extra.items() if name not in _NO_OPTIONS}
    wrong = sorted(name for name, value in extra.items() if not isinstance(value, str))
    if wrong:
        raise TableFailure(
            f"connection {connection.conn_id!r}: the extras {wrong} aren't text; storage options "
            'are text, for example {"aws_allow_http": "true"}'
        )
    return dict(extra)


def _aws(connection: Connection, extra: Mapping[str, Any]) -> dict[str, Any]:
    service: Mapping[str, Any] = (extra.get("service_config") or {}).get("s3") or {}
    session: Mapping[str, Any] = extra.get("session_kwargs") or {}
    if session.get("profile_name") and not extra.get("profile_name"):
        raise TableFailure(
            f"connection {connection.conn_id!r} has profile_name in session_kwargs, where Airflow's "
            "provider ignores it, so it would use another identity; make profile_name an extra of its own"
        )
    found = {
        "aws_region": extra.get("region_name") or session.get("region_name"),
        "aws_endpoint_url": service.get("endpoint_url") or extra.get("endpoint_url"),
    }
    if credential_fields(connection, extra):
        return found
    config: Mapping[str, Any] = extra.get("config_kwargs") or {}
    return {
        "aws_access_key_id": connection.login or extra.get("aws_access_key_id"),
        "aws_secret_access_key": connection.password or extra.get("aws_secret_access_key"),
        "aws_session_token": extra.get("aws_session_token"),
        "aws_skip_signature": "true" if config.get("signature_version") == "unsigned" else "",
        **found,
    }


def _google(connection: Connection, extra: Mapping[str, Any]) -> dict[str, Any]:
    if credential_fields(connection, extra):
        return {}
    key = extra.get("keyfile_dict")
    return {
        "google_service_account": extra.get("key_path") or "",
        # Airflow accepts the key both as an object and as the text of one.
        "google_service_account_key": json.dumps(key) if isinstance(key, dict) else key or "",
        "google_skip_signature": "true" if extra.get("is_anonymous") else "",
    }


def _azure_data_lake(connection: Connection, extra: Mapping[str, Any]) -> dict[str, Any]:
    _check_azure(connection, extra)
    account = {"azure_storage_account_name": _account(connection.host)}
    if credential_fields(connection, extra):
        return account
    if tenant := extra.get("tenant_id"):
        return {**account, **_azure_client(connection, tenant)}
    return {**account, "azure_storage_account_key": connection.password}


def _azure_blob(connection: Connection, extra: Mapping[str, Any]) -> dict[str, Any]:
    _check_azure(connection, extra)
    tenant, account = extra.get("tenant_id"), _account(connection.host)
    # With a tenant, the login is the client.
    found = {"azure_storage_account_name": account if tenant else connection.login or account}
    if credential_fields(connection, extra):
        return found
    if tenant:
        return {**found, **_azure_client(connection, tenant)}
    key = extra.get("shared_access_key") or connection.password or extra.get("account_key")
    signature = str(extra.get("sas_token") or "")
    if signature.startswith("https"):
        # A URL of the account with the signature as its query, which Airflow accepts, too.
        url, _, signature = signature.partition("?")
        found = {"azure_storage_account_name": _account(url)}
    return {**found, "azure_storage_account_key": key, "azure_storage_sas_key": signature}


def _azure_client(connection: Connection, tenant: str) -> dict[str, Any]:
    return {
        "azure_client_id": connection.login,
        "azure_client_secret": connection.password,
        "azure_tenant_id": tenant,
    }


def _check_azure(connection: Connection, extra: Mapping[str, Any]) -> None:
    """Refuse fields that can't be converted: without them, another identity would be used."""
    if extra.get("connection_string"):
        raise TableFailure(
            f"connection {connection.conn_id!r} has connection_string, which can't be converted to storage "
            "options; put the account and its key or signature into the fields of the connection, or use a "
            "connection of type 'delta' whose extras are storage options"
        )
    identity = ("managed_identity_client_id", "workload_identity_tenant_id")
    given = [name for name in identity if extra.get(name)]
    if len(given) == 1:
        raise TableFailure(
            f"connection {connection.conn_id!r} has {given[0]}, but Airflow's provider for Azure uses the "
            f"identity only if there are both of {' and '.join(identity)}"
        )


def _account(host: str | None) -> str:
    """The account of ``https://<account>.dfs.core.windows.net`` or of a plain account name."""
    return (host or "").removeprefix("https://").partition(".")[0].rstrip("/")


_TRANSLATIONS: Mapping[str, Callable[[Connection, Mapping[str, Any]], dict[str, Any]]] = {
    "adls": _azure_data_lake,
    "aws": _aws,
    "delta": _delta,
    "google_cloud_platform": _google,
    "wasb": _azure_blob,
}

"""Azure Blob Storage and Data Lake Storage, with the URIs of Spark and fsspec.

* ``abfss://<container>@<account>.dfs.core.windows.net/<path>``, or ``abfs://``: the URI has the account.
  The host also says whether it is another cloud or Microsoft OneLake.
* ``abfs://<container>/<path>`` or ``az://<container>/<path>``: the account is an option or in the
  environment.

Settings that aren't storage options come from the environment: the ``AZURE_…`` variables, a workload
identity, or the managed identity of the machine.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from obstore.store import AzureStore

from airflow_delta.engine.errors import InvalidArgumentError
from airflow_delta.engine.storage.base import Capabilities
from airflow_delta.engine.storage.canonical_location import Endpoint, join_path
from airflow_delta.engine.storage.object_store import ObjectStorage
from airflow_delta.engine.storage.obstore_errors import build_store
from airflow_delta.engine.storage.store_arguments import (
    CONTAINER,
    OptionNames,
    StoreLocation,
    read_location,
    read_options,
)

__all__ = ["AZURE_OPTIONS", "open_azure"]

AZURE_OPTIONS: OptionNames = {
    "account_name": ("azure_storage_account_name", "account_name"),
    "account_key": (
        "azure_storage_account_key",
        "azure_storage_access_key",
        "azure_storage_master_key",
        "account_key",
        "access_key",
    ),
    "sas_key": ("azure_storage_sas_key", "azure_storage_sas_token", "sas_key", "sas_token"),
    "token": ("azure_storage_token", "bearer_token", "token"),
    "client_id": ("azure_client_id", "azure_storage_client_id", "client_id"),
    "client_secret": ("azure_client_secret", "azure_storage_client_secret", "client_secret"),
    "tenant_id": (
        "azure_tenant_id",
        "azure_storage_tenant_id",
        "azure_authority_id",
        "tenant_id",
        "authority_id",
    ),
    "authority_host": ("azure_authority_host", "azure_storage_authority_host", "authority_host"),
    "federated_token_file": ("azure_federated_token_file", "federated_token_file"),
    "msi_endpoint": ("azure_msi_endpoint", "azure_identity_endpoint", "msi_endpoint"),
    "object_id": ("azure_object_id", "object_id"),
    "msi_resource_id": ("azure_msi_resource_id", "msi_resource_id"),
    "use_azure_cli": ("azure_use_azure_cli", "use_azure_cli"),
    "skip_signature": ("azure_skip_signature", "skip_signature", "anon"),
    "endpoint": ("azure_storage_endpoint", "azure_endpoint", "endpoint"),
    "use_fabric_endpoint": ("azure_use_fabric_endpoint", "use_fabric_endpoint"),
}

_PUBLIC_CLOUD = "core.windows.net"
_FABRIC = "fabric.microsoft.com"

# The defaults of obstore, if the environment selects an emulator of Azure.
_EMULATOR, _EMULATED_ACCOUNT = "http://127.0.0.1:10000", "devstoreaccount1"


def open_azure(uri: str, options: Mapping[str, object]) -> ObjectStorage:
    """Make the storage of a location in Azure. No I/O is done.

    Args:
        uri: one of the forms in the module's docstring.
        options: see `AZURE_OPTIONS` and `CLIENT_OPTIONS`.

    Raises:
        InvalidArgumentError: the location or an option is malformed or unknown, or they name
            different accounts.
    """
    location = read_location(uri, CONTAINER)
    known = read_options(options, AZURE_OPTIONS, kind="Azure")
    container, at, host = location.container.partition("@")
    if at:
        for name, value in _settings_of_host(host, uri).items():
            if known.store.setdefault(name, value) != value and name == "account_name":
                raise InvalidArgumentError(
                    f"{uri!r} names the account {value!r}, and the storage options name another",
                    uri=uri,
                )
    store = build_store(AzureStore, container, location, known, variables="AZURE_")
    return ObjectStorage(
        root=location.root,
        canonical_location=_canonical_location(location, container, known.store),
        store=store,
        # An account with a hierarchical namespace lists directory by directory, not in the order of the
        # names.
        capabilities=Capabilities(put_if_absent=True, start_after=False, remote=True),
        delete_batch=256,
        # The service treats a backslash as a slash.
        unfit="\\",
    )


def _settings_of_host(host: str, uri: str) -> dict[str, str]:
    account, _, service = host.partition(".")
    kind, _, cloud = service.partition(".")
    if not account or kind not in ("dfs", "blob") or not cloud:
        raise InvalidArgumentError(
            f"{uri!r}: {host!r} isn't the host of an account: expected "
            "<account>.dfs.core.windows.net",
            uri=uri,
        )
    settings = {"account_name": account}
    if cloud == _FABRIC:
        settings["use_fabric_endpoint"] = "true"
    elif cloud != _PUBLIC_CLOUD:
        settings["endpoint"] = f"https://{account}.blob.{cloud}"
    return settings


def _canonical_location(
    location: StoreLocation, container: str, settings: Mapping[str, str]
) -> str:
    """Build the canonical location; settings that aren't options come from the environment."""
    account = _setting("account_name", settings) or _EMULATED_ACCOUNT
    account = account.lower()
    endpoint = _setting("endpoint", settings)
    if os.environ.get("AZURE_STORAGE_USE_EMULATOR", "").lower() == "true":
        endpoint = f"{os.environ.get('AZURITE_BLOB_STORAGE_URL', _EMULATOR)}/{account}"
    if endpoint is None:
        fabric = _setting("use_fabric_endpoint", settings) == "true"
        cloud: str | None = _FABRIC if fabric else _PUBLIC_CLOUD
    else:
        cloud = _cloud(Endpoint.of(endpoint), account)
    if cloud is not None:
        return join_path(f"abfss://{container}@{account}.dfs.{cloud}", location.prefix)
    store = f"abfss+{Endpoint.of(str(endpoint))}"
    return join_path(f"{store}/{container}@{account}", location.prefix)


def _setting(name: str, settings: Mapping[str, str]) -> str | None:
    """Return the setting that the client uses: an option, else an environment variable."""
    variables = (alias.upper() for alias in AZURE_OPTIONS[name] if alias.startswith("azure_"))
    values = (os.environ[variable] for variable in variables if variable in os.environ)
    return settings.get(name) or next(values, None)


def _cloud(server: Endpoint, account: str) -> str | None:
    """Return the cloud, if the server is the host of an account there; None for any other server."""
    for kind in ("blob", "dfs"):
        cloud = server.host.removeprefix(f"{account}.{kind}.")
        if cloud != server.host and server.port is None and not server.path:
            return cloud
    return None

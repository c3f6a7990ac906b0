"""Stand-ins for the hooks of the clouds' official providers, where those packages aren't installed.

Each has only what `airflow_delta.hooks.cloud_hooks` uses, with the behaviour of the real hook (of amazon
9.39, google 22.8 and microsoft-azure 15.2): it looks its connection up by its id, and its credentials renew
themselves. `install` makes the import system find them.
"""

from __future__ import annotations

import importlib.util
import sys
from datetime import datetime, timedelta, timezone
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from airflow_delta.version_compat import BaseHook

__all__ = ["GoogleCredentials", "install", "is_installed"]

AMAZON = "airflow.providers.amazon.aws.hooks.base_aws"
GOOGLE = "airflow.providers.google.common.hooks.base_google"
WASB = "airflow.providers.microsoft.azure.hooks.wasb"
DATA_LAKE = "airflow.providers.microsoft.azure.hooks.data_lake"


class AwsGenericHook(BaseHook):
    """Assumes the role of its connection, as `AwsGenericHook` of the provider does, with boto3."""

    def __init__(self, aws_conn_id: str, client_type: str | None = None) -> None:
        super().__init__()
        self._connection = self.get_connection(aws_conn_id)

    def get_session(self) -> Any:
        import boto3
        from botocore.credentials import RefreshableCredentials
        from botocore.session import get_session

        credentials = RefreshableCredentials.create_from_metadata(
            metadata=self._assume_role(), refresh_using=self._assume_role, method="sts-assume-role"
        )
        session = get_session()
        session._credentials = credentials
        return boto3.Session(botocore_session=session)

    def _assume_role(self) -> dict[str, Any]:
        import boto3

        extra = self._connection.extra_dejson
        session = boto3.Session(self._connection.login, self._connection.password)
        client = session.client(
            "sts",
            region_name=extra["region_name"],
            endpoint_url=extra["service_config"]["sts"]["endpoint_url"],
        )
        found = client.assume_role(RoleArn=extra["role_arn"], RoleSessionName="Airflow")
        credentials = found["Credentials"]
        return {
            "access_key": credentials["AccessKeyId"],
            "secret_key": credentials["SecretAccessKey"],
            "token": credentials["SessionToken"],
            "expiry_time": credentials["Expiration"].isoformat(),
        }


class GoogleCredentials:
    """Credentials like those of google-auth: valid for an hour after each ``refresh``."""

    def __init__(self, scope_of: str) -> None:
        self.scope_of, self.refreshed = scope_of, 0
        self.token: str | None = None
        self.expiry: datetime | None = None

    @property
    def valid(self) -> bool:
        return self.token is not None and self.expiry is not None and self.expiry > _utc_now()

    def refresh(self, request: object) -> None:
        self.refreshed += 1
        self.token = f"token-{self.refreshed}-of-{self.scope_of}"
        self.expiry = _utc_now() + timedelta(hours=1)


class GoogleBaseHook(BaseHook):
    """Impersonates the account that its connection names."""

    def __init__(self, gcp_conn_id: str) -> None:
        super().__init__()
        self._extra = self.get_connection(gcp_conn_id).extra_dejson

    def get_credentials(self) -> GoogleCredentials:
        return GoogleCredentials(self._extra["impersonation_chain"])


class AzureHook(BaseHook):
    """Has a client with a credential, which returns tokens for the managed identity of its connection."""

    def __init__(self, connection_id: str) -> None:
        super().__init__()
        self._extra = self.get_connection(connection_id).extra_dejson

    def get_conn(self) -> SimpleNamespace:
        return SimpleNamespace(credential=self)

    def get_token(self, scope: str) -> SimpleNamespace:
        identity = self._extra["managed_identity_client_id"]
        return SimpleNamespace(token=f"{scope} for {identity}", expires_on=4_102_444_800)


def _utc_now() -> datetime:
    # google-auth has naive times
    return datetime.now(timezone.utc).replace(tzinfo=None)


def is_installed(module: str) -> bool:
    """Whether the module of the real hook is installed."""
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


_STAND_INS: dict[str, dict[str, Any]] = {
    AMAZON: {"AwsGenericHook": AwsGenericHook},
    GOOGLE: {"GoogleBaseHook": GoogleBaseHook},
    "google.auth.transport.requests": {"Request": object},
    WASB: {"WasbHook": AzureHook},
    DATA_LAKE: {"AzureDataLakeStorageV2Hook": AzureHook},
}


def install(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """Have modules found that aren't installed, as stand-ins.

    :param names: modules of `_STAND_INS`.
    """
    for name in names:
        if is_installed(name):
            continue
        parts = name.split(".")
        for end in range(1, len(parts) + 1):
            module = ".".join(parts[:end])
            if module not in sys.modules and not is_installed(module):
                made = ModuleType(module)
                made.__path__ = []
                made.__spec__ = ModuleSpec(module, None, is_package=True)
                monkeypatch.setitem(sys.modules, module, made)
        for attribute, value in _STAND_INS[name].items():
            monkeypatch.setattr(sys.modules[name], attribute, value, raising=False)

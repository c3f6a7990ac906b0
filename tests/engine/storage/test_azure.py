"""How locations and options of Azure reach its client."""

from __future__ import annotations

import pytest

from airflow_delta.engine.errors import InvalidArgumentError
from airflow_delta.engine.storage.azure import open_azure


@pytest.mark.parametrize(
    ("host", "settings"),
    [
        ("acc.dfs.core.windows.net", {}),
        ("acc.blob.core.windows.net", {}),
        ("acc.dfs.fabric.microsoft.com", {"use_fabric_endpoint": True}),
        (
            "acc.dfs.core.chinacloudapi.cn",
            {"endpoint": "https://acc.blob.core.chinacloudapi.cn"},
        ),
    ],
)
def test_the_host_has_account_and_cloud(host: str, settings: dict[str, object]) -> None:
    storage = open_azure(f"abfss://c@{host}/a/t", {})
    assert storage.root == f"abfss://c@{host}/a/t"
    assert storage.store.prefix == "a/t"
    config = {name: value for name, value in storage.store.config.items() if value is not False}
    assert {key: str(value).lower() for key, value in config.items()} == {
        "account_name": "acc",
        "container_name": "c",
        **{key: str(value).lower() for key, value in settings.items()},
    }


@pytest.mark.parametrize(
    "options",
    [
        {"AZURE_STORAGE_ACCOUNT_NAME": "acc", "AZURE_STORAGE_ACCOUNT_KEY": "c2VjcmV0"},
        {"account_name": "acc", "access_key": "c2VjcmV0"},
    ],
)
def test_the_account_may_be_an_option(options: dict[str, str]) -> None:
    storage = open_azure("az://c/t", options)
    assert storage.store.config["account_name"] == "acc"
    assert storage.store.config["account_key"] == "c2VjcmV0"


def test_the_same_account_twice_is_no_contradiction() -> None:
    open_azure("abfss://c@acc.dfs.core.windows.net/t", {"account_name": "acc"})
    with pytest.raises(InvalidArgumentError, match="names the account 'acc'"):
        open_azure("abfss://c@acc.dfs.core.windows.net/t", {"account_name": "other"})


def test_an_explicit_endpoint_wins_over_the_host() -> None:
    storage = open_azure(
        "abfss://c@acc.dfs.core.chinacloudapi.cn/t", {"endpoint": "https://proxy.example.org"}
    )
    assert storage.store.config["endpoint"] == "https://proxy.example.org"


@pytest.mark.parametrize(
    "host", ["acc", "acc.core.windows.net", ".dfs.core.windows.net", "acc.dfs"]
)
def test_other_hosts_are_refused(host: str) -> None:
    with pytest.raises(InvalidArgumentError, match="isn't the host of an account"):
        open_azure(f"abfss://c@{host}/t", {})


def test_a_key_that_is_no_key_is_not_shown() -> None:
    with pytest.raises(InvalidArgumentError, match="'az://c/t'") as error:
        open_azure("az://c/t", {"account_name": "acc", "account_key": "SECRET!"})
    assert "SECRET" not in str(error.value)

"""How URIs and storage options are read."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from airflow_delta.engine.errors import InvalidArgumentError
from airflow_delta.engine.storage.azure import AZURE_OPTIONS, open_azure
from airflow_delta.engine.storage.gcs import GCS_OPTIONS, open_gcs
from airflow_delta.engine.storage.s3 import S3_OPTIONS, open_s3
from airflow_delta.engine.storage.store_arguments import (
    CLIENT_OPTIONS,
    CONTAINER,
    CREDENTIAL_PROVIDER,
    OptionNames,
    StoreLocation,
    read_location,
    read_options,
)

NAMES = {"secret": ("my_secret", "secret"), "endpoint": ("endpoint_url",), "flag": ("flag",)}


def test_a_location_is_taken_apart_and_not_decoded() -> None:
    assert read_location("s3://b/x%20y/z/") == StoreLocation("s3://b/x%20y/z", "b", "x%20y/z")
    assert read_location("s3://b/") == StoreLocation("s3://b", "b", "")
    found = read_location("az://c@a.dfs.core.windows.net/t", CONTAINER)
    assert found.container == "c@a.dfs.core.windows.net"


def test_names_are_matched_without_case_and_values_become_text() -> None:
    found = read_options({"MY_Secret": "x", "FLAG": True, "timeout": 30}, NAMES, kind="S3")
    assert found.store == {"secret": "x", "flag": "true"}
    assert found.client == {"timeout": "30"}


def test_an_unknown_name_is_refused_with_those_that_are_spelt_alike() -> None:
    with pytest.raises(
        InvalidArgumentError, match=r"'secrte' for S3: did you mean 'secret' or 'my_secret'\?"
    ) as error:
        read_options({"secrte": "VALUE"}, NAMES, kind="S3")
    assert "VALUE" not in str(error.value)


def test_a_name_that_is_like_no_other_is_refused_with_the_page_that_lists_them() -> None:
    with pytest.raises(
        InvalidArgumentError, match=r"'zzzz' for S3: the page docs/how-to/object-stores"
    ) as error:
        read_options({"zzzz": "VALUE"}, NAMES, kind="S3")
    assert len(str(error.value)) < 200


def test_two_names_of_one_setting_are_refused() -> None:
    with pytest.raises(InvalidArgumentError, match=r"drop one of my_secret, secret") as error:
        read_options({"secret": "VALUE", "my_secret": "VALUE"}, NAMES, kind="S3")
    assert "VALUE" not in str(error.value)


def test_other_values_than_scalars_are_refused_and_not_shown() -> None:
    with pytest.raises(InvalidArgumentError, match="'secret' is a dict") as error:
        read_options({"secret": {"key": "VALUE"}}, NAMES, kind="S3")
    assert "VALUE" not in str(error.value)


@pytest.mark.parametrize(
    ("options", "allowed"),
    [
        ({"endpoint_url": "http://localhost:9000"}, "true"),
        ({"endpoint_url": "https://localhost:9000"}, None),
        ({"endpoint_url": "http://localhost:9000", "allow_http": "false"}, "false"),
    ],
)
def test_an_endpoint_without_tls_is_consent(options: dict[str, str], allowed: str | None) -> None:
    assert read_options(options, NAMES, kind="S3").client.get("allow_http") == allowed


def test_options_show_no_values() -> None:
    assert "VALUE" not in repr(read_options({"secret": "VALUE"}, NAMES, kind="S3"))


@pytest.mark.parametrize("names", [S3_OPTIONS, GCS_OPTIONS, AZURE_OPTIONS])
def test_no_name_means_two_settings(names: OptionNames) -> None:
    accepted = [
        alias for aliases in [*names.values(), *CLIENT_OPTIONS.values()] for alias in aliases
    ]
    assert len(accepted) == len(set(accepted))
    assert accepted == [alias.lower() for alias in accepted]


@pytest.mark.parametrize(
    ("open_store", "uri", "names"),
    [
        (open_s3, "s3://b/t", S3_OPTIONS),
        (open_gcs, "gs://b/t", GCS_OPTIONS),
        (open_azure, "az://c/t", AZURE_OPTIONS),
    ],
)
def test_the_clients_know_every_setting(
    open_store: Callable[[str, Mapping[str, object]], object], uri: str, names: OptionNames
) -> None:
    for aliases in [*names.values(), *CLIENT_OPTIONS.values()]:
        reason = ""
        try:
            open_store(uri, {aliases[0]: "x"})
        except InvalidArgumentError as error:
            reason = str(error)  # "x" is no useful value of most settings
        assert "Configuration key" not in reason


def test_the_guide_lists_exactly_the_names() -> None:
    guide = Path(__file__).parents[3] / "docs" / "how-to" / "object-stores.md"
    _, _, sections = guide.read_text(encoding="utf-8").partition("## Storage options")
    listed = re.findall(r"### (S3|GCS|Azure|All three)\n(.*?)(?=\n##)", sections, re.DOTALL)
    tables = {
        "S3": S3_OPTIONS,
        "GCS": GCS_OPTIONS,
        "Azure": AZURE_OPTIONS,
        "All three": {**CLIENT_OPTIONS, CREDENTIAL_PROVIDER: (CREDENTIAL_PROVIDER,)},
    }
    assert {title for title, _ in listed} == set(tables)
    for title, table in listed:
        cells = [line.split("|")[2] for line in table.splitlines() if line.startswith("|")]
        names = re.findall(r"`([^`]+)`", " ".join(cells))
        assert sorted(names) == sorted(name for group in tables[title].values() for name in group)

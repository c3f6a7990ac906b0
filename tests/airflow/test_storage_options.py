"""From connections to the options of the stores."""

from __future__ import annotations

import json
from typing import Any

import pytest

from airflow_delta.hooks.failures import TableFailure
from airflow_delta.hooks.storage_options import (
    SECRET_OPTIONS,
    default_connection_id,
    plain_extra,
    secrets,
    storage_options,
)
from airflow_delta.version_compat import Connection


def options(**fields: Any) -> dict[str, str]:
    connection = Connection(conn_id="store", **fields)
    return storage_options(connection, plain_extra(connection, connection.extra_dejson))


@pytest.mark.parametrize(
    ("uri", "connection_id"),
    [
        ("s3://bucket/table", "aws_default"),
        ("S3A://bucket/table", "aws_default"),
        ("gs://bucket/table", "google_cloud_default"),
        ("abfss://container@account.dfs.core.windows.net/table", "adls_default"),
        ("az://container/table", "wasb_default"),
        ("/data/table", None),
        ("file:///data/table", None),
        ("memory://table", None),
        ("relative/table", None),
    ],
)
def test_the_default_connection_follows_the_scheme(uri: str, connection_id: str | None) -> None:
    assert default_connection_id(uri) == connection_id


def test_the_extras_of_a_delta_connection_are_the_options() -> None:
    extra = {"aws_access_key_id": "AKIA", "aws_allow_http": "true"}
    assert options(conn_type="delta", extra=json.dumps(extra)) == extra


def test_what_the_form_leaves_empty_is_not_there_and_what_is_no_option_is_left_out() -> None:
    extra = {
        "aws_region": "eu-west-1",
        "aws_session_token": None,
        "aws_access_key_id": "",
        "allowed_outside": "s3://shared/",
        "test_location": "s3://lake/sales",
    }
    assert options(conn_type="delta", extra=json.dumps(extra)) == {"aws_region": "eu-west-1"}


def test_options_that_are_not_text_are_refused() -> None:
    with pytest.raises(TableFailure, match=r"'store': the extras \['timeout'\] aren't text"):
        options(conn_type="delta", extra='{"timeout": 5}')


def test_an_aws_connection() -> None:
    assert options(
        conn_type="aws",
        login="AKIA",
        password="hush",
        extra='{"region_name": "eu-central-1", "aws_session_token": "t"}',
    ) == {
        "aws_access_key_id": "AKIA",
        "aws_secret_access_key": "hush",
        "aws_session_token": "t",
        "aws_region": "eu-central-1",
    }


def test_an_endpoint_of_s3_alone_wins() -> None:
    found = options(
        conn_type="aws",
        extra=json.dumps(
            {
                "endpoint_url": "https://other:1",
                "service_config": {"s3": {"endpoint_url": "http://minio:9000"}},
            }
        ),
    )
    assert found == {"aws_endpoint_url": "http://minio:9000"}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        (
            {"conn_type": "aws", "login": "AKIA", "password": "hush", "extra": {"role_arn": "r"}},
            {},
        ),
        (
            {"conn_type": "aws", "extra": {"session_kwargs": {"region_name": "eu-west-1"}}},
            {"aws_region": "eu-west-1"},
        ),
        (
            {
                "conn_type": "google_cloud_platform",
                "extra": {"key_path": "/key", "impersonation_chain": "a@b"},
            },
            {},
        ),
        (
            {
                "conn_type": "wasb",
                "login": "lake",
                "extra": {
                    "managed_identity_client_id": "i",
                    "workload_identity_tenant_id": "t",
                },
            },
            {"azure_storage_account_name": "lake"},
        ),
    ],
    ids=lambda value: value.get("conn_type"),
)
def test_credentials_that_the_providers_hook_gets_are_no_options(
    fields: dict[str, Any], expected: dict[str, str]
) -> None:
    """The key of the base identity is only for the hook: the store is used with the role."""
    assert options(**{**fields, "extra": json.dumps(fields["extra"])}) == expected


def test_a_connection_string_is_refused_and_not_left_out() -> None:
    for conn_type in ("adls", "wasb"):
        with pytest.raises(TableFailure, match="'store' has connection_string, which can't be"):
            options(conn_type=conn_type, extra='{"connection_string": "AccountName=lake"}')


def test_a_profile_that_the_provider_would_ignore_is_refused() -> None:
    session = {"session_kwargs": {"profile_name": "lake"}}
    with pytest.raises(TableFailure, match="'store' has profile_name in session_kwargs, where"):
        options(conn_type="aws", extra=json.dumps(session))
    assert options(conn_type="aws", extra=json.dumps({**session, "profile_name": "lake"})) == {}


def test_public_buckets() -> None:
    unsigned = '{"config_kwargs": {"signature_version": "unsigned"}}'
    assert options(conn_type="aws", extra=unsigned) == {"aws_skip_signature": "true"}
    assert options(conn_type="google_cloud_platform", extra='{"is_anonymous": true}') == {
        "google_skip_signature": "true"
    }


def test_an_empty_connection_leaves_the_choice_to_the_environment() -> None:
    assert options(conn_type="aws") == {}


def test_a_google_connection_with_a_key_as_object_or_as_text() -> None:
    key = {"client_email": "a@b", "private_key": "hush"}
    for value in (key, json.dumps(key)):
        found = options(
            conn_type="google_cloud_platform", extra=json.dumps({"keyfile_dict": value})
        )
        assert list(found) == ["google_service_account_key"]
        assert json.loads(found["google_service_account_key"]) == key


def test_an_azure_data_lake_connection() -> None:
    assert options(
        conn_type="adls",
        host="https://lake.dfs.core.windows.net",
        login="client",
        password="hush",
        extra='{"tenant_id": "tenant"}',
    ) == {
        "azure_storage_account_name": "lake",
        "azure_client_id": "client",
        "azure_client_secret": "hush",
        "azure_tenant_id": "tenant",
    }


@pytest.mark.parametrize(
    "fields",
    [
        {"conn_type": "wasb", "login": "lake", "password": "hush"},
        {"conn_type": "wasb", "login": "lake", "extra": '{"shared_access_key": "hush"}'},
        {"conn_type": "wasb", "login": "lake", "extra": '{"extra__wasb__account_key": "hush"}'},
        {"conn_type": "adls", "host": "lake", "password": "hush"},
    ],
)
def test_an_azure_connection_with_an_account_key(fields: dict[str, Any]) -> None:
    assert options(**fields) == {
        "azure_storage_account_name": "lake",
        "azure_storage_account_key": "hush",
    }


@pytest.mark.parametrize("url", ["https://lake.blob.core.windows.net/", ""])
def test_a_shared_access_signature_may_have_its_account_before_it(url: str) -> None:
    signature = json.dumps({"sas_token": f"{url}?sv=1&sig=x" if url else "sv=1&sig=x"})
    login = "" if url else "lake"
    assert options(conn_type="wasb", login=login, extra=signature) == {
        "azure_storage_account_name": "lake",
        "azure_storage_sas_key": "sv=1&sig=x",
    }


@pytest.mark.parametrize("said", ["true", "True"])
@pytest.mark.parametrize(
    "fields",
    [
        {"conn_type": "aws"},
        {"conn_type": "google_cloud_platform"},
        {"conn_type": "adls", "host": "https://lake.dfs.core.windows.net"},
        {"conn_type": "wasb", "login": "lake"},
        {"conn_type": "delta"},
    ],
    ids=lambda fields: fields["conn_type"],
)
def test_every_type_of_connection_may_say_that_there_is_one_writer(
    fields: dict[str, Any], said: str
) -> None:
    from airflow_delta.engine.storage.single_writer import is_single_writer

    found = options(**fields, extra=json.dumps({"single_writer": said}))
    assert is_single_writer(found)
    assert "single_writer" not in options(**fields)


def test_one_writer_may_be_said_in_json() -> None:
    assert options(conn_type="aws", extra='{"single_writer": true}') == {"single_writer": "True"}
    assert options(conn_type="aws", extra='{"single_writer": false}') == {}


def test_other_types_of_connections_are_refused() -> None:
    with pytest.raises(TableFailure, match="is of type 'ftp': expected one of adls, aws,"):
        options(conn_type="ftp")


AWS = {
    "conn_type": "aws",
    "login": "AKIA",
    "password": "hush",
    "extra": json.dumps(
        {"region_name": "r", "aws_session_token": "t", "endpoint_url": "http://minio:9000"}
    ),
}
ADLS = {
    "conn_type": "adls",
    "host": "https://lake.dfs.core.windows.net",
    "login": "client",
    "password": "hush",
    "extra": '{"tenant_id": "tenant"}',
}
WASB_KEY = {"conn_type": "wasb", "login": "lake", "password": "aHVzaA=="}
WASB_SAS = {"conn_type": "wasb", "login": "lake", "extra": '{"sas_token": "sv=1&sig=x"}'}
LAKE = "abfss://files@lake.dfs.core.windows.net/t"


@pytest.mark.parametrize(
    ("uri", "fields"),
    [("s3://lake/t", AWS), (LAKE, ADLS), ("az://files/t", WASB_KEY), ("az://files/t", WASB_SAS)],
)
def test_the_stores_know_the_options(uri: str, fields: dict[str, Any]) -> None:
    from airflow_delta.engine.storage.location import open_storage

    assert open_storage(uri, options(**fields)).root == uri


# The stores' settings that hold a secret, by the clients' own names.
SECRET_SETTINGS = {
    "secret_access_key",
    "session_token",
    "sse_customer_key_base64",
    "service_account_key",
    "bearer_token",
    "account_key",
    "sas_key",
    "token",
    "client_secret",
    "proxy_url",
}


def test_every_name_of_a_secret_is_known() -> None:
    from airflow_delta.engine.storage.azure import AZURE_OPTIONS
    from airflow_delta.engine.storage.gcs import GCS_OPTIONS
    from airflow_delta.engine.storage.s3 import S3_OPTIONS
    from airflow_delta.engine.storage.store_arguments import CLIENT_OPTIONS

    stores = (S3_OPTIONS, GCS_OPTIONS, AZURE_OPTIONS, CLIENT_OPTIONS)
    assert {name for store in stores for name in store} >= SECRET_SETTINGS
    names = {
        alias
        for store in stores
        for name, aliases in store.items()
        if name in SECRET_SETTINGS
        for alias in aliases
    }
    assert names | {"password", "passphrase"} == SECRET_OPTIONS


def test_secrets_are_told_by_the_name_of_the_option_and_never_words_of_every_log() -> None:
    hidden = {
        "AWS_Secret_Access_Key": "hush",
        "azure_storage_sas_key": "sv=1",
        "client_secret": "False",
        "session_token": "",
    }
    shown = {
        "aws_access_key_id": "AKIA",
        "aws_sse_bucket_key_enabled": "false",
        "aws_web_identity_token_file": "/var/run/token",
        "aws_region": "eu-central-1",
    }
    assert secrets({**hidden, **shown}) == ["hush", "sv=1"]

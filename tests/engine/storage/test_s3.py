"""How locations and options of S3 reach its client."""

from __future__ import annotations

import pytest

from airflow_delta.engine.errors import InvalidArgumentError
from airflow_delta.engine.storage.s3 import open_s3


@pytest.mark.parametrize(
    "options",
    [
        {
            "AWS_ACCESS_KEY_ID": "id",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_SESSION_TOKEN": "token",
            "AWS_REGION": "eu-west-1",
            "AWS_ENDPOINT_URL": "https://s3.example.org",
        },
        {
            "key": "id",
            "secret": "secret",
            "token": "token",
            "region_name": "eu-west-1",
            "endpoint_url": "https://s3.example.org",
        },
    ],
)
def test_the_names_of_deltalake_and_of_fsspec(options: dict[str, str]) -> None:
    storage = open_s3("s3://bucket/a/t/", options)
    assert storage.root == "s3://bucket/a/t"
    assert storage.store.prefix == "a/t"
    assert storage.store.config == {
        "bucket": "bucket",
        "access_key_id": "id",
        "secret_access_key": "secret",
        "session_token": "token",
        "region": "eu-west-1",
        "endpoint": "https://s3.example.org",
    }


@pytest.mark.parametrize("option", ["AWS_S3_LOCKING_PROVIDER", "aws_s3_allow_unsafe_rename"])
def test_other_ways_to_commit_are_refused(option: str) -> None:
    with pytest.raises(InvalidArgumentError, match="every commit is a conditional write"):
        open_s3("s3://b/t", {option: "dynamodb"})


def test_directory_buckets_list_in_no_order() -> None:
    assert open_s3("s3://b/t", {}).capabilities.start_after
    assert not open_s3("s3://b--use1-az4--x-s3/t", {}).capabilities.start_after


def test_only_look_alikes_have_to_prove_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    assert open_s3("s3://b/t", {}).unproven is None
    named = open_s3("s3://b/t", {"endpoint": "https://minio.example.org"})
    assert named.unproven == "https://minio.example.org (bucket b)"
    monkeypatch.setenv("AWS_ENDPOINT_URL", "https://ceph.example.org")
    assert open_s3("s3://b/t", {}).unproven == "https://ceph.example.org (bucket b)"


@pytest.mark.parametrize(
    ("variables", "options", "allowed"),
    [
        ({"AWS_ENDPOINT_URL": "http://minio:9000"}, {}, "true"),
        ({"AWS_ENDPOINT_URL": "https://minio:9000"}, {}, None),
        ({"AWS_ENDPOINT_URL": "http://minio:9000", "AWS_ALLOW_HTTP": "false"}, {}, "false"),
        ({"AWS_ENDPOINT_URL": "http://minio:9000"}, {"allow_http": "false"}, "false"),
        ({"AWS_ENDPOINT_URL": "http://minio:9000"}, {"endpoint": "https://minio:9000"}, None),
    ],
)
def test_an_endpoint_of_the_environment_without_tls_is_consent(
    variables: dict[str, str],
    options: dict[str, str],
    allowed: str | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT", "AWS_ALLOW_HTTP"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    storage = open_s3("s3://bucket/t", options)
    assert storage.store.client_options.get("allow_http") == allowed
